"""The compiled kernels against the numpy ones, for every instruction set of the machine."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import (
    assert_close,
    assert_same,
    each_kernel,
    instruction_sets,
    make_case,
    native,
    needs_native,
)

from unpooled import kernels
from unpooled.kernels import reference

pytestmark = needs_native


@pytest.fixture(params=instruction_sets())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    native()._native.use(request.param)
    yield request.param
    native()._native.use(kernels.ISA)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8, 17, 24, 25, 40])
def test_every_instruction_set(isa: str, d: int, weighted: bool) -> None:
    for seed, k in enumerate([1, 4, 23]):
        case = make_case(seed, d=d, k=k, R=2, weighted=weighted)
        assert_close(each_kernel(case, native()), each_kernel(case, reference))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    d=st.integers(1, 40),
    k=st.integers(1, 70),
    R=st.integers(1, 4),
    sites=st.integers(1, 5),
    rows=st.integers(1, 150),
    weighted=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_any_shape(
    seed: int, d: int, k: int, R: int, sites: int, rows: int, weighted: bool, dtype: type
) -> None:
    case = make_case(seed, d=d, k=k, R=R, sites=sites, rows=rows, weighted=weighted, dtype=dtype)
    assert_close(each_kernel(case, native()), each_kernel(case, reference))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("k", "weighted"), [(1, False), (20, True), (64, False)])
def test_images(k: int, weighted: bool, dtype: type) -> None:
    case = make_case(k, d=784, k=k, R=2, rows=90, weighted=weighted, dtype=dtype)
    assert_close(each_kernel(case, native()), each_kernel(case, reference))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("d", "k"), [(2, 100), (5, 60), (11, 20), (24, 30)])
def test_labels_kept_between_the_steps_of_a_kmeans(isa: str, d: int, k: int, weighted: bool) -> None:
    """Whole numbers make ties and equal rows; more centres than distinct rows leave clusters empty."""
    case = make_case(d, d=d, k=k, sites=4, rows=260, weighted=weighted)
    for X in (case.X, np.round(case.X / 2), np.round(case.X).astype(np.float32)):
        for plan in ((2, 40, 0), (1, 3, 12), (1, 40, 12)):
            args = X, case.offsets, k, case.seeds, case.weights, *plan
            found, expected = native().kmeans(*args, 1), reference.kmeans(*args, 1)
            assert_close({str(plan): found}, {str(plan): expected})


@pytest.mark.parametrize("d", [1, 2, 3, 4, 6, 30])
def test_many_steps_on_overlapping_clusters(d: int) -> None:
    rng = np.random.default_rng(d)
    X, offsets = rng.normal(size=(700, d)), np.array([0, 20, 220, 700])
    for k in (2, 7):
        for steps in (2, 5, 40):
            args = X, offsets, X[:k].copy(), None, steps, True
            assert_close({"": native().local_steps(*args, 1)}, {"": reference.local_steps(*args, 1)})


def test_sites_of_many_chunks() -> None:
    case = make_case(3, d=3, k=6, sites=2, rows=60_000, weighted=True)
    args = case.X, case.offsets, case.centers, case.weights
    assert_close({"totals": native().totals(*args, 1)}, {"totals": reference.totals(*args, 1)})
    args = case.X, case.offsets, case.centers[0], case.weights
    assert_close({"scatter": native().scatter(*args, 1)}, {"scatter": reference.scatter(*args, 1)})


@pytest.mark.parametrize("d", [1, 2, 4, 7, 24, 25, 130])
@pytest.mark.parametrize("weighted", [False, True])
def test_threads_and_neighbours_change_no_bit(d: int, weighted: bool) -> None:
    case = make_case(d, d=d, k=9, R=2, sites=4, rows=20_000 // d, weighted=weighted)
    together = each_kernel(case, native())
    assert_same(each_kernel(case, native(), threads=4), together)
    for s in range(case.sites):
        part = slice(case.offsets[s], case.offsets[s + 1])
        # one element in: the copy starts off any vector boundary
        off_boundary = np.empty(case.X[part].size + 1)[1:].reshape(-1, d)
        off_boundary[:] = case.X[part]
        alone = type(case)(
            off_boundary,
            np.array([0, len(off_boundary)]),
            case.centers,
            None if case.weights is None else case.weights[part].copy(),
            case.seeds[s : s + 1],
        )
        of_site = {
            name: type(result)(*(a[part] if name == "nearest" else a[s : s + 1] for a in result))
            for name, result in together.items()
        }
        assert_same(each_kernel(alone, native()), of_site)


def test_a_row_is_treated_alike_wherever_it_stands() -> None:
    rng = np.random.default_rng(0)
    for d in (2, 13, 24, 30, 200):
        rows, centers = rng.normal(size=(70, d)), rng.normal(size=(11, d))
        whole = kernels.nearest(rows, centers)
        for i in (0, 1, 17, 68, 69):
            label, sqdist = kernels.nearest(rows[i : i + 1], centers)
            assert label[0] == whole.labels[i]
            assert sqdist[0] == whole.sqdist[i]


@pytest.mark.parametrize("d", [1, 2, 3, 5, 24, 25, 784])
@pytest.mark.parametrize("weighted", [False, True])
def test_totals_say_into_which_cell_every_row_went(d: int, weighted: bool) -> None:
    """The labels are those of ``nearest``, and the sums do not depend on being asked for them."""
    case = make_case(d, d=d, k=7, R=3, rows=400, weighted=weighted)
    args = case.X, case.offsets, case.centers, case.weights, 2
    for backend in (native(), reference):
        labels = np.full((3, len(case.X)), -1, np.int32)
        assert_same({"": backend.totals(*args, labels)}, {"": backend.totals(*args)})
        for own, centers in zip(labels, case.centers, strict=True):
            assert (own == backend.nearest(case.X, centers, 1).labels).all()
