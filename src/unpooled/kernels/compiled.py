"""The compiled kernels, a ``Backend``: allocate what is filled, and call the extension (native/README.md)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .recall import Recall
from .reference_rows import Rows
from .results import Floats, Fuzzy, KMeans, LocalSteps, MiniBatch, Nearest, Scatter, Totals


class Compiled:
    """The functions of ``Backend`` over the extension module."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.ISA: str = native.isa()

    def totals(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        weights: Floats | None,
        threads: int,
        labels: NDArray[np.int32] | None = None,
    ) -> Totals:
        S, (R, k, d) = len(offsets) - 1, centers.shape
        sums, mass, inertia = np.empty((S, R, k, d)), np.empty((S, R, k)), np.empty((S, R, k))
        squares = mass if weights is None else np.empty((S, R, k))
        self._native.totals(X, offsets, centers, weights, sums, mass, squares, inertia, labels, threads)
        return Totals(sums, mass, squares, inertia)

    def nearest(self, X: Rows, centers: Floats, threads: int) -> Nearest:
        labels, sqdist = np.empty(len(X), np.int32), np.empty(len(X))
        self._native.nearest(X, centers, labels, sqdist, threads)
        return Nearest(labels, sqdist)

    def local_steps(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        weights: Floats | None,
        steps: int,
        recount: bool,
        threads: int,
        recall: Recall | None = None,
    ) -> LocalSteps:
        S, (k, d) = len(offsets) - 1, centers.shape[-2:]
        moved, counts = np.empty((S, k, d)), np.empty((6, S, k))
        kept = None
        if recall is not None and weights is None and centers.ndim == 2 and d > self._native.FEW_DIMENSIONS:
            kept = recall.at(X, offsets, centers, steps)
        self._native.local_steps(X, offsets, centers, weights, moved, counts, steps, recount, kept, threads)
        return LocalSteps(moved, *counts)

    def kmeans(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        k: int,
        seeds: NDArray[np.uint64],
        weights: Floats | None,
        n_init: int,
        max_iter: int,
        swaps: int,
        threads: int,
    ) -> KMeans:
        S, d = len(offsets) - 1, X.shape[1]
        out = KMeans(np.empty((S, k, d)), np.empty((S, k)), np.empty((S, k)), np.empty(S))
        self._native.kmeans(X, offsets, seeds, weights, *out, n_init, max_iter, swaps, threads)
        return out

    def minibatch(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        seeds: NDArray[np.uint64],
        weights: Floats | None,
        epochs: int,
        batch: int,
        rate: float,
        threads: int,
    ) -> MiniBatch:
        S, (k, d) = len(offsets) - 1, centers.shape
        out = MiniBatch(np.empty((S, k, d)), np.empty((S, k)), np.empty((S, k)))
        self._native.minibatch(X, offsets, centers, seeds, weights, *out, epochs, batch, rate, threads)
        return out

    def scatter(
        self, X: Rows, offsets: NDArray[np.int64], centers: Floats, weights: Floats | None, threads: int
    ) -> Scatter:
        sums = np.empty((5, len(offsets) - 1, len(centers)))
        self._native.scatter(X, offsets, centers, weights, sums, threads)
        return Scatter(*sums)

    def fuzzy(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        m: float,
        power: float,
        weights: Floats | None,
        threads: int,
    ) -> Fuzzy:
        S, (R, k, d) = len(offsets) - 1, centers.shape
        sums, counts = np.empty((S, R, k, d)), np.empty((4, S, R, k))
        self._native.fuzzy(X, offsets, centers, weights, sums, counts, m, power, threads)
        return Fuzzy(sums, *counts)

    def memberships(self, X: Rows, centers: Floats, m: float, power: float, threads: int) -> Floats:
        out = np.empty((len(X), len(centers)))
        self._native.memberships(X, centers, out, m, power, threads)
        return out

    def fold(self, total: Floats, block: Floats) -> None:
        self._native.fold(total, block)

    def fold_moves(
        self, centers: Floats, received: Floats, weight: Floats, weighted: Floats, plain: Floats
    ) -> None:
        self._native.fold_moves(centers, received, weight, weighted, plain)
