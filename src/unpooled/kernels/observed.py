"""Nearest centres and sums over rows with missing cells: distances are over the observed columns alone.

|x - c|^2 is the sum of (x_j - c_j)^2 over the columns j that the row has, and is not scaled up for those that
it lacks. So the sum over rows is the sum over all observed cells, which every Lloyd step lowers; Chi, Chi and
Baraniuk (k-POD, 2016) fill missing cells with the centre of their cluster, which is the same.
"""

import importlib
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unpooled import kernels

from . import reference_observed
from .results import Floats, Nearest, ObservedTotals


class _Rows(NamedTuple):
    """Checked rows, with what belongs to them."""

    X: NDArray[np.float32] | Floats
    offsets: NDArray[np.int64]
    weights: Floats | None
    shares: Floats | None


def _checked(X: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None, shares: ArrayLike | None) -> _Rows:
    rows = kernels._rows(X)
    part = None if shares is None else np.ascontiguousarray(shares, np.float64)
    if part is not None and part.shape != rows.shape:
        raise ValueError(f"shares of shape {part.shape} do not fit rows of shape {rows.shape}")
    return _Rows(rows, kernels._offsets(offsets, len(rows)), kernels._weights(weights, len(rows)), part)


def observed(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    weights: ArrayLike | None = None,
    shares: ArrayLike | None = None,
    *,
    quality: bool = True,
    threads: int = 1,
) -> ObservedTotals:
    """The part of each site in a Lloyd step over observed columns, and in the quality indices.

    A missing cell of X is NaN. ``shares`` (n, d), from 0 to 1, is for rows that are groups of people: the
    share of them that has a value. Ties go to the lowest index; a row without any value goes to the first
    centre. Without ``quality`` distance and silhouette are left 0.

    >>> nan = float("nan")
    >>> t = observed([[0.0, nan], [8.0, 3.0]], [0, 2], [[1.0, 1.0], [9.0, 1.0]])
    >>> t.known[0].tolist(), t.sums[0].tolist(), t.inertia[0].tolist()
    ([[1.0, 0.0], [1.0, 1.0]], [[-1.0, 0.0], [-1.0, 2.0]], [1.0, 5.0])
    """
    rows = _checked(X, offsets, weights, shares)
    return _totals(rows, kernels._centers(centers, rows.X.shape[1], 2), threads, quality)


def nearest_observed(
    X: ArrayLike, centers: ArrayLike, shares: ArrayLike | None = None, *, threads: int = 1
) -> Nearest:
    """Labels (n,) int32 and squared distances (n,), over observed columns, of the nearest centres (k, d).

    >>> nearest_observed([[float("nan"), 4.0]], [[0.0, 0.0], [9.0, 3.0]])
    Nearest(labels=array([1], dtype=int32), sqdist=array([1.]))
    """
    rows = _checked(X, [0, len(np.asarray(X))], None, shares)
    out = Nearest(np.zeros(len(rows.X), np.int32), np.zeros(len(rows.X)))
    _totals(rows, kernels._centers(centers, rows.X.shape[1], 2), threads, False, out)
    return out


def _totals(
    rows: _Rows, centers: Floats, threads: int, quality: bool, out: Nearest | None = None
) -> ObservedTotals:
    if kernels.BACKEND == "numpy":
        return reference_observed.observed(*rows, centers, quality, out)
    S, (k, d) = len(rows.offsets) - 1, centers.shape
    clusters, cells = np.zeros((5, S, k)), np.zeros((4, S, k, d))
    importlib.import_module("._native", __package__).observed(
        rows.X,
        rows.offsets,
        centers,
        rows.weights,
        rows.shares,
        clusters,
        cells,
        None if out is None else out.labels,
        None if out is None else out.sqdist,
        quality,
        threads,
    )
    return ObservedTotals(*clusters, *cells)
