"""The default against pooling: at least as good as scikit-learn's KMeans(n_init=10) on the pooled rows.

`make bench` runs the same over more seeds; benchmarks/shapes.py says on which shapes constants were chosen.
"""

import numpy as np
import pytest
from benchmarks.shapes import SHAPES, SPLITS
from sklearn.cluster import KMeans

from unpooled import FederatedKMeans

SEEDS = (1, 2)
SLOW_TO_SETTLE = {"uniform"}  # no clusters: Lloyd itself needs many rounds, pooled or not


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, int], tuple[float, int]]:
    """(inertia ratio to pooling, exchanges) by shape and seed."""
    found = {}
    for shape, make in SHAPES.items():
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            X, k = make(rng)
            sites = SPLITS["dirichlet"](X, rng)
            pooled = KMeans(k, n_init=10, random_state=seed).fit(X).inertia_
            model = FederatedKMeans(k, random_state=seed).fit(X, sites=sites)
            found[shape, seed] = model.inertia_ / pooled, model.run_.exchanges
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_no_run_is_worse_than_pooling(results, shape):
    assert max(results[shape, seed][0] for seed in SEEDS) <= 1.002


def test_on_average_it_is_better_than_pooling(results):
    assert np.mean([ratio for ratio, _ in results.values()]) <= 1.0


def test_many_clusters_are_found_that_ten_pooled_restarts_miss(results):
    assert np.mean([results["many_on_a_grid", seed][0] for seed in SEEDS]) < 0.98


def test_a_fit_takes_about_thirty_exchanges_at_most(results):
    settled = [n for (shape, _), (_, n) in results.items() if shape not in SLOW_TO_SETTLE]
    assert np.mean(settled) <= 20
    assert max(settled) <= 40


@pytest.mark.parametrize("shape", ["overlapping", "many_at_random", "tiny_far"])
def test_the_split_changes_only_the_rounding(shape):
    X, k = SHAPES[shape](np.random.default_rng(5))
    whole = FederatedKMeans(k, random_state=0).fit(X)
    for make in SPLITS.values():
        split = FederatedKMeans(k, random_state=0).fit(X, sites=make(X, np.random.default_rng(6)))
        np.testing.assert_allclose(split.cluster_centers_, whole.cluster_centers_, rtol=1e-7, atol=1e-7)
        assert split.inertia_ == pytest.approx(whole.inertia_, rel=1e-9)
