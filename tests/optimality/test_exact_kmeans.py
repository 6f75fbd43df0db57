"""The pooled optimum with a proof, and what happens where none can be had."""

import numpy as np
import pytest
from benchmarks.certificates import ruspini, standard
from reproduction.dual_problems import dual_names, dual_problem, dual_shape
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

from unpooled import exact_kmeans
from unpooled.errors import InputError
from unpooled.kernels.exact_solver import budget_bound, exact, semidefinite_bound
from unpooled.optimality.exact import by_blocks, relative_gap


def pooled(name: str):
    return np.concatenate(list(dual_problem(name).values()))


def test_no_heuristic_is_ever_better():
    for name in dual_names()[::11]:
        X, k = pooled(name), dual_shape(name)[2]
        result = exact_kmeans(X, k)
        assert result.proved
        assert result.lower_bound <= result.inertia
        assert result.gap < 1e-8
        assert result.inertia <= KMeans(k, n_init=20, random_state=0).fit(X).inertia_ * (1 + 1e-9)


def test_the_result_is_a_clustering():
    X = pooled("2N2D3K2")
    result = exact_kmeans(X, 3)
    assert result.labels[0] == 0  # numbered by first appearance
    for j in range(3):
        assert result.centers[j] == pytest.approx(X[result.labels == j].mean(axis=0))
    assert result.inertia == pytest.approx(((X - result.centers[result.labels]) ** 2).sum())
    again = exact_kmeans(X[::-1], 3)
    assert again.inertia == pytest.approx(result.inertia)


def test_time_is_up_and_the_bound_still_holds():
    X = np.random.default_rng(0).uniform(size=(120, 8))
    result = exact_kmeans(X, 5, time_limit=0.5)
    assert not result.proved
    assert 0.3 * result.inertia < result.lower_bound < result.inertia
    assert result.inertia == pytest.approx(((X - result.centers[result.labels]) ** 2).sum())
    assert result.inertia < 1.1 * KMeans(5, n_init=20, random_state=0).fit(X).inertia_


def test_rows_with_a_gap_to_budgets_are_proved_by_cases():
    """Ruspini's rows, k = 8: the linear programme of all clusters leaves 0.017 %."""
    X = ruspini()
    warm = np.arange(len(X)) * 8 // len(X)
    without = budget_bound(X, 8, warm, goal=1e-11)
    result = exact_kmeans(X, 8, time_limit=60)
    assert without.converged
    assert without.lower < result.inertia * (1 - 1e-4)
    assert result.proved
    assert result.inertia == pytest.approx(6149.63902, rel=1e-8)  # the optimum in the literature
    assert 0 < budget_bound(X, 8, result.labels, goal=1e-11, nodes=100).nodes < 100


def test_rows_of_many_columns_are_proved_by_a_semidefinite_programme():
    """A third of the wines, 13 columns: boxes of centroids do not get there, and the programme does."""
    X = standard(load_wine().data)[::3]
    found = exact(X, 3, nodes=0)
    boxes = budget_bound(X, 3, found.labels, goal=1e-9, boxes=20_000)
    result = semidefinite_bound(X, 3, found.labels, goal=1e-9)
    assert boxes.lower < found.value * (1 - 1e-3)
    assert result.unique
    assert found.value * (1 - 1e-9) <= result.lower <= found.value
    stopped = [semidefinite_bound(X, 3, found.labels, goal=1e-9, work=2 * 10**8) for _ in range(2)]
    assert stopped[0] == stopped[1]  # to the last bit
    assert not stopped[0].unique
    assert 0.9 * found.value < stopped[0].lower < result.lower
    assert stopped[0].work < 2.2 * 10**8


def test_the_sum_over_blocks_is_a_lower_bound():
    for name in dual_names()[::30]:
        X, k = pooled(name), dual_shape(name)[2]
        best = exact_kmeans(X, k)
        assert 0 < by_blocks(X, k, best.labels, 0.3) <= best.inertia


def test_out_of_reach_without_a_limit_is_refused_with_an_estimate():
    X = np.random.default_rng(0).uniform(size=(300, 4))
    with pytest.raises(InputError, match=r"k=6 clusters of 300 rows: a probe expects .*Pass time_limit="):
        exact_kmeans(X, 6)


def test_bad_input_is_named():
    X = np.random.default_rng(0).uniform(size=(10, 2))
    incomplete = X.copy()
    incomplete[3, 1] = np.nan
    for rows, k, message in (
        (incomplete, 2, "X contains NaN .*row 3, column 1"),
        (X, 11, "n_clusters=11, but there are only n_samples=10"),
        (X, 0, "k must be a whole number >= 1, got 0"),
        (X[0], 1, r"X must be rows by columns, got shape \(2,\)"),
        (np.repeat(X[:1], 5, axis=0), 2, "only 1 of the 5 rows are distinct"),
        (
            np.random.default_rng(0).uniform(size=(2001, 1)),
            2,
            "2001 rows: exact solving is out of reach beyond 2000",
        ),
        (np.random.default_rng(0).uniform(size=(40, 1)), 33, "33 clusters: .*out of reach beyond 32"),
        (np.random.default_rng(0).uniform(size=(40, 65)), 2, "65 columns: .*out of reach beyond 64"),
    ):
        with pytest.raises(InputError, match=message):
            exact_kmeans(rows, k)
    with pytest.raises(InputError, match="time_limit must be above 0 seconds, got 0"):
        exact_kmeans(X, 2, time_limit=0)


def test_equal_rows_cost_nothing():
    X = np.repeat(np.array([[0.0], [1.0], [7.0]]), 4, axis=0)
    result = exact_kmeans(X, 3)
    assert (result.inertia, result.proved) == (0.0, True)
    assert relative_gap(result.lower_bound, result.inertia) == 0.0
