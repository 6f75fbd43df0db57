"""Moments: how much there is, and its first two moments about an agreed origin."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from unpooled.core.arrays import FloatArray, IntArray, Rows
from unpooled.core.declarations import Count, Point, Sum
from unpooled.core.messages import Summable
from unpooled.core.question import Question
from unpooled.core.stack import Stack, Stacked


@dataclass(frozen=True, eq=False)
class Moments(Summable, wire="summaries.Moments"):
    """How much there is, and its first two moments about an agreed origin."""

    mass: Annotated[FloatArray, Count("1")]  # sum of weights; the number of rows where there are none
    sums: Annotated[FloatArray, Sum("d", rows="mass")]  # of x - origin
    squares: Annotated[FloatArray, Sum("d", least=0.0, rows="mass")]  # of (x - origin)^2

    @property
    def n(self) -> float:
        return float(self.mass[0])

    @property
    def mean(self) -> FloatArray:
        """(d,) relative to the origin."""
        return self.sums / max(self.n, 1e-300)

    @property
    def variance(self) -> FloatArray:
        """(d,) population variance, per column."""
        return np.maximum(self.squares / max(self.n, 1e-300) - self.mean**2, 0.0)


@dataclass(frozen=True, eq=False)
class AskMoments(Question[Moments], wire="summaries.AskMoments"):
    """Mass, sums and squares of the columns about ``origin`` (about zero if None)."""

    sees = "rows"

    origin: Annotated[FloatArray | None, Point("d")] = None

    def answer_all(self, stack: Stack) -> Stacked[Moments]:
        d = stack.X.shape[1]
        origin = np.zeros(d) if self.origin is None else self.origin
        weights = np.ones(len(stack.X)) if stack.weights is None else stack.weights
        mass, sums, squares = (np.zeros((len(stack), m)) for m in (1, d, d))
        effective = np.zeros((len(stack), 1))
        for some in _runs_of_small_sites(stack.row_counts):
            starts, end = stack.offsets[some], stack.offsets[some[-1] + 1]
            first, w = starts[0], weights[stack.offsets[some[0]] : end]
            Z = stack.X[first:end] - origin
            for out, values in (
                (mass, w[:, None]),
                (effective, (w * w)[:, None]),
                (sums, w[:, None] * Z),
                (squares, w[:, None] * Z * Z),
            ):
                out[some] = np.add.reduceat(values, starts - first, axis=0)
        for s in np.flatnonzero(stack.row_counts > _SMALL):
            span = slice(stack.offsets[s], stack.offsets[s + 1])
            mass[s], effective[s] = weights[span].sum(), (weights[span] ** 2).sum()
            sums[s], squares[s] = _column_sums(stack.X[span], weights[span], origin)
        shown = stack.shown(mass, effective)
        return Stacked(Moments(*(np.where(shown, a, 0.0) for a in (mass, sums, squares))), len(stack))

    def reply_numbers(self, d: int) -> int:
        return 2 * d + 1


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
