"""The questions for the choice of k and for reports: crossings, borders, profiles, covariance, outlines.

Replies hold only counts and sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from unpooled import kernels
from unpooled.protocol.declarations import Centers, Count, Numbers, Point, Sum
from unpooled.protocol.messages import Question, Summable, check_squares
from unpooled.protocol.questions.sums_with_missing import RowsWithMissing, chunks_with_missing
from unpooled.protocol.site_batch import SiteBatch, column_sums, repeated
from unpooled.protocol.suppression import disclosed_cells, zero_suppressed
from unpooled.typing import FloatArray, IntArray, Rows

_ALIKE = 0.1  # of the smallest distance between centres: centres that moved by half of it are still the same
STEPS = 7  # positions on the way to the border: up to the border, and a quarter behind the centre
_FEW = 2  # up to so many clusterings, labels are compared without margins
_CELLS = 1 << 19  # of rows that are processed together, so that no second copy of all rows is made
_CACHED = 1 << 14  # numbers that are worked on together: they stay in the cache, their products in one thread


def _chunks(batch: SiteBatch, s: int) -> Iterator[tuple[Any, FloatArray | None]]:
    """Chunks of a site's rows, with their weights; RowsWithMissing where cells may be missing."""
    if batch.has_missing:
        yield from ((rows, rows.weights) for rows in chunks_with_missing(batch, s))
        return
    rows = max(256, _CELLS // batch.X.shape[1])
    for a in range(int(batch.offsets[s]), int(batch.offsets[s + 1]), rows):
        span = slice(a, min(a + rows, int(batch.offsets[s + 1])))
        yield batch.X[span], None if batch.weights is None else batch.weights[span]


def _size(k: int, d: int) -> int:
    """The number of rows (n, d) that are worked on together, in products with (k, d)."""
    return max(64, _CACHED // max(k, d, k * d // 8))


def _blocks(rows: int, k: int, d: int) -> Iterator[slice]:
    """Spans of a chunk's rows that are worked on together."""
    size = _size(k, d)
    return (slice(a, min(a + size, rows)) for a in range(0, rows, size))


def _members(labels: IntArray, w: FloatArray | None, k: int) -> FloatArray:
    """(m, k): the weight of a row in the column of its label, else 0; products with it are sums by label."""
    members = np.zeros((len(labels), k))
    members[np.arange(len(labels)), labels] = 1.0 if w is None else w
    return members


def _masses(labels: IntArray, w: FloatArray | None, k: int) -> FloatArray:
    """(2, k) the sums of weights and of squared weights: with these a heavy row counts as one (Kish)."""
    if w is None:
        return np.tile(np.bincount(labels, minlength=k).astype(np.float64), (2, 1))
    return np.stack([np.bincount(labels, w, k), np.bincount(labels, w * w, k)])


def _labels(X: Rows | RowsWithMissing, centers: FloatArray, batch: SiteBatch) -> IntArray:
    if isinstance(X, RowsWithMissing):
        return X.nearest(centers, batch.threads)
    return kernels.nearest(X, centers, threads=batch.threads).labels.astype(np.int64)


def _distances(some: FloatArray, others: FloatArray) -> FloatArray:
    """(k, k') the distances between centres, some at a time: no array of (k, k', d) is made."""
    at_once = max(1, _CELLS // max(others.size, 1))
    blocks = (some[a : a + at_once] for a in range(0, len(some), at_once))
    return np.concatenate([np.linalg.norm(block[:, None] - others[None], axis=2) for block in blocks])


class _Nearest(NamedTuple):
    """Rows cluster by cluster, with the two centres that are nearest to each."""

    order: IntArray  # (n,) where the rows stood
    X: Rows
    own: IntArray  # (n,) the nearest centre
    near: FloatArray  # (n,) the squared distance to it
    other: IntArray  # (n,) the next nearest centre
    far: FloatArray


def _two_nearest(X: Rows, centers: FloatArray, batch: SiteBatch) -> _Nearest:
    """Of the rows of a cluster the next nearest centre is the nearest of the other ones."""
    k = len(centers)
    labels, near = kernels.nearest(X, centers, threads=batch.threads)
    order = np.argsort(labels.astype(np.min_scalar_type(k)), kind="stable")
    counts = np.bincount(labels, minlength=k)
    ends = np.cumsum(counts)
    X, other, far = X.take(order, axis=0), np.empty(len(X), dtype=np.int64), np.empty(len(X))
    for j in np.flatnonzero(counts):
        span = slice(ends[j] - counts[j], ends[j])
        found = kernels.nearest(X[span], np.delete(centers, j, axis=0), threads=batch.threads)
        other[span] = found.labels + (found.labels >= j)
        far[span] = found.sqdist
    return _Nearest(order, X, np.repeat(np.arange(k), counts), near.take(order), other, far)


@dataclass(frozen=True, eq=False)
class Crossing(Summable):
    """The number of rows in cluster i of the first clustering and in cluster j of each other one."""

    counts: Annotated[FloatArray, Count("R k k")]


@dataclass(frozen=True, eq=False)
class AskCrossing(Question[Crossing]):
    """Counts of rows by cluster in two clusterings each, for the adjusted Rand index."""

    reads = "rows"
    asks_for = "how many rows two clusterings put into the same pair of clusters"
    supports_missing = True

    centers: Annotated[FloatArray, Centers("k d")]
    others: Annotated[FloatArray, Centers("R k d")]

    def answer_all(self, batch: SiteBatch) -> list[Crossing]:
        R, k = self.others.shape[:2]
        alike = {} if batch.has_missing or k == 1 else self._alike()
        reach = max((moved for _, moved in alike.values()), default=0.0)
        replies = []
        for s in range(len(batch)):
            counts = np.zeros((R, k, k))
            for X, w in _chunks(batch, s):
                rows: Any = (X, _labels(X, self.centers, batch) if len(alike) < R else None, w)
                if alike:
                    firm, few = self._divided(X, w, reach, batch)
                for r in range(R):
                    if r in alike:
                        counts[r, np.arange(k), alike[r][0]] += firm
                    Z, first, weights = few if r in alike else rows
                    pairs = first * k + _labels(Z, self.others[r], batch)
                    counts[r] += np.bincount(pairs, weights, k * k).reshape(k, k)
            disclosed = batch.disclosed(*2 * (counts.reshape(R, -1),)).reshape(counts.shape)
            replies.append(Crossing(zero_suppressed(disclosed, counts)))
        return replies

    def _divided(
        self, X: Rows, w: FloatArray | None, reach: float, batch: SiteBatch
    ) -> tuple[FloatArray, Any]:
        """(k,) the rows with margins beyond reach, by cluster; the others, their clusters and weights."""
        rows = _two_nearest(X, self.centers, batch)
        margin = np.sqrt(rows.far) * (1 - 1e-6) - np.sqrt(rows.near)
        firm, few = np.flatnonzero(margin > reach), np.flatnonzero(margin <= reach)
        w = None if w is None else w.take(rows.order)
        weights, heavy = (None, None) if w is None else (w.take(few), w.take(firm))
        mass = np.bincount(rows.own.take(firm), heavy, len(self.centers))
        return mass.astype(np.float64), (rows.X.take(few, axis=0), rows.own.take(few), weights)

    def _alike(self) -> dict[int, tuple[IntArray, float]]:
        """Of every clustering with nearly the same centres: which is which, and by how much margins shrink.

        The margin of a row is how much further than the nearest centre the next one is. A row with a larger
        margin than this is in the same cluster in both.
        """
        if len(self.others) <= _FEW:
            return {}
        gaps = _distances(self.centers, self.centers)
        np.fill_diagonal(gaps, np.inf)
        closest = float(gaps.min())
        found = {}
        for r, other in enumerate(self.others):
            moved = _distances(self.centers, other)
            match = moved.argmin(axis=1)
            shift = 2 * float(moved.min(axis=1).max())
            if len(set(match.tolist())) == len(match) and shift < _ALIKE * closest:
                found[r] = (match, shift)
        return found if len(found) > _FEW else {}


@dataclass(frozen=True, eq=False)
class Borders(Summable):
    """Rows of each cluster by their position on the way from its centre to the next nearest centre.

    The last step ends half-way, at the border of the cluster; the first holds all rows that lie further back.
    """

    counts: Annotated[FloatArray, Count("k steps")]


@dataclass(frozen=True, eq=False)
class AskBorders(Question[Borders]):
    """Counts of rows by their position between their own centre and the next one, in eighths of the way."""

    reads = "rows"
    asks_for = "for each cluster: how many rows are near its border, in eight steps"
    supports_missing = True

    centers: Annotated[FloatArray, Centers("k d")]  # two or more

    def answer_all(self, batch: SiteBatch) -> list[Borders]:
        k = len(self.centers)
        replies = []
        for s in range(len(batch)):
            counts, heavy = np.zeros((2, k * STEPS))
            for X, w in _chunks(batch, s):
                if batch.has_missing:
                    own, way = X.towards_others(self.centers)
                    own, way, w = (a[~np.isnan(way)] for a in (own, way, X.weights))
                else:
                    rows = _two_nearest(X, self.centers, batch)
                    own, w = rows.own, None if w is None else w[rows.order]
                    gap = ((self.centers[own] - self.centers[rows.other]) ** 2).sum(axis=1)
                    way = 0.5 + (rows.near - rows.far) / np.where(gap > 0, 2 * gap, 1.0)
                step = np.clip(np.floor(8 * way) + STEPS - 4, 0, STEPS - 1).astype(np.int64)
                mass, squares = _masses(own * STEPS + step, w, k * STEPS)
                counts += mass
                heavy += squares
            replies.append(
                Borders(zero_suppressed(disclosed_cells(batch, counts, heavy), counts).reshape(k, STEPS))
            )
        return replies

    def lengths(self) -> dict[str, int]:
        return {**super().lengths(), "steps": STEPS}


@dataclass(frozen=True, eq=False)
class Profile(Summable):
    """Per cluster: rows, and the first two moments of every column about the centre."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    sums: Annotated[FloatArray, Sum("k d", rows="mass")]
    squares: Annotated[FloatArray, Sum("k d", min_value=0.0, rows="mass")]

    def check(self, question: "AskProfile") -> None:
        mass = np.broadcast_to(self.mass[:, None], self.sums.shape)
        check_squares(self.sums, mass, self.squares, question.centers**2)

    def cell_means(self, question: "AskProfile") -> tuple[FloatArray, FloatArray]:
        return question.centers + self.sums / np.maximum(self.mass, 1e-300)[:, None], self.mass


@dataclass(frozen=True, eq=False)
class AskProfile(Question[Profile]):
    """Size of each cluster, and sums and squares of every column about its centre."""

    reads = "rows"
    asks_for = "for each cluster: its size, and the mean and spread of every column"
    sums_add_up = True

    centers: Annotated[FloatArray, Centers("k d")]

    def answer_all(self, batch: SiteBatch) -> list[Profile]:
        k, d = self.centers.shape
        replies = []
        for s in range(len(batch)):
            masses, sums, squares = np.zeros((2, k)), np.zeros((k, d)), np.zeros((k, d))
            for X, w in _chunks(batch, s):
                labels = _labels(X, self.centers, batch)
                masses += _masses(labels, w, k)
                for span in _blocks(len(X), k, d):
                    Z = X[span] - self.centers.take(labels[span], axis=0)
                    members = _members(labels[span], None if w is None else w[span], k)
                    sums += members.T @ Z
                    squares += members.T @ np.square(Z, out=Z)
            disclosed = disclosed_cells(batch, *masses)
            replies.append(Profile(*(zero_suppressed(disclosed, a) for a in (masses[0], sums, squares))))
        return replies


@dataclass(frozen=True, eq=False)
class Covariance(Summable):
    """Rows, sums and products of all pairs of columns about an origin."""

    mass: Annotated[FloatArray, Count("1")]
    sums: Annotated[FloatArray, Sum("d", rows="mass")]
    products: Annotated[FloatArray, Sum("d d", rows="mass")]

    @property
    def mean(self) -> FloatArray:
        """(d,) about the origin."""
        return self.sums / max(float(self.mass[0]), 1.0)

    def matrix(self) -> FloatArray:
        """Return the covariance matrix (d, d)."""
        n = max(float(self.mass[0]), 1.0)
        mean = self.sums / n
        return self.products / n - np.outer(mean, mean)


@dataclass(frozen=True, eq=False)
class AskCovariance(Question[Covariance]):
    """Number of rows, and sums and products of all pairs of columns."""

    reads = "rows"
    asks_for = "how many rows there are, and the sums and products of all pairs of columns"
    sums_add_up = True

    origin: Annotated[FloatArray, Point("d")]

    def answer_all(self, batch: SiteBatch) -> list[Covariance]:
        d = len(self.origin)
        origins = repeated(self.origin, _size(d, d))
        replies = []
        for s in range(len(batch)):
            masses, sums, products = np.zeros((2, 1)), np.zeros(d), np.zeros((d, d))
            for X, w in _chunks(batch, s):
                masses += len(X) if w is None else np.array([[w.sum()], [w @ w]])
                for span in _blocks(len(X), d, d):
                    Z = X[span] - origins[: span.stop - span.start]
                    weighted = Z if w is None else w[span, None] * Z
                    sums += column_sums(weighted)
                    products += Z.T @ weighted
            disclosed = disclosed_cells(batch, *masses)[0]
            replies.append(Covariance(*(np.where(disclosed, a, 0.0) for a in (masses[0], sums, products))))
        return replies


def map_axes(
    centers: FloatArray, mean: FloatArray, covariance: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the axes of the map (d, 2), the share of the variance on each, the deviations of the columns.

    They are the principal axes of all rows; of the centres if there are too many columns for a covariance.
    """
    matrix = (
        covariance if covariance is not None else np.cov((centers - mean).T, bias=True).reshape(len(mean), -1)
    )
    values, vectors = np.linalg.eigh(matrix)
    top = np.argsort(-values, kind="stable")[:2]
    axes = vectors[:, top]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), range(axes.shape[1])] < 0, -1.0, 1.0)
    share = np.maximum(values[top], 0.0) / max(float(values.sum()), 1e-300)
    if axes.shape[1] < 2:  # one column: the map is a line
        axes = np.concatenate([axes, np.zeros_like(axes)], axis=1)
        share = np.append(share, 0.0)
    deviation = np.sqrt(np.maximum(np.diag(matrix), 0.0)) if covariance is not None else np.ones(len(mean))
    return np.ascontiguousarray(axes), share, deviation


