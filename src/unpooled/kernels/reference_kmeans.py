"""A whole k-means of one site, in numpy: greedy k-means++, Lloyd, random swaps.

The order of draws, the same in the compiled kernel: per restart one uniform number for the first centre,
then 2 + floor(ln k) for the candidates of each other one; after all restarts, per swap one for the centre to
remove and one for the row to insert.
"""

from collections.abc import Iterator
from math import floor, log
from typing import NamedTuple

import numpy as np

from .reference_rows import Ints, Rows, by_label, chunks, masses, nearest_of, second_of, sqdist_to, weighted
from .results import Floats
from .rng import Xoshiro256

SWAP_ITERATIONS = 10  #: Lloyd steps a swap gets before it is judged
_LESS = 1 - 1e-12  #: what counts as lower: two equal costs, summed in another order, differ by rounding alone


class KMeansFit(NamedTuple):
    centers: Floats
    labels: Ints
    mass: Floats
    squares: Floats
    inertia: float


class RowsOfSite:
    """The rows of one site with their weights."""

    def __init__(self, rows: Rows, weights: Floats | None) -> None:
        self.rows: Floats = rows.astype(np.float64)
        self.weights = weights
        n = len(rows)
        self.positive = n if weights is None else int(np.count_nonzero(weights > 0))

    def _chunks(self, k: int) -> Iterator[slice]:
        n, d = self.rows.shape
        return chunks(0, n, max(k, d))

    def nearest(self, centers: Floats) -> tuple[Ints, Floats]:
        labels, sqdist = np.zeros(len(self.rows), np.int64), np.zeros(len(self.rows))
        for part in self._chunks(len(centers)):
            labels[part], sqdist[part] = nearest_of(self.rows[part], centers)
        return labels, sqdist

    def costs(self, centers: Floats) -> tuple[Floats, Floats]:
        """(k,) what losing each centre would cost, and (n,) what each row costs now."""
        loss, cost = np.zeros(len(centers)), np.zeros(len(self.rows))
        for part in self._chunks(len(centers)):
            labels, first, second = second_of(self.rows[part], centers)
            w = None if self.weights is None else self.weights[part]
            loss += by_label(labels, weighted(second - first, w), len(centers))
            cost[part] = weighted(first, w)
        return loss, cost

    def residuals(self, centers: Floats, labels: Ints) -> Floats:
        """(k, d) sums of w (x - c)."""
        sums = np.zeros(centers.shape)
        for part in self._chunks(len(centers)):
            w = None if self.weights is None else self.weights[part]
            sums += by_label(labels[part], weighted(self.rows[part] - centers[labels[part]], w), len(centers))
        return sums

    def inertia(self, centers: Floats, labels: Ints) -> float:
        total = 0.0
        for part in self._chunks(len(centers)):
            residual = self.rows[part] - centers[labels[part]]
            w = None if self.weights is None else self.weights[part]
            total += float(weighted(np.einsum("ij,ij->i", residual, residual), w).sum())
        return total

    def masses(self, labels: Ints, k: int) -> tuple[Floats, Floats]:
        return masses(labels, self.weights, k)

    def contributions(self, sqdist: Floats) -> Floats:
        return weighted(sqdist, self.weights)


def _pick(cumulative: Floats, uniform: float) -> int:
    """The row whose stretch of the cumulative weights holds the uniform number; never one of weight 0."""
    total = cumulative[-1]
    drawn = int(np.searchsorted(cumulative, uniform * total, side="right"))
    return min(drawn, int(np.searchsorted(cumulative, total, side="left")))


def _candidates(k: int) -> int:
    """For each centre of greedy k-means++; also how many centres a swap chooses from."""
    return 2 + floor(log(k))


