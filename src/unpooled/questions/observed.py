"""The questions about rows with missing cells: a column counts where a row has it, and nowhere else.

Distances are over the observed columns of a row (``kernels.observed``), so every sum has a count for each
column beside it. Rows that are groups of a copy have, for every cell, the share of their persons who have a
value. Replies hold only counts and sums; a trusted site shows a cell of cluster and column if it is large.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self

import numpy as np

from unpooled.core.arrays import BoolArray, FloatArray, IntArray, Rows
from unpooled.core.declarations import Centers, Count, Point, Sum
from unpooled.core.messages import Question, Summable
from unpooled.core.stack import Stack, Stacked, hide_enough, only
from unpooled.core.statements import Stated, check_squares
from unpooled.errors import BadReply
from unpooled.kernels.observed import nearest_observed, observed
from unpooled.kernels.reference_observed import distances, parts_of
from unpooled.kernels.results import ObservedTotals

TOLD = 0.5  # share of the squared distance of two centres that the columns of a row must show
_CELLS = 1 << 19  # of rows that are processed together, so that no second copy of all rows is made


class RowsWithHoles(NamedTuple):
    """Some rows of a site: a missing cell is NaN, and ``part`` is 0 there."""

    X: Rows  # (n, d)
    part: FloatArray  # (n, d) the share of persons who have a value: 1 for a row as such
    weights: FloatArray  # (n,)

    @property
    def persons(self) -> FloatArray:
        """(n, d) the weight of every cell."""
        weight: FloatArray = self.part * self.weights[:, None]
        return weight

    def about(self, place: FloatArray) -> FloatArray:
        """(n, d) the rows less a place, (d,) or one for each; 0 where a cell is missing."""
        return np.where(self.part > 0, self.X - place, 0.0)

    def nearest(self, centers: FloatArray, threads: int) -> IntArray:
        """(n,) the nearest centre of every row, over its observed columns."""
        return nearest_observed(self.X, centers, self.part, threads=threads).labels.astype(np.int64)

    def towards_others(self, centers: FloatArray) -> tuple[IntArray, FloatArray]:
        """(n,) the nearest centre, and where a row lies on the way from it to the next: 0.5 at the border.

        All in the columns that the row has; nan if these tell the two centres apart by less than half.
        """
        at_once = max(1, _CELLS // len(centers))
        blocks = (slice(a, a + at_once) for a in range(0, max(len(self.X), 1), at_once))
        found = [RowsWithHoles(*(field[at] for field in self))._towards_others(centers) for at in blocks]
        own, way = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return own, way

    def _towards_others(self, centers: FloatArray) -> tuple[IntArray, FloatArray]:
        away = distances(self.X, self.part, centers)
        rows = np.arange(len(away))
        own = away.argmin(axis=1)
        nearest = away[rows, own]
        away[rows, own] = np.inf
        other = away.argmin(axis=1)
        gap = np.einsum("ij,ij->i", self.part, (centers[own] - centers[other]) ** 2)
        whole = ((centers[own] - centers[other]) ** 2).sum(axis=1)
        way = 0.5 + (nearest - away[rows, other]) / np.where(gap > 0, 2 * gap, 1.0)
        return own, np.where(gap >= TOLD * whole, way, np.nan)


def weights_of(stack: Stack) -> tuple[FloatArray | None, FloatArray | None]:
    """The weights (n,) of rows with holes, and the shares (n, d) of their persons; None where all are 1."""
    if stack.weights is None or stack.weights.ndim == 1:
        return stack.weights, None
    return stack.weights[:, 0], stack.weights[:, 1:]


def chunks_with_holes(stack: Stack, s: int) -> Iterator[RowsWithHoles]:
    """The rows of a site in chunks."""
    weights, shares = weights_of(stack)
    rows = max(256, _CELLS // stack.X.shape[1])
    for a in range(int(stack.offsets[s]), int(stack.offsets[s + 1]), rows):
        at = slice(a, min(a + rows, int(stack.offsets[s + 1])))
        part = parts_of(stack.X[at], None if shares is None else shares[at])
        yield RowsWithHoles(stack.X[at], part, np.ones(len(part)) if weights is None else weights[at])


def _shown_by_column(stack: Stack, clusters: BoolArray, known: FloatArray, squares: FloatArray) -> BoolArray:
    """(..., k, d) mask of the cells of cluster and column: large ones of clusters that are shown.

    The clusters divide the rows that have a column, so of every column none or enough rows are hidden.
    """
    large = np.swapaxes(stack.large(known, squares) & clusters[..., None], -1, -2)
    least = stack.minimum * (1 - 1e-9)
    shown = hide_enough(large, np.swapaxes(known, -1, -2), np.swapaxes(squares, -1, -2), least)
    return np.swapaxes(shown, -1, -2)


class ShownCells(NamedTuple):
    """The cells of a clustering over holes that may be shown."""

    clusters: BoolArray  # (S, k)
    cells: BoolArray  # (S, k, d)
    inertia: FloatArray  # (S, k) of shown cells: with a hidden one in it, the hidden one would follow


def shown_of(stack: Stack, t: ObservedTotals) -> ShownCells:
    clusters = stack.shown(t.mass, t.squares)
    if stack.minimum <= 1:
        return ShownCells(clusters, np.ones(t.known.shape, dtype=np.bool_), t.inertia)
    cells = _shown_by_column(stack, clusters, t.known, t.known_squares)
    return ShownCells(clusters, cells, only(cells, t.deviations).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class ObservedMoments(Summable):
    """The number of rows; by column, how many have a value, and its first two moments about an origin."""

    mass: Annotated[FloatArray, Count("1")]
    known: Annotated[FloatArray, Count("d")]
    sums: Annotated[FloatArray, Sum("d", rows="known")]  # of x - origin
    squares: Annotated[FloatArray, Sum("d", least=0.0, rows="known")]  # of (x - origin)^2

    @property
    def n(self) -> float:
        return float(self.mass[0])

    @property
    def mean(self) -> FloatArray:
        """(d,) relative to the origin; 0 where no row has a value."""
        return self.sums / np.maximum(self.known, 1e-300)

    @property
    def variance(self) -> FloatArray:
        """(d,) population variance of the rows that have a value, per column."""
        return np.maximum(self.squares / np.maximum(self.known, 1e-300) - self.mean**2, 0.0)

    def check(self, question: "AskObservedMoments") -> None:
        check_squares(self.sums, self.known, self.squares, 0.0)

    def stated(self, question: "AskObservedMoments") -> Stated | None:
        if not self.n:
            return None
        origin = 0.0 if question.origin is None else question.origin
        return Stated(self.n, origin + self.mean, self.variance, self.known)


@dataclass(frozen=True, eq=False)
class AskObservedMoments(Question[ObservedMoments]):
    """Rows, and the counts, sums and squares of observed cells by column, about ``origin`` (zero if None)."""

    sees = "rows"
    over_holes = True

    origin: Annotated[FloatArray | None, Point("d")] = None

    def answer_all(self, stack: Stack) -> list[ObservedMoments]:
        d = stack.X.shape[1]
        origin = np.zeros(d) if self.origin is None else self.origin
        replies = []
        for s in range(len(stack)):
            mass, heavy = np.zeros(1), np.zeros(1)
            known, effective, sums, squares = (np.zeros(d) for _ in range(4))
            for rows in chunks_with_holes(stack, s):
                Z, persons = rows.about(origin), rows.persons
                mass += rows.weights.sum()
                heavy += (rows.weights**2).sum()
                known += persons.sum(axis=0)
                effective += (persons**2).sum(axis=0)
                sums += np.einsum("ij,ij->j", persons, Z)
                squares += np.einsum("ij,ij,ij->j", persons, Z, Z)
            if stack.within is not None:
                squares += known * stack.within[s]
            shown = stack.large(known, effective) & stack.large(mass, heavy)
            columns = (only(shown, a) for a in (known, sums, squares))
            replies.append(ObservedMoments(only(stack.large(mass, heavy), mass), *columns))
        return replies


@dataclass(frozen=True, eq=False)
class ObservedSums(Summable):
    """Per start and cluster: mass and inertia; by column, who has a value, and sums about the centre sent."""

    cells = "mass"

    sums: Annotated[FloatArray, Sum("R k d", rows="known")]  # of x - c
    known: Annotated[FloatArray, Count("R k d")]
    mass: Annotated[FloatArray, Count("R k")]
    inertia: Annotated[FloatArray, Sum("R k", least=-1e-6, rows="mass")]  # over observed cells

    def means(self, centers: FloatArray, at_least: float = 0.0) -> FloatArray:
        """(R, k, d): the means of observed cells; where there are none, or too few, the centre stays."""
        full = (self.known > 0) & (self.known >= at_least) & (self.mass > 0)[..., None]
        return centers + np.where(full, 1 / np.where(full, self.known, 1), 0) * self.sums

    def within_and_between(self, centers: FloatArray) -> tuple[float, float]:
        """Of the first start, with centres (k, d): the inertia of observed cells about the clusters' means,
        and that of these means about the mean of each column."""
        known, means = self.known[0], self.means(centers[None])[0]
        mean = (known * means).sum(axis=0) / np.maximum(known.sum(axis=0), 1e-300)
        within = float(self.inertia[0].sum() - (known * (means - centers) ** 2).sum())
        return within, float((known * (means - mean) ** 2).sum())

    def of_at_least(self, minimum: float) -> Self:
        less = super().of_at_least(minimum)
        if minimum <= 1:
            return less
        shown = less.known >= minimum * (1 - 1e-9)
        return replace(less, sums=only(shown, less.sums), known=only(shown, less.known))

    def check(self, question: "AskObservedSums") -> None:
        if (self.known > self.mass[..., None] * (1 + 1e-6) + 1e-9).any():
            raise BadReply("more rows have a value in a cluster than there are rows")
        size = (question.centers**2).sum(axis=-1)
        least = np.divide(self.sums**2, self.known, out=np.zeros_like(self.sums), where=self.known > 0)
        check_squares(np.sqrt(least.sum(axis=-1) * self.mass), self.mass, self.inertia, size)

    def cell_means(self, question: "AskObservedSums") -> tuple[FloatArray, FloatArray]:
        return self.means(question.centers), self.known


@dataclass(frozen=True, eq=False)
class AskObservedSums(Question[ObservedSums]):
    """Assign every row to its nearest centre over observed columns, for R sets of centres, and sum up."""

    sees = "rows"
    over_holes = True

    centers: Annotated[FloatArray, Centers("R k d")]

    def answer_all(self, stack: Stack) -> Stacked[ObservedSums]:
        weights, shares = weights_of(stack)
        S, (R, k, d) = len(stack), self.centers.shape
        sums, known, mass, inertia = (np.zeros((S, R, k, *more)) for more in ((d,), (d,), (), ()))
        for r in range(R):
            t = observed(
                stack.X, stack.offsets, self.centers[r], weights, shares, quality=False, threads=stack.threads
            )
            shown = shown_of(stack, t)
            sums[:, r], known[:, r] = only(shown.cells, t.sums), only(shown.cells, t.known)
            mass[:, r], inertia[:, r] = only(shown.clusters, t.mass), only(shown.clusters, shown.inertia)
        return Stacked(ObservedSums(sums, known, mass, inertia), S)


@dataclass(frozen=True, eq=False)
class ObservedProfile(Summable):
    """Per cluster: rows; by column, who has a value, and its first two moments about the centre."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    known: Annotated[FloatArray, Count("k d")]
    sums: Annotated[FloatArray, Sum("k d", rows="known")]
    squares: Annotated[FloatArray, Sum("k d", least=0.0, rows="known")]

    def check(self, question: "AskObservedProfile") -> None:
        check_squares(self.sums, self.known, self.squares, question.centers**2)

    def cell_means(self, question: "AskObservedProfile") -> tuple[FloatArray, FloatArray]:
        return question.centers + self.sums / np.maximum(self.known, 1e-300), self.known


