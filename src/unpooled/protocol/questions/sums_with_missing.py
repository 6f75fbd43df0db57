"""The questions about rows with missing cells: a column counts where a row has it, and nowhere else.

Distances are over the observed columns of a row (``kernels.observed``), so every sum has a count for each
column beside it. Rows that are groups of a summary table have, for every cell, the share of their people who
have a value. Replies hold only counts and sums; a site in raw mode discloses a cell of cluster and column if
it is large.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self

import numpy as np

from unpooled.errors import ReplyError
from unpooled.kernels.observed import nearest_observed, observed
from unpooled.kernels.reference_observed import distances, parts_of
from unpooled.kernels.results import ObservedTotals
from unpooled.protocol.consistency import ReportedTotals
from unpooled.protocol.declarations import Centers, Count, Point, Sum
from unpooled.protocol.messages import Question, Summable, check_squares
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch
from unpooled.protocol.suppression import complementary_suppression, zero_suppressed
from unpooled.typing import BoolArray, FloatArray, IntArray, Rows

MIN_SEPARATION = 0.5  # share of the squared distance of two centres that lies in the columns of a row
_CELLS = 1 << 19  # of rows that are processed together, so that no second copy of all rows is made


class RowsWithMissing(NamedTuple):
    """Some rows of a site: a missing cell is NaN, and ``part`` is 0 there."""

    X: Rows  # (n, d)
    part: FloatArray  # (n, d) the share of people who have a value: 1 for a single row
    weights: FloatArray  # (n,)

    @property
    def people(self) -> FloatArray:
        """(n, d) the weight of every cell."""
        weight: FloatArray = self.part * self.weights[:, None]
        return weight

    def about(self, place: FloatArray) -> FloatArray:
        """Return the rows minus a position, (d,) or one for each; 0 where a cell is missing: (n, d)."""
        return np.where(self.part > 0, self.X - place, 0.0)

    def nearest(self, centers: FloatArray, threads: int) -> IntArray:
        """Return the nearest centre of every row (n,), over its observed columns."""
        return nearest_observed(self.X, centers, self.part, threads=threads).labels.astype(np.int64)

    def towards_others(self, centers: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the nearest centre (n,), and the position of a row on the way from it to the next (n,).

        The position is 0.5 at the border. Both are in the columns that the row has; nan if less than half of
        the squared distance of the two centres lies in these.
        """
        at_once = max(1, _CELLS // len(centers))
        blocks = (slice(a, a + at_once) for a in range(0, max(len(self.X), 1), at_once))
        found = [RowsWithMissing(*(field[at] for field in self))._towards_others(centers) for at in blocks]
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
        return own, np.where(gap >= MIN_SEPARATION * whole, way, np.nan)


def weights_of(batch: SiteBatch) -> tuple[FloatArray | None, FloatArray | None]:
    """Return the weights (n,) of rows with missing cells, and the shares of people (n, d); None for 1."""
    if batch.weights is None or batch.weights.ndim == 1:
        return batch.weights, None
    return batch.weights[:, 0], batch.weights[:, 1:]


def chunks_with_missing(batch: SiteBatch, s: int) -> Iterator[RowsWithMissing]:
    """Yield the rows of a site in chunks."""
    weights, shares = weights_of(batch)
    rows = max(256, _CELLS // batch.X.shape[1])
    for a in range(int(batch.offsets[s]), int(batch.offsets[s + 1]), rows):
        at = slice(a, min(a + rows, int(batch.offsets[s + 1])))
        part = parts_of(batch.X[at], None if shares is None else shares[at])
        yield RowsWithMissing(batch.X[at], part, np.ones(len(part)) if weights is None else weights[at])


def disclosed_by_column(
    batch: SiteBatch, clusters: BoolArray, known: FloatArray, squares: FloatArray
) -> BoolArray:
    """Return the mask (..., k, d) of the cells of cluster and column: large ones of disclosed clusters.

    The clusters divide the rows that have a column, so of every column none or enough rows are suppressed.
    """
    large = np.swapaxes(batch.large(known, squares) & clusters[..., None], -1, -2)
    min_size = batch.minimum * (1 - 1e-9)
    disclosed = complementary_suppression(
        large, np.swapaxes(known, -1, -2), np.swapaxes(squares, -1, -2), min_size
    )
    return np.swapaxes(disclosed, -1, -2)


class DisclosedCells(NamedTuple):
    """The cells of a clustering of rows with missing values that may be disclosed."""

    clusters: BoolArray  # (S, k)
    cells: BoolArray  # (S, k, d)
    inertia: FloatArray  # (S, k) of disclosed cells alone: a suppressed one would follow by subtraction


def disclose_observed(batch: SiteBatch, t: ObservedTotals) -> DisclosedCells:
    clusters = batch.disclosed(t.mass, t.squares)
    if batch.minimum <= 1:
        return DisclosedCells(clusters, np.ones(t.known.shape, dtype=np.bool_), t.inertia)
    cells = disclosed_by_column(batch, clusters, t.known, t.known_squares)
    return DisclosedCells(clusters, cells, zero_suppressed(cells, t.deviations).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class ObservedMoments(Summable):
    """The number of rows; by column, how many have a value, and its first two moments about an origin."""

    mass: Annotated[FloatArray, Count("1")]
    known: Annotated[FloatArray, Count("d")]
    sums: Annotated[FloatArray, Sum("d", rows="known")]  # of x - origin
    squares: Annotated[FloatArray, Sum("d", min_value=0.0, rows="known")]  # of (x - origin)^2

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

    def reported_totals(self, question: "AskObservedMoments") -> ReportedTotals | None:
        if not self.n:
            return None
        origin = 0.0 if question.origin is None else question.origin
        return ReportedTotals(self.n, origin + self.mean, self.variance, self.known)


@dataclass(frozen=True, eq=False)
class AskObservedMoments(Question[ObservedMoments]):
    """Number of rows, and counts, sums and squares of observed cells by column, about ``origin``."""

    reads = "rows"
    asks_for = (
        "how many rows there are, and of every column the number of values, their sum and their "
        "sum of squares"
    )
    supports_missing = True

    origin: Annotated[FloatArray | None, Point("d")] = None

    def answer_all(self, batch: SiteBatch) -> list[ObservedMoments]:
        d = batch.X.shape[1]
        origin = np.zeros(d) if self.origin is None else self.origin
        replies = []
        for s in range(len(batch)):
            mass, heavy = np.zeros(1), np.zeros(1)
            known, effective, sums, squares = (np.zeros(d) for _ in range(4))
            for rows in chunks_with_missing(batch, s):
                Z, people = rows.about(origin), rows.people
                mass += rows.weights.sum()
                heavy += (rows.weights**2).sum()
                known += people.sum(axis=0)
                effective += (people**2).sum(axis=0)
                sums += np.einsum("ij,ij->j", people, Z)
                squares += np.einsum("ij,ij,ij->j", people, Z, Z)
            if batch.within is not None:
                squares += known * batch.within[s]
            disclosed = batch.large(known, effective) & batch.large(mass, heavy)
            columns = (zero_suppressed(disclosed, a) for a in (known, sums, squares))
            replies.append(ObservedMoments(zero_suppressed(batch.large(mass, heavy), mass), *columns))
        return replies


@dataclass(frozen=True, eq=False)
class ObservedSums(Summable):
    """Per start and cluster: mass and inertia; by column, rows with a value, and sums about the centre."""

    cells = "mass"

    sums: Annotated[FloatArray, Sum("R k d", rows="known")]  # of x - c
    known: Annotated[FloatArray, Count("R k d")]
    mass: Annotated[FloatArray, Count("R k")]
    inertia: Annotated[FloatArray, Sum("R k", min_value=-1e-6, rows="mass")]  # over observed cells

    def means(self, centers: FloatArray, min_size: float = 0.0) -> FloatArray:
        """Return the means of observed cells (R, k, d); where there are too few, the centre stays."""
        full = (self.known > 0) & (self.known >= min_size) & (self.mass > 0)[..., None]
        return centers + np.where(full, 1 / np.where(full, self.known, 1), 0) * self.sums

    def within_and_between(self, centers: FloatArray) -> tuple[float, float]:
        """Return the inertia of observed cells about the clusters' means, and that of these means about the
        mean of each column, of the first start with centres (k, d)."""
        known, means = self.known[0], self.means(centers[None])[0]
        mean = (known * means).sum(axis=0) / np.maximum(known.sum(axis=0), 1e-300)
        within = float(self.inertia[0].sum() - (known * (means - centers) ** 2).sum())
        return within, float((known * (means - mean) ** 2).sum())

    def suppress_below(self, minimum: float) -> Self:
        less = super().suppress_below(minimum)
        if minimum <= 1:
            return less
        disclosed = less.known >= minimum * (1 - 1e-9)
        return replace(
            less, sums=zero_suppressed(disclosed, less.sums), known=zero_suppressed(disclosed, less.known)
        )

    def check(self, question: "AskObservedSums") -> None:
        if (self.known > self.mass[..., None] * (1 + 1e-6) + 1e-9).any():
            raise ReplyError("more rows have a value in a cluster than there are rows")
        size = (question.centers**2).sum(axis=-1)
        implied = np.divide(self.sums**2, self.known, out=np.zeros_like(self.sums), where=self.known > 0)
        check_squares(np.sqrt(implied.sum(axis=-1) * self.mass), self.mass, self.inertia, size)

    def cell_means(self, question: "AskObservedSums") -> tuple[FloatArray, FloatArray]:
        return self.means(question.centers), self.known


@dataclass(frozen=True, eq=False)
class AskObservedSums(Question[ObservedSums]):
    """Sums and counts of the rows by nearest centre over observed columns, for R sets of centres."""

    reads = "rows"
    asks_for = (
        "for each centre: how many rows are nearest to it, and the sums of the values that are not missing"
    )
    supports_missing = True

    centers: Annotated[FloatArray, Centers("R k d")]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[ObservedSums]:
        weights, shares = weights_of(batch)
        S, (R, k, d) = len(batch), self.centers.shape
        sums, known, mass, inertia = (np.zeros((S, R, k, *more)) for more in ((d,), (d,), (), ()))
        for r in range(R):
            t = observed(
                batch.X, batch.offsets, self.centers[r], weights, shares, quality=False, threads=batch.threads
            )
            disclosed = disclose_observed(batch, t)
            sums[:, r], known[:, r] = (
                zero_suppressed(disclosed.cells, t.sums),
                zero_suppressed(disclosed.cells, t.known),
            )
            mass[:, r], inertia[:, r] = (
                zero_suppressed(disclosed.clusters, t.mass),
                zero_suppressed(disclosed.clusters, disclosed.inertia),
            )
        return ReplyBatch(ObservedSums(sums, known, mass, inertia), S)


@dataclass(frozen=True, eq=False)
class ObservedProfile(Summable):
    """Per cluster: rows; by column, the rows with a value, and the first two moments about the centre."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    known: Annotated[FloatArray, Count("k d")]
    sums: Annotated[FloatArray, Sum("k d", rows="known")]
    squares: Annotated[FloatArray, Sum("k d", min_value=0.0, rows="known")]

    def check(self, question: "AskObservedProfile") -> None:
        check_squares(self.sums, self.known, self.squares, question.centers**2)

    def cell_means(self, question: "AskObservedProfile") -> tuple[FloatArray, FloatArray]:
        return question.centers + self.sums / np.maximum(self.known, 1e-300), self.known


@dataclass(frozen=True, eq=False)
class AskObservedProfile(Question[ObservedProfile]):
    """Size of each cluster, and counts, sums and squares of every column over the rows that have a value."""

    reads = "rows"
    asks_for = (
        "for each cluster: its size, and the mean and spread of the values of every column that "
        "are not missing"
    )
    supports_missing = True

    centers: Annotated[FloatArray, Centers("k d")]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[ObservedProfile]:
        weights, shares = weights_of(batch)
        t = observed(
            batch.X, batch.offsets, self.centers, weights, shares, quality=False, threads=batch.threads
        )
        disclosed = disclose_observed(batch, t)
        columns = (zero_suppressed(disclosed.cells, a) for a in (t.known, t.sums, t.deviations))
        return ReplyBatch(ObservedProfile(zero_suppressed(disclosed.clusters, t.mass), *columns), len(batch))


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
        """Return the covariance matrix (d, d), each entry of the rows that have both columns.

        Entries of different rows can contradict each other; the nearest matrix without a negative
        eigenvalue is returned.
        """
        n = np.maximum(self.known, 1.0)
        raw = self.products / n - (self.sums / n) * (self.sums.T / n)
        values, vectors = np.linalg.eigh(0.5 * (raw + raw.T))
        matrix: FloatArray = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return matrix


def _few_apart(batch: SiteBatch, known: FloatArray, squares: FloatArray) -> BoolArray:
    """(d, d) mask of the pairs of which few rows have one column and lack the other.

    The sum over these few would follow by subtraction from the sum over all rows that have the one.
    """
    lack = np.diag(known)[:, None] - known
    few = (lack > 1e-9) & ~batch.large(lack, np.maximum(np.diag(squares)[:, None] - squares, 0.0))
    return few | few.T


@dataclass(frozen=True, eq=False)
class AskObservedCovariance(Question[ObservedCovariance]):
    """Counts, sums and products of all pairs of columns, over the rows that have both.

    They are about the origin or, with ``centers``, about the nearest centre: how rows vary within clusters.
    It is not known how many people of a group have both values: the smaller of the two numbers counts.
    """

    reads = "rows"
    asks_for = "for all pairs of columns: how many rows have both values, and their sums and products"
    supports_missing = True

    origin: Annotated[FloatArray, Point("d")]
    centers: Annotated[FloatArray | None, Centers("k d")] = None

    def answer_all(self, batch: SiteBatch) -> list[ObservedCovariance]:
        d = len(self.origin)
        replies = []
        for s in range(len(batch)):
            known, effective, sums, products = (np.zeros((d, d)) for _ in range(4))
            for rows in chunks_with_missing(batch, s):
                place, people = self.origin, rows.people
                if self.centers is not None:
                    place = self.centers[rows.nearest(self.centers, batch.threads)]
                Z = rows.about(place)
                if not batch.grouped:  # a cell is there or not, so a product tells whether both are
                    w = rows.weights[:, None]
                    known += rows.part.T @ people
                    effective += rows.part.T @ (w * people)
                    sums += Z.T @ people
                    products += Z.T @ (w * Z)
                    continue
                for j in range(d):
                    both = np.minimum(people, people[:, j, None])  # (n, d) with column j
                    known[j] += both.sum(axis=0)
                    effective[j] += (both**2).sum(axis=0)
                    sums[j] += Z[:, j] @ both
                    products[j] += np.einsum("i,ij,ij->j", Z[:, j], both, Z)
            disclosed = batch.large(known, effective) & ~_few_apart(batch, known, effective)
            replies.append(
                ObservedCovariance(*(zero_suppressed(disclosed, a) for a in (known, sums, products)))
            )
        return replies
