"""The 15/15 rule over random tables: no cell of a summary table of which one person has more than 15%."""

from hashlib import blake2b

import numpy as np
import pytest
from tests.amounts import amounts

from unpooled.data import Table
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, PolicyError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.group_history import History
from unpooled.privacy.microaggregation.group_means import dominated
from unpooled.privacy.microaggregation.renew import first_groups, person_digest, plan_renewal
from unpooled.privacy.microaggregation.summarize import make_first_summary
from unpooled.site.explain_policy import template
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse


@pytest.fixture(params=amounts(1_500, 50_000))
def tables(request):
    return request.param


RULE = SummarySettings(min_group_size=15, sensitive=("kwh",), consumption=("kwh",))


def blocks(rng: np.random.Generator) -> tuple[Table, list[np.ndarray]]:
    """A table whose groups are known beforehand, since each lies alone, and its kwh by group, very skewed."""
    sizes = rng.integers(15, 30, size=rng.integers(2, 4))
    skew = rng.choice([0.0, 0.5, 1.0, 2.0, 3.0])
    by_group = []
    for size in sizes:
        kwh = np.exp(rng.normal(3, skew, size))
        kwh[rng.random(size) < rng.choice([0.0, 0.3])] = 0.0
        kwh[rng.random(size) < rng.choice([0.0, 0.0, 0.0, 0.1])] = np.nan
        if rng.random() < 0.1:
            kwh = -kwh
        by_group.append(kwh)
    place = np.repeat(np.arange(len(sizes)) * 1000.0, sizes)
    mixed = rng.permutation(len(place))
    return Table.from_columns({"place": place[mixed], "kwh": np.concatenate(by_group)[mixed]}), by_group


def brute_force(kwh: np.ndarray) -> bool:
    """True if the cell may be disclosed: one person after the other, added by hand."""
    values = [abs(v) for v in kwh.tolist() if v == v]
    total = sum(values)
    return len(values) >= 15 and all(v <= 0.15 * total * (1 + 1e-9) for v in values)


def disclosed(summary: SummaryTable) -> dict[float, tuple[float, float]]:
    """(people, people in the disclosed cell of kwh) of each group, by its place, which is rounded."""
    places = 1000.0 * (summary.means["place"] / 1000).round()
    cells = zip(summary.people.tolist(), summary.people_with_value("kwh").tolist(), strict=True)
    return dict(zip(places.tolist(), cells, strict=True))


def test_no_cell_is_disclosed_that_one_person_dominates(tables):
    held = withheld = compared = 0
    for seed in range(tables):
        table, by_group = blocks(np.random.default_rng(seed))
        summary = microaggregate(table, RULE)
        found = disclosed(summary)
        laid_out = {1000.0 * b: len(kwh) for b, kwh in enumerate(by_group)}
        if {place: people for place, (people, _) in found.items()} != laid_out:
            continue  # other groups than those laid out: nothing to compare with
        compared += 1
        for b, kwh in enumerate(by_group):
            known = found[1000.0 * b][1]
            may = brute_force(kwh)
            assert not known or (may and known == (kwh == kwh).sum()), (seed, b)
            held, withheld = held + bool(known), withheld + (not may)
    assert compared > tables / 2, compared
    assert held > tables / 2, "the rule withholds nearly everything: the test shows nothing"
    assert withheld > tables / 2


def test_no_group_of_a_renewed_summary_table_discloses_a_total_that_one_person_dominates(tables):
    """The register's history identifies groups; a group is checked when it first appears."""
    settings = SummarySettings(min_group_size=15, person="id", sensitive=("kwh",), consumption=("kwh",))
    held = withheld = 0
    for seed in range(max(tables // 100, 5)):
        rng = np.random.default_rng(seed)
        rows = {f"P{i}": float(np.exp(rng.normal(3, 0.9))) for i in range(150)}

        age = rng.normal(50, 9, len(rows))

        def table(rows=rows, age=age) -> Table:
            return Table.from_columns({"id": list(rows), "age": age, "kwh": np.array(list(rows.values()))})

        first = make_first_summary(now := table(), settings)
        history, scales, seen = History(15), first.scales, set()
        for group in first_groups(now, first, _digest):
            history.add(group)
        for month in range(4):
            by_digest = {person_digest(_digest, person): kwh for person, kwh in rows.items()}
            for number, group in history.groups.items():
                if number in seen:
                    continue
                seen.add(number)
                values = np.array([by_digest[p] for p in group.members])
                may = brute_force(values)
                assert not group.disclosed & 4 or may, (seed, month)  # bits: people, age, kwh
                held, withheld = held + bool(group.disclosed & 4), withheld + (not may)
            for person in rng.choice(sorted(rows), 12, replace=False).tolist():
                rows[person] = float(np.exp(rng.normal(3, 0.9)))
            scales = plan_renewal(history, scales, settings, table(), _digest, extra_spread=1e9).scales
    assert held > 20
    assert withheld > 20


def _digest(data: bytes) -> str:
    return blake2b(data, key=b"a key of this test", digest_size=16).hexdigest()


def test_a_share_of_fifteen_percent_by_hand():
    others = [1.0] * 17
    assert not dominated(np.array([[*others, 3.0]]), 0.15)[0]  # 3 of 20
    assert dominated(np.array([[*others, 3.01]]), 0.15)[0]
    for most, cells in ((3.0, 18.0), (3.01, 0.0)):
        rows = Table.from_columns({"age": np.arange(36.0), "kwh": [*others, most] * 2})
        summary = microaggregate(rows, SummarySettings(min_group_size=18, consumption=("kwh",)))
        assert set(summary.people_with_value("kwh").tolist()) == ({cells} if len(summary) > 1 else {36.0}), (
            most
        )


def test_what_the_rule_excludes_is_refused():
    text = template("north", "utility-15-15", consumption=("kwh",))
    assert parse(text).protect.settings().consumption == ("kwh",)
    with pytest.raises(InputError, match="is both in consumption and in log"):
        SummarySettings(log_transform=("kwh",), consumption=("kwh",))
    with pytest.raises(InputError, match="there is no column 'gas'"):
        microaggregate(Table.from_columns({"kwh": np.arange(30.0)}), SummarySettings(consumption=("gas",)))
    with pytest.raises(PolicyError, match='consumption is for mode = "summary"'):
        parse('format = 1\n[protect]\nmode = "raw"\nconsumption = ["kwh"]')
    with pytest.raises(PolicyError, match="needs consumption"):
        open_site("north", np.zeros((40, 2)), parse(template("", "utility-15-15")))