@dataclass(frozen=True, eq=False)
class AskObservedProfile(Question[ObservedProfile]):
    """What does each cluster look like, column by column, of the rows that have it?"""

    sees = "rows"
    over_holes = True

    centers: Annotated[FloatArray, Centers("k d")]

    def answer_all(self, stack: Stack) -> Stacked[ObservedProfile]:
        weights, shares = weights_of(stack)
        t = observed(
            stack.X, stack.offsets, self.centers, weights, shares, quality=False, threads=stack.threads
        )
        shown = shown_of(stack, t)
        columns = (only(shown.cells, a) for a in (t.known, t.sums, t.deviations))
        return Stacked(ObservedProfile(only(shown.clusters, t.mass), *columns), len(stack))


@dataclass(frozen=True, eq=False)
class ObservedCovariance(Summable):
    """Of every pair of columns: the rows that have both, and sums and products of these about an origin."""

    known: Annotated[FloatArray, Count("d d")]
    sums: Annotated[FloatArray, Sum("d d", rows="known")]  # of the first column of the pair
    products: Annotated[FloatArray, Sum("d d", rows="known")]

    @property
    def mean(self) -> FloatArray:
        """(d,) of each column about the origin, over all rows that have it."""
        mean: FloatArray = np.diag(self.sums) / np.maximum(np.diag(self.known), 1.0)
        return mean

    def matrix(self) -> FloatArray:
        """The covariance matrix (d, d), each entry of the rows that have both columns; none below zero.

        Entries of different rows can contradict each other; the nearest matrix without a negative
        eigenvalue is taken.
        """
        n = np.maximum(self.known, 1.0)
        raw = self.products / n - (self.sums / n) * (self.sums.T / n)
        values, vectors = np.linalg.eigh(0.5 * (raw + raw.T))
        matrix: FloatArray = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return matrix


