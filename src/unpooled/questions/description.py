"""The questions for the choice of k and for reports: crossings, borders, profiles, covariance, outlines.

Replies hold only counts and sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from unpooled import kernels
from unpooled.core.arrays import FloatArray, IntArray, Rows
from unpooled.core.declarations import Centers, Count, Numbers, Point, Sum
from unpooled.core.messages import Question, Summable
from unpooled.core.stack import Stack, only, shown_cells
from unpooled.core.statements import check_squares
from unpooled.questions.observed import RowsWithHoles, chunks_with_holes

STEPS = 7  # positions that borders are told by: up to the border, and a quarter behind the centre
_CELLS = 1 << 19  # of rows that are processed together, so that no second copy of all rows is made
_CACHED = 1 << 14  # distances that are looked at together


def _chunks(stack: Stack, s: int) -> Iterator[tuple[Any, FloatArray | None]]:
    """Chunks of a site's rows, with their weights; RowsWithHoles where cells may be missing."""
    if stack.holes:
        yield from ((rows, rows.weights) for rows in chunks_with_holes(stack, s))
        return
    rows = max(256, _CELLS // stack.X.shape[1])
    for a in range(int(stack.offsets[s]), int(stack.offsets[s + 1]), rows):
        span = slice(a, min(a + rows, int(stack.offsets[s + 1])))
        yield stack.X[span], None if stack.weights is None else stack.weights[span]


def _grouped(labels: IntArray, values: FloatArray, k: int, w: FloatArray | None) -> FloatArray:
    """(k, m): the sums of values (n, m) over the rows of each label, weighted where rows have weights."""
    columns = values.T if w is None else (column * w for column in values.T)
    return np.stack([np.bincount(labels, column, k) for column in columns], axis=1)


def _squared_weights(labels: IntArray, w: FloatArray | None, k: int) -> FloatArray:
    """(k,) the sums of squared weights: with them a heavy row counts as one (Kish's effective size)."""
    return np.bincount(labels, None if w is None else w * w, k).astype(np.float64)


def _labels(X: Rows | RowsWithHoles, centers: FloatArray, stack: Stack) -> IntArray:
    if isinstance(X, RowsWithHoles):
        return X.nearest(centers, stack.threads)
    return kernels.nearest(X, centers, threads=stack.threads).labels.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Crossing(Summable, wire="figures.Crossing"):
    """The number of rows in cluster i of the first clustering and in cluster j of each other one."""

    counts: Annotated[FloatArray, Count("R k k")]


@dataclass(frozen=True, eq=False)
class AskCrossing(Question[Crossing], wire="figures.AskCrossing"):
    """How alike are these clusterings? Enough for the adjusted Rand index of each with the first."""

    sees = "rows"
    over_holes = True

    centers: Annotated[FloatArray, Centers("k d")]
    others: Annotated[FloatArray, Centers("R k d")]

    def answer_all(self, stack: Stack) -> list[Crossing]:
        R, k = self.others.shape[:2]
        replies = []
        for s in range(len(stack)):
            counts = np.zeros((R, k, k))
            for X, w in _chunks(stack, s):
                first = _labels(X, self.centers, stack)
                for r in range(R):
                    pairs = first * k + _labels(X, self.others[r], stack)
                    counts[r] += np.bincount(pairs, w, k * k).reshape(k, k)
            shown = stack.shown(*2 * (counts.reshape(R, -1),)).reshape(counts.shape)
            replies.append(Crossing(only(shown, counts)))
        return replies

    def reply_numbers(self, d: int) -> int:
        return int(np.prod(self.others.shape[:2])) * len(self.centers)


@dataclass(frozen=True, eq=False)
class Borders(Summable, wire="figures.Borders"):
    """Rows of each cluster by their position on the way from its centre to the next nearest centre.

    The last step ends half-way, at the border of the cluster; the first holds all rows that lie further back.
    """

    counts: Annotated[FloatArray, Count("k steps")]


@dataclass(frozen=True, eq=False)
class AskBorders(Question[Borders], wire="figures.AskBorders"):
    """Do rows thin out between the clusters? A step is an eighth of the way from centre to centre."""

    sees = "rows"
    over_holes = True

    centers: Annotated[FloatArray, Centers("k d")]  # two or more

    def answer_all(self, stack: Stack) -> list[Borders]:
        k, middle = len(self.centers), self.centers.mean(axis=0)
        centers = self.centers - middle
        gaps = ((centers[:, None] - centers[None]) ** 2).sum(axis=2)  # (k, k)
        replies = []
        for s in range(len(stack)):
            counts, heavy = np.zeros(k * STEPS), np.zeros(k * STEPS)
            for X, w in _chunks(stack, s):
                if stack.holes:
                    own, way = X.towards_others(self.centers)
                    own, way, w = (a[~np.isnan(way)] for a in (own, way, X.weights))
                else:
                    own, way = _towards_others(X - middle, centers, gaps)
                step = np.clip(np.floor(8 * way) + STEPS - 4, 0, STEPS - 1).astype(np.int64)
                counts += np.bincount(own * STEPS + step, w, k * STEPS)
                heavy += _squared_weights(own * STEPS + step, w, k * STEPS)
            replies.append(Borders(only(shown_cells(stack, counts, heavy), counts).reshape(k, STEPS)))
        return replies

    def lengths(self) -> dict[str, int]:
        return {**super().lengths(), "steps": STEPS}

    def reply_numbers(self, d: int) -> int:
        return STEPS * len(self.centers)


def _towards_others(X: FloatArray, centers: FloatArray, gaps: FloatArray) -> tuple[IntArray, FloatArray]:
    """(n,) the nearest centre, and where a row lies on the way from it to the next: 0.5 at the border."""
    k = len(centers)
    halves, lengths = np.where(gaps > 0, 2 * gaps, 1.0).ravel(), (centers**2).sum(axis=1)
    own, way = np.empty(len(X), dtype=np.int64), np.empty(len(X))
    size = max(64, _CACHED // k)
    for a in range(
        0, len(X), size
    ):  # some rows at a time, so that all of this stays in the processor's cache
        span = slice(a, min(a + size, len(X)))
        # |x - c|^2 less |x|^2, which is the same for every centre
        away = lengths - 2 * (X[span] @ centers.T)  # (m, k)
        flat, starts = away.ravel(), np.arange(0, away.size, k)
        near = away.argmin(axis=1)
        at = starts + near
        nearest = flat[at]
        flat[at] = np.inf
        other = away.argmin(axis=1)
        own[span] = near
        way[span] = 0.5 + (nearest - flat[starts + other]) / halves[near * k + other]
    return own, way


@dataclass(frozen=True, eq=False)
class Profile(Summable, wire="figures.Profile"):
    """Per cluster: rows, and the first two moments of every column about the centre."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    sums: Annotated[FloatArray, Sum("k d", rows="mass")]
    squares: Annotated[FloatArray, Sum("k d", least=0.0, rows="mass")]

    def check(self, question: "AskProfile") -> None:
        mass = np.broadcast_to(self.mass[:, None], self.sums.shape)
        check_squares(self.sums, mass, self.squares, question.centers**2)

    def cell_means(self, question: "AskProfile") -> tuple[FloatArray, FloatArray]:
        return question.centers + self.sums / np.maximum(self.mass, 1e-300)[:, None], self.mass


@dataclass(frozen=True, eq=False)
class AskProfile(Question[Profile], wire="figures.AskProfile"):
    """What does each cluster look like, column by column?"""

    sees = "rows"

    centers: Annotated[FloatArray, Centers("k d")]

    def answer_all(self, stack: Stack) -> list[Profile]:
        k, d = self.centers.shape
        replies = []
        for s in range(len(stack)):
            mass, sums, squares = np.zeros(k), np.zeros((k, d)), np.zeros((k, d))
            heavy = np.zeros(k)
            for X, w in _chunks(stack, s):
                labels = _labels(X, self.centers, stack)
                Z = X - self.centers[labels]
                mass += np.bincount(labels, w, k)
                heavy += _squared_weights(labels, w, k)
                sums += _grouped(labels, Z, k, w)
                squares += _grouped(labels, np.square(Z, out=Z), k, w)
            shown = shown_cells(stack, mass, heavy)
            replies.append(Profile(*(only(shown, a) for a in (mass, sums, squares))))
        return replies

    def reply_numbers(self, d: int) -> int:
        return len(self.centers) * (2 * d + 1)


@dataclass(frozen=True, eq=False)
class Covariance(Summable, wire="figures.Covariance"):
    """Rows, sums and products of all pairs of columns about an origin."""

    mass: Annotated[FloatArray, Count("1")]
    sums: Annotated[FloatArray, Sum("d", rows="mass")]
    products: Annotated[FloatArray, Sum("d d", rows="mass")]

    @property
    def mean(self) -> FloatArray:
        """(d,) about the origin."""
        return self.sums / max(float(self.mass[0]), 1.0)

    def matrix(self) -> FloatArray:
        """The covariance matrix (d, d)."""
        n = max(float(self.mass[0]), 1.0)
        mean = self.sums / n
        return self.products / n - np.outer(mean, mean)


@dataclass(frozen=True, eq=False)
class AskCovariance(Question[Covariance], wire="figures.AskCovariance"):
    """How do the columns vary together?"""

    sees = "rows"

    origin: Annotated[FloatArray, Point("d")]

    def answer_all(self, stack: Stack) -> list[Covariance]:
        d = len(self.origin)
        replies = []
        for s in range(len(stack)):
            mass, sums, products = np.zeros(1), np.zeros(d), np.zeros((d, d))
            heavy = np.zeros(1)
            for X, w in _chunks(stack, s):
                Z = X - self.origin
                heavy += _squared_weights(np.zeros(len(Z), dtype=np.int64), w, 1)
                mass += len(Z) if w is None else w.sum()
                sums += Z.sum(axis=0) if w is None else w @ Z
                products += Z.T @ (Z if w is None else w[:, None] * Z)
            shown = shown_cells(stack, mass, heavy)[0]
            replies.append(Covariance(*(np.where(shown, a, 0.0) for a in (mass, sums, products))))
        return replies

    def reply_numbers(self, d: int) -> int:
        return d * d + d + 1


@dataclass(frozen=True, eq=False)
class Outline(Summable, wire="figures.Outline"):
    """The position of groups of rows on a map: rows, sums and products of the two coordinates."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    sums: Annotated[FloatArray, Sum("k 2", rows="mass")]
    products: Annotated[FloatArray, Sum("k 3", rows="mass")]  # xx, xy, yy

    def ellipses(self) -> FloatArray:
        """(m, 6): rows, mean x and y, variance of x, covariance, variance of y; nan if not shown."""
        n = np.where(self.mass > 0, self.mass, np.nan)[:, None]
        mean = self.sums / n
        cross = np.stack([mean[:, 0] ** 2, mean[:, 0] * mean[:, 1], mean[:, 1] ** 2], axis=1)
        return np.concatenate([self.mass[:, None], mean, self.products / n - cross], axis=1)


@dataclass(frozen=True, eq=False)
class AskOutline(Question[Outline], wire="figures.AskOutline"):
    """Where do your rows lie on the map; in each cluster, if centres are given?

    A missing cell lies at the centre of its row's cluster, or at the origin if no centres are given.
    """

    sees = "rows"
    over_holes = True

    axes: Annotated[FloatArray, Numbers("d 2")]
    origin: Annotated[FloatArray, Point("d")]
    centers: Annotated[FloatArray | None, Centers("k d")] = None

    def answer_all(self, stack: Stack) -> list[Outline]:
        m = 1 if self.centers is None else len(self.centers)
        replies = []
        for s in range(len(stack)):
            mass, sums, products = np.zeros(m), np.zeros((m, 2)), np.zeros((m, 3))
            heavy = np.zeros(m)
            for X, w in _chunks(stack, s):
                # einsum instead of @: with two axes the threads of a matrix product cost more than they save
                whole = np.zeros(len(X.X if stack.holes else X), dtype=np.int64)
                labels = whole if self.centers is None else _labels(X, self.centers, stack)
                if stack.holes:
                    fill = self.origin if self.centers is None else self.centers[labels]
                    X = np.where(np.isnan(X.X), fill, X.X)
                P = np.einsum("ij,jk->ik", X, self.axes) - self.origin @ self.axes
                mass += np.bincount(labels, w, m)
                heavy += _squared_weights(labels, w, m)
                sums += _grouped(labels, P, m, w)
                products += _grouped(
                    labels, np.stack([P[:, 0] ** 2, P[:, 0] * P[:, 1], P[:, 1] ** 2], axis=1), m, w
                )
            shown = shown_cells(stack, mass, heavy)
            replies.append(Outline(*(only(shown, a) for a in (mass, sums, products))))
        return replies

    def lengths(self) -> dict[str, int]:
        return {"k": 1, **super().lengths()}  # without centres all rows form one group

    def reply_numbers(self, d: int) -> int:
        return 6 * (1 if self.centers is None else len(self.centers))
