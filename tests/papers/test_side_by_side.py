"""The papers' tables beside ours, and the comparison of standard deviations, by hand."""

import numpy as np
import pytest
from reproduction import recorded, side_by_side, yfantis
from reproduction.catalogue import NAMES, PAPERS
from reproduction.output import NUMBER_COLUMNS
from reproduction.side_by_side import LAYOUTS, OURS, Layout, dual_means, spread, spreads, spreads_table
from scipy import stats

RECORD = {e.name: e.tables for e in recorded.recorded()}


def line(what, published="", ours="1", verdict="matches", **more):
    return {**dict.fromkeys(NUMBER_COLUMNS, ""), **what, "published": published, "ours": ours,
            "verdict": verdict, **more}  # fmt: skip


def test_a_table_in_the_layout_of_the_paper():
    lines = [
        line({"split": "IID", "method": "DWF"}, "0.5", "0.512"),
        line({"split": "non-IID", "method": "DWF"}, "0.25", "0.3", "differs, note 1"),
        line({"split": "IID", "method": "ours"}, "", "0.1", "not published"),
    ]
    tables = {"e": {"t": lines}}
    shown = Layout("title", "e", {"t": ""}, ("split",), ("method",), show="both").table(tables)
    assert [cell.strip() for cell in shown.splitlines()[0].strip("|").split("|")] == ["split", "DWF", "ours"]
    assert "| IID     |    0.5 / 0.5 | - / 0.1000 |" in shown  # ours with the digits of the published number
    assert "| non-IID | 0.25 / 0.30* |          - |" in shown
    only = Layout("title", "e", {"t": ""}, ("split",), ("method",), {"split": ("IID",)}).table(tables)
    assert "non-IID" not in only
    assert "ours" not in only
    alone = Layout("title", "e", {"t": ""}, ("split", "method"), (), show="ours").table(tables)
    assert "| IID     | DWF    | 0.512 |" in alone
    assert not Layout("title", "other", {"t": ""}, ("split",), ("method",)).table(tables)


EVERY = [layout for of_papers in (LAYOUTS, OURS) for of_paper in of_papers.values() for layout in of_paper]


@pytest.mark.parametrize("layout", EVERY, ids=lambda layout: layout.experiment + ", " + layout.title)
def test_a_layout_shows_recorded_numbers_and_no_cell_twice(layout):
    lines = [x for name in layout.tables for x in RECORD[layout.experiment][name] if layout._shown(x)]
    assert lines
    cells = [(x.get("table"), *(x[head] for head in (*layout.rows, *layout.columns))) for x in lines]
    if len(layout.tables) == 1:
        assert len(set(cells)) == len(cells)
    rows = layout.table(RECORD).splitlines()[2:]
    if layout.show == "ours":
        labels = len(layout.rows)
        assert sum(cell.strip() != "-" for row in rows for cell in row.strip("|").split("|")[labels:]) == len(
            lines
        )
    else:
        assert sum(row.count(" / ") for row in rows) == len(lines)


def test_every_experiment_stands_on_the_page_of_its_paper():
    shown = {layout.experiment for layout in EVERY}
    # noise 1 of figure 1 is in the table of figure 3; other problems than the paper's are a note
    assert set(NAMES) - shown == {"garst-fig1", "dual-held-out"}
    for of_papers in (LAYOUTS, OURS):
        for paper, layouts in of_papers.items():
            assert {layout.experiment for layout in layouts} <= set(PAPERS[paper].experiments)


def test_every_judged_number_stands_in_a_table_of_a_page():
    """An author finds every number of theirs that we compare, in the layout of the paper."""
    assert set(LAYOUTS) == set(PAPERS)
    shown = {
        (layout.experiment, name, tuple(x.items()))
        for of_paper in LAYOUTS.values()
        for layout in of_paper
        for name in layout.tables
        for x in RECORD[layout.experiment][name]
        if layout._shown(x)
    }
    repeated = {"garst-fig1"}  # noise 1 is in the table of figure 3 as well
    for experiment in NAMES:
        for name, lines in RECORD[experiment].items():
            for x in lines:
                verdict = recorded.kind_of(x["verdict"])
                if verdict in recorded.KINDS and x["published"] and experiment not in repeated:
                    assert (experiment, name, tuple(x.items())) in shown, x


def test_means_of_the_dual_over_the_same_kinds():
    lines = [
        line({"method": "SG", "problems": kind, "score": score}, published, ours)
        for kind, score, published, ours in (
            ("a", "iterations", "100.0", "90"),
            ("b", "iterations", "50.0", "80"),
            ("a", "gap in %", "2.0", "1"),
            ("b", "gap in %", "1.0", "1.5"),
        )
    ]
    assert "| SG     |       10 | 75.00 / 85.00 | 1.50 / 1.25 |" in dual_means({"dual-table3": lines})
    last = dual_means(RECORD["dual-tables"]).splitlines()[-1]
    assert last.startswith("| QNDA ")
    kinds = [x["problems"] for x in RECORD["dual-tables"]["dual-table3"] if x["method"] == "QNDA"]
    theirs = np.mean([yfantis.PUBLISHED["QNDA"][yfantis.KINDS.index(kind)][0] for kind in set(kinds)])
    assert f"{theirs:.2f} / " in last


# ---------------------------------------------------------------- standard deviations


def test_the_f_test_of_two_standard_deviations():
    """Against scipy, where the rounding of both is far smaller than their difference."""
    found = spread("0.0200000", 100, "0.0150000", 20)
    expected = 2 * stats.f.sf((0.02 / 0.015) ** 2, 99, 19)
    assert found.p == pytest.approx(expected, rel=1e-3)
    assert found.ratio == pytest.approx(0.75)
    assert spread("0.0150000", 20, "0.0200000", 100).p == pytest.approx(expected, rel=1e-3)


def test_equal_spreads_differ_in_one_of_twenty():
    rng = np.random.default_rng(0)
    differ = 0
    for _ in range(2000):
        theirs, ours = (rng.normal(0, 1, n).std(ddof=1) for n in (50, 8))
        differ += spread(f"{theirs:.6f}", 50, f"{ours:.6f}", 8).p < 0.05
    assert 0.035 < differ / 2000 < 0.065


def test_deviations_that_agree_after_rounding_do_not_differ():
    assert spread("0.0003", 50, "0.00034", 1000).p == 1
    assert spread("0.0003", 50, "0.00036", 1000).p < 1
    assert spread("0.004", 100, "1e-05", 100).p < 1e-6


def test_only_judged_means_with_a_spread_are_compared():
    judged = line({}, "1.0", verdict="matches", published_sd="0.1", ours_sd="0.2", runs="10")
    lines = [
        judged,
        {**judged, "verdict": "not judged: as IID"},
        {**judged, "published_sd": ""},
        {**judged, "ours_sd": "0"},
    ]
    assert len(spreads("holzer-mnist", {"table1": lines})) == 1
    assert "| holzer-mnist |                   1 |" in spreads_table({"holzer-mnist": {"table1": lines}})
    assert not spreads_table({"stallmann-cases": {"cases": lines}})
    for name, tables in side_by_side.PUBLISHED_RUNS.items():
        assert set(tables) <= set(RECORD[name])
