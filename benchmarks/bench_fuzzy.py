"""Fuzzy c-means against scikit-fuzzy: a whole run of so many rounds from the same start; one thread each."""

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.bench_rounds import Row, best
from unpooled import Fuzzy, InProcess, kernels, run


def ours(X: np.ndarray, start: np.ndarray, steps: int) -> np.ndarray:
    """So many rounds over ten sites, coordinator and all."""
    sites = {str(i): part for i, part in enumerate(np.array_split(X, 10))}
    federation = InProcess.of(sites, threads=1)
    method = Fuzzy(k=len(start), init=start, tol=0.0, max_rounds=steps)
    return run(method, federation).state.centers


def theirs(X: np.ndarray, start: np.ndarray, steps: int) -> np.ndarray:
    """The same by scikit-fuzzy, which starts from memberships and so has one step less to do."""
    from skfuzzy import cmeans

    u = kernels.memberships(X, start).T
    return cmeans(X.T, len(start), 2.0, error=0.0, maxiter=steps, init=u)[0]


def speedup(n: int, d: int, k: int, steps: int, repeats: int) -> float:
    """How many times faster; both end at the same centres, or the comparison would mean nothing."""
    rng = np.random.default_rng(0)
    middle = rng.normal(size=(k, d))
    X = middle[rng.integers(k, size=n)] + rng.normal(scale=0.5, size=(n, d))
    start = X[rng.choice(n, k, replace=False)] + 0.1
    if not np.allclose(ours(X, start, steps), theirs(X, start, steps), atol=1e-8):
        raise AssertionError(f"unequal centres at {n} x {d}, k {k}")
    fast = best(lambda: ours(X, start, steps), repeats + 2)
    return best(lambda: theirs(X, start, steps), repeats) / fast


def rows() -> list[Row]:
    """(what, asked, reached): ratios to scikit-fuzzy."""
    try:
        import skfuzzy  # noqa: F401
    except ImportError:
        print("  scikit-fuzzy is not installed: pip install scikit-fuzzy")
        return []
    with threadpool_limits(1):
        return [
            ("fuzzy c-means, 10k x 2, k 4", 15, speedup(10_000, 2, 4, 50, 5)),
            ("fuzzy c-means, 60k x 64, k 10", 15, speedup(60_000, 64, 10, 10, 4)),
            ("fuzzy c-means, 1M x 16, k 32", 20, speedup(1_000_000, 16, 32, 2, 2)),
        ]


def main() -> None:
    print(f"kernels: {kernels.BACKEND} ({kernels.ISA})")
    for what, asked, reached in rows():
        print(f"{what:55} asked {asked:8.1f}   reached {reached:8.1f}")


if __name__ == "__main__":
    main()
