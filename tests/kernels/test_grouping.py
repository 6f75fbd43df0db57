"""Groups for microaggregation: sizes, quality, the same groups from the compiled kernel and from numpy."""

import os
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from benchmarks.plain_cut import plain_cut
from kernel_cases import needs_native
from tests.amounts import amounts

from unpooled import kernels
from unpooled.kernels import reference_grouping
from unpooled.kernels.grouping import groups


def blobs(seed: int, n: int, d: int, k: int = 5, dtype: type = np.float64) -> np.ndarray:
    """Clusters, each column scaled."""
    rng = np.random.default_rng(seed)
    X = rng.normal(scale=4, size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    return np.ascontiguousarray((X - X.mean(axis=0)) / X.std(axis=0), dtype)


def drawn(seed: int, dtype: type = np.float64) -> tuple[np.ndarray, int]:
    """Rows of any shape and kind, and a size that they can be grouped by."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 400)), int(rng.choice([1, 2, 3, 4, 5, 8, 16, 33]))
    Z = [
        lambda: blobs(seed, n, d),
        lambda: rng.normal(size=(n, d)),
        lambda: rng.integers(0, 3, (n, d)),  # many rows alike
        lambda: np.exp(3 * rng.normal(size=(n, d))),  # heavy tails
    ][seed % 4]()
    return np.ascontiguousarray(Z, dtype), int(rng.integers(2, min(12, n // 2) + 1))


def squared_error(Z: np.ndarray, labels: np.ndarray) -> float:
    Z = Z.astype(np.float64)
    sums = np.stack([np.bincount(labels, column) for column in Z.T], axis=1)
    return float(((Z - (sums / np.bincount(labels)[:, None])[labels]) ** 2).sum())


def check_sizes(labels: np.ndarray, n: int, least: int) -> None:
    assert labels.shape == (n,)
    assert labels.dtype == np.int64
    sizes = np.bincount(labels)
    assert sizes.min() >= least
    assert sizes.max() <= 2 * least - 1


def numpy_groups(Z: np.ndarray, least: int) -> np.ndarray:
    return reference_grouping.groups(Z, least, lambda share: None)


def best_partition(Z: np.ndarray, least: int) -> float:
    """The least squared error of all partitions into groups of at least ``least`` rows: tries them all."""
    known: dict[tuple[int, ...], float] = {(): 0.0}

    def best(rows: tuple[int, ...]) -> float:
        if rows not in known:
            found = np.inf
            for size in range(least, min(2 * least - 1, len(rows)) + 1):
                for others in combinations(rows[1:], size - 1):
                    own = Z[[rows[0], *others]]
                    left = tuple(r for r in rows[1:] if r not in others)
                    found = min(found, float(((own - own.mean(axis=0)) ** 2).sum()) + best(left))
            known[rows] = found
        return known[rows]

    return best(tuple(range(len(Z))))


def test_two_pairs():
    for Z in ([[0.0], [9.0], [0.1], [9.1]], [[0.0, 5.0], [9.0, 5.0], [0.1, 5.0], [9.1, 5.0]]):
        labels = groups(np.array(Z), 2)
        assert labels[0] == labels[2] != labels[1] == labels[3]


def test_heaps_stay_together():
    Z = np.array([[x, y] for x in (0.0, 10.0, 20.0) for y in (0.0, 0.1, 0.2, 0.3)])
    labels = groups(Z, 3)
    assert labels.max() == 2
    assert all(len(set(labels[i : i + 4])) == 1 for i in (0, 4, 8))


def test_rounds_lower_the_squared_error_and_may_change_the_number_of_groups(monkeypatch):
    Z = blobs(0, 1000, 3)
    after = groups(Z, 7)
    monkeypatch.setattr(reference_grouping, "ROUNDS", 0)
    before = numpy_groups(Z, 7)
    assert squared_error(Z, after) < 0.85 * squared_error(Z, before)
    assert after.max() != before.max()


def test_too_few_rows_are_one_group():
    assert groups(np.empty((0, 3)), 5).tolist() == []
    assert groups(np.ones((1, 3)), 5).tolist() == [0]
    assert groups(np.random.default_rng(0).normal(size=(9, 3)), 5).tolist() == [0] * 9
    check_sizes(groups(np.random.default_rng(0).normal(size=(10, 3)), 5), 10, 5)
    assert sorted(groups(np.zeros((4, 2)), 1).tolist()) == [0, 1, 2, 3]


def test_one_column_is_solved_exactly():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, least = int(rng.integers(4, 10)), int(rng.integers(2, 4))
        Z = rng.normal(size=(n, 1)) if seed % 2 else rng.integers(0, 6, (n, 1)).astype(float)
        labels = groups(Z, least)
        assert squared_error(Z, labels) == pytest.approx(best_partition(Z, least), abs=1e-12)


def test_few_rows_never_beat_the_optimum_and_mostly_reach_it():
    reached = 0
    for seed in range(30):
        Z = blobs(seed, 8 + seed % 2, 2, k=3)
        found, best = squared_error(Z, groups(Z, 2 + seed % 2)), best_partition(Z, 2 + seed % 2)
        assert found >= best - 1e-12
        assert found <= 2.5 * best + 1e-12
        reached += found <= best * (1 + 1e-9)
    assert reached >= 18


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sizes(dtype):
    for seed in range(150):
        Z, least = drawn(seed, dtype)
        check_sizes(groups(Z, least), len(Z), least)


@needs_native
@pytest.mark.parametrize("tables", amounts(6, 32))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_gives_the_same_groups(dtype, tables):
    for seed in range(tables):
        Z, least = drawn(seed + 1000, dtype)
        assert np.array_equal(groups(Z, least), numpy_groups(Z, least)), seed


@needs_native
@pytest.mark.parametrize(("n", "d", "least"), [(1500, 16, 11), (400, 100, 5)])
def test_numpy_gives_the_same_groups_of_many_rows(n, d, least):
    Z = blobs(n, n, d, dtype=np.float32)
    assert np.array_equal(groups(Z, least), numpy_groups(Z, least))


def test_numpy_keeps_the_sizes_where_all_groups_are_compared():
    Z = blobs(3, 1300, 3)
    labels = numpy_groups(Z, 2)
    assert labels.max() >= 512
    check_sizes(labels, len(Z), 2)
    assert squared_error(Z, groups(Z, 2)) == pytest.approx(squared_error(Z, labels), rel=0.03)


def test_better_than_the_plain_cut():
    """By 18 % and more in the mean; less in many columns, where all rows are far from each other."""
    ratios = []
    for seed, (n, d, least) in enumerate(
        [
            (300, 2, 5),
            (1000, 4, 11),
            (3000, 8, 5),
            (3000, 16, 5),
            (8000, 16, 11),
            (2000, 3, 8),
            (5000, 12, 11),
        ]
    ):
        Z = blobs(seed, n, d, k=8)
        ratios.append(squared_error(Z, groups(Z, least)) / squared_error(Z, plain_cut(Z, least)))
    assert max(ratios) < 0.9
    assert np.mean(ratios) < 0.82


def test_never_worse_than_the_plain_cut():
    for seed in range(120):
        Z, least = drawn(seed + 2000)
        Z = Z[:, Z.std(axis=0) > 0]
        if not Z.shape[1]:
            continue
        Z = np.ascontiguousarray((Z - Z.mean(axis=0)) / Z.std(axis=0))  # as the plain cut does
        assert squared_error(Z, groups(Z, least)) <= squared_error(Z, plain_cut(Z, least)) * (1 + 1e-9) + 1e-9


AWKWARD = {
    "all equal": np.full((500, 4), 0.1),
    "all zero": np.zeros((500, 4)),
    "one column": np.random.default_rng(0).normal(size=(500, 1)),
    "one column, all equal": np.full((500, 1), 0.1),
    "constant columns": np.hstack([np.random.default_rng(0).normal(size=(500, 1)), np.ones((500, 4))]),
    "each row twice": np.repeat(np.random.default_rng(0).normal(size=(250, 3)), 2, axis=0),
    "one row far away": np.vstack([np.zeros((499, 3)), [[1e6, 0, 0]]]),
    "many columns": np.random.default_rng(0).normal(size=(300, 200)),
    "growing without end": np.repeat(2.0 ** (np.arange(500) % 60), 3).reshape(500, 3),
    "huge": 1e40 * np.sign(np.random.default_rng(0).normal(size=(200, 3))),
    "tiny": 1e-200 * np.random.default_rng(0).normal(size=(200, 3)),
    "far from zero": 1e6 + np.random.default_rng(0).normal(size=(300, 2)),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("least", [2, 11])
def test_awkward_rows(name, least):
    Z = AWKWARD[name]
    labels = groups(Z, least)
    check_sizes(labels, len(Z), least)
    assert np.array_equal(groups(Z[:200], least), numpy_groups(Z[:200], least))


@needs_native
@pytest.mark.parametrize("kind", ["heavy tails", "three values", "all equal"])
def test_many_rows_that_are_hard_to_cut(kind):
    """Heavy tails, few distinct rows, or one: sizes and, where it is known, the error are right."""
    rng = np.random.default_rng(0)
    Z = {
        "heavy tails": lambda: np.exp(3 * rng.normal(size=(60_000, 4))),
        "three values": lambda: rng.normal(size=(3, 4))[rng.integers(3, size=60_000)],
        "all equal": lambda: np.full((60_000, 4), 0.1),
    }[kind]().astype(np.float32)
    labels = groups(Z, 11)
    check_sizes(labels, len(Z), 11)
    if kind == "three values":  # but for few groups, each is of one value
        assert squared_error(Z, labels) < 1e-3 * squared_error(Z, np.zeros(len(Z), np.int64))


@needs_native
def test_the_rows_alone_decide():
    """Not what was grouped before; and the rows may be read-only."""
    Z = blobs(1, 9000, 16, dtype=np.float32)
    Z.setflags(write=False)
    first = groups(Z, 5)
    groups(blobs(2, 900, 3), 4)
    assert np.array_equal(first, groups(Z, 5))
    check_sizes(first, len(Z), 5)


def test_numpy_can_be_asked_for():
    code = """
import numpy as np
from unpooled.kernels import grouping, reference_grouping
called = []
real = reference_grouping.groups
reference_grouping.groups = lambda *given: called.append(1) or real(*given)
grouping.groups(np.arange(40.0).reshape(20, 2), 3)
print(len(called))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "UNPOOLED_KERNELS": "numpy"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "1\n"


@pytest.mark.parametrize("n", [5, 500, 20_000])
def test_progress_rises_to_1(n):
    if n > 500 and kernels.BACKEND == "numpy":
        pytest.skip("slow in numpy")
    shares: list[float] = []
    groups(blobs(0, n, 8), 5, progress=shares.append)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert n < 20_000 or len(shares) > 3


@needs_native
def test_what_progress_raises_ends_it():
    Z, seen = blobs(0, 30_000, 8, dtype=np.float32), []

    def stop(share: float) -> None:
        seen.append(share)
        if share > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        groups(Z, 5, progress=stop)
    assert 0.3 < seen[-1] < 1
    check_sizes(groups(Z, 5), len(Z), 5)  # and nothing is left behind


def test_what_is_refused():
    Z = np.ones((20, 2))
    for bad in (np.nan, np.inf, -np.inf, 1e41):
        rows = Z.copy()
        rows[3, 1] = bad
        with pytest.raises(ValueError, match="finite"):
            groups(rows, 3)
    with pytest.raises(ValueError, match="min_size must be at least 1, not 0"):
        groups(Z, 0)
    with pytest.raises(ValueError, match="rows by columns"):
        groups(np.ones(20), 3)


@needs_native
def test_memory_is_half_of_the_rows_in_double():
    if sys.platform != "linux":
        pytest.skip("reads the peak from /proc")
    code = """
import re
import numpy as np
from unpooled.kernels.grouping import groups
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
Z = np.random.default_rng(0).standard_normal((100_000, 16), np.float32)  # nothing larger was there before
groups(Z[:100], 11)
before = peak()
groups(Z, 11)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1 < float(done.stdout) <= 0.5 * 100_000 * 16 * 8 / 2**20 + 2
