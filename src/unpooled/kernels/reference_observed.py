"""The kernel of rows with missing cells in plain numpy: the oracle of the compiled one."""

import numpy as np
from numpy.typing import NDArray

from .reference_rows import Ints, Rows, by_label, chunks, masses, weighted
from .results import Floats, Nearest, ObservedTotals


def distances(rows: Floats, part: Floats, centers: Floats) -> Floats:
    """(n, k) squared distances over observed columns; ``part`` (n, d) is 0 for a missing cell."""
    out = np.zeros((len(rows), len(centers)))
    for j in range(rows.shape[1]):
        there = np.where(part[:, j] > 0, rows[:, j], 0.0)
        out += part[:, j, None] * (there[:, None] - centers[None, :, j]) ** 2
    return out


def parts_of(rows: Rows, shares: Floats | None) -> Floats:
    """(n, d) the share of people who have each cell: 0 where it is missing, else 1 for single rows."""
    return np.where(np.isnan(rows), 0.0, 1.0 if shares is None else shares)


def observed(
    X: Rows,
    offsets: NDArray[np.int64],
    weights: Floats | None,
    shares: Floats | None,
    centers: Floats,
    quality: bool = True,
    out: Nearest | None = None,
) -> ObservedTotals:
    S, (k, d) = len(offsets) - 1, centers.shape
    totals = ObservedTotals(*(np.zeros((S, k)) for _ in range(5)), *(np.zeros((S, k, d)) for _ in range(4)))
    for s in range(S):
        for at in chunks(int(offsets[s]), int(offsets[s + 1]), max(k, d)):
            w = None if weights is None else weights[at]
            rows, part = X[at].astype(np.float64), parts_of(X[at], None if shares is None else shares[at])
            away = distances(rows, part, centers)
            labels: Ints = away.argmin(axis=1)
            first = away[np.arange(len(rows)), labels]
            if out is not None:
                out.labels[at], out.sqdist[at] = labels, first
            m, q = masses(labels, w, k)
            totals.mass[s] += m
            totals.squares[s] += q
            totals.inertia[s] += by_label(labels, weighted(first, w), k)
            if quality:
                scale = np.sqrt(d / np.maximum(part.sum(axis=1), 1e-300)) * (part.sum(axis=1) > 0)
                totals.distance[s] += by_label(labels, weighted(np.sqrt(first) * scale, w), k)
            if quality and k > 1:
                away[np.arange(len(rows)), labels] = np.inf
                a, b = np.sqrt(first), np.sqrt(away.min(axis=1))
                silhouette = np.divide(b - a, np.maximum(a, b), out=np.zeros(len(a)), where=b > 0)
                totals.silhouette[s] += by_label(labels, weighted(silhouette, w), k)
            people = weighted(part, w)
            gap = np.where(part > 0, rows - centers[labels], 0.0)
            totals.sums[s] += by_label(labels, people * gap, k)
            totals.deviations[s] += by_label(labels, people * gap**2, k)
            totals.known[s] += by_label(labels, people, k)
            totals.known_squares[s] += by_label(labels, people**2, k)
    return totals
