"""Would one blob look like this? Data without clusters of the same covariance, simulated at the coordinator.

The gap statistic (Tibshirani, Walther, Hastie: J. R. Statist. Soc. B 63(2), 2001) with two references instead
of one: a box and a Gaussian. Both are drawn from a covariance total, so nothing more leaves a site. k-means
cuts any blob into pieces; clusters are there only where the pieces are tighter than those of both references.
"""

from dataclasses import dataclass

import numpy as np

from unpooled import kernels
from unpooled.core.arrays import FloatArray

_DRAWS = 4
_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Blob:
    """The inertia of blobs, per k."""

    log_inertia: FloatArray  # (2, K) mean over draws of log(inertia per row); box, Gaussian
    error: FloatArray  # (2, K)

    def gap(self, inertia_per_row: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(K,) how much tighter than the tighter of the two blobs, and the error of that."""
        which = self.log_inertia.argmin(axis=0)
        columns = np.arange(self.log_inertia.shape[1])
        return (
            self.log_inertia[which, columns] - np.log(np.maximum(inertia_per_row, 1e-300)),
            self.error[which, columns],
        )


def blobs(covariance: FloatArray, n: int, ks: list[int], rng: np.random.Generator) -> Blob:
    """Simulate both references for every k."""
    values, vectors = np.linalg.eigh(covariance)
    scale = np.sqrt(np.maximum(values, 0.0))
    m = int(min(n, _ROWS))
    logs = np.empty((2, _DRAWS, len(ks)))
    for kind in range(2):
        shape = (_DRAWS, 2, m, len(scale))
        drawn = rng.uniform(-np.sqrt(3), np.sqrt(3), shape) if kind == 0 else rng.standard_normal(shape)
        rows = np.ascontiguousarray((drawn * scale) @ vectors.T)
        for i, k in enumerate(ks):
            logs[kind, :, i] = _log_inertia(rows, k, exact=n <= _ROWS, rng=rng)
    error = logs.std(axis=1, ddof=1) * np.sqrt(1 + 1 / _DRAWS)
    return Blob(logs.mean(axis=1), error)


def _log_inertia(rows: FloatArray, k: int, *, exact: bool, rng: np.random.Generator) -> FloatArray:
    """(draws,) of rows (draws, 2, m, d).

    Where the data have more rows than are drawn, the centres of one half are also tried on the other: what
    they gain by fitting their own rows and lose on others' cancels.
    """
    draws, _, m, d = rows.shape
    fitted = np.ascontiguousarray(rows[:, 0]).reshape(-1, d)
    offsets = np.arange(draws + 1) * m
    seeds = rng.integers(0, 2**63, size=draws, dtype=np.uint64)
    got = kernels.kmeans(fitted, offsets, min(k, m), seeds, n_init=2, max_iter=100, swaps=10, threads=2)
    logs: FloatArray = np.log(np.maximum(got.inertia / m, 1e-300))
    if exact:
        return logs
    others = [
        kernels.nearest(rows[i, 1], got.centers[i][got.mass[i] > 0]).sqdist.mean() for i in range(draws)
    ]
    return np.asarray((logs + np.log(np.maximum(others, 1e-300))) / 2)
