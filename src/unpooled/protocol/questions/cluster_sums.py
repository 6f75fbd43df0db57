"""The questions that several methods ask: moments, cluster sums, local means, scatter.

Each Reply is defined above its Question. All replies hold sums and counts; a cell below the site's minimum is
suppressed, count and sum alike, and must not follow from the disclosed cells by subtraction.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from unpooled import kernels
from unpooled.errors import QueryRefusedError
from unpooled.kernels.observed import observed
from unpooled.kernels.rng import uniform
from unpooled.protocol.consistency import ReportedTotals
from unpooled.protocol.declarations import Centers, Count, Length, Mean, Point, Repeats, Setting, Sum
from unpooled.protocol.limits import MAX_RESTARTS, MAX_STEPS
from unpooled.protocol.messages import Question, Reply, Summable, check_squares
from unpooled.protocol.questions.sums_with_missing import disclose_observed, weights_of
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch
from unpooled.protocol.suppression import (
    complementary_suppression,
    rows_to_suppress,
    too_few_suppressed,
    zero_suppressed,
)
from unpooled.typing import BoolArray, FloatArray, IntArray, Rows


@dataclass(frozen=True, eq=False)
class Moments(Summable):
    """The number (or weight) of rows, and their first two moments about an agreed origin."""

    mass: Annotated[FloatArray, Count("1")]  # sum of weights; the number of rows where there are none
    sums: Annotated[FloatArray, Sum("d", rows="mass")]  # of x - origin
    squares: Annotated[FloatArray, Sum("d", min_value=0.0, rows="mass")]  # of (x - origin)^2

    @property
    def n(self) -> float:
        return float(self.mass[0])

    def check(self, question: "AskMoments") -> None:
        check_squares(self.sums, np.broadcast_to(self.mass, self.sums.shape), self.squares, 0.0)

    def reported_totals(self, question: "AskMoments") -> ReportedTotals | None:
        if not self.n:
            return None  # no rows, or too few to be disclosed
        origin = 0.0 if question.origin is None else question.origin
        return ReportedTotals(self.n, origin + self.mean, self.variance)

    @property
    def mean(self) -> FloatArray:
        """(d,) relative to the origin."""
        return self.sums / max(self.n, 1e-300)

    @property
    def variance(self) -> FloatArray:
        """(d,) population variance, per column."""
        return np.maximum(self.squares / max(self.n, 1e-300) - self.mean**2, 0.0)


@dataclass(frozen=True, eq=False)
class AskMoments(Question[Moments]):
    """Number of rows, sums and sums of squares of the columns about ``origin`` (about zero if None).

    Where rows are groups, the squares include the variance within them: scales are then those of people.
    """

    reads = "rows"
    asks_for = "how many rows there are, and of every column the sum and the sum of squares"
    sums_add_up = True

    origin: Annotated[FloatArray | None, Point("d")] = None

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[Moments]:
        d = batch.X.shape[1]
        origin = np.zeros(d) if self.origin is None else self.origin
        weights = np.ones(len(batch.X)) if batch.weights is None else batch.weights
        mass, sums, squares = (np.zeros((len(batch), m)) for m in (1, d, d))
        effective = np.zeros((len(batch), 1))
        for run in _runs_of_small_sites(batch.row_counts):
            starts, end = batch.offsets[run], batch.offsets[run[-1] + 1]
            first, w = starts[0], weights[batch.offsets[run[0]] : end]
            Z = batch.X[first:end] - origin
            for out, values in (
                (mass, w[:, None]),
                (effective, (w * w)[:, None]),
                (sums, w[:, None] * Z),
                (squares, w[:, None] * Z * Z),
            ):
                out[run] = np.add.reduceat(values, starts - first, axis=0)
        for s in np.flatnonzero(batch.row_counts > _SMALL):
            span = slice(batch.offsets[s], batch.offsets[s + 1])
            mass[s], effective[s] = weights[span].sum(), (weights[span] ** 2).sum()
            sums[s], squares[s] = _column_sums(batch.X[span], weights[span], origin)
        if batch.within is not None:
            squares += mass * batch.within
        disclosed = batch.disclosed(mass, effective)
        return ReplyBatch(Moments(*(np.where(disclosed, a, 0.0) for a in (mass, sums, squares))), len(batch))


LOCAL_STEPS = 300  # of Lloyd, for a site that clusters its own rows
_DRAWS = 16  # samples that a site remembers, for the numbers of clusters that one run compares
_SMALL = 256  # rows up to which sites are summed together, so that thousands of them are cheap


def _runs_of_small_sites(counts: IntArray) -> list[IntArray]:
    """Indices of neighbouring sites of 1.._SMALL rows, at most some thousand rows a run."""
    small = np.flatnonzero((counts > 0) & (counts <= _SMALL))
    if not len(small):
        return []
    apart = np.flatnonzero(np.diff(small) > 1) + 1
    runs = np.split(small, apart)
    return [run[a : a + 64] for run in runs for a in range(0, len(run), 64)]


def _column_sums(X: Rows, w: FloatArray, origin: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted column sums of x - origin and of its square, in chunks: no second copy of the rows."""
    sums, squares = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for a in range(0, len(X), 8192):
        Z = X[a : a + 8192] - origin
        sums += w[a : a + 8192] @ Z
        squares += w[a : a + 8192] @ (Z * Z)
    return sums, squares


