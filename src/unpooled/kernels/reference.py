"""The kernels in plain numpy, a ``Backend``: the oracle of the tests; runs where nothing was compiled.

Every function takes arrays that ``unpooled.kernels`` has already checked. Rows are handled site by site in
chunks whose size depends on k and d alone, so a site's result is the same alone or in a batch with others,
and no n x k matrix is ever made. The compiled kernels follow the same steps and the same order of draws.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .label_cache import LabelCache
from .reference_fuzzy import fuzzy, memberships
from .reference_kmeans import RowsOfSite, best_kmeans
from .reference_rows import Rows, by_label, chunks, masses, nearest_of, second_of, weighted
from .results import Floats, KMeans, LocalSteps, MiniBatchSteps, Nearest, ScatterTotals, Totals
from .rng import Xoshiro256

__all__ = [
    "ISA",
    "fold",
    "fold_moves",
    "fuzzy",
    "kmeans",
    "local_steps",
    "memberships",
    "minibatch",
    "nearest",
    "scatter",
    "totals",
]

ISA = "numpy"


def _parts(
    X: Rows, begin: int, end: int, weights: Floats | None, k: int
) -> Iterator[tuple[Floats, Floats | None]]:
    """The rows begin:end as float64 chunks with their weights."""
    for part in chunks(begin, end, max(k, X.shape[1])):
        yield X[part].astype(np.float64), None if weights is None else weights[part]


def totals(
    X: Rows,
    offsets: NDArray[np.int64],
    centers: Floats,
    weights: Floats | None,
    threads: int,
    labels: NDArray[np.int32] | None = None,
) -> Totals:
    S, (R, k, d) = len(offsets) - 1, centers.shape
    sums, mass = np.zeros((S, R, k, d)), np.zeros((S, R, k))
    squares, inertia = mass if weights is None else np.zeros((S, R, k)), np.zeros((S, R, k))
    for s in range(S):
        for rows, w in _parts(X, offsets[s], offsets[s + 1], weights, k):
            for r in range(R):
                cells, sqdist = nearest_of(rows, centers[r])
                sums[s, r] += by_label(cells, weighted(rows - centers[r][cells], w), k)
                inertia[s, r] += by_label(cells, weighted(sqdist, w), k)
                m, q = masses(cells, w, k)
                mass[s, r] += m
                if w is not None:
                    squares[s, r] += q
    if labels is not None:
        for r in range(R):
            labels[r] = nearest(X, centers[r], threads).labels
    return Totals(sums, mass, squares, inertia)


def nearest(X: Rows, centers: Floats, threads: int) -> Nearest:
    labels, sqdist = np.zeros(len(X), np.int32), np.zeros(len(X))
    for part in chunks(0, len(X), max(centers.shape)):
        labels[part], sqdist[part] = nearest_of(X[part].astype(np.float64), centers)
    return Nearest(labels, sqdist)


def local_steps(
    X: Rows,
    offsets: NDArray[np.int64],
    centers: Floats,
    weights: Floats | None,
    steps: int,
    recount: bool,
    threads: int,
    cache: LabelCache | None = None,
) -> LocalSteps:
    S, (k, d) = len(offsets) - 1, centers.shape[-2:]
    out = LocalSteps(np.zeros((S, k, d)), *(np.zeros((S, k)) for _ in range(6)))
    for s in range(S):
        begin, end = offsets[s], offsets[s + 1]
        current = out.centers[s]
        current[:] = centers if centers.ndim == 2 else centers[s]
        before = np.full(end - begin, -1)
        for step in range(max(steps, 1)):
            changed, at = False, 0
            residuals, mass, squares = np.zeros((k, d)), np.zeros(k), np.zeros(k)
            for rows, w in _parts(X, begin, end, weights, k):
                labels, sqdist = nearest_of(rows, current)
                changed = changed or not np.array_equal(labels, before[at : at + len(rows)])
                before[at : at + len(rows)] = labels
                at += len(rows)
                residuals += by_label(labels, weighted(rows - current[labels], w), k)
                m, q = masses(labels, w, k)
                mass, squares = mass + m, squares + q
                if step == 0:
                    out.inertia[s] += by_label(labels, weighted(sqdist, w), k)
            if step == 0:
                out.mass[s], out.squares[s] = mass, squares
            if not changed or steps == 0:
                break
            full = mass > 0
            current[full] += residuals[full] / mass[full, None]
            out.support[s, full] = mass[full] ** 2 / squares[full]
        kept = np.flatnonzero(out.support[s] > 0)
        if recount and len(kept):
            for rows, w in _parts(X, begin, end, weights, k):
                m, q = masses(kept[nearest_of(rows, current[kept])[0]], w, k)
                out.recount[s] += m
                out.recount_squares[s] += q
    return out


def kmeans(
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
    out = KMeans(np.zeros((S, k, d)), np.zeros((S, k)), np.zeros((S, k)), np.zeros(S))
    for s in range(S):
        part = slice(offsets[s], offsets[s + 1])
        site = RowsOfSite(X[part], None if weights is None else weights[part])
        found = best_kmeans(site, k, Xoshiro256(int(seeds[s])), n_init, max_iter, swaps)
        if found is not None:
            used = np.flatnonzero(found.mass > 0)
            out.centers[s, used] = found.centers[used]
            out.mass[s, used], out.squares[s, used] = found.mass[used], found.squares[used]
            out.inertia[s] = found.inertia
    return out


def minibatch(
    X: Rows,
    offsets: NDArray[np.int64],
    centers: Floats,
    seeds: NDArray[np.uint64],
    weights: Floats | None,
    epochs: int,
    batch: int,
    rate: float,
    threads: int,
) -> MiniBatchSteps:
    S, (k, d) = len(offsets) - 1, centers.shape
    out = MiniBatchSteps(np.zeros((S, k, d)), np.zeros((S, k)), np.zeros((S, k)))
    for s in range(S):
        begin, end = int(offsets[s]), int(offsets[s + 1])
        size = batch or max(end - begin, 1)
        order = list(range(begin, end, size))
        rng = Xoshiro256(int(seeds[s]))
        gamma = centers.copy()
        for _ in range(epochs):
            lam, squares = np.zeros(k), np.zeros(k)
            for i in range(len(order) - 1, 0, -1):
                j = rng.below(i + 1)
                order[i], order[j] = order[j], order[i]
            for start in order:
                residuals, mass = np.zeros((k, d)), np.zeros(k)
                for rows, w in _parts(X, start, min(start + size, end), weights, k):
                    labels, _ = nearest_of(rows, gamma)
                    residuals += by_label(labels, weighted(rows - gamma[labels], w), k)
                    m, q = masses(labels, w, k)
                    mass, squares = mass + m, squares + q
                lam += mass
                # Lambda_b / Lambda times the batch mean minus the centre is the residual sum over Lambda
                full = mass > 0
                gamma[full] += rate * (residuals[full] / lam[full, None])
            out.mass[s], out.squares[s] = lam, squares
        out.centers[s] = gamma
    return out


def scatter(
    X: Rows, offsets: NDArray[np.int64], centers: Floats, weights: Floats | None, threads: int
) -> ScatterTotals:
    S, k = len(offsets) - 1, len(centers)
    out = ScatterTotals(*(np.zeros((S, k)) for _ in range(5)))
    for s in range(S):
        for rows, w in _parts(X, offsets[s], offsets[s + 1], weights, k):
            labels, first, second = second_of(rows, centers)
            a = np.sqrt(first)
            silhouette = np.zeros(len(rows))
            if k > 1:
                b = np.sqrt(second)
                larger = np.maximum(a, b)
                np.divide(b - a, larger, out=silhouette, where=larger > 0)
            m, q = masses(labels, w, k)
            out.mass[s] += m
            out.squares[s] += q
            out.distance[s] += by_label(labels, weighted(a, w), k)
            out.inertia[s] += by_label(labels, weighted(first, w), k)
            out.silhouette[s] += by_label(labels, weighted(silhouette, w), k)
    return out


@np.errstate(over="ignore", invalid="ignore")  # as the compiled kernels: a sum beyond the range is inf
def fold(total: Floats, block: Floats) -> None:
    for row in block:
        total += row


@np.errstate(over="ignore", invalid="ignore")  # as the compiled kernels: a sum beyond the range is inf
def fold_moves(centers: Floats, received: Floats, weight: Floats, weighted: Floats, plain: Floats) -> None:
    for own, w in zip(centers, weight, strict=True):
        move = own - received
        weighted += move * w[:, None]
        plain += move
