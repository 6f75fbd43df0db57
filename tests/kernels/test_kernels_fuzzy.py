"""Fuzzy c-means kernels: against the numpy ones and the textbook, at the edges, and to the last bit."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import assert_close, assert_same, make_case, native, needs_native, usable

from unpooled import kernels
from unpooled.kernels import reference
from unpooled.kernels.reference_fuzzy import exponent


@pytest.fixture(params=[n for n in ("x86-64", "x86-64-v3", "x86-64-v4", "generic") if usable(n)])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    extension = native()._native
    usual = extension.isa()
    extension.use(request.param)
    yield request.param
    extension.use(usual)


def sums(case, backend, m, threads=1):
    args = case.X, case.offsets, case.centers, m, exponent(m), case.weights, threads
    return {"fuzzy": backend.fuzzy(*args)}


def textbook(X, centers, m):
    """(n, k) memberships, where no centre lies on a row."""
    sq = ((X[:, None] - centers[None]) ** 2).sum(axis=2)
    return 1 / ((sq[:, :, None] / sq[:, None, :]) ** (1 / (m - 1))).sum(axis=2)


@pytest.mark.parametrize("m", [1.05, 1.1, 1.5, 2.0, 2.7, 10.0])
@pytest.mark.parametrize("d", [1, 3, 24, 25, 70])
def test_the_textbook(d, m):
    case = make_case(d, d=d, k=5, sites=1, rows=90, weighted=True)
    u = textbook(case.X, case.centers[0], m)
    assert np.allclose(kernels.memberships(case.X, case.centers[0], m), u, rtol=1e-9, atol=1e-14)
    heavy = case.weights[:, None] * u**m
    result = kernels.fuzzy(case.X, case.offsets, case.centers, m, case.weights)
    residual = case.X[:, None] - case.centers[0]
    assert np.allclose(result.sums[0, 0], np.einsum("nk,nkd->kd", heavy, residual), rtol=1e-9, atol=1e-9)
    assert np.allclose(result.mass[0, 0], heavy.sum(axis=0))
    assert np.allclose(result.rows[0, 0], case.weights @ u)
    assert np.allclose(result.squares[0, 0], (heavy**2).sum(axis=0))
    assert np.allclose(result.inertia[0, 0], (heavy * (residual**2).sum(axis=2)).sum(axis=0))


@needs_native
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8, 17, 24, 25, 40, 64])
def test_every_instruction_set(isa, d, weighted):
    for seed, k in enumerate([1, 4, 5, 23]):
        for m in (2.0, 1.5, 1.3):
            case = make_case(seed, d=d, k=k, R=2, weighted=weighted)
            assert_close(sums(case, native(), m), sums(case, reference, m))


@needs_native
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    d=st.integers(1, 60),
    k=st.integers(1, 40),
    R=st.integers(1, 3),
    sites=st.integers(1, 5),
    rows=st.integers(1, 200),
    weighted=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
    m=st.sampled_from([1.001, 1.2, 2.0, 2.5, 6.0]),
    shift=st.sampled_from([0.0, 1e3, -1e6]),
)
def test_any_shape(seed, d, k, R, sites, rows, weighted, dtype, m, shift):
    case = make_case(seed, d=d, k=k, R=R, sites=sites, rows=rows, weighted=weighted, dtype=dtype, shift=shift)
    found, expected = sums(case, native(), m), sums(case, reference, m)
    # near m = 1 a ratio of distances to a power of 1000 magnifies their rounding
    assert_close(found, expected, rtol=1e-8 if m < 1.1 else 1e-9)
    one = np.ascontiguousarray(case.centers[0])
    u = native().memberships(case.X, one, m, exponent(m), 1)
    assert np.allclose(u, reference.memberships(case.X, one, m, exponent(m), 1), atol=1e-8)
    assert np.allclose(u.sum(axis=1), 1, rtol=1e-13)


@needs_native
@pytest.mark.parametrize("d", [1, 2, 4, 7, 24, 25, 64, 130])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [2.0, 1.35])
def test_threads_and_neighbours_change_no_bit(d, weighted, m):
    case = make_case(d, d=d, k=9, R=2, sites=4, rows=20_000 // d + 40, weighted=weighted)
    together = sums(case, native(), m)
    assert_same(sums(case, native(), m, threads=4), together)
    for s in range(case.sites):
        part = slice(case.offsets[s], case.offsets[s + 1])
        off_boundary = np.empty(case.X[part].size + 1)[1:].reshape(-1, d)
        off_boundary[:] = case.X[part]
        weights = None if case.weights is None else case.weights[part].copy()
        alone = type(case)(off_boundary, np.array([0, len(off_boundary)]), case.centers, weights, None)
        of_site = {name: type(r)(*(a[s : s + 1] for a in r)) for name, r in together.items()}
        assert_same(sums(alone, native(), m), of_site)


@pytest.mark.parametrize("d", [2, 30])
@pytest.mark.parametrize("m", [1.0001, 1.5, 2.0, 3.3])
def test_law_15_a_centre_on_a_row_has_it_whole(d, m):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(9, d)) + 1e3
    centers = np.stack([X[4], X[5], rng.normal(size=d), X[4]])
    u = kernels.memberships(X, centers, m)
    assert u[4].tolist() == [0.5, 0, 0, 0.5]
    assert u[5].tolist() == [0, 1, 0, 0]
    result = kernels.fuzzy(X, [0, 9], centers[None], m)
    assert all(np.isfinite(a).all() for a in result)


@pytest.mark.parametrize("d", [1, 3, 26])
@pytest.mark.parametrize("m", [1 + 1e-12, 1.001, 1.5, 2.0, 50.0])
def test_distances_over_many_orders_of_magnitude(d, m):
    rng = np.random.default_rng(0)
    scales = 10.0 ** np.arange(-120, 121, 20)
    X = scales[:, None] * rng.uniform(0.5, 1, (len(scales), d))
    centers = np.concatenate([X[::3] * 1.0000001, np.zeros((1, d))])
    u = kernels.memberships(X, centers, m)
    assert np.isfinite(u).all()
    assert np.allclose(u.sum(axis=1), 1)
    assert all(np.isfinite(a).all() for a in kernels.fuzzy(X, [0, len(X)], centers[None], m))
    assert (u[::3].argmax(axis=1) == np.arange(len(X[::3]))).all()


@pytest.mark.parametrize("d", [2, 40])
def test_rows_so_far_away_that_squares_overflow(d):
    X = np.full((3, d), 1e200)
    X[0] = 0
    result = kernels.fuzzy(X, [0, 3], np.stack([np.zeros(d), np.ones(d)])[None], 2.0)
    assert np.isfinite(result.mass).all()
    assert kernels.memberships(X, np.stack([np.zeros(d), np.ones(d)])).tolist() == [
        [1, 0],
        [0.5, 0.5],
        [0.5, 0.5],
    ]


@pytest.mark.parametrize("d", [3, 48])
def test_data_far_from_zero_lose_nothing(d):
    rng = np.random.default_rng(1)
    X, centers = rng.integers(-8, 9, (200, d)) / 4, rng.integers(-8, 9, (1, 6, d)) / 4 + 0.125
    here = kernels.fuzzy(X, [0, 200], centers)
    for shift in (2.0**20, -(2.0**30)):
        there = kernels.fuzzy(X + shift, [0, 200], centers + shift)
        for a, b in zip(here, there, strict=True):
            assert np.allclose(a, b, rtol=1e-10, atol=1e-9)


def test_no_rows_and_no_weight():
    result = kernels.fuzzy(np.zeros((0, 2)), [0, 0, 0], np.zeros((1, 3, 2)))
    assert [a.shape for a in result] == [(2, 1, 3, 2)] + [(2, 1, 3)] * 4
    assert all((a == 0).all() for a in result)
    result = kernels.fuzzy(np.ones((5, 30)), [0, 5], np.zeros((1, 3, 30)), 2.0, np.zeros(5))
    assert all((a == 0).all() for a in result)
    assert kernels.memberships(np.zeros((0, 2)), np.zeros((3, 2))).shape == (0, 3)


@pytest.mark.parametrize("m", [1.0, 0.0, -1.0, np.nan, np.inf])
def test_m_must_be_above_one(m):
    with pytest.raises(ValueError, match="m must be a finite number above 1"):
        kernels.fuzzy(np.zeros((2, 1)), [0, 2], np.zeros((1, 1, 1)), m)
    with pytest.raises(ValueError, match="m must be a finite number above 1"):
        kernels.memberships(np.zeros((2, 1)), np.zeros((1, 1)), m)


def test_whole_exponents_are_whole():
    assert [exponent(m) for m in (2.0, 1.5, 1.25, 1.1, 1.05)] == [1.0, 2.0, 4.0, 10.0, 20.0]
    assert exponent(3.0) == 0.5