def _seeds(site: RowsOfSite, k: int, rng: Xoshiro256) -> Floats:
    """Greedy k-means++; fewer centres than k once every row lies on one."""
    first = np.ones(len(site.rows)) if site.weights is None else site.weights
    chosen = [_pick(np.cumsum(first), rng.uniform())]
    closest = sqdist_to(site.rows, site.rows[chosen[0]])
    for _ in range(1, k):
        cumulative = np.cumsum(site.contributions(closest))
        if not cumulative[-1] > 0:
            break
        candidates = [_pick(cumulative, rng.uniform()) for _ in range(_candidates(k))]
        best: tuple[float, int, Floats] | None = None
        for row in candidates:
            shrunk = np.minimum(closest, sqdist_to(site.rows, site.rows[row]))
            potential = float(site.contributions(shrunk).sum())
            if best is None or potential < best[0] * _LESS:
                best = potential, row, shrunk
        assert best is not None
        chosen.append(best[1])
        closest = best[2]
    return site.rows[chosen]


def _relocate(site: RowsOfSite, centers: Floats, labels: Ints, sqdist: Floats) -> None:
    """Give each empty cluster the row that costs most where it is, unless it is alone there."""
    k = len(centers)
    heavy = np.ones(len(labels), bool) if site.weights is None else site.weights > 0
    counts = np.bincount(labels[heavy], minlength=k)
    cost = site.contributions(sqdist).copy()
    for j in np.flatnonzero(counts == 0):
        movable = np.where(counts[labels] > 1, cost, 0.0)
        row = int(movable.argmax())
        if not movable[row] > 0:
            break
        counts[labels[row]] -= 1
        counts[j] = 1
        labels[row] = j
        centers[j] = site.rows[row]
        cost[row] = 0.0


def _lloyd(site: RowsOfSite, centers: Floats, max_iter: int) -> KMeansFit:
    """Lloyd until no label changes; the centres are then the means of the labels that are counted."""
    centers = centers.copy()
    k = len(centers)
    labels, sqdist = site.nearest(centers)
    for iteration in range(max_iter):
        mass, squares = site.masses(labels, k)
        if (mass == 0).any():
            _relocate(site, centers, labels, sqdist)
            mass, squares = site.masses(labels, k)
        centers += site.residuals(centers, labels) / np.where(mass > 0, mass, 1)[:, None]
        if iteration + 1 == max_iter:
            break
        moved, sqdist = site.nearest(centers)
        if np.array_equal(moved, labels):
            break
        labels = moved
    mass, squares = site.masses(labels, k)
    return KMeansFit(centers, labels, mass, squares, site.inertia(centers, labels))


def _swapped(site: RowsOfSite, found: KMeansFit, swaps: int, max_iter: int, rng: Xoshiro256) -> KMeansFit:
    """Random swaps: move a centre that is cheap to lose to where the rows are far from theirs."""
    k = len(found.centers)
    if k == 1:
        return found
    order = None
    for _ in range(swaps):
        if order is None:
            loss, cost = site.costs(found.centers)
            order, cumulative = np.argsort(loss, kind="stable"), np.cumsum(cost)
        if not cumulative[-1] > 0:
            break
        removed = order[rng.below(min(k, _candidates(k)))]
        start = found.centers.copy()
        start[removed] = site.rows[_pick(cumulative, rng.uniform())]
        tried = _lloyd(site, start, min(max_iter, SWAP_ITERATIONS))
        if tried.inertia < found.inertia * _LESS:
            found, order = tried, None
    return _lloyd(site, found.centers, max_iter)


def best_kmeans(
    site: RowsOfSite, k: int, rng: Xoshiro256, n_init: int, max_iter: int, swaps: int
) -> KMeansFit | None:
    """The best of n_init restarts, after the swaps; nothing for a site without a row of positive weight."""
    k = min(k, site.positive)
    if k == 0:
        return None
    found: KMeansFit | None = None
    for _ in range(n_init):
        tried = _lloyd(site, _seeds(site, k, rng), max_iter)
        if found is None or tried.inertia < found.inertia * _LESS:
            found = tried
    assert found is not None
    if swaps and max_iter:
        found = _swapped(site, found, swaps, max_iter, rng)
    return found
