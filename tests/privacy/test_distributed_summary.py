"""The summary table of a site in several parts: the scales and rules of the whole, to the last bit."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from unpooled.data import Table
from unpooled.data.joined_tables import joined
from unpooled.errors import InputError, TooFewPeopleError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.distributed.grouping_plan import SummaryPlan
from unpooled.privacy.microaggregation.distributed.order_statistics import (
    STEPS,
    RankSearch,
    digit_counts,
    keys_of,
    value_of,
)
from unpooled.privacy.microaggregation.distributed.whole_site import facts_of, plan_of
from unpooled.privacy.microaggregation.distributed.worker_part import SummaryPart
from unpooled.privacy.microaggregation.summarize import make_first_summary


def conducted(steps, parts):
    """The result of a protocol that is asked of parts in this process."""
    answer = None
    while True:
        try:
            ask = steps.send(answer)
        except StopIteration as end:
            return end.value
        answers = [ask.answer(part) for part in parts]
        answer = {key: reduce(add, [one[key] for one in answers]) for key in answers[0]}


def planned(tables, settings):
    parts = [SummaryPart(i, table, settings) for i, table in enumerate(tables)]
    facts = conducted(facts_of(settings), parts)
    plan: SummaryPlan = conducted(plan_of(facts, settings), parts)
    made = [plan.grouped(part) for part in parts]
    plan = plan.completed_by([facts for _, facts in made])
    return plan, [plan.complete(summary) for summary, _ in made]


def some_table(seed, n=400):
    """Ties, missing and far values, collinear columns, rare categories, people with several rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = np.round(rng.normal(50, 9, n))
    double = 2 * y + 1
    double[rng.random(n) < 0.05] = np.nan
    x[rng.random(n) < 0.03] = np.nan
    x[:2] = 1e12, -0.0
    kind = rng.choice(["a", "b", "c", "other"], n, p=[0.6, 0.3, 0.05, 0.05]).astype(object)
    kind[rng.choice(n, 3, replace=False)] = "rare"
    kind[rng.random(n) < 0.04] = None
    who = rng.integers(0, n // 2, n)
    return Table.from_columns(
        {
            "who": [f"P{w}" for w in who],
            "x": x,
            "y": y,
            "double": double,
            "same": np.where(rng.random(n) < 0.99, 3.25, 4.0),
            "kind": kind,
            "nothing": np.full(n, np.nan),
        }
    )


def divided(table, settings, parts, seed=0):
    """The table in parts, all rows of a person in one."""
    rows = np.arange(len(table))
    if settings.person:
        rows = table.values[:, table.index(settings.person)].astype(np.int64)
    at = np.random.default_rng(seed).integers(0, parts, int(rows.max()) + 1)[rows]
    return [Table(table.names, table.kinds, table.categories, table.values[at == i]) for i in range(parts)]


@pytest.mark.parametrize("seed", range(6))
def test_the_numbers_at_ranks_are_those_of_all_parts_sorted(seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=60), rng.integers(-2, 3, 40), [0.0, -0.0, 1e-320, -1e300, 1e300]])
    whole = np.sort(x) + 0.0
    parts = np.split(rng.permutation(x), [10, 10, 70])
    ranks = [0, 1, len(x) // 2, len(x) - 1]
    search = RankSearch(ranks)
    for step in range(STEPS):
        counts = [digit_counts(keys_of(part), step, search.prefixes) for part in parts]
        search.narrow({prefix: sum(c[prefix] for c in counts) for prefix in search.prefixes})
    assert search.values == {rank: whole[rank] for rank in ranks}
    for rank in ranks:
        assert search.equal[rank] == (whole == whole[rank]).sum()
        assert search.before[rank] == rank - (whole < whole[rank]).sum()
    for first, end in ((0, len(x)), (1, len(x) // 2 + 1)):
        low, high, lows, highs = search.inside(first, end)
        between = whole[first:end]
        assert (low, high) == (between[0], between[-1])
        assert lows == (between == low).sum()
        assert highs == (between == high).sum()
        assert lows + highs + ((between > low) & (between < high)).sum() == end - first


def test_numbers_that_are_all_the_same_are_all_the_least():
    search = RankSearch([1, 2])
    for step in range(STEPS):
        search.narrow(digit_counts(keys_of(np.full(4, 2.5)), step, search.prefixes))
    assert search.inside(1, 3) == (2.5, 2.5, 2, 0)
    assert [value_of(int(k)) for k in keys_of(np.array([-np.inf, -1e-320, 7.0]))] == [-np.inf, -1e-320, 7.0]


@pytest.mark.parametrize("person", ["", "who"])
@pytest.mark.parametrize("seed", range(8))
def test_the_scales_are_those_of_the_whole_to_the_last_bit_however_it_is_divided(seed, person):
    table = some_table(seed)
    settings = SummarySettings(person=person, min_group_size=5, log_transform=("y",) if seed % 2 else ())
    whole = make_first_summary(table, settings).scales
    for parts in (1, 2, 7):
        plan, summaries = planned(divided(table, settings, parts, seed), settings)
        found = plan.scales
        assert found.collinear == whole.collinear
        assert ("y", "double") in found.collinear
        assert (found.spreads, found.categories) == (whole.spreads, whole.categories)
        assert (found.min_group_size, found.min_size, found.columns) == (
            whole.min_group_size,
            whole.min_size,
            whole.columns,
        )
        assert (
            sum(summary.people.sum() for summary in summaries)
            == make_first_summary(table, settings).people.count
        )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("person", ["", "who"])
def test_one_part_is_the_very_summary_table_of_one_process(seed, person):
    table = some_table(seed, 700)
    settings = SummarySettings(person=person, consumption=("x",))
    _, (summary,) = planned([table], settings)
    assert summary.digest == microaggregate(table, settings).digest


def test_one_part_of_an_array_is_the_very_summary_table_of_one_process():
    X = np.random.default_rng(0).normal(size=(300, 3))
    X[np.random.default_rng(1).random(X.shape) < 0.02] = np.nan
    plan, (summary,) = planned([X], SummarySettings())
    assert summary.digest == microaggregate(X).digest
    assert np.array_equal(plan.matrix(summary), microaggregate(X).matrix())


@pytest.mark.parametrize("seed", range(6))
def test_every_rule_of_the_summary_table_holds_over_all_parts(seed):
    table = some_table(seed, 600)
    settings = SummarySettings(person="who", min_group_size=6)
    first = make_first_summary(table, settings)
    _, summaries = planned(divided(table, settings, 5, seed), settings)
    for summary in summaries:
        assert (summary.people >= 6).all()
        assert ((summary.known == 0) | (summary.known >= 6)).all()
        assert summary.names == summaries[0].names
        assert summary.kinds == summaries[0].kinds
        assert summary.categories == summaries[0].categories
        assert np.array_equal(summary.within, summaries[0].within, equal_nan=True)
    assert sum(summary.people.sum() for summary in summaries) == first.people.count
    by_category, categories = (
        sum(summary.counts["kind"].sum(axis=0) for summary in summaries),
        summaries[0].categories["kind"],
    )
    assert "rare" not in categories
    assert by_category.sum() == sum(summary.people_with_value("kind").sum() for summary in summaries)
    # means are multiples of the grid of the whole
    grid = first.scales.spreads["y"].grid
    for summary in summaries:
        assert np.array_equal(np.round(summary.means["y"] / grid) * grid, summary.means["y"])


def test_the_variance_within_groups_is_that_over_all_parts():
    X = np.random.default_rng(0).normal(size=(3 * 40, 1))
    settings = SummarySettings(min_group_size=5)
    plan, summaries = planned(np.split(X, 3), settings)
    assert sum(map(len, summaries)) >= 10  # fewer would show none
    assert all(len(summary) < 10 for summary in summaries)
    inside = 0.0
    for rows in np.split(X, 3):
        median = plan.scales.spreads["0"].median
        part = SummaryPart(0, rows, settings)
        _, facts = plan.grouped(part)
        inside += facts.inside[0].squares
        assert abs(median) < 1
    assert summaries[0].within[0] == float(f"{inside / len(X):.1e}")


def test_a_category_of_too_few_people_of_the_whole_shows_in_no_part():
    """Attack: a category that all its holders bring into one part, where the part alone might count it."""
    rng = np.random.default_rng(0)
    kinds = np.array(["a"] * 300, dtype=object)
    kinds[:4] = "secret"  # four people, all in the first part
    tables = [
        Table.from_columns({"x": rng.normal(size=50), "kind": kinds[i : i + 50]}) for i in range(0, 300, 50)
    ]
    _, summaries = planned(tables, SummarySettings(min_group_size=5))
    assert {summary.categories["kind"] for summary in summaries} == {("a",)}
    kinds[:5] = "secret"
    tables[0] = Table.from_columns({"x": rng.normal(size=50), "kind": kinds[:50]})
    _, summaries = planned(tables, SummarySettings(min_group_size=5))
    assert {summary.categories["kind"] for summary in summaries} == {("a", "secret")}
    assert sum(summary.counts["kind"][:, 1].sum() for summary in summaries) == 5


def test_a_category_that_each_part_has_too_few_of_is_named_if_the_whole_has_enough():
    rng = np.random.default_rng(0)
    kinds = np.array((["b"] * 2 + ["a"] * 28) * 5, dtype=object)  # two in each part, ten in all
    tables = [
        Table.from_columns({"x": rng.normal(size=30), "kind": kinds[i : i + 30]}) for i in range(0, 150, 30)
    ]
    _, summaries = planned(tables, SummarySettings(min_group_size=5))
    assert {summary.categories["kind"] for summary in summaries} == {("a", "b")}
    for summary in summaries:  # the two are in groups of at least five, as in any summary table
        assert summary.counts["kind"][:, 1].sum() == 2
        assert (summary.people_with_value("kind") >= 5).all()


def test_a_category_of_one_part_and_an_empty_one_of_another_are_columns_of_all():
    one = Table.from_columns({"x": np.arange(20.0), "kind": ["a", "b"] * 10, "z": np.arange(20.0)})
    two = Table.from_columns({"x": np.arange(20.0), "kind": [None] * 20, "z": np.full(20, np.nan)})
    _, summaries = planned([one, two], SummarySettings(min_group_size=5))
    assert [summary.kinds for summary in summaries] == [("number", "category", "number")] * 2
    assert (summaries[1].people_with_value("kind") == 0).all()
    assert summaries[1].counts["kind"].shape == (len(summaries[1]), 2)
    assert (summaries[1].means["z"] == 0).all()


def test_parts_tell_counts_and_sums_and_a_sample_of_rows_where_cells_are_missing():
    x = np.random.default_rng(0).normal(size=(45_000, 1))
    x[7] = np.nan
    settings = SummarySettings()
    parts = [SummaryPart(i, rows, settings) for i, rows in enumerate(np.split(x, 3))]
    steps, answers = plan_of(conducted(facts_of(settings), parts), settings), []
    conducted(_received(steps, answers), parts)
    sampled = [table for answer in answers for _, table in answer.pop("sample", ())]
    assert sum(len(table) for table in sampled) == 15_000
    numbers = [np.asarray(getattr(v, "limbs", v)).size for answer in answers for v in answer.values()]
    assert max(numbers) <= 1 << 13


def _received(steps, answers):
    """The same protocol; what is answered is kept."""
    answer = None
    while True:
        try:
            ask = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = yield ask
        answers.append(dict(answer))


def test_somebody_in_two_parts_is_found():
    ids = [f"P{i}" for i in range(20)]
    one, two = (
        Table.from_columns({"who": ids[a:b], "x": np.arange(b - a) * 1.0}) for a, b in ((0, 11), (10, 20))
    )
    with pytest.raises(InputError, match=r"1 of its people have rows in several partitions.* column who"):
        planned([one, two], SummarySettings(person="who"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": ["a", "b"] * 5}, "column x is of different kinds in its partitions: category, number"),
        ({"y": np.arange(10.0)}, "its partitions have different columns: x, y not in all of them"),
    ],
)
def test_parts_that_do_not_fit_are_named(columns, message):
    with pytest.raises(InputError, match=message):
        planned([Table.from_columns({"x": np.arange(10.0)}), Table.from_columns(columns)], SummarySettings())


def test_too_few_people_in_all_parts_together():
    with pytest.raises(TooFewPeopleError, match="there are fewer than 5 people"):
        planned([np.zeros((2, 1)), np.zeros((2, 1))], SummarySettings())


def test_a_column_of_too_many_categories_in_all_is_text():
    parts = [Table.from_columns({"kind": [f"{i}-{j}" for j in range(600)] * 2}) for i in range(2)]
    plan, summaries = planned(parts, SummarySettings(min_group_size=3))
    assert plan.scales.columns == (("kind", "kind", "text"),)
    assert {summary.kinds for summary in summaries} == {("text",)}


def test_a_column_of_too_many_categories_in_all_is_not_collinear_with_a_number():
    """One process reads it as text, and looks for collinear columns among numbers and categories."""
    codes = np.repeat(np.arange(1100), 2)
    y = np.random.default_rng(0).normal(size=1100)[codes]
    kinds = codes.astype(str).astype(object)
    kinds[::9] = None
    y[::50] = np.nan
    parts = [
        Table.from_columns({"kind": [k and f"c{k}" for k in kinds[a : a + 1100]], "y": y[a : a + 1100]})
        for a in (0, 1100)
    ]
    plan, _ = planned(parts, SummarySettings(min_group_size=3))
    whole = make_first_summary(Table.from_columns({"y": y}), SummarySettings(min_group_size=3)).scales
    assert plan.scales.columns[0] == ("kind", "kind", "text")
    assert plan.scales.collinear == ()
    assert plan.scales.spreads["y"] == whole.spreads["y"]


def test_the_plan_does_not_name_a_rare_category():
    kinds = ["a", "b", "b"] * 20
    tables = [
        Table.from_columns({"x": np.arange(60.0), "kind": [*own, *kinds[1:]]}) for own in (["secret"], ["a"])
    ]
    plan, _ = planned(tables, SummarySettings(min_group_size=5))
    assert plan.rows == {"kind": (39, 81)}  # the rare one is with the commonest
    assert "secret" not in repr(plan)


def test_joined_tables_have_the_rows_of_all_with_the_categories_of_all():
    one = Table.from_columns({"who": ["p", "q"], "x": [1.0, np.nan]})
    two = Table(
        ("x", "who"), ("empty", "text"), {"who": ("q", "r")}, np.array([[np.nan, 0.0], [np.nan, 1.0]])
    )
    both = joined([one, two])
    assert both.kinds == ("text", "number")
    assert [both.categories["who"][int(code)] for code in both.values[:, 0]] == ["p", "q", "q", "r"]
    lost = Table(("who", "x"), ("text", "number"), {}, np.array([[0.0, 1.0]]))
    assert np.isnan(joined([one, lost]).values[:, 0]).all()  # codes without their texts mean nothing
