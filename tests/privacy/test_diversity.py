"""Diverse columns of summary tables: no value is too frequent in a group, in first tables and later ones."""

import numpy as np
import pytest
from test_renewals import Registered
from tests.amounts import amounts

from combinations import fewer_than
from unpooled.data import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.distributed.whole_site import facts_of
from unpooled.privacy.microaggregation.summarize import make_first_summary


def within(values: np.ndarray, everybody: np.ndarray, by: float) -> bool:
    """Whether no value is more frequent here than among everybody, by more than a bound."""
    here, all_of = values[values != ""], everybody[everybody != ""]
    return all((here == v).mean() <= (all_of == v).mean() + by + 1e-9 for v in np.unique(here))


def drawn(seed: int) -> tuple[Table, SummarySettings]:
    """A table with a category that follows from x, a number, missing values; and settings."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 400))
    x, y = rng.normal(size=n), np.exp(rng.normal(size=n))
    kind = np.where(x + rng.normal(0, rng.choice([0.1, 1.0, 9.0]), n) > 0.3, "a", "b").astype(object)
    kind[rng.random(n) < 0.1] = "c"
    kind[rng.random(n) < rng.choice([0.0, 0.2])] = None
    y[rng.random(n) < rng.choice([0.0, 0.1])] = np.nan
    table = Table.from_columns({"x": x, "y": y, "flag": (x > 1).astype(float), "kind": kind.tolist()})
    diverse = (("kind",), ("kind", "y"), ("kind", "y", "flag"))[seed % 3]
    g = int(rng.integers(3, min(12, n // 3) + 1))
    return table, SummarySettings(g, diverse=diverse, diverse_by=float(rng.choice([0.1, 0.2, 0.3, 0.4])))


def test_by_hand_a_group_of_carriers_is_mixed() -> None:
    """Carriers are at one end of x. Half are carriers: with 0.3 more, at most four of a group of five are."""
    rows = Table.from_columns({"x": np.arange(10.0), "hiv": ["no"] * 5 + ["yes"] * 5})
    plain = microaggregate(rows, SummarySettings(5, sensitive=("hiv",)))
    diverse = microaggregate(rows, SummarySettings(5, diverse=("hiv",)))
    assert sorted(plain.counts["hiv"].tolist()) == [[0, 5], [5, 0]]
    assert sorted(diverse.counts["hiv"].tolist()) == [[1, 4], [4, 1]]


@pytest.mark.parametrize("tables", amounts(40, 4000))
def test_no_group_of_a_first_table_exceeds_the_bound(tables: int) -> None:
    for seed in range(tables):
        table, settings = drawn(seed)
        first = make_first_summary(table, settings)
        by, counts = settings.diverse_by, first.summary.counts.get("kind")
        shares = dict(
            zip(first.scales.categories["kind"].names, first.scales.diverse["kind"].limits, strict=True)
        )
        assert all(len(rows) >= settings.min_group_size for rows in first.members)
        if counts is not None:  # what is disclosed, by its own shares
            known = first.summary.people_with_value("kind")
            limits = np.array(list(shares.values()))
            assert (counts <= limits * known[:, None] + 1e-9).all(), seed
        for name, limits in first.scales.diverse.items():
            if not limits.borders:
                continue
            of = limits.classes(first.people.number(name)).astype(str)
            of[of == "-1"] = ""
            assert all(within(of[rows], of, by) for rows in first.members), (seed, name)


def test_somebody_with_several_rows_counts_with_one_category() -> None:
    ids = np.repeat(np.arange(12), 3)
    kind = ["a", "a", "b"] * 6 + ["b", "b", "a"] * 6
    table = Table.from_columns({"id": ids.astype(float), "x": np.arange(36.0), "kind": kind})
    summary = microaggregate(table, SummarySettings(4, person="id", diverse=("kind",), diverse_by=0.25))
    assert summary.counts["kind"].sum(axis=0).tolist() == [6, 6]
    assert summary.counts["kind"].max() <= 3


class Diverse(Registered):
    """A registry whose groups have diverse values."""

    def settings_for(self, g: int) -> SummarySettings:
        return SummarySettings(max(g, 3), "id", diverse=("kind", "y"))


@pytest.mark.parametrize("histories", amounts(2, 200))
@pytest.mark.parametrize("g", [3, 4])
def test_new_groups_keep_the_bound_and_the_theorem_of_renewals_holds(g: int, histories: int) -> None:
    added = 0
    for seed in range(histories):
        site = Diverse(seed, g, people=30)
        checked = set(site.history.groups)
        for month in range(6):
            if month == 4:  # the shares drift: everybody who comes has the same kind
                for _ in range(15):
                    site.come()
                    site.rows[f"P{site.next - 1}"] = (*site.rows[f"P{site.next - 1}"][:2], "a")
            site.month()
            site.renew()
            values = site.values()
            for number in set(site.history.groups) - checked:
                checked.add(number)
                added += 1
                members = [values[p] for p in site.history.groups[number].members]
                assert len(members) >= g
                for name, limits in site.scales.diverse.items():
                    if limits.borders:
                        of = limits.classes(np.array([y for _, y, _ in members]))
                    else:
                        names = site.scales.categories[name].names
                        rest = site.scales.categories[name].rest
                        of = np.array(
                            [-1 if k is None else names.index(k) if k in names else rest for *_, k in members]
                        )
                    counts = np.bincount(of[of >= 0], minlength=len(limits.limits))
                    assert (counts <= np.array(limits.limits) * counts.sum() + 1e-9).all(), (seed, number)
        for column in range(4):
            sums = site.sums(column)
            assert not sums or fewer_than(g, sums) is None, (seed, column)
    assert added > histories


def test_partitions_cannot_have_diverse_columns() -> None:
    with pytest.raises(InputError, match="in partitions"):
        next(facts_of(SummarySettings(diverse=("kind",))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"diverse": ("a",), "columns": ("a",)}, "both in columns and in diverse"),
        ({"diverse": ("a",), "no_sensitive_columns": True}, "column a is sensitive"),
        ({"diverse_by": 0.0}, "diverse_by must be at least"),
        ({"diverse": ("id",), "person": "id"}, "identifies people"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message) -> None:
    with pytest.raises(InputError, match=message):
        SummarySettings(**settings)