@dataclass(frozen=True, eq=False)
class ClusterSums(Summable):
    """Per start and cluster: mass, sums about the centre that was sent, and squared distances to it."""

    cells = "mass"

    sums: Annotated[FloatArray, Sum("R k d", rows="mass")]  # of x - c
    mass: Annotated[FloatArray, Count("R k")]
    inertia: Annotated[FloatArray, Sum("R k", min_value=-1e-6, rows="mass")]

    def means(self, centers: FloatArray, min_size: float = 0.0) -> FloatArray:
        """Return the clusters' means (R, k, d); a cluster that is empty or too small keeps its centre."""
        full = (self.mass > 0) & (self.mass >= min_size)
        return centers + np.where(full, 1 / np.where(full, self.mass, 1), 0)[..., None] * self.sums

    @property
    def known(self) -> FloatArray:
        """(R, k, 1): the rows behind the sums of every column, as of ``ObservedSums``: all of the cluster."""
        return self.mass[..., None]

    def check(self, question: "AskClusterSums") -> None:
        size = (question.centers**2).sum(axis=-1)
        check_squares(np.sqrt((self.sums**2).sum(axis=-1)), self.mass, self.inertia, size)

    def cell_means(self, question: "AskClusterSums") -> tuple[FloatArray, FloatArray]:
        return self.means(question.centers), self.mass


@dataclass(frozen=True, eq=False)
class AskClusterSums(Question[ClusterSums]):
    """Sums and counts of the rows by nearest centre, for R sets of centres in one pass."""

    reads = "rows"
    asks_for = "for each centre: how many rows are nearest to it, and the sums of their values"
    sums_add_up = True

    centers: Annotated[FloatArray, Centers("R k d")]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[ClusterSums]:
        t = kernels.totals(batch.X, batch.offsets, self.centers, batch.weights, threads=batch.threads)
        sums, mass, inertia = t.sums, t.mass, t.inertia
        if batch.minimum > 1:
            large = batch.large(mass, t.squares)
            sums, mass, inertia = (zero_suppressed(large, a) for a in (sums, mass, inertia))
            for s, r in np.argwhere(too_few_suppressed(batch, large, t.mass, t.squares)):
                less = rows_to_suppress(batch.site(s), self.centers[r], large[s, r])
                if less is None:
                    disclosed = batch.disclosed(t.mass[s, r], t.squares[s, r])
                    sums[s, r], mass[s, r], inertia[s, r] = (
                        zero_suppressed(disclosed, a[s, r]) for a in (sums, mass, inertia)
                    )
                else:
                    sums[s, r, less.cell] -= less.weights @ (less.rows - self.centers[r, less.cell])
                    mass[s, r, less.cell] -= less.weights.sum()
                    inertia[s, r, less.cell] -= less.weights @ less.sqdist
        return ReplyBatch(ClusterSums(sums, mass, inertia), len(batch))


