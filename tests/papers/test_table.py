"""How far published and recomputed numbers are apart, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from reproduction.output import csv_table, markdown_table
from reproduction.result_table import Published, ResultTable, Row, Verdicts, row, share, statistic, surviving
from scipy import stats


def test_a_difference_by_hand():
    # ours: mean 2, standard error 1 / sqrt(4); published: 1 +- 2 over 16 runs, rounded to whole numbers
    values = 2 + np.array([-1.0, 1.0, -1.0, 1.0]) * np.sqrt(3) / 2
    compared = row(("a",), values, Published(1.0, 2.0, 16, 0))
    assert compared.error == pytest.approx(0.5)
    error = np.sqrt(0.25 + 0.25 + 1 / 12)
    assert compared.difference == pytest.approx(1 / error)
    freedom = error**4 / (0.25**2 / 3 + 0.25**2 / 15)
    assert compared.degrees_of_freedom == pytest.approx(freedom)
    assert compared.p == pytest.approx(2 * stats.t.sf(1 / error, freedom))
    assert compared.half_interval == pytest.approx(error * stats.t.ppf(0.975, freedom))
    assert row(("a",), values, Published(4.0, 0.1, 16, 4), note=2).verdict == "differs, note 2"
    assert row(("a",), values, Published(4.0, 0.1, 16, 4)).verdict == "differs, open"
    assert row(("a",), values).verdict == "not published"


def test_it_is_welchs_test():
    """Against scipy, where the published number is not rounded."""
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0, 1, 5), rng.normal(0.5, 3, 40)
    published = Published(float(theirs.mean()), float(theirs.std(ddof=1)), 40, digits=12)
    assert row(("a",), ours, published).p == pytest.approx(
        stats.ttest_ind(ours, theirs, equal_var=False).pvalue
    )


@pytest.mark.parametrize("runs", [2, 4, 5, 10])
def test_few_runs_do_not_call_equals_different(runs):
    """About one in twenty, and none of fewer than four runs; two standard errors would call up to 30%."""
    rng = np.random.default_rng(1)
    different, naive, n = 0, 0, 2000
    for _ in range(n):
        theirs = rng.normal(10, 1, 100)
        published = Published(float(theirs.mean()), float(theirs.std(ddof=1)), 100, digits=6)
        compared = row(("a",), rng.normal(10, 1, runs), published)
        different += compared.differs
        naive += abs(compared.difference) > 2
    assert different / n < 0.07
    assert (naive / n > 0.09) == (runs <= 5)
    assert bool(different) == (runs >= 4)


def test_a_number_that_rounds_to_the_published_one_matches_whatever_the_errors():
    assert Row(("a",), 0.07434, 0.0, Published(0.0743)).verdict == "matches"
    assert Row(("a",), 0.07441, 0.0, Published(0.0743)).verdict == "differs, open"


def test_a_number_of_one_draw_may_be_off_by_the_spread_over_draws():
    values = 10 + np.array([0.0, 1.0] * 50)
    assert row(("a",), values, Published(11.3)).verdict == "differs, open"
    assert row(("a",), values, Published(11.3), one_draw=True).verdict == "matches"
    assert row(("a",), values, Published(12.0), one_draw=True).verdict == "differs, open"


def test_one_run_is_one_draw_of_what_was_published():
    one = np.array([34.6])
    assert row(("a",), one, Published(34.69, 0.1, 100)).verdict == "matches"
    assert row(("a",), one, Published(34.9, 0.1, 100)).verdict == "differs, open"
    assert row(("a",), one, Published(34.9)).verdict == "inconclusive"  # no spread is known


def test_a_test_that_could_not_find_a_difference_is_inconclusive():
    wide = row(("gap",), np.array([0.01, 0.02, 0.4, 0.01]), Published(0.08, digits=2))
    assert wide.half_interval > 0.08
    assert wide.verdict == "inconclusive"
    assert (
        row(("gap",), np.array([9.0, 9.1, 9.05, 9.1]), Published(0.08, digits=2)).verdict == "differs, open"
    )
    at_limit = row(("iterations",), np.full(5, 150.0), Published(150.0, digits=1))
    assert at_limit.matches
    limited = Row(at_limit.what, 150.0, published=at_limit.published, limit=150.0)
    assert limited.verdict == "inconclusive: at the limit"


def test_counts_are_compared_by_fishers_test():
    compared = share(("a",), (20, 25), (1, 20))
    assert compared.p == pytest.approx(stats.fisher_exact([[20, 5], [1, 19]])[1])
    assert compared.verdict == "differs, open"
    assert share(("a",), (10, 25), (9, 20)).verdict == "matches"
    assert share(("a",), (5, 5), (2, 5)).verdict == "inconclusive"  # nor would 0 of 5 have differed
    assert share(("a",), (0, 5), (0, 5)).verdict == "inconclusive"  # three of five would not have differed
    assert share(("a",), (0, 20), (0, 20)).verdict == "matches"  # ten of twenty would have


def test_a_comparison_without_power_does_not_count():
    """A difference of half the published number must be detectable."""
    spread = np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    precise = row(("a",), 10 + spread, Published(10.2, digits=1))
    blind = row(("a",), 10 + 8 * spread, Published(10.2, digits=1))
    assert precise.detectable < 0.5 < blind.detectable
    assert (precise.verdict, blind.verdict) == ("matches", "inconclusive")


def test_a_number_with_an_arbitrary_zero_has_a_scale_of_its_own():
    """A printed coordinate of 0 has no size that a difference could be half of."""
    values = 0.02 + 0.01 * np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    near = row(("x",), values, Published(0.01, digits=2))
    assert near.verdict == "inconclusive"
    scaled = replace(near, scale=2.0)
    assert scaled.detectable == pytest.approx(near.half_interval / 2)
    assert scaled.verdict == "matches"
    assert replace(scaled, published=Published(0.2, digits=2)).verdict == "differs, open"


def test_quantiles_are_judged_and_extremes_are_not():
    values = np.random.default_rng(0).standard_normal(400) + 3
    assert statistic(("q",), values, Published(3.0, digits=2), "50%").verdict == "matches"
    assert statistic(("q",), values, Published(3.5, digits=2), "50%").verdict == "differs, open"
    least = statistic(("q",), values, Published(0.5, digits=2), "min")
    assert (least.verdict, least.ours) == ("not judged: an extreme", values.min())


def test_holms_method_by_hand():
    """p of 0.01, 0.02 and 0.04 of four: 0.01 <= 0.05 / 4 holds, 0.02 > 0.05 / 3 does not, and ends it."""
    rows = [Row(("a",), 1.0, published=Published(2.0), chance=p) for p in (0.02, 0.5, 0.01, 0.04)]
    assert [r.differs for r in rows] == [True, False, True, True]
    assert [r.p for r in surviving(rows)] == [0.01]
    assert not surviving(rows[:1] + rows[1:2] * 3)


def test_every_number_counts_once():
    once = Row(("a",), 1.0, 0.1, Published(1.05, digits=2))
    again = Row(("a",), 1.0, 0.1, Published(1.05, digits=2), unjudged="in table 1")
    derived = Row(("a",), 1.0, 0.1, Published(1.05, digits=2), derived=True)
    table = ResultTable("t", "title", ("what",), (once, again, derived, Row(("b",), 2.0)))
    assert table.counted() == Verdicts(matches=1)
    assert (again.verdict, derived.verdict) == ("not judged: in table 1", "derived: matches")
    assert (table.counted() + Verdicts(2, 1, 3)).text == (
        "3 of 4 published numbers match; 3 more are inconclusive"
    )
    assert Verdicts(2, 1, 1).text == "2 of 3 published numbers match; 1 more is inconclusive"


def test_markdown_and_csv_of_a_table():
    rows = (Row(("a",), 1.0, 0.1, Published(1.05, digits=2), digits=2), Row(("b",), 2.0))
    table = ResultTable("t", "title", ("what",), rows)
    assert table.counted() == Verdicts(matches=1)
    lines = markdown_table(table).splitlines()
    assert len({len(line) for line in lines}) == 1
    heads = ["what", "published", "provenance", "ours", "difference", "p", "verdict"]
    assert [c.strip() for c in lines[0].split("|")[1:-1]] == heads
    assert [c.strip() for c in lines[2].split("|")[1:-1]] == [
        "a",
        "1.05",
        "printed",
        "1.00",
        "-0.05 ± 0.20",
        "0.62",
        "matches",
    ]
    assert [c.strip() for c in lines[3].split("|")[1:-1]] == [
        "b",
        "-",
        "-",
        "2.0000",
        "-",
        "-",
        "not published",
    ]
    assert csv_table(table).splitlines()[1].startswith("a,1.05,,printed,,,,1,0,0,0.1,inf,0.196")


def test_the_authors_code_is_a_column_if_it_was_run():
    ran = Published(1.02, 0.1, 30, 2)
    rows = (Row(("a",), 1.0, 0.1, Published(1.05, digits=2), digits=2, authors=ran), Row(("b",), 2.0))
    head, first, second = ResultTable("t", "title", ("what",), rows).cells()
    assert head[:5] == ["what", "published", "provenance", "authors' code", "ours"]
    assert (first[3], second[3]) == ("1.02 ± 0.10", "-")
