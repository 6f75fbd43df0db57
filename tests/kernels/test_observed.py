"""The kernel of rows with missing cells: by hand, against numpy, alone, in a batch, and complete."""

import numpy as np
import pytest
from kernel_cases import needs_native

from unpooled import kernels
from unpooled.kernels import reference_observed
from unpooled.kernels.observed import nearest_observed, observed

pytestmark = pytest.mark.quick

NAN = np.nan


def case(seed: int, share: float = 0.3, offset: float = 0.0):
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(1, 400)), int(rng.integers(1, 40)), int(rng.integers(1, 20))
    X = rng.normal(size=(n, d)) + offset
    X[rng.random((n, d)) < share] = NAN
    X = X.astype(np.float32) if seed % 5 == 0 else X
    offsets = np.sort(np.concatenate([[0], rng.integers(0, n + 1, 3), [n]]))
    weights = rng.exponential(size=n) * (rng.random(n) > 0.2) if seed % 2 else None
    shares = rng.uniform(0, 1, (n, d)) * (rng.random((n, d)) > 0.2) if seed % 3 == 0 else None
    return X, offsets, rng.normal(size=(k, d)) + offset, weights, shares


def test_by_hand():
    X = [[0.0, NAN], [NAN, 1.0], [9.0, 5.0], [NAN, NAN]]
    t = observed(X, [0, 4], [[1.0, 0.0], [8.0, 8.0]])
    # rows 0 and 1 go to the first centre, each by its one column; row 2 to the second; row 3 has no value
    assert t.mass[0].tolist() == [3.0, 1.0]
    assert t.known[0].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert t.sums[0].tolist() == [[-1.0, 1.0], [1.0, -3.0]]
    assert t.inertia[0].tolist() == [2.0, 10.0]
    assert t.deviations[0].tolist() == [[1.0, 1.0], [1.0, 9.0]]
    assert t.distance[0].tolist() == [2 * np.sqrt(2.0), np.sqrt(10.0)]  # as if both columns were like the one
    labels, sqdist = nearest_observed(X, [[1.0, 0.0], [8.0, 8.0]])
    assert labels.tolist() == [0, 0, 1, 0]
    assert sqdist.tolist() == [1.0, 1.0, 10.0, 0.0]


def test_ties_and_equal_centres_go_to_the_lowest_index():
    centers = [[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [0.0, 4.0]]
    assert nearest_observed([[2.0, NAN], [NAN, 4.0], [3.0, NAN]], centers).labels.tolist() == [0, 1, 0]


@needs_native
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_compiled_kernel_equals_numpy(offset):
    for seed in range(60):
        X, offsets, centers, w, shares = case(seed, offset=offset)
        ours = observed(X, offsets, centers, w, shares)
        theirs = reference_observed.observed(X, offsets, w, shares, centers)
        for name in ours._fields:
            np.testing.assert_allclose(
                getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-9, err_msg=f"{seed} {name}"
            )
        away = reference_observed.distances(X.astype(float), reference_observed.parts_of(X, shares), centers)
        np.testing.assert_array_equal(nearest_observed(X, centers, shares).labels, away.argmin(axis=1))


def test_a_site_alone_and_with_many_threads_gives_the_same_bits():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30_000, 5))
    X[rng.random(X.shape) < 0.3] = NAN
    offsets, centers, w = [0, 7, 7, 20_000, 30_000], rng.normal(size=(6, 5)), rng.exponential(size=30_000)
    whole = observed(X, offsets, centers, w)
    for other in (observed(X, offsets, centers, w, threads=4),):
        assert all(np.array_equal(a, b) for a, b in zip(whole, other, strict=True))
    alone = observed(X[7:20_000], [0, 19_993], centers, w[7:20_000])
    assert all(np.array_equal(a[2], b[0]) for a, b in zip(whole, alone, strict=True))


def test_without_missing_values_it_is_the_plain_kernel():
    for seed in range(20):
        X, offsets, centers, w, _ = case(seed, share=0.0)
        ours, sums = observed(X, offsets, centers, w), kernels.totals(X, offsets, centers[None], w)
        scatter = kernels.scatter(X, offsets, centers, w)
        np.testing.assert_allclose(ours.sums, sums.sums[:, 0], atol=1e-9)
        np.testing.assert_allclose(ours.known, np.repeat(ours.mass[..., None], X.shape[1], axis=2))
        for name in scatter._fields:
            np.testing.assert_allclose(getattr(ours, name), getattr(scatter, name), rtol=1e-9, atol=1e-9)


def test_shares_must_fit():
    with pytest.raises(ValueError, match="shares of shape"):
        observed(np.zeros((3, 2)), [0, 3], np.zeros((1, 2)), None, np.ones((3, 1)))
