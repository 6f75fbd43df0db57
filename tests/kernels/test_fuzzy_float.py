"""Fuzzy c-means of many long rows, m = 2: products in float32, and still numpy's result within 1e-6."""

from collections.abc import Iterator

import numpy as np
import pytest
from kernel_cases import native, needs_native, usable

from unpooled import kernels
from unpooled.kernels import reference

pytestmark = needs_native


@pytest.fixture(params=[n for n in ("x86-64", "x86-64-v3", "x86-64-v4", "generic") if usable(n)])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    extension = native()._native
    usual = extension.isa()
    extension.use(request.param)
    yield request.param
    extension.use(usual)


def blobs(seed: int, n: int, d: int, k: int, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Rows around k means, and centres beside some of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(scale=noise, size=(n, d))
    return X, X[rng.choice(n, k, replace=False)] + 0.1


def assert_within(X, centers, weights=None, most=1e-6, offsets=None):
    """The centres that follow, the weights and J_m are numpy's, within 1e-6 of the centres' spread."""
    offsets = np.array([0, len(X)]) if offsets is None else offsets
    centers = centers if centers.ndim == 3 else centers[None]
    args = X, offsets, centers, 2.0, 1.0, weights, 1
    found, expected = native().fuzzy(*args), reference.fuzzy(*args)
    assert all(np.isfinite(a).all() for a in found)
    spread = np.sqrt(((centers - centers.mean(axis=(0, 1))) ** 2).sum(axis=2).max())
    mass = expected.mass[..., None]
    moved = np.abs(found.sums - expected.sums) / np.where(mass > 0, mass, 1.0)
    assert moved.max(initial=0) <= most * spread
    for name in ("mass", "rows", "squares", "inertia"):
        a, b = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(a, b, rtol=most, atol=most * np.abs(b).max(), err_msg=name)
    # a coordinator takes missing memberships for suppressed rows
    total = np.add.reduceat(np.ones(len(X)) if weights is None else weights, offsets[:-1])
    np.testing.assert_allclose(found.rows.sum(axis=2), np.tile(total, (centers.shape[0], 1)).T, rtol=1e-13)
    return found


@pytest.mark.parametrize("d", [25, 31, 64, 130, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_instruction_set_has_the_result_of_numpy(isa, d, weighted):
    for seed, k in enumerate([1, 2, 7, 10, 23]):
        X, centers = blobs(seed, 1100 + 7 * seed, d, k)
        if k == 1:
            centers = np.concatenate([centers, centers + 1])
        rng = np.random.default_rng(seed)
        w = rng.exponential(size=len(X)) * (rng.random(len(X)) > 0.2) if weighted else None
        assert_within(X, np.stack([centers, centers + 0.3]), w)


@pytest.mark.parametrize("shift", [1e3, 1e6, -1e6])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e-12, 1e12, 1e140])
def test_offsets_and_units_cost_nothing(isa, shift, scale):
    X, centers = blobs(3, 1500, 40, 6)
    assert_within((X + shift) * scale, (centers + shift) * scale)


@pytest.mark.parametrize("noise", [1e-9, 1e-4, 1e-2, 0.03, 0.05, 3.0])
def test_tight_clusters_are_taken_in_double(noise):
    X, _ = blobs(4, 4000, 50, 5, noise)
    rng = np.random.default_rng(4)
    means = np.random.default_rng(4).normal(size=(5, 50))
    centers = means + rng.normal(scale=noise, size=means.shape)
    found = assert_within(X, centers)
    expected = reference.fuzzy(X, np.array([0, 4000]), centers[None], 2.0, 1.0, None, 1)
    moved = np.abs(found.sums - expected.sums) / expected.mass[..., None]
    assert moved.max() <= 3e-6 * max(noise, 1e-7) * np.sqrt(50)  # of the clusters' own radius


def test_one_far_centre_does_not_spoil_the_others():
    X, centers = blobs(5, 3000, 30, 6)
    X[:200] += 1e6
    centers[0] += 1e6
    found = assert_within(X, centers)
    expected = reference.fuzzy(X, np.array([0, 3000]), centers[None], 2.0, 1.0, None, 1)
    moved = np.abs(found.sums - expected.sums) / expected.mass[..., None]
    assert moved[0, 0, 1:].max() <= 1e-6


def test_rows_on_centres_duplicates_and_outliers(isa):
    X, centers = blobs(6, 2000, 33, 5)
    X[100:130] = centers[2]  # wholly its own
    X[500:900] = X[500]  # errors that cannot even out
    centers[4] = centers[3]  # two centres in one place
    X[7] = 1e30
    X[8] = -1e200
    X[9] = 1e-310
    found = assert_within(X, centers)
    np.testing.assert_allclose(found.mass[0, 0, 3], found.mass[0, 0, 4], rtol=1e-12)


@pytest.mark.parametrize("what", ["one place", "rows on centres", "huge weights", "tiny weights", "denormal"])
def test_where_float_is_of_no_use(what):
    X, centers = blobs(7, 1200, 28, 4)
    weights = None
    if what == "one place":
        centers[:] = centers[0]
    if what == "rows on centres":
        X = np.repeat(centers, 300, axis=0)
    if what == "huge weights":
        weights = np.full(len(X), 1e100)
    if what == "tiny weights":
        weights = np.full(len(X), 1e-100)
    if what == "denormal":
        X, centers = X * 1e-310, centers * 1e-310
    args = X, np.array([0, len(X)]), centers[None], 2.0, 1.0, weights, 1
    for a, b in zip(native().fuzzy(*args), reference.fuzzy(*args), strict=True):
        scale = np.abs(b).max() or np.abs(centers).max()
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("noise", [0.001, 0.5])
def test_threads_and_neighbours_change_no_bit(dtype, noise):
    X, centers = blobs(8, 30_000, 40, 7, noise)
    X = X.astype(dtype)
    offsets = np.array([0, 20_000, 20_500, 30_000])
    weights = np.random.default_rng(0).exponential(size=len(X))
    together = kernels.fuzzy(X, offsets, centers[None], 2.0, weights)
    for a, b in zip(kernels.fuzzy(X, offsets, centers[None], 2.0, weights, threads=3), together, strict=True):
        np.testing.assert_array_equal(a, b)
    for s in range(3):
        part = slice(offsets[s], offsets[s + 1])
        rows = X[part].copy()
        alone = kernels.fuzzy(rows, [0, len(rows)], centers[None], 2.0, weights[part].copy())
        for a, b in zip(alone, together, strict=True):
            np.testing.assert_array_equal(a[0], b[s])


def test_errors_of_single_rows_even_out():
    X, centers = blobs(9, 20_000, 64, 10)
    assert_within(X, centers, most=1e-7)
    assert_within(X.astype(np.float32), centers, most=1e-7)
