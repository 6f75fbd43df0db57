"""Tables 2-5 of Stallmann & Wilbik in small: fewer runs, fixed seeds, and bounds that can be missed."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import fuzzy_tables as paper

RUNS = 8


@pytest.fixture(scope="module")
def ours():
    return paper.table(RUNS, seed=0, rounds=15)


def agrees(by, method, name, column, slack):
    """Within three errors of two means over so many runs, plus what rounding and drawing add."""
    values = by[method][:, column if column == 0 else column + 1]
    published = paper.PUBLISHED[name][method][column]
    error = 3 * values.std(ddof=1) * np.sqrt(1 / RUNS + 1 / 10)
    return abs(values.mean() - published) <= error + slack


@pytest.mark.parametrize("name", list(paper.PUBLISHED))
@pytest.mark.parametrize("method", paper.METHODS)
def test_tables_2_to_4(ours, name, method):
    by = ours[name]
    unsettled = method == "avg1" and name.startswith("case 3")
    if not np.isnan(paper.PUBLISHED[name][method][0]):
        assert agrees(by, method, name, 0, 0.6 if unsettled else 0.05)
    if unsettled:
        return  # see benchmarks/fuzzy_tables.py: the published SSE goes against the published gap
    assert agrees(by, method, name, 1, 0.03)
    assert agrees(by, method, name, 2, 0.2)


def test_what_the_paper_concludes(ours):
    """avg1 with local convergence fails where clusters are absent at sites, and avg2 does not."""
    for name, by in ours.items():
        gap = {method: np.median(values[:, 1]) for method, values in by.items()}
        assert gap["avg2"] <= gap["avg1"], name
        if name.startswith("case 3"):
            assert gap["avg2"] < 0.3 < 1 < gap["avg1"]


def test_the_default_is_central_where_avg1_as_published_fails():
    from unpooled import Fuzzy, InProcess, run

    for points in paper.POINTS:
        case = paper.case_3(np.random.default_rng(1), points)
        default = run(Fuzzy(k=4), InProcess.of(case.sites), seed=0).state.centers
        published = paper.found(case, "avg1", seed=0)
        X = np.concatenate(list(case.sites.values()))
        pooled = run(Fuzzy(k=4), InProcess.of({"all": X}), seed=0).state
        assert run(Fuzzy(k=4, init=default), InProcess.of({"all": X})).state.inertia <= pooled.inertia * (
            1 + 1e-4
        )
        assert paper.within_sse(X, default) < 0.8 < paper.within_sse(X, published)


def test_table_5_in_few_columns():
    """The gap grows with the overlap, is alike for all three, and goes with the paper's range."""
    gaps = {method: [] for method in paper.METHODS}
    for name, X, d in paper.g2_sets(None, 0):
        if d not in (2, 8) or int(name.split("_")[2]) not in (20, 60, 100):
            continue
        true = np.array([[500.0] * d, [600.0] * d])
        parts = np.array_split(np.random.default_rng(0).permutation(len(X)), 10)
        case = paper.Case(name, true, {str(j): X[p] for j, p in enumerate(parts)}, 2.0, 1)
        for method, found in gaps.items():
            found.append(paper.nearest_gap(paper.found(case, method, 0, rounds=20), true) / np.sqrt(d))
    central = np.array(gaps["central"]).reshape(2, 3)
    assert (np.diff(central, axis=1) > 0).all()
    assert 0.5 < central[:, 0].max() < 5
    for method in ("avg1", "avg2"):
        assert np.allclose(gaps[method], gaps["central"], rtol=0.25, atol=1.0)
