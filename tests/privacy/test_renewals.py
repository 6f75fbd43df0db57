"""Renewals of real tables: what the summary tables show is what the rules were checked for, and nothing else.

``pytest -m long tests/privacy/test_renewals.py`` runs hundreds of them.
"""

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from tests.amounts import amounts

from combinations import fewer_than
from unpooled.data import Table
from unpooled.data.summary_table import SummaryTable, to_csv
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.group_history import History
from unpooled.privacy.microaggregation.group_means import number_cells
from unpooled.privacy.microaggregation.renew import first_groups, person_digest, plan_renewal
from unpooled.privacy.microaggregation.scales import Scales
from unpooled.privacy.microaggregation.summarize import assemble_summary, make_first_summary

WIDE = 1e9  # any people are put together: more of them are disclosed again


def digest(data: bytes) -> str:
    return blake2b(data, key=b"a key of this test", digest_size=16).hexdigest()


class Registered:
    """A table that changes every month, its registry, and a summary table of all that was ever disclosed."""

    def __init__(self, seed: int, g: int, people: int = 0) -> None:
        self.rng, self.next, self.rows, self.away = np.random.default_rng(seed), 0, {}, {}
        for _ in range(people or int(self.rng.integers(max(6, 3 * g), 8 * g))):
            self.come()
        self.settings = self.settings_for(g)
        first = make_first_summary(self.table(), self.settings)
        self.scales = replace(first.scales, min_group_size=g, min_size=g)
        self.history = History(g)
        if g == max(g, 3):
            for group in first_groups(self.table(), first, digest):
                self.history.add(group)
            self.summaries = [(first.summary, self.values())]
        else:  # g = 2 is below what a site may choose: the first summary table is its first renewal
            self.summaries = []
            self.renew()

    def settings_for(self, g: int) -> SummarySettings:
        return SummarySettings(min_group_size=max(g, 3), person="id", sensitive=("kind",))

    def come(self) -> None:
        self.rows[f"P{self.next}"] = self.drawn()
        self.next += 1

    def drawn(self) -> tuple[float, float, str | None]:
        rng = self.rng
        missing = rng.random() < 0.2
        kind = [None, "a", "b", "c"][int(rng.choice(4, p=[0.1, 0.4, 0.4, 0.1]))]
        return float(rng.normal(50, 9)), float("nan") if missing else float(np.exp(rng.normal(0, 1.5))), kind

    def month(self) -> None:
        rng = self.rng
        for _ in range(int(rng.integers(1, 5))):
            step, names = int(rng.integers(4)), sorted(self.rows)
            person = str(rng.choice(names))
            if step == 0 and len(names) > 6:
                self.away[person] = self.rows.pop(person)
            elif step == 1 and self.away:
                back = str(rng.choice(sorted(self.away)))
                self.rows[back] = self.away.pop(back) if rng.random() < 0.5 else self.drawn()
                self.away.pop(back, None)
            elif step == 2:
                self.rows[person] = self.drawn()
            else:
                self.come()
        if rng.random() < 0.2 and (live := sorted(self.history.live)):
            group = int(rng.choice(live))
            self.history.erased.add(sorted(self.history.groups[group].members)[0])
            self.history.retire(group)

    def table(self) -> Table:
        x, y, kind = zip(*self.rows.values(), strict=True)
        return Table.from_columns(
            {"id": list(self.rows), "x": np.array(x), "y": np.array(y), "kind": list(kind)}
        )

    def renew(self, **options) -> None:
        found = plan_renewal(
            self.history, self.scales, self.settings, self.table(), digest, extra_spread=WIDE, **options
        )
        self.scales = found.scales
        self.summaries.append((found.summary, self.values()))

    def values(self) -> dict[str, tuple[float, float, str | None]]:
        return {person_digest(digest, person): row for person, row in self.rows.items()}

    def sums(self, column: int) -> list[set[str]]:
        """Who is in each sum of a column that was ever disclosed: 0 for the numbers of people."""
        bit = 1 << column
        groups = self.history.groups.values()
        return [{p for p, has in one.members.items() if has & bit} for one in groups if one.disclosed & bit]


@pytest.mark.parametrize("histories", amounts(5, 200))
@pytest.mark.parametrize("g", [2, 3, 4])
def test_no_combination_of_all_sums_of_all_summary_tables_is_about_fewer_than_g_people(g, histories):
    summaries = groups = 0
    for seed in range(histories):
        site = Registered(seed, g)
        for _ in range(10):
            site.month()
            try:
                site.renew(keep_changed=seed % 3 == 0)
            except InputError as error:  # more than half of the few who are disclosed have left
                if "are in this table. The ids may differ" not in str(error):
                    raise
        for column in range(4):
            sums = site.sums(column)
            assert not sums or fewer_than(g, sums) is None, (seed, column)
        assert len(site.history.groups) > len(site.history.live)
        summaries += len(site.summaries)
        groups += len(site.history.groups)
    print(f"g {g}: {histories} tables, {summaries} summary tables, {groups} groups")


def test_every_row_of_every_summary_table_is_a_group_of_the_history():
    """The cells of each summary table, computed anew from the people whom the history names."""
    site = Registered(3, 3, people=40)
    seen = {}
    for month in range(7):
        if month:
            site.month()
            site.renew()
        last, values = site.summaries[-1]
        live = [site.history.groups[number] for number in site.history.live]
        for number in site.history.live:
            seen.setdefault(number, values)  # the values that its members had when it was disclosed first
        expected = sorted(
            row(site.history.groups[number], seen[number], site.scales) for number in site.history.live
        )
        disclosed = zip(
            last.people.tolist(), last.known[:, 0].tolist(), last.means["x"].tolist(), strict=True
        )
        assert sorted(disclosed) == expected
        assert to_csv(assemble_summary(site.scales, [one.cells for one in live], last.made)) == to_csv(last)


def row(group, values, scales: Scales) -> tuple[float, float, float]:
    x = np.array([[values[person][0] for person in group.members]])
    known, mean, _ = number_cells(x, np.zeros(x.shape, bool), scales.spreads["x"], scales.min_group_size)
    return float(len(group.members)), float(known[0]), float(mean[0])


def test_a_new_patient_is_not_the_difference_of_two_runs():
    """Summary tables before and after somebody came: equal except for whole groups of at least g people."""
    site = Registered(1, 3, people=60)
    for _ in range(12):
        before = rows_of(site.summaries[-1][0])
        site.come()
        site.renew()
        after = rows_of(site.summaries[-1][0])
        for new in after - before:
            assert new[0] >= 3
        assert not before - after  # nobody left: no group went


def rows_of(last: SummaryTable) -> set[tuple[float, ...]]:
    return set(zip(*(np.nan_to_num(values, nan=-1.0).tolist() for _, values in last.cells()), strict=True))


def test_scales_categories_and_variance_stay_those_of_the_first_summary_table():
    site = Registered(2, 3, people=80)
    first = site.summaries[0][0]
    for person in list(site.rows)[:20]:
        site.rows[person] = (1e6, 1e6, "new level")
    site.renew()
    again = site.summaries[-1][0]
    assert np.array_equal(again.within, first.within, equal_nan=True)
    assert again.categories == first.categories
    assert again.min_group_size == first.min_group_size
    assert Scales.from_json(site.scales.as_json()).spreads == site.scales.spreads


def test_values_that_only_rounding_changed_are_no_change():
    site = Registered(4, 3, people=40)
    table = site.table()
    twice = Table(table.names, table.kinds, table.categories, np.concatenate([table.values, table.values]))
    assert plan_renewal(site.history, site.scales, site.settings, twice, digest).empty