def _few_apart(stack: Stack, known: FloatArray, squares: FloatArray) -> BoolArray:
    """(d, d) mask of the pairs of which few rows have one column and lack the other.

    The sum over these few would follow by subtraction from the sum over all rows that have the one.
    """
    lack = np.diag(known)[:, None] - known
    few = (lack > 1e-9) & ~stack.large(lack, np.maximum(np.diag(squares)[:, None] - squares, 0.0))
    return few | few.T


@dataclass(frozen=True, eq=False)
class AskObservedCovariance(Question[ObservedCovariance]):
    """How do the columns vary together, over the rows that have both of a pair?

    About the origin or, with ``centers``, about the nearest of them: how rows vary within clusters. Of a
    group the persons who have both are not known: the smaller of the two numbers counts.
    """

    sees = "rows"
    over_holes = True

    origin: Annotated[FloatArray, Point("d")]
    centers: Annotated[FloatArray | None, Centers("k d")] = None

    def answer_all(self, stack: Stack) -> list[ObservedCovariance]:
        d = len(self.origin)
        replies = []
        for s in range(len(stack)):
            known, effective, sums, products = (np.zeros((d, d)) for _ in range(4))
            for rows in chunks_with_holes(stack, s):
                place, persons = self.origin, rows.persons
                if self.centers is not None:
                    place = self.centers[rows.nearest(self.centers, stack.threads)]
                Z = rows.about(place)
                if not stack.grouped:  # a cell is there or not, so a product tells whether both are
                    w = rows.weights[:, None]
                    known += rows.part.T @ persons
                    effective += rows.part.T @ (w * persons)
                    sums += Z.T @ persons
                    products += Z.T @ (w * Z)
                    continue
                for j in range(d):
                    both = np.minimum(persons, persons[:, j, None])  # (n, d) with column j
                    known[j] += both.sum(axis=0)
                    effective[j] += (both**2).sum(axis=0)
                    sums[j] += Z[:, j] @ both
                    products[j] += np.einsum("i,ij,ij->j", Z[:, j], both, Z)
            shown = stack.large(known, effective) & ~_few_apart(stack, known, effective)
            replies.append(ObservedCovariance(*(only(shown, a) for a in (known, sums, products))))
        return replies
