"""The default against pooled scikit-learn KMeans(n_init=10): inertia ratios over shapes, splits and seeds."""

import sys

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.shapes import SHAPES, SPLITS
from unpooled import FederatedKMeans


def ratios(shape: str, split: str, seeds: range) -> list[tuple[float, int]]:
    """(inertia ratio, exchanges) per seed."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X, k = SHAPES[shape](rng)
        sites = SPLITS[split](X, rng)
        pooled = KMeans(k, n_init=10, random_state=seed).fit(X).inertia_
        model = FederatedKMeans(k, random_state=seed).fit(X, sites=sites)
        found.append((model.inertia_ / pooled, model.run_.exchanges))
    return found


def main(seeds: int = 3) -> None:
    print(f"inertia / pooled inertia (n_init=10), {seeds} seeds: mean, worst; exchanges: mean, maximum")
    everything = []
    for shape in SHAPES:
        for split in SPLITS:
            everything.append(np.array(ratios(shape, split, range(seeds))))
            print(_line(f"{shape:18} {split}", everything[-1]), flush=True)
    print(_line("all", np.concatenate(everything)))


def _line(name: str, pairs: np.ndarray) -> str:
    inertia, exchanges = pairs.T
    return (
        f"{name:39} {inertia.mean():8.4f} {inertia.max():8.4f} {exchanges.mean():6.1f} {exchanges.max():4.0f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
