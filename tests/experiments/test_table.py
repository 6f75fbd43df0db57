"""How far published and recomputed numbers are apart, by hand."""

import numpy as np
import pytest

from unpooled.experiments.papers.output import csv_table, markdown_table
from unpooled.experiments.papers.result_table import Published, ResultTable, Row, row, statistic


def test_a_difference_by_hand():
    # ours: mean 2, standard error 1 / sqrt(4); published: 1 +- 2 over 16 runs, rounded to whole numbers
    values = 2 + np.array([-1.0, 1.0, -1.0, 1.0]) * np.sqrt(3) / 2
    got = row(("a",), values, Published(1.0, 2.0, 16, 0))
    assert got.error == pytest.approx(0.5)
    assert got.difference == pytest.approx(1 / np.sqrt(0.25 + 0.25 + 1 / 12))
    assert got.verdict == "matches"
    far = row(("a",), values, Published(3.0, 0.1, 16, 4), note=2)
    assert far.difference == pytest.approx(-1 / np.hypot(0.5, 0.025), rel=1e-6)
    assert row(("a",), values, Published(4.0, 0.1, 16, 4), note=2).verdict == "differs, note 2"
    assert row(("a",), values).verdict == "ours alone"


def test_a_number_that_rounds_to_the_published_one_matches_whatever_the_errors():
    assert Row(("a",), 0.07434, 0.0, Published(0.0743)).verdict == "matches"
    assert Row(("a",), 0.07441, 0.0, Published(0.0743)).verdict == "differs"


def test_a_number_of_one_draw_may_be_off_by_the_spread_over_draws():
    values = np.array([0.0, 1.0] * 50)
    assert row(("a",), values, Published(1.3)).verdict == "differs"
    assert row(("a",), values, Published(1.3), one_draw=True).verdict == "matches"
    assert row(("a",), values, Published(2.0), one_draw=True).verdict == "differs"


def test_one_run_is_one_draw_of_what_was_published():
    one = np.array([34.6])
    assert row(("a",), one, Published(34.69, 0.1, 100)).verdict == "matches"
    assert row(("a",), one, Published(34.9, 0.1, 100)).verdict == "differs"


def test_quantiles_are_judged_and_ends_are_not():
    values = np.random.default_rng(0).standard_normal(400)
    assert statistic(("q",), values, Published(0.0, digits=2), "50 %").verdict == "matches"
    assert statistic(("q",), values, Published(0.5, digits=2), "50 %").verdict == "differs"
    least = statistic(("q",), values, Published(0.5, digits=2), "min")
    assert (least.verdict, least.ours) == ("not judged", values.min())


def test_what_is_written():
    rows = (Row(("a",), 1.0, 0.1, Published(1.05, digits=2), digits=2), Row(("b",), 2.0))
    table = ResultTable("t", "title", ("what",), rows)
    assert table.counted() == (1, 1)
    lines = markdown_table(table).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [c.strip() for c in lines[2].split("|")[1:-1]] == ["a", "1.05", "1.00", "0.1", "-0.5", "matches"]
    assert [c.strip() for c in lines[3].split("|")[1:-1]] == ["b", "-", "2.0000", "-", "-", "ours alone"]
    assert csv_table(table).splitlines()[1].startswith("a,1.05,0.0,1,0,0.1,-0.49")
