"""The summaries that more than one method asks for: moments, cluster sums, local means, scatter.

Each Reply is defined above its Question. All replies hold sums and counts; a cell below the site's minimum is
suppressed, count and sum alike, and must not follow from the shown cells by subtraction.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from unpooled import kernels
from unpooled.core.arrays import BoolArray, FloatArray, IntArray, Rows
from unpooled.core.declarations import Centers, Count, Length, Mean, Point, Repeats, Setting, Sum
from unpooled.core.limits import MOST_RESTARTS, MOST_STEPS
from unpooled.core.messages import Question, Reply, Summable
from unpooled.core.stack import Stack, Stacked, hide_enough, only
from unpooled.core.statements import Stated, check_squares
from unpooled.errors import Refused
from unpooled.kernels.observed import observed
from unpooled.kernels.rng import uniform
from unpooled.questions.observed import shown_of, weights_of


@dataclass(frozen=True, eq=False)
class Moments(Summable):
    """The number (or weight) of rows, and their first two moments about an agreed origin."""

    mass: Annotated[FloatArray, Count("1")]  # sum of weights; the number of rows where there are none
    sums: Annotated[FloatArray, Sum("d", rows="mass")]  # of x - origin
    squares: Annotated[FloatArray, Sum("d", least=0.0, rows="mass")]  # of (x - origin)^2

    @property
    def n(self) -> float:
        return float(self.mass[0])

    def check(self, question: "AskMoments") -> None:
        check_squares(self.sums, np.broadcast_to(self.mass, self.sums.shape), self.squares, 0.0)

    def stated(self, question: "AskMoments") -> Stated | None:
        if not self.n:
            return None  # no rows, or too few to be shown
        origin = 0.0 if question.origin is None else question.origin
        return Stated(self.n, origin + self.mean, self.variance)

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
    """Mass, sums and squares of the columns about ``origin`` (about zero if None).

    Where rows are groups, the variance within them is in the squares: scales are then those of persons.
    """

    sees = "rows"

    origin: Annotated[FloatArray | None, Point("d")] = None

    def answer_all(self, stack: Stack) -> Stacked[Moments]:
        d = stack.X.shape[1]
        origin = np.zeros(d) if self.origin is None else self.origin
        weights = np.ones(len(stack.X)) if stack.weights is None else stack.weights
        mass, sums, squares = (np.zeros((len(stack), m)) for m in (1, d, d))
        effective = np.zeros((len(stack), 1))
        for run in _runs_of_small_sites(stack.row_counts):
            starts, end = stack.offsets[run], stack.offsets[run[-1] + 1]
            first, w = starts[0], weights[stack.offsets[run[0]] : end]
            Z = stack.X[first:end] - origin
            for out, values in (
                (mass, w[:, None]),
                (effective, (w * w)[:, None]),
                (sums, w[:, None] * Z),
                (squares, w[:, None] * Z * Z),
            ):
                out[run] = np.add.reduceat(values, starts - first, axis=0)
        for s in np.flatnonzero(stack.row_counts > _SMALL):
            span = slice(stack.offsets[s], stack.offsets[s + 1])
            mass[s], effective[s] = weights[span].sum(), (weights[span] ** 2).sum()
            sums[s], squares[s] = _column_sums(stack.X[span], weights[span], origin)
        if stack.within is not None:
            squares += mass * stack.within
        shown = stack.shown(mass, effective)
        return Stacked(Moments(*(np.where(shown, a, 0.0) for a in (mass, sums, squares))), len(stack))


LOCAL_STEPS = 300  # of Lloyd, for a site that clusters its own rows
_DRAWS = 16  # draws that a site remembers, for the numbers of clusters that one run compares
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


def too_few_hidden(stack: Stack, large: BoolArray, mass: FloatArray, squares: FloatArray) -> BoolArray:
    """Mask of the sets of cells that show some rows and hide fewer than the minimum: (..., k) -> (...).

    The site's total is known, so the sum of the hidden cells follows by subtraction. That is harmless where
    many rows are hidden, or none.
    """
    small = ~large & (mass > 0)
    hidden = np.where(small, mass, 0.0).sum(axis=-1)
    hidden_squares = np.where(small, squares, 0.0).sum(axis=-1)
    shows = (large & (mass > 0)).any(axis=-1)
    few: BoolArray = (hidden > 0) & shows & ~stack.large(hidden, hidden_squares)
    return few


@dataclass(frozen=True, eq=False)
class Withheld:
    """Rows that a site leaves out of one of its cells, so that it never hides only a few rows."""

    cell: int
    rows: FloatArray  # (m, d)
    weights: FloatArray  # (m,)
    sqdist: FloatArray  # (m,) to the cell's centre


def withheld(local: Stack, centers: FloatArray, large: BoolArray) -> Withheld | None:
    """At least the minimum number of rows of the largest cell: those nearest its centre, which move it least.

    None if no cell is large enough to spare them.
    """
    labels, sqdist = kernels.nearest(local.X, centers)
    w = np.ones(len(labels)) if local.weights is None else local.weights
    mass = np.where(large, np.bincount(labels, w, len(centers)), 0.0)
    cell = int(mass.argmax())
    members = np.flatnonzero((labels == cell) & (w > 0))
    members = members[np.argsort(sqdist[members], kind="stable")]
    sums, squares = np.cumsum(w[members]), np.cumsum(w[members] ** 2)
    enough = local.large(sums, squares) & local.large(sums[-1] - sums, np.maximum(squares[-1] - squares, 0.0))
    if not enough.any():
        return None
    rows = members[: int(enough.argmax()) + 1]
    return Withheld(cell, np.asarray(local.X[rows], dtype=np.float64), w[rows], sqdist[rows])


@dataclass(frozen=True, eq=False)
class ClusterSums(Summable):
    """Per start and cluster: mass, sums about the centre that was sent, and squared distances to it."""

    cells = "mass"

    sums: Annotated[FloatArray, Sum("R k d", rows="mass")]  # of x - c
    mass: Annotated[FloatArray, Count("R k")]
    inertia: Annotated[FloatArray, Sum("R k", least=-1e-6, rows="mass")]

    def means(self, centers: FloatArray, at_least: float = 0.0) -> FloatArray:
        """(R, k, d): the clusters' means; a cluster without rows, or below ``at_least``, keeps its centre."""
        full = (self.mass > 0) & (self.mass >= at_least)
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
    """Assign every row to its nearest centre, for R sets of centres in one pass, and sum up."""

    sees = "rows"

    centers: Annotated[FloatArray, Centers("R k d")]

    def answer_all(self, stack: Stack) -> Stacked[ClusterSums]:
        t = kernels.totals(stack.X, stack.offsets, self.centers, stack.weights, threads=stack.threads)
        sums, mass, inertia = t.sums, t.mass, t.inertia
        if stack.minimum > 1:
            large = stack.large(mass, t.squares)
            sums, mass, inertia = (only(large, a) for a in (sums, mass, inertia))
            for s, r in np.argwhere(too_few_hidden(stack, large, t.mass, t.squares)):
                less = withheld(stack.site(s), self.centers[r], large[s, r])
                if less is None:
                    shown = stack.shown(t.mass[s, r], t.squares[s, r])
                    sums[s, r], mass[s, r], inertia[s, r] = (
                        only(shown, a[s, r]) for a in (sums, mass, inertia)
                    )
                else:
                    sums[s, r, less.cell] -= less.weights @ (less.rows - self.centers[r, less.cell])
                    mass[s, r, less.cell] -= less.weights.sum()
                    inertia[s, r, less.cell] -= less.weights @ less.sqdist
        return Stacked(ClusterSums(sums, mass, inertia), len(stack))


