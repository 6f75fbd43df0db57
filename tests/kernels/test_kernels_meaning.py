"""What the kernels mean, on cases small enough to work out by hand; on either backend."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kernel_cases import make_case

from unpooled import kernels
from unpooled.kernels import reference


@pytest.fixture(params=["numpy", "native"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "_backend", reference)
        monkeypatch.setattr(kernels, "BACKEND", "numpy")
    elif kernels.BACKEND != "native":
        pytest.skip("nothing was compiled")
    return request.param


LINE = np.array([[0.0], [1.0], [4.0], [9.0], [10.0]])


def test_totals_by_hand() -> None:
    t = kernels.totals(LINE, [0, 3, 3, 5], [[[1.0], [9.0]], [[0.0], [100.0]]], [1.0, 2.0, 0.5, 1.0, 0.0])
    assert t.mass.tolist() == [[[3.5, 0], [3.5, 0]], [[0, 0], [0, 0]], [[0, 1], [1, 0]]]
    assert t.squares.tolist() == [[[5.25, 0], [5.25, 0]], [[0, 0], [0, 0]], [[0, 1], [1, 0]]]
    assert t.sums[..., 0].tolist() == [[[0.5, 0], [4, 0]], [[0, 0], [0, 0]], [[0, 0], [9, 0]]]
    assert t.inertia.tolist() == [[[5.5, 0], [10, 0]], [[0, 0], [0, 0]], [[0, 0], [81, 0]]]


def test_without_weights_the_squares_are_the_mass() -> None:
    t = kernels.totals(LINE, [0, 5], [[[0.0], [10.0]]])
    assert t.squares is t.mass
    assert t.mass.tolist() == [[[3, 2]]]


@pytest.mark.parametrize("d", [25, 60, 784])
def test_float32_rows_go_where_float64_rows_go(d: int) -> None:
    rng = np.random.default_rng(d)
    X, centers = rng.normal(size=(3000, d)).astype(np.float32), rng.normal(size=(40, d))
    centers[20:] = centers[:20] + 1e-6 * rng.normal(size=(20, d))  # pairs closer than float32 can tell
    np.testing.assert_array_equal(
        kernels.nearest(X, centers).labels, kernels.nearest(X.astype(np.float64), centers).labels
    )


@pytest.mark.parametrize("d", [1, 2, 3, 4, 6, 24, 25, 60])
def test_ties_go_to_the_lowest_index(d: int) -> None:
    rng = np.random.default_rng(d)
    centers = np.repeat(rng.normal(size=(1, d)), 13, axis=0)
    centers[0] += 5
    assert set(kernels.nearest(rng.normal(size=(41, d)), centers).labels) == {1}


def test_nearest_types() -> None:
    labels, sqdist = kernels.nearest(LINE.astype(np.float32), [[0.0], [9.0]])
    assert labels.dtype == np.int32
    assert sqdist.dtype == np.float64
    assert labels.tolist() == [0, 0, 0, 1, 1]
    assert sqdist.tolist() == [0, 1, 16, 0, 1]


def test_support_is_the_effective_number_of_rows() -> None:
    X = np.array([[0.0], [4.0], [5.2], [5.4]])
    start = [[0.0], [4.5], [6.1], [99.0]]
    step = kernels.local_steps(X, [0, 4], start)
    assert step.centers[0, :, 0].tolist() == pytest.approx([0, 4.6, 5.4, 99])
    assert step.support.tolist() == [[1, 2, 1, 0]]
    step = kernels.local_steps(X, [0, 4], start, [1.0, 1.0, 3.0, 0.0])
    assert step.support[0].tolist() == pytest.approx([1, 16 / 10, 0, 0])
    assert step.centers[0, 2, 0] == 6.1  # a row without weight is not support


def test_a_centre_that_loses_its_rows_keeps_centre_and_support() -> None:
    # the middle centre averages 4 and 6 at 5, and then its neighbours have come nearer to both
    X = np.array([[3.5], [4.0], [6.0], [6.5]])
    start = [[2.0], [5.1], [7.8]]
    step = kernels.local_steps(X, [0, 4], start, steps=9, recount=True)
    assert step.mass.tolist() == [[1, 2, 1]]
    assert step.centers[0, :, 0].tolist() == [3.75, 5, 6.25]
    assert step.support.tolist() == [[2, 2, 2]]
    assert step.recount.tolist() == [[2, 0, 2]]


def test_local_steps_of_an_empty_site_are_none() -> None:
    step = kernels.local_steps(np.zeros((0, 2)), [0, 0], [[1.0, 2.0]], steps=3, recount=True)
    assert step.centers.tolist() == [[[1, 2]]]
    for counts in step[1:]:
        assert counts.tolist() == [[0]]


def test_no_steps_only_count() -> None:
    step = kernels.local_steps(LINE, [0, 5], [[0.0], [10.0]], steps=0, recount=True)
    assert step.mass.tolist() == [[3, 2]]
    assert step.inertia.tolist() == [[17, 1]]
    assert step.centers[..., 0].tolist() == [[0, 10]]
    assert step.support.tolist() == step.recount.tolist() == [[0, 0]]


def test_recount_leaves_out_what_was_empty() -> None:
    # the first centre moves to 1, and the second would now be nearer to 4, but no row here has made it
    X = np.array([[0.0], [0.0], [0.0], [4.0]])
    step = kernels.local_steps(X, [0, 4], [[3.0], [6.0]], [1.0, 1.0, 1.0, 2.0], recount=True)
    assert step.support.tolist() == [[pytest.approx(25 / 7), 0]]
    assert step.recount.tolist() == [[5, 0]]
    assert step.recount_squares.tolist() == [[7, 0]]


@pytest.mark.parametrize("d", [2, 6, 30])
def test_steps_are_totals_one_after_the_other(d: int) -> None:
    case = make_case(5, d=d, k=4, sites=3, rows=80, weighted=True)
    stepped = kernels.local_steps(case.X, case.offsets, case.centers[0], case.weights, steps=3)
    centers = np.repeat(case.centers[:1], case.sites, axis=0)
    for _ in range(3):
        for s in range(case.sites):
            part = slice(case.offsets[s], case.offsets[s + 1])
            t = kernels.totals(
                case.X[part], [0, part.stop - part.start], centers[s : s + 1], case.weights[part]
            )
            full = t.mass[0, 0] > 0
            centers[s, full] += t.sums[0, 0, full] / t.mass[0, 0, full, None]
    np.testing.assert_allclose(stepped.centers, centers, rtol=1e-12)


def test_minibatch_of_all_rows_is_a_lloyd_step() -> None:
    case = make_case(7, d=3, k=4, weighted=True)
    batch = kernels.minibatch(case.X, case.offsets, case.centers[0], case.seeds, case.weights)
    step = kernels.local_steps(case.X, case.offsets, case.centers[0], case.weights)
    np.testing.assert_allclose(batch.centers, step.centers, rtol=1e-12)
    np.testing.assert_allclose(batch.mass, step.mass, rtol=1e-12)
    np.testing.assert_allclose(batch.squares, step.squares, rtol=1e-12)


def test_minibatch_by_hand() -> None:
    # two batches of the same row, so their order does not matter: half way to 1, then a quarter of the rest
    X = np.array([[1.0], [1.0]])
    step = kernels.minibatch(X, [0, 2], [[0.0]], [3], batch=1, rate=0.5)
    assert step.centers.tolist() == [[[0.5 + 0.5 / 2 * 0.5]]]
    assert step.mass.tolist() == [[2]]
    twice = kernels.minibatch(X, [0, 2], [[0.0]], [3], batch=1, rate=0.5, epochs=2)
    assert twice.mass.tolist() == [[2]]


def test_minibatch_shuffles_the_batches_by_seed() -> None:
    X = np.arange(40.0)[:, None]
    ends = {float(kernels.minibatch(X, [0, 40], [[0.0]], [s], batch=4).centers[0, 0, 0]) for s in range(8)}
    assert len(ends) == 1  # all weighted alike at rate 1: the mean, whatever the order
    ends = {
        float(kernels.minibatch(X, [0, 40], [[0.0]], [s], batch=4, rate=0.5).centers[0, 0, 0])
        for s in range(8)
    }
    assert len(ends) == 8


def test_scatter_by_hand() -> None:
    s = kernels.scatter(LINE, [0, 5], [[0.0], [10.0]], [1.0, 2.0, 1.0, 1.0, 1.0])
    assert s.mass.tolist() == [[4, 2]]
    assert s.squares.tolist() == [[6, 2]]
    assert s.distance.tolist() == [[6, 1]]
    assert s.inertia.tolist() == [[18, 1]]
    assert s.silhouette[0].tolist() == pytest.approx([1 + 2 * (8 / 9) + 2 / 6, 8 / 9 + 1])


def test_one_centre_has_no_silhouette() -> None:
    assert kernels.scatter(LINE, [0, 5], [[0.0]]).silhouette.tolist() == [[0]]
    assert kernels.scatter(np.zeros((3, 30)), [0, 3], np.zeros((2, 30))).silhouette.tolist() == [[0, 0]]


def test_fold_adds_in_order() -> None:
    rng = np.random.default_rng(0)
    block = rng.normal(size=(37, 700)) * 10.0 ** rng.integers(-12, 12, (37, 1))
    start = rng.normal(size=700)
    expected = start.copy()
    for row in block:
        expected += row
    total = start.copy()
    assert kernels.fold(total, block) is total
    np.testing.assert_array_equal(total, expected)
    assert kernels.fold(np.zeros(0), np.zeros((3, 0))).shape == (0,)


@pytest.mark.parametrize("d", [2, 24, 25, 100])
def test_a_large_common_offset_loses_no_row(d: int) -> None:
    plain, far = make_case(1, d=d, k=8, rows=200), make_case(1, d=d, k=8, rows=200, shift=1e6)
    near, moved = (kernels.nearest(case.X, case.centers[0]) for case in (plain, far))
    np.testing.assert_array_equal(moved.labels, near.labels)
    np.testing.assert_allclose(moved.sqdist, near.sqdist, rtol=1e-6)
    near, moved = (kernels.totals(case.X, case.offsets, case.centers) for case in (plain, far))
    np.testing.assert_allclose(moved.sums, near.sums, atol=1e-6)
    np.testing.assert_allclose(moved.inertia, near.inertia, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [2, 30])
def test_a_row_far_out_blurs_no_other_cluster(d: int, dtype: type) -> None:
    X = np.random.default_rng(0).normal(size=(60, d)).astype(dtype)
    X[7] = 1e12
    centers = X[[7, 1, 2]].astype(np.float64)
    alone = kernels.local_steps(np.delete(X, 7, axis=0), [0, 59], centers[1:], steps=3)
    step = kernels.local_steps(X, [0, 60], centers, steps=3)
    np.testing.assert_allclose(step.centers[0, 1:], alone.centers[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(step.inertia[0, 1:], alone.inertia[0], rtol=1e-12)


def test_float32_sums_are_float64() -> None:
    # 2^24 + 1 is the first whole number that float32 cannot count to
    X = np.full((100_000, 1), 1000.1, np.float32)
    t = kernels.totals(X, [0, len(X)], [[[0.0]]])
    assert t.sums[0, 0, 0, 0] == pytest.approx(float(np.float32(1000.1)) * 1e5, rel=1e-14)


@pytest.mark.parametrize("d", [2, 30])
def test_rows_may_be_read_only_or_mapped(d: int, tmp_path: Path) -> None:
    case = make_case(2, d=d, k=3, rows=50)
    expected = kernels.totals(case.X, case.offsets, case.centers)
    np.save(tmp_path / "rows.npy", case.X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    locked = case.X.copy()
    locked.flags.writeable = False
    for X in (mapped, locked, np.asfortranarray(case.X), case.X.tolist()):
        for a, b in zip(kernels.totals(X, case.offsets, case.centers), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_does_not_fit_is_refused() -> None:
    centers = np.zeros((1, 2, 1))
    for offsets in ([0, 4], [1, 5], [0, 6], [0, 3, 2, 5], [[0, 5]], []):
        with pytest.raises(ValueError, match="offsets"):
            kernels.totals(LINE, offsets, centers)
    with pytest.raises(ValueError, match="weights"):
        kernels.totals(LINE, [0, 5], centers, np.ones(4))
    with pytest.raises(ValueError, match="centers"):
        kernels.totals(LINE, [0, 5], np.zeros((2, 1)))
    with pytest.raises(ValueError, match="centers"):
        kernels.local_steps(LINE, [0, 5], np.zeros((3, 2, 1)))
    with pytest.raises(ValueError, match="seeds"):
        kernels.kmeans(LINE, [0, 5], 2, [1, 2])
    with pytest.raises(ValueError, match="k must"):
        kernels.kmeans(LINE, [0, 5], 0, [1])
    with pytest.raises(ValueError, match="rows by columns"):
        kernels.nearest(np.zeros(3), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="block"):
        kernels.fold(np.zeros(3), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="total"):
        kernels.fold(np.zeros(3, np.float32), np.zeros((2, 3)))


@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1.0, 1e30, 1e90])
@pytest.mark.parametrize("apart", [0.0, 1e4, 1e7])
def test_labels_of_many_columns_are_those_of_distances_in_double(scale, apart):
    """Scores are taken in float; where it cannot tell two centres apart, distances decide."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((700, 40))
    X[:350] += apart
    centers = np.concatenate([X[10:16] + 1e-3 * rng.standard_normal((6, 40)), X[400:406], X[400:402]])
    X[5] = 1e50  # a row whose scores overflow
    X, centers = X * scale, centers * scale
    labels = kernels.nearest(X, centers).labels
    exact = ((X[:, None] - centers) ** 2).sum(axis=2)
    chosen = exact[np.arange(len(X)), labels]
    assert (chosen <= exact.min(axis=1) * (1 + 1e-9)).all()
    one_by_one = [kernels.nearest(x[None], centers).labels[0] for x in X[:40]]
    assert labels[:40].tolist() == one_by_one
