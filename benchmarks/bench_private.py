"""Differential privacy: inertia over that without noise, here and by diffprivlib; one thread each.

The exit code is 1 if a median is above its target.
"""

import sys
import time
import warnings
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from unpooled import Gaussian, Private, Simulation, kernels, run

# rows, columns, clusters, sites, epsilon, at most
TARGETS = (
    (10_000, 10, 10, 1, 0.5, 1.01),
    (10_000, 10, 10, 1, 1.0, 1.002),
    (10_000, 10, 10, 1, 2.0, 1.001),
    (20_000, 8, 8, 1, 1.0, 1.002),
    (10_000, 10, 10, 10, 1.0, 1.03),
)


def blobs(n: int, d: int, k: int, seed: int) -> np.ndarray:
    """Rows within -1..1; columns keep their proportions."""
    X, _ = make_blobs(n, d, centers=k, random_state=seed)
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - (low + high) / 2) / ((high - low) / 2).max()


def inertia(X: np.ndarray, centers: np.ndarray) -> float:
    return float(kernels.nearest(X, np.asarray(centers, dtype=np.float64)).sqdist.sum())


def ours(X: np.ndarray, k: int, sites: int, epsilon: float, seed: int) -> np.ndarray:
    federation = Simulation.from_rows({f"{s:03d}": X[s::sites] for s in range(sites)}, n_threads=1)
    return run(Private(k=k, dp=Gaussian(epsilon)), federation, seed=seed).state.centers


def peer(X: np.ndarray, k: int, epsilon: float) -> np.ndarray | None:
    """diffprivlib's KMeans, within the same bounds; None if it is not installed."""
    # its trees do not import beside a recent scikit-learn; its k-means does without them
    trees: Any = ModuleType("diffprivlib.models.forest")
    trees.RandomForestClassifier = trees.DecisionTreeClassifier = object
    sys.modules.setdefault("diffprivlib.models.forest", trees)
    try:
        from diffprivlib.models import KMeans as Peer
    except ImportError:
        return None
    d = X.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Peer(k, epsilon=epsilon, bounds=(-np.ones(d), np.ones(d))).fit(X)
    return np.asarray(model.cluster_centers_)


def main(runs: int = 10) -> int:
    missed = 0
    print(f"inertia / inertia without noise (n_init=10): median and worst of {runs} runs, delta 1e-6")
    for n, d, k, sites, epsilon, at_most in TARGETS:
        mine, other, seconds = [], [], 0.0
        for seed in range(runs):
            X = blobs(n, d, k, seed)
            best = KMeans(k, n_init=10, random_state=0).fit(X).inertia_
            began = time.perf_counter()
            mine.append(inertia(X, ours(X, k, sites, epsilon, seed)) / best)
            seconds += time.perf_counter() - began
            found = peer(X, k, epsilon) if sites == 1 else None
            other += [] if found is None else [inertia(X, found) / best]
        theirs = f"diffprivlib {np.median(other):6.2f}" if other else ""
        print(
            f"  {n} x {d}, k {k}, {sites:2} sites, epsilon {epsilon:3}: target {at_most:.3f} "
            f"measured {np.median(mine):.5f} ({max(mine):.5f}), {seconds / runs:.1f} s per run  {theirs}",
            flush=True,
        )
        missed += not np.median(mine) <= at_most
    if missed:
        print(f"{missed} of {len(TARGETS)} are above their targets")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