@dataclass(frozen=True, eq=False)
class AskDrawnSums(Question[ClusterSums]):
    """Cluster sums of a draw of the rows, the same rows in every question of one ``draw``.

    A row of weight w at distance r from the origin is drawn with chance p = w (even + far r^2), at most 1,
    and counts w / p: sums over the draw estimate sums over all rows, and rows far away are not missed
    (Bachem, Lucic, Krause: Scalable k-means clustering via lightweight coresets. KDD 2018).
    """

    sees = "rows"

    centers: Annotated[FloatArray, Centers("R k d")]
    origin: Annotated[FloatArray, Point("d")]
    even: Annotated[float, Setting()]
    far: Annotated[float, Setting()]
    draw: Annotated[int, Setting()]

    def answer_all(self, stack: Stack) -> Stacked[ClusterSums]:
        return AskClusterSums(self.centers).answer_all(self._drawn(stack))

    def _drawn(self, stack: Stack) -> Stack:
        """The drawn rows of all sites; a site remembers its own for the next question."""
        memory = stack.memory or tuple({} for _ in range(len(stack)))
        kept = [site.setdefault("draws", {}) for site in memory]
        keys = [self._key(stack.X[a:b]) for a, b in pairwise(stack.offsets)]
        if any(key not in draws for key, draws in zip(keys, kept, strict=True)):
            taken, weights = self._draw(stack)
            ends = np.searchsorted(taken, stack.offsets)
            for key, draws, (a, b) in zip(keys, kept, pairwise(ends), strict=True):
                while len(draws) >= _DRAWS:
                    del draws[next(iter(draws))]
                draws[key] = stack.X[taken[a:b]], weights[a:b]
        parts = [draws[key] for key, draws in zip(keys, kept, strict=True)]
        return replace(
            stack,
            X=np.concatenate([rows for rows, _ in parts]),
            offsets=np.concatenate([[0], np.cumsum([len(rows) for rows, _ in parts])]),
            weights=np.concatenate([weights for _, weights in parts]),
        )

    def _key(self, X: Rows) -> Any:
        """The draw, and the rows that it is from: one run may look at them through several views."""
        return self.draw, self.even, self.far, self.origin.tobytes(), X.shape, X[:1].tobytes()

    def _draw(self, stack: Stack) -> tuple[IntArray, FloatArray]:
        """The places of the drawn rows in the stack, and what each counts."""
        if not (2.0**-40 <= self.even <= 1 and 0 <= self.far < np.inf):
            raise Refused(
                f"a draw with the chances {self.even:g} and {self.far:g}: of 2^-40 to 1, and 0 or more"
            )
        X, origin = stack.X, np.broadcast_to(self.origin, (1, stack.X.shape[1]))
        chance = self.even + self.far * kernels.nearest(X, origin, threads=stack.threads).sqdist
        if stack.weights is not None:
            chance *= stack.weights
        np.minimum(chance, 1.0, out=chance)
        place = np.arange(len(X)) - np.repeat(stack.offsets[:-1], stack.row_counts)  # within its site
        value = np.ascontiguousarray(X[:, 0], dtype=np.float64)  # sites in the same order draw other rows
        taken = np.flatnonzero(uniform(self.draw, place.view(np.uint64) ^ value.view(np.uint64)) < chance)
        weights = 1 / chance[taken]
        return taken, weights if stack.weights is None else weights * stack.weights[taken]