@dataclass(frozen=True, eq=False)
class Outline(Summable):
    """The position of groups of rows on a map: rows, sums and products of the two coordinates."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    sums: Annotated[FloatArray, Sum("k 2", rows="mass")]
    products: Annotated[FloatArray, Sum("k 3", rows="mass")]  # xx, xy, yy

    def ellipses(self) -> FloatArray:
        """Return (m, 6): rows, mean x and y, variance of x, covariance, variance of y; nan if suppressed."""
        n = np.where(self.mass > 0, self.mass, np.nan)[:, None]
        mean = self.sums / n
        cross = np.stack([mean[:, 0] ** 2, mean[:, 0] * mean[:, 1], mean[:, 1] ** 2], axis=1)
        return np.concatenate([self.mass[:, None], mean, self.products / n - cross], axis=1)


@dataclass(frozen=True, eq=False)
class AskOutline(Question[Outline]):
    """Sums and products of the rows' two coordinates on the map, by cluster if centres are given.

    A missing cell counts as the centre of its row's cluster, or as the origin if no centres are given.
    """

    reads = "rows"
    asks_for = "for each cluster: where its rows lie on the map of the report, as a mean and a spread"
    sums_add_up = True
    supports_missing = True

    axes: Annotated[FloatArray, Numbers("d 2")]
    origin: Annotated[FloatArray, Point("d")]
    centers: Annotated[FloatArray | None, Centers("k d")] = None

    def answer_all(self, batch: SiteBatch) -> list[Outline]:
        m = 1 if self.centers is None else len(self.centers)
        middle = (self.origin @ self.axes)[:, None]
        replies = []
        for s in range(len(batch)):
            masses, sums = np.zeros((2, m)), np.zeros((m, 5))
            for X, w in _chunks(batch, s):
                whole = np.zeros(len(X.X if batch.has_missing else X), dtype=np.int64)
                labels = whole if self.centers is None else _labels(X, self.centers, batch)
                if batch.has_missing:
                    fill = self.origin if self.centers is None else self.centers[labels]
                    X = np.where(np.isnan(X.X), fill, X.X)
                masses += _masses(labels, w, m)
                for span in _blocks(len(X), m, X.shape[1]):
                    powers = np.empty((5, span.stop - span.start))  # x, y, xx, xy, yy
                    x, y = np.subtract(self.axes.T @ X[span].T, middle, out=powers[:2])
                    np.multiply(x, powers[:2], out=powers[2:4])
                    np.multiply(y, y, out=powers[4])
                    sums += (powers @ _members(labels[span], None if w is None else w[span], m)).T
            disclosed = disclosed_cells(batch, *masses)
            replies.append(
                Outline(*(zero_suppressed(disclosed, a) for a in (masses[0], sums[:, :2], sums[:, 2:])))
            )
        return replies

    def lengths(self) -> dict[str, int]:
        return {"k": 1, **super().lengths()}  # without centres all rows form one group