@dataclass(frozen=True, eq=False)
class AskDrawnSums(Question[ClusterSums]):
    """Sums and counts of a sample of the rows by nearest centre, the same sample for the same ``draw``.

    A row of weight w at distance r from the origin is drawn with chance p = w (even + far r^2), at most 1,
    and counts w / p: sums over the draw estimate sums over all rows, and rows far away are not missed
    (Bachem, Lucic, Krause: Scalable k-means clustering via lightweight coresets. KDD 2018).
    """

    reads = "rows"
    asks_for = (
        "for each centre: how many rows of a random sample are nearest to it, and the sums of their values"
    )

    centers: Annotated[FloatArray, Centers("R k d")]
    origin: Annotated[FloatArray, Point("d")]
    even: Annotated[float, Setting()]
    far: Annotated[float, Setting()]
    draw: Annotated[int, Setting()]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[ClusterSums]:
        return AskClusterSums(self.centers).answer_all(self._drawn(batch))

    def _drawn(self, batch: SiteBatch) -> SiteBatch:
        """The drawn rows of all sites; a site remembers its own for the next question."""
        memory = batch.memory or tuple({} for _ in range(len(batch)))
        kept = [site.setdefault("draws", {}) for site in memory]
        keys = [self._key(batch.X[a:b]) for a, b in pairwise(batch.offsets)]
        if any(key not in draws for key, draws in zip(keys, kept, strict=True)):
            taken, weights = self._draw(batch)
            ends = np.searchsorted(taken, batch.offsets)
            for key, draws, (a, b) in zip(keys, kept, pairwise(ends), strict=True):
                while len(draws) >= _DRAWS:
                    del draws[next(iter(draws))]
                draws[key] = batch.X[taken[a:b]], weights[a:b]
        parts = [draws[key] for key, draws in zip(keys, kept, strict=True)]
        return replace(
            batch,
            X=np.concatenate([rows for rows, _ in parts]),
            offsets=np.concatenate([[0], np.cumsum([len(rows) for rows, _ in parts])]),
            weights=np.concatenate([weights for _, weights in parts]),
        )

    def _key(self, X: Rows) -> Any:
        """The draw, and the rows that it is from: one run may read them after several transforms."""
        return self.draw, self.even, self.far, self.origin.tobytes(), X.shape, X[:1].tobytes()

    def _draw(self, batch: SiteBatch) -> tuple[IntArray, FloatArray]:
        """The indices of the drawn rows in the batch, and their weights."""
        if not (2.0**-40 <= self.even <= 1 and 0 <= self.far < np.inf):
            raise QueryRefusedError(
                f"a sample with the probabilities even={self.even:g} and far={self.far:g}; even must be in "
                "[2^-40, 1], far at least 0"
            )
        X, origin = batch.X, np.broadcast_to(self.origin, (1, batch.X.shape[1]))
        chance = self.even + self.far * kernels.nearest(X, origin, threads=batch.threads).sqdist
        if batch.weights is not None:
            chance *= batch.weights
        np.minimum(chance, 1.0, out=chance)
        place = np.arange(len(X)) - np.repeat(batch.offsets[:-1], batch.row_counts)  # within its site
        value = np.ascontiguousarray(X[:, 0], dtype=np.float64)  # sites in the same order draw other rows
        taken = np.flatnonzero(uniform(self.draw, place.view(np.uint64) ^ value.view(np.uint64)) < chance)
        weights = 1 / chance[taken]
        return taken, weights if batch.weights is None else weights * batch.weights[taken]


