"""Rounds over many sites, against a loop of scikit-learn's KMeans per site; one thread each."""

import time
import warnings
from collections.abc import Callable
from itertools import count as count_from
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from unpooled import kernels
from unpooled.algorithms import DWF
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.exchange import round_rng, run_protocol

Row = tuple[str, float, float]


def holzer() -> np.ndarray:
    """The synthetic set of Holzer et al.: five blobs and a hundred outliers."""
    X, _ = make_blobs(10_000, centers=5, cluster_std=0.2, center_box=(-1, 1), random_state=18042023)
    outliers = np.random.default_rng(1).uniform(-1, 1, (100, 2))
    return np.random.default_rng(0).permutation(np.concatenate([X, outliers]))


def sites_of(X: np.ndarray, count: int) -> dict[str, np.ndarray]:
    return {f"{i:05d}": part for i, part in enumerate(np.array_split(X, count))}


def best(job: Callable[[], object], repeats: int) -> float:
    """Seconds of the quickest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def one_round(X: np.ndarray, k: int, count: int, steps: int) -> Callable[[], object]:
    """A complete DWF round of ``count`` sites, with the coordinator's part."""
    federation = Simulation.from_rows(sites_of(X, count), n_threads=1)
    method = DWF(k=k, local_steps=steps, init=X[:k].astype(float))
    state = run_protocol(method.start(federation.sites, round_rng(0, 0)), federation)
    names = map(str, count_from(1))  # a new run each time, so that no site has a cached reply
    return lambda: run_protocol(
        method.round(state, federation.sites, round_rng(0, 1)), federation, run=next(names)
    )


def sklearn_round(X: np.ndarray, k: int, count: int, steps: int) -> Callable[[], object]:
    """The same with scikit-learn: KMeans per site from the same centres."""
    parts, centers = list(sites_of(X, count).values()), X[:k].copy()

    def job() -> None:
        for part in parts:
            KMeans(k, init=centers, n_init=1, max_iter=steps, tol=0).fit(part)

    return job


def dwf_as_published(X: np.ndarray, count: int) -> tuple[float, float]:
    """(ours, scikit-learn) seconds of a complete published run, start included."""
    federation = Simulation.from_rows(sites_of(X, count), n_threads=1)
    done = run(DWF.as_published(k=5), federation, seed=0)
    ours = best(lambda: run(DWF.as_published(k=5), federation, seed=0), 3)
    parts = list(sites_of(X, count).values())

    def theirs() -> None:
        means = [KMeans(5, n_init=5, random_state=0).fit(part).cluster_centers_ for part in parts]
        centers = KMeans(5, n_init=5, random_state=0).fit(np.concatenate(means)).cluster_centers_
        before = centers
        for _ in range(measured):
            local, weights = [], []
            for part in parts:
                model = KMeans(5, init=centers, n_init=1, max_iter=5, tol=1e-8).fit(part)
                labels = ((part[:, None] - centers) ** 2).sum(2).argmin(1)
                local.append(model.cluster_centers_)
                weights.append(np.bincount(labels, minlength=5))
            w = np.array(weights, float)[..., None]
            target = (w * np.array(local)).sum(0) / np.maximum(w.sum(0), 1)
            centers, before = centers + 0.01 * (target - centers) + 0.8 * (centers - before), centers

    measured = 0
    start = best(theirs, 2)
    measured = min(done.rounds, 15)
    rounds = best(theirs, 2) - start
    return ours, start + rounds * done.rounds / measured


def cost_per_site() -> float:
    """Microseconds per additional site, from 10 to 10,000 sites over the same 100,000 rows."""
    X = np.random.default_rng(0).normal(size=(100_000, 2))
    few, many = (best(one_round(X, 5, count, 1), 5) for count in (10, 10_000))
    return (many - few) / 9_990 * 1e6


def peak_memory() -> float:
    """Extra megabytes of a Lloyd step at 1M x 16, k 32: its highest resident size less that before it."""
    X = np.random.default_rng(0).normal(size=(1_000_000, 16))
    job = one_round(X, 32, 1, 1)
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest so far
    before = _resident("VmRSS")
    job()
    return _resident("VmHWM") - before


def _resident(line: str) -> float:
    """Megabytes that Linux reports for this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{line}:")[1].split()[0]) / 1024


def rows() -> list[Row]:
    """(what, target, measured): ratios to the peer, unless ``what`` names another unit."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    found: list[Row] = []
    with threadpool_limits(1):
        found.append(("peak extra memory, 1M x 16, k 32, MB (at most)", 64, peak_memory()))
        X = holzer()
        ours, theirs = best(one_round(X, 5, 100, 5), 200), best(sklearn_round(X, 5, 100, 5), 5)
        found.append(("round of 100 sites, 5 steps, 10,100 x 2, k 5", 500, theirs / ours))
        ours, theirs = dwf_as_published(X, 100)
        found.append(("DWF as published, start included", 700, theirs / ours))
        found.append(("cost per additional site, microseconds (at most)", 10, cost_per_site()))
        for name, target in (("float64", 5), ("float32", 10)):
            wide = np.random.default_rng(0).standard_normal((60_000, 784)).astype(name)
            ours, theirs = best(one_round(wide, 20, 100, 5), 3), best(sklearn_round(wide, 20, 100, 5), 2)
            found.append((f"round of 100 sites, 5 steps, 60,000 x 784, k 20, {name}", target, theirs / ours))
            del wide
    return found


def main() -> None:
    print(f"kernels: {kernels.BACKEND} ({kernels.ISA})")
    for what, target, measured in rows():
        print(f"{what:60} target {target:8.1f}   measured {measured:8.1f}")


if __name__ == "__main__":
    main()
