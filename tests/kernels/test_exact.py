"""The node solver against brute force, and its promises when it is stopped."""

import numpy as np
import pytest
from exact_oracle import brute_force, brute_force_coupled
from kernel_cases import needs_native

from unpooled.kernels.exact_solver import exact

pytestmark = needs_native


def node(seed: int, n: int = 7, k: int = 3, d: int = 2, price: float = 2.0):
    """Rows, weights, prices, a box per centroid and references."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    low, high = np.tile(X.min(axis=0), (k, 1)), np.tile(X.max(axis=0), (k, 1))
    return X, np.ones(n), price * rng.standard_normal((k, d)), low, high, rng.uniform(-1, 1, (k, d))


def agrees(result, best: float) -> None:
    assert result.proved
    assert result.value == pytest.approx(best, abs=1e-8)
    assert result.lower <= best + 1e-9
    assert result.lower == pytest.approx(best, abs=1e-6)


def test_by_hand():
    """Two rows, one cluster, price p: m = mean - p / (2 n), until the box stops it."""
    X = np.array([[0.0], [2.0]])
    for price, m in ((0.0, 1.0), (2.0, 0.5), (100.0, -1.0)):
        result = exact(X, 1, prices=np.array([[price]]), lower=np.array([[-1.0]]), upper=np.array([[3.0]]))
        assert result.centers[0, 0] == pytest.approx(m)
        assert result.value == pytest.approx(m**2 + (2 - m) ** 2 + price * m)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_plain_optimum_is_that_of_brute_force(k):
    for seed in range(12):
        X, w, q, low, high, _ = node(seed, n=9 if seed < 3 else 7, k=k, d=1 + seed % 3, price=0.0)
        agrees(exact(X, k), brute_force(X, w, k, q, low, high))


@pytest.mark.parametrize("k", [2, 3])
def test_with_prices_in_one_box(k):
    for seed in range(15):
        X, w, q, low, high, _ = node(seed, k=k, d=1 + seed % 3, price=(0.3, 2.0, 6.0)[seed % 3])
        agrees(exact(X, k, prices=q, lower=low, upper=high), brute_force(X, w, k, q, low, high))


def test_with_prices_and_a_box_for_every_centroid():
    for seed in range(15):
        X, w, q, low, high, r = node(seed)
        low, high = np.maximum(low, r - 0.6), np.minimum(high, np.maximum(r + 0.4, low + 0.1))
        low = np.minimum(low, high)
        agrees(exact(X, 3, prices=q, lower=low, upper=high), brute_force(X, w, 3, q, low, high))


@pytest.mark.parametrize("price", [0.0, 1.0, 4.0])
def test_in_voronoi_cells(price):
    for seed in range(10):
        X, w, q, low, high, r = node(seed, n=6, price=price)
        cells = np.random.default_rng(seed).integers(3, size=3) if seed % 2 else np.arange(3)
        result = exact(X, 3, prices=q, lower=low, upper=high, symmetry="cell", references=r, cells=cells)
        agrees(result, brute_force(X, w, 3, q, low, high, r, cells))


def test_weights_count_like_repeated_rows():
    for seed in range(8):
        X, _, q, low, high, _ = node(seed, n=8)
        w = np.random.default_rng(seed).integers(0, 4, size=8).astype(float)
        again = np.repeat(X, w.astype(int), axis=0)
        agrees(
            exact(X, 3, weights=w, prices=q, lower=low, upper=high),
            exact(again, 3, prices=q, lower=low, upper=high).value,
        )


@pytest.mark.parametrize("symmetry", ["pair", "published"])
def test_coupled_centroids(symmetry):
    """A pair is convex: equal values. (36) is not: never above the best feasible point that is found."""
    for seed in range(6):
        X, _, q, low, high, r = node(seed, n=4, k=2 + seed % 2, price=1.0)
        k = len(q)
        result = exact(X, k, prices=q, lower=low, upper=high, symmetry=symmetry, references=r)
        best = brute_force_coupled(X, k, q, low, high, r, symmetry)
        assert result.lower <= best + 1e-7
        assert result.proved
        if symmetry == "pair":
            assert result.value == pytest.approx(best, abs=1e-5)


def test_a_stopped_search_returns_its_open_bound():
    X, _, q, low, high, _ = node(3, n=30, k=4, price=3.0)
    whole = exact(X, 4, prices=q, lower=low, upper=high)
    assert whole.proved
    before = -np.inf
    stopped = 0
    for nodes in (1, 10, 100, 1000, 10**9):
        result = exact(X, 4, prices=q, lower=low, upper=high, nodes=nodes)
        assert result.lower <= whole.value + 1e-9 <= result.value + 2e-9
        stopped += not result.proved
        before = max(before, result.lower)
    assert result.proved
    assert stopped >= 3
    assert exact(X, 4, prices=q, lower=low, upper=high, seconds=0.0).lower <= whole.value


def test_what_is_remembered_of_the_rows_changes_nothing():
    X, _, q, low, high, _ = node(1, n=20)
    memory: dict = {}
    for scale in (0.0, 0.5, 1.0):
        fresh = exact(X, 3, prices=scale * q, lower=low, upper=high)
        kept = exact(X, 3, prices=scale * q, lower=low, upper=high, memory=memory)
        assert (kept.value, kept.lower, kept.nodes) == (fresh.value, fresh.lower, fresh.nodes)
    assert memory


def test_a_warm_start_changes_the_way_and_not_the_value():
    X, _, q, low, high, _ = node(2, n=18)
    result = exact(X, 3, prices=q, lower=low, upper=high)
    warm = exact(X, 3, prices=q, lower=low, upper=high, warm=result.labels, starts=0)
    assert warm.value == pytest.approx(result.value, abs=1e-9)
    assert exact(X, 3, prices=q, lower=low, upper=high, starts=0).value == pytest.approx(
        result.value, abs=1e-9
    )


def test_far_from_the_origin_nothing_is_lost():
    X = node(5, n=14)[0]
    assert exact(X + 1e6, 3).value == pytest.approx(exact(X, 3).value, rel=1e-6)


def test_an_empty_box_costs_infinity():
    X, _, q, _, _, r = node(0)
    box = np.tile(r[0] - 1e-3, (3, 1)), np.tile(r[0] + 1e-3, (3, 1))
    result = exact(X, 3, prices=q, lower=box[0], upper=box[1], symmetry="cell", references=r)
    assert result.lower == np.inf
