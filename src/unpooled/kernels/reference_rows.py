"""Work of the numpy kernels on a chunk of rows: the nearest centre, and sums by label."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .results import Floats

Rows = NDArray[np.float32] | Floats
Ints = NDArray[np.int64]

FEW_DIMENSIONS = 24  #: up to here distances are summed from residuals; above, ranked by dot products
_CHUNK_ENTRIES = 1 << 18


def chunks(begin: int, end: int, width: int) -> Iterator[slice]:
    """Slices of the rows begin:end whose chunk x width temporaries stay small."""
    size = max(16, _CHUNK_ENTRIES // max(width, 1))
    for start in range(begin, end, size):
        yield slice(start, min(start + size, end))


def sqdist_to(rows: Floats, point: Floats) -> Floats:
    """(n,) squared distances of the rows to one point."""
    residual = rows - point
    squares: Floats = np.einsum("ij,ij->i", residual, residual)
    return squares


@np.errstate(over="ignore", invalid="ignore")  # as the compiled kernels: a square beyond the range is inf
def _ranking(rows: Floats, centers: Floats) -> Floats:
    """(n, k) numbers that rank the centres of each row as their distances do."""
    n, d = rows.shape
    if d > FEW_DIMENSIONS:
        # moved by the centre of smallest norm: data far from the origin would lose the ranking to rounding
        shift = centers[np.einsum("ij,ij->i", centers, centers).argmin()]
        moved, near = centers - shift, rows - shift
        halves = 0.5 * np.einsum("ij,ij->i", moved, moved)
        scores: Floats = halves - near @ moved.T
        reach, length = np.sqrt(2 * halves.max()), np.sqrt(np.einsum("ij,ij->i", near, near))
        doubt = 2 * (d + 8) * 2.0**-53 * reach * (length + reach)
        close = scores <= scores.min(axis=1, keepdims=True) + doubt[:, None]
        for i in np.flatnonzero(close.sum(axis=1) > 1):  # closer than rounding can tell: distances decide
            scores[i] = np.where(close[i], sqdist_to(centers, rows[i]), np.inf)
        return scores
    total = np.zeros((n, len(centers)))
    for t in range(d):
        difference = rows[:, t, None] - centers[None, :, t]
        total += difference * difference
    return total


def nearest_of(rows: Floats, centers: Floats) -> tuple[Ints, Floats]:
    """Labels and squared distances of a chunk; ties go to the lowest index."""
    labels = _ranking(rows, centers).argmin(axis=1)
    residual = rows - centers[labels]
    return labels, np.einsum("ij,ij->i", residual, residual)


def second_of(rows: Floats, centers: Floats) -> tuple[Ints, Floats, Floats]:
    """Labels, squared distances to the nearest and to the second nearest centre (infinite if k is 1)."""
    ranking = _ranking(rows, centers)
    labels = ranking.argmin(axis=1)
    residual = rows - centers[labels]
    first = np.einsum("ij,ij->i", residual, residual)
    if len(centers) == 1:
        return labels, first, np.full(len(rows), np.inf)
    ranking[np.arange(len(rows)), labels] = np.inf
    residual = rows - centers[ranking.argmin(axis=1)]
    return labels, first, np.einsum("ij,ij->i", residual, residual)


def by_label(labels: Ints, values: Floats, k: int) -> Floats:
    """Sums of the values, (n,) or (n, d), of each label, added in row order."""
    if values.ndim == 1:
        return np.bincount(labels, values, minlength=k).astype(np.float64, copy=False)
    d = values.shape[1]
    cells = labels[:, None] * d + np.arange(d)
    sums = np.bincount(cells.ravel(), values.ravel(), minlength=k * d)
    return sums.astype(np.float64, copy=False).reshape(k, d)


def masses(labels: Ints, weights: Floats | None, k: int) -> tuple[Floats, Floats]:
    """Sums of w and w^2 of each label; the counts twice without weights."""
    if weights is None:
        counts = np.bincount(labels, minlength=k).astype(np.float64)
        return counts, counts
    return by_label(labels, weights, k), by_label(labels, weights * weights, k)


def weighted(values: Floats, weights: Floats | None) -> Floats:
    """The values, (n,) or (n, d), times the weight of their row."""
    if weights is None:
        return values
    return values * (weights if values.ndim == 1 else weights[:, None])