@dataclass(frozen=True, eq=False)
class LocalMeans(Reply):
    """The means and sizes of a site's own clusters; only those large enough to be shown."""

    means: Annotated[FloatArray, Mean("shown d", rows="counts")]
    counts: Annotated[FloatArray, Count("shown")]

    def cell_means(self, question: Question["LocalMeans"]) -> tuple[FloatArray, FloatArray]:
        return self.means, np.ones_like(
            self.counts
        )  # counts may be of other rows than means: of one at least


def shown_means(
    stack: Stack,
    means: FloatArray,
    mass: FloatArray,
    squares: FloatArray,
    at_least: float,
    *,
    only: BoolArray | None = None,
) -> list[LocalMeans]:
    """A LocalMeans per site from means (S, k, d), masses and squares (S, k); small or empty ones left out.

    ``only`` (S, k) says which may be shown at all.
    """
    allowed = stack.large(mass, squares, at_least)
    if only is not None:
        allowed = allowed & only
    shown = hide_enough(allowed, mass, squares, stack.minimum * (1 - 1e-9)) & (mass > 0)
    return [LocalMeans(m[keep], w[keep]) for m, w, keep in zip(means, mass, shown, strict=True)]


@dataclass(frozen=True, eq=False)
class AskLocalMeans(Question[LocalMeans]):
    """Cluster your own rows into at most k by k-means++ and ``steps`` of Lloyd; send means and counts.

    ``at_least`` may raise the site's minimum size, never lower it.
    """

    sees = "rows"

    k: Annotated[int, Length()]
    n_init: Annotated[int, Repeats(most=MOST_RESTARTS, label="restarts")] = 1
    steps: Annotated[int, Repeats(most=MOST_STEPS)] = LOCAL_STEPS
    at_least: Annotated[float, Setting()] = 1.0

    def answer_all(self, stack: Stack) -> list[LocalMeans]:
        clustering = kernels.kmeans(
            stack.X,
            stack.offsets,
            self.k,
            stack.seeds,
            stack.weights,
            n_init=self.n_init,
            max_iter=self.steps,
            threads=stack.threads,
        )
        return shown_means(stack, clustering.centers, clustering.mass, clustering.squares, self.at_least)

    def most(self) -> dict[str, int]:
        return {"shown": self.k}


@dataclass(frozen=True, eq=False)
class Scatter(Summable):
    """Per cluster: mass, distances and squared distances to the centre, simplified silhouettes."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    distance: Annotated[FloatArray, Sum("k", least=0.0, rows="mass")]  # sums of |x - c|
    inertia: Annotated[FloatArray, Sum("k", least=0.0, rows="mass")]  # sums of |x - c|^2
    silhouette: Annotated[FloatArray, Sum("k", rows="mass")]  # sums of (b - a) / max(a, b)


@dataclass(frozen=True, eq=False)
class AskScatter(Question[Scatter]):
    """How rows lie about the centres they belong to."""

    sees = "rows"
    over_holes = True

    centers: Annotated[FloatArray, Centers("k d")]

    def answer_all(self, stack: Stack) -> Stacked[Scatter]:
        scatter: Any
        if stack.holes:
            scatter = observed(
                stack.X, stack.offsets, self.centers, *weights_of(stack), threads=stack.threads
            )
            scatter = scatter._replace(inertia=shown_of(stack, scatter).inertia)
        else:
            scatter = kernels.scatter(
                stack.X, stack.offsets, self.centers, stack.weights, threads=stack.threads
            )
        shown = stack.shown(scatter.mass, scatter.squares)
        columns = (scatter.mass, scatter.distance, scatter.inertia, scatter.silhouette)
        return Stacked(Scatter(*(only(shown, c) for c in columns)), len(stack))
