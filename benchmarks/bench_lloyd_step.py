"""One Lloyd step against scikit-learn's own, and the small calls that every round makes; one thread each."""

from collections.abc import Callable
from time import perf_counter

import numpy as np
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
from threadpoolctl import threadpool_limits

from unpooled import kernels

REPEATS = 9


def seconds(*calls: Callable[[], object], times: int = 1) -> list[float]:
    """The fastest of several repeats of each call, taken in turns so that all meet the same machine."""
    for call in calls:
        call()
    best = [np.inf] * len(calls)
    for _ in range(REPEATS):
        for i, call in enumerate(calls):
            start = perf_counter()
            for _ in range(times):
                call()
            best[i] = min(best[i], (perf_counter() - start) / times)
    return best


def beside_sklearn(n: int, d: int, k: int, dtype: type = np.float64) -> tuple[float, float]:
    """Seconds of our step, and of scikit-learn's."""
    X = np.random.default_rng(0).standard_normal((n, d)).astype(dtype)
    start = X[:k].copy()
    weights, labels = np.ones(n, dtype), np.full(n, -1, np.int32)
    moved, mass, shift = np.zeros_like(start), np.zeros(k, dtype), np.zeros(k, dtype)
    centers, offsets = start[None].astype(np.float64), np.array([0, n])
    with threadpool_limits(1):
        ours, theirs = seconds(
            lambda: kernels.totals(X, offsets, centers),
            lambda: lloyd_iter_chunked_dense(
                X, weights, start, moved, mass, labels, shift, 1, update_centers=True
            ),
        )
    return ours, theirs


def _against_sklearn(n: int, d: int, k: int, dtype: type = np.float64) -> float:
    """How many of our steps fit in one of scikit-learn's."""
    ours, theirs = beside_sklearn(n, d, k, dtype)
    return theirs / ours


def _local_steps(sites: int, rows: int, steps: int) -> float:
    """Microseconds of one call, rows x 2 at each site, k = 5."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((sites * rows, 2)) + rng.integers(0, 5, (sites * rows, 1)) * [[2.0, 1.0]]
    offsets, centers = np.arange(sites + 1) * rows, X[:5].copy()
    return 1e6 * seconds(lambda: kernels.local_steps(X, offsets, centers, steps=steps), times=20)[0]


def _totals_of_small_sites(sites: int) -> float:
    """Microseconds per site of 10 rows x 2, k = 5."""
    X = np.random.default_rng(2).standard_normal((sites * 10, 2))
    offsets, centers = np.arange(sites + 1) * 10, X[:5][None].copy()
    return 1e6 * seconds(lambda: kernels.totals(X, offsets, centers), times=3)[0] / sites


def _sketch(d: int) -> float:
    """Milliseconds of the k-means a server runs in every round: 80 weighted rows, k = 16, best of 10."""
    rng = np.random.default_rng(3)
    X, weights = rng.standard_normal((80, d)), rng.exponential(size=80)
    return 1e3 * seconds(lambda: kernels.kmeans(X, [0, 80], 16, [1], weights, n_init=10), times=3)[0]


def rows() -> list[tuple[str, float, float]]:
    """(what, target, measured)."""
    return [
        ("Lloyd step, 1M x 2, k 16: times scikit-learn's speed", 4.0, _against_sklearn(10**6, 2, 16)),
        ("Lloyd step, 1M x 16, k 32: times scikit-learn's speed", 2.0, _against_sklearn(10**6, 16, 32)),
        ("Lloyd step, 60k x 784, k 20: times scikit-learn's speed", 1.5, _against_sklearn(60_000, 784, 20)),
        ("Lloyd step, 28k x 784, k 64: times scikit-learn's speed", 1.2, _against_sklearn(28_000, 784, 64)),
        ("the same in float32, 1M x 2, k 16", 8.0, _against_sklearn(10**6, 2, 16, np.float32)),
        ("the same in float32, 1M x 16, k 32", 4.0, _against_sklearn(10**6, 16, 32, np.float32)),
        ("the same in float32, 60k x 784, k 20", 3.0, _against_sklearn(60_000, 784, 20, np.float32)),
        ("the same in float32, 28k x 784, k 64", 2.4, _against_sklearn(28_000, 784, 64, np.float32)),
        ("5 local steps, 100 sites x 101 x 2, k 5: at most µs", 100.0, _local_steps(100, 101, 5)),
        ("totals, 10,000 sites x 10 x 2, k 5: at most µs per site", 1.0, _totals_of_small_sites(10_000)),
        (
            "local step, 10,000 sites x 10 x 2, k 5: at most µs per site",
            1.0,
            _local_steps(10_000, 10, 1) / 1e4,
        ),
        ("k-means, 80 x 2, k 16, best of 10: at most ms", 1.0, _sketch(2)),
        ("k-means, 80 x 784, k 16, best of 10: at most ms", 1.0, _sketch(784)),
    ]


def main() -> None:
    print(f"kernels: {kernels.BACKEND} ({kernels.ISA})")
    for what, target, measured in rows():
        print(f"{what:60} target {target:7.2f}   measured {measured:7.2f}", flush=True)


if __name__ == "__main__":
    main()
