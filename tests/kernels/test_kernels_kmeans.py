"""Whole k-means: consistency, quality, and the awkward cases; on either backend."""

from collections.abc import Iterator

import numpy as np
import pytest
from kernel_cases import make_case
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from unpooled import kernels
from unpooled.kernels import reference
from unpooled.kernels.rng import Xoshiro256


@pytest.fixture(params=["numpy", "native"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "_backend", reference)
        monkeypatch.setattr(kernels, "BACKEND", "numpy")
    elif kernels.BACKEND != "native":
        pytest.skip("nothing was compiled")
    return request.param


@pytest.mark.parametrize("max_iter", [1, 3, 300])
@pytest.mark.parametrize("d", [1, 2, 9, 40])
def test_centres_are_the_means_of_what_the_mass_counts(d: int, max_iter: int) -> None:
    case = make_case(4, d=d, k=5, sites=3, rows=60, weighted=True)
    found = kernels.kmeans(case.X, case.offsets, 5, case.seeds, case.weights, max_iter=max_iter, swaps=2)
    for s in range(case.sites):
        part = slice(case.offsets[s], case.offsets[s + 1])
        X, w = case.X[part], case.weights[part]
        assert found.mass[s].sum() == pytest.approx(w.sum())
        assert found.squares[s].sum() == pytest.approx((w * w).sum())
        np.testing.assert_allclose(found.mass[s] @ found.centers[s], w @ X, atol=1e-9)
        if max_iter == 300 and len(X):
            labels, sqdist = kernels.nearest(X, found.centers[s][found.mass[s] > 0])
            np.testing.assert_allclose(np.bincount(labels, w), found.mass[s][found.mass[s] > 0])
            assert found.inertia[s] == pytest.approx(w @ sqdist)


def test_no_iterations_give_the_seeds() -> None:
    case = make_case(4, d=3, k=6, sites=2, rows=70)
    found = kernels.kmeans(case.X, case.offsets, 6, case.seeds, max_iter=0)
    for s in range(case.sites):
        rows = {tuple(row) for row in case.X[case.offsets[s] : case.offsets[s + 1]]}
        assert {tuple(c) for c, m in zip(found.centers[s], found.mass[s], strict=True) if m} <= rows


@pytest.mark.parametrize("d", [1, 2, 7, 33])
@pytest.mark.parametrize("max_iter", [0, 20])
def test_fewer_distinct_rows_than_centres(d: int, max_iter: int) -> None:
    X = np.repeat(np.arange(3.0)[:, None] * np.ones(d), 5, axis=0)
    offsets, k = [0, 15, 15, 17, 18], 6
    w = np.ones(18)
    w[15] = 0
    X = np.concatenate([X, X[:3]])
    found = kernels.kmeans(X, offsets, k, [1, 2, 3, 4], w, n_init=3, max_iter=max_iter, swaps=2)
    assert (found.mass > 0).sum(axis=1).tolist() == [3, 0, 1, 1]
    assert np.isfinite(found.centers).all()
    assert not found.centers[found.mass == 0].any()
    np.testing.assert_allclose(found.inertia, 0, atol=1e-20)
    assert sorted(found.mass[0].tolist()) == [0, 0, 0, 5, 5, 5]


def test_rows_without_weight_never_seed() -> None:
    X = np.concatenate([np.zeros((20, 2)), np.full((20, 2), 9.0)])
    w = np.repeat([1.0, 0.0], 20)
    for seed in range(5):
        found = kernels.kmeans(X, [0, 40], 2, [seed], w)
        assert sorted(found.mass[0].tolist()) == [0, 20]
    nothing = kernels.kmeans(X, [0, 40], 2, [1], np.zeros(40))
    assert not any(a.any() for a in nothing)


@pytest.mark.parametrize(("d", "k"), [(2, 8), (10, 12), (50, 6)])
def test_as_good_as_scikit_learn(d: int, k: int) -> None:
    X, _ = make_blobs(600, d, centers=k, cluster_std=1.5, random_state=d)
    theirs = KMeans(k, n_init=10, random_state=0).fit(X).inertia_
    found = kernels.kmeans(X, [0, len(X)], k, [5], n_init=10)
    assert found.inertia[0] <= 1.001 * theirs
    weights = np.random.default_rng(d).exponential(size=len(X))
    theirs = KMeans(k, n_init=10, random_state=0).fit(X, sample_weight=weights).inertia_
    found = kernels.kmeans(X, [0, len(X)], k, [5], weights, n_init=10)
    assert found.inertia[0] <= 1.001 * theirs


def test_swaps_and_restarts_never_hurt() -> None:
    X, _ = make_blobs(400, 2, centers=25, cluster_std=0.3, random_state=1)
    seeds = np.arange(6)
    offsets = np.arange(7) * 400
    repeated = np.tile(X, (6, 1))
    plain, swapped, restarted = (
        kernels.kmeans(repeated, offsets, 25, seeds, **more).inertia
        for more in ({}, {"swaps": 20}, {"n_init": 5})
    )
    assert (swapped <= plain * (1 + 1e-9)).all()
    assert (restarted <= plain * (1 + 1e-9)).all()
    assert swapped.mean() < plain.mean()


def test_a_cluster_that_runs_empty_is_moved_to_the_costliest_row() -> None:
    # many centres on few, heavy, scattered rows: some starts leave a centre without rows
    rng = np.random.default_rng(0)
    for seed in range(30):
        X = np.round(rng.normal(size=(30, 2)), 1)
        found = kernels.kmeans(X, [0, 30], 12, [seed], np.round(rng.exponential(size=30), 1), max_iter=50)
        assert (found.mass[0] > 0).all()


def test_the_generator_is_the_published_one() -> None:
    # first outputs of xoshiro256** from the state 1, 2, 3, 4
    rng = Xoshiro256(0)
    rng._s = [1, 2, 3, 4]
    assert [rng.draw() for _ in range(4)] == [11520, 0, 1509978240, 1215971899390074240]