@dataclass(frozen=True, eq=False)
class LocalMeans(Reply):
    """The means and sizes of a site's own clusters; only those that may be disclosed."""

    means: Annotated[FloatArray, Mean("disclosed d", rows="counts")]
    counts: Annotated[FloatArray, Count("disclosed")]

    def cell_means(self, question: Question["LocalMeans"]) -> tuple[FloatArray, FloatArray]:
        return self.means, np.ones_like(self.counts)  # counts may be of other rows than means


def disclosed_means(
    batch: SiteBatch,
    means: FloatArray,
    mass: FloatArray,
    squares: FloatArray,
    min_size: float,
    *,
    allowed_cells: BoolArray | None = None,
) -> list[LocalMeans]:
    """Return a LocalMeans per site, of large cells, from means (S, k, d), masses and squares (S, k).

    ``allowed_cells`` (S, k) masks the cells that may be disclosed at all.
    """
    allowed = batch.large(mass, squares, min_size)
    if allowed_cells is not None:
        allowed = allowed & allowed_cells
    disclosed = complementary_suppression(allowed, mass, squares, batch.minimum * (1 - 1e-9)) & (mass > 0)
    return [LocalMeans(m[keep], w[keep]) for m, w, keep in zip(means, mass, disclosed, strict=True)]


@dataclass(frozen=True, eq=False)
class AskLocalMeans(Question[LocalMeans]):
    """Means and counts of the site's own clusters: at most k, by k-means++ and ``steps`` Lloyd steps.

    ``min_size`` can raise the site's minimum size, and cannot lower it.
    """

    reads = "rows"
    asks_for = "the means and sizes of the clusters that the site finds in its own rows"

    k: Annotated[int, Length()]
    n_init: Annotated[int, Repeats(max_value=MAX_RESTARTS, label="restarts")] = 1
    steps: Annotated[int, Repeats(max_value=MAX_STEPS)] = LOCAL_STEPS
    min_size: Annotated[float, Setting()] = 1.0

    def answer_all(self, batch: SiteBatch) -> list[LocalMeans]:
        clustering = kernels.kmeans(
            batch.X,
            batch.offsets,
            self.k,
            batch.seeds,
            batch.weights,
            n_init=self.n_init,
            max_iter=self.steps,
            threads=batch.threads,
        )
        return disclosed_means(batch, clustering.centers, clustering.mass, clustering.squares, self.min_size)

    def max_lengths(self) -> dict[str, int]:
        return {"disclosed": self.k}


@dataclass(frozen=True, eq=False)
class Scatter(Summable):
    """Per cluster: mass, distances and squared distances to the centre, simplified silhouettes."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    distance: Annotated[FloatArray, Sum("k", min_value=0.0, rows="mass")]  # sums of |x - c|
    inertia: Annotated[FloatArray, Sum("k", min_value=0.0, rows="mass")]  # sums of |x - c|^2
    silhouette: Annotated[FloatArray, Sum("k", rows="mass")]  # sums of (b - a) / max(a, b)


@dataclass(frozen=True, eq=False)
class AskScatter(Question[Scatter]):
    """Distances of the rows to their nearest centres, and simplified silhouettes, summed by cluster."""

    reads = "rows"
    asks_for = "for each cluster: how far its rows are from its centre and from the next one, in sum"
    sums_add_up = True
    supports_missing = True

    centers: Annotated[FloatArray, Centers("k d")]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[Scatter]:
        scatter: Any
        if batch.has_missing:
            scatter = observed(
                batch.X, batch.offsets, self.centers, *weights_of(batch), threads=batch.threads
            )
            scatter = scatter._replace(inertia=disclose_observed(batch, scatter).inertia)
        else:
            scatter = kernels.scatter(
                batch.X, batch.offsets, self.centers, batch.weights, threads=batch.threads
            )
        disclosed = batch.disclosed(scatter.mass, scatter.squares)
        columns = (scatter.mass, scatter.distance, scatter.inertia, scatter.silhouette)
        return ReplyBatch(Scatter(*(zero_suppressed(disclosed, c) for c in columns)), len(batch))
