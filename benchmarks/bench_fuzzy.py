"""Fuzzy c-means: a round of ten sites against a step of scikit-fuzzy on the pooled rows; one thread each."""

from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.bench_rounds import Row, best
from unpooled import kernels
from unpooled.algorithms import Fuzzy
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.exchange import round_rng, run_protocol

STEPS = 3  # of scikit-fuzzy at a time: what it does once per call then counts little


def federation_of(X: np.ndarray) -> Simulation:
    return Simulation.from_rows({str(i): part for i, part in enumerate(np.array_split(X, 10))}, n_threads=1)


def one_round(X: np.ndarray, start: np.ndarray) -> Callable[[], object]:
    """A round of ten sites, with the coordinator's part."""
    federation = federation_of(X)
    method = Fuzzy(k=len(start), init=start, n_starts=1)
    state = run_protocol(method.start(federation.sites, round_rng(0, 0)), federation)
    return lambda: run_protocol(method.round(state, federation.sites, round_rng(0, 1)), federation)


def peer(X: np.ndarray, start: np.ndarray) -> Callable[[], np.ndarray]:
    """``STEPS`` steps of scikit-fuzzy, from the memberships that belong to the same start."""
    from skfuzzy import cmeans

    columns, u = np.ascontiguousarray(X.T), np.ascontiguousarray(kernels.memberships(X, start).T)
    return lambda: cmeans(columns, len(start), 2.0, error=0.0, maxiter=STEPS, init=u)[0]


def speedup(n: int, d: int, k: int, repeats: int) -> float:
    """The ratio of seconds. Both must reach the same centres within 1e-6."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(scale=0.5, size=(n, d))
    start = X[rng.choice(n, k, replace=False)] + 0.1
    method = Fuzzy(k=k, init=start, tol=0.0, max_rounds=STEPS)
    theirs = peer(X, start)
    if not np.allclose(run(method, federation_of(X)).state.centers, theirs(), rtol=0, atol=1e-6):
        raise AssertionError(f"unequal centres at {n} x {d}, k {k}")
    return best(theirs, repeats) / STEPS / best(one_round(X, start), 10 * repeats)


def rows() -> list[Row]:
    """(what, target, measured): ratios to scikit-fuzzy."""
    try:
        import skfuzzy  # noqa: F401
    except ImportError:
        print("  scikit-fuzzy is not installed: pip install scikit-fuzzy")
        return []
    with threadpool_limits(1):
        return [
            ("fuzzy c-means round, 10k x 2, k 4", 20, speedup(10_000, 2, 4, 30)),
            ("fuzzy c-means round, 60k x 64, k 10", 20, speedup(60_000, 64, 10, 5)),
            ("fuzzy c-means round, 1M x 16, k 32", 20, speedup(1_000_000, 16, 32, 1)),
        ]


def main() -> None:
    print(f"kernels: {kernels.BACKEND} ({kernels.ISA})")
    for what, target, measured in rows():
        print(f"{what:55} target {target:8.1f}   measured {measured:8.1f}")


if __name__ == "__main__":
    main()
