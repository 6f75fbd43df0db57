"""The questions of ``certify``: bounds for parts of the search, at prices that stay at the site.

A bound is lowered at the site by what can still be lost on the way: a sum over thousands of sites is rounded
as often, and secure sums round prices to 2^-64.
"""

from dataclasses import dataclass
from math import fsum
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unpooled.core.arrays import FloatArray, IntArray
from unpooled.core.declarations import Box, Centers, Count, Numbers, Point, Sum, Value
from unpooled.core.messages import Question, Summable
from unpooled.core.stack import Stack
from unpooled.errors import BadInput
from unpooled.kernels.exact_solver import exact
from unpooled.optimum.exact import MOST_ROWS, by_blocks
from unpooled.optimum.questions import enough, masses, sizes

_ON_THE_WAY = 1e-12  # relative error of a sum over sites


@dataclass(frozen=True, eq=False)
class Bounds(Summable, wire="bounding.Bounds", version=2, since="0.2"):
    """Per part of the search: lower bounds, and moments of the sites' centroids, added over sites.

    ``lower`` counts prices from the middle of the boxes: a site's cost at them plus q . (m - middle).
    """

    lower: Annotated[FloatArray, Value("B")]
    prices: Annotated[FloatArray, Value("B k d")]
    weight: Annotated[FloatArray, Count("B k", extra=1.0)]  # of a site's centroid: its rows and one more
    first: Annotated[FloatArray, Sum("B k d", rows="weight")]  # weight times centroid
    second: Annotated[FloatArray, Sum("B k d", least=0.0, rows="weight")]  # weight times its square
    sums: Annotated[FloatArray, Sum("B k d", rows="counts")]  # of the rows, by the sites' own partitions
    counts: Annotated[FloatArray, Count("B k")]  # rows in those sums
    empty: Annotated[FloatArray, Value("B", least=0.0, most=1.0)]  # sites that found no point in the part


@dataclass(frozen=True, eq=False)
class AskBounds(Question[Bounds], wire="bounding.AskBounds", version=2, since="0.2"):
    """Solve your rows in every part, at the prices you keep for it.

    Evaluation b takes the prices of evaluation ``parents[b]`` and moves them by ``steps[b]`` along 2 w_k
    (m_k - M_k), with its centroids m, their weights w and ``centers[b]`` = M. One without a parent starts
    from the prices at which M is optimal for the rows nearest to each of M, or from zero if its step is 0.
    """

    sees = "rows"

    low: Annotated[FloatArray, Box("B k d")]
    high: Annotated[FloatArray, Box("B k d")]
    cells: Annotated[IntArray, Numbers("B k")]
    references: Annotated[FloatArray, Point("k d")]
    centers: Annotated[FloatArray, Centers("B k d")]
    steps: Annotated[FloatArray, Numbers("B")]
    names: Annotated[IntArray, Numbers("B")]  # of the evaluations
    parents: Annotated[IntArray, Numbers("B")]  # -1 for none
    nodes: int
    seconds: float  # for each evaluation

    def answer_all(self, stack: Stack) -> list[Bounds]:
        return [self._one(stack.site(s)) for s in range(len(stack))]

    def _one(self, local: Stack) -> Bounds:
        B, k, d = self.low.shape
        shapes = ((B,), (B, k, d), (B, k), (B, k, d), (B, k, d), (B, k, d), (B, k), (B,))
        out = Bounds(*(np.zeros(shape) for shape in shapes))
        X, w = np.asarray(local.X, dtype=np.float64), masses(local)
        if len(X) > MOST_ROWS:
            raise BadInput(f"{len(X)} rows at a site: exact solving is out of reach beyond {MOST_ROWS}")
        if not enough(local) or not w.any():
            return out  # zeros keep the sums valid, since squared distances are not negative
        memory: dict[Any, Any] = local.memory[0] if local.memory else {}
        kept: dict[int, _Evaluation] = memory.setdefault("evaluations", {})
        for b in range(B):
            before = kept.get(int(self.parents[b]))
            q = self._prices(local, X, w, b, before)
            solution = exact(
                X,
                k,
                weights=w,
                prices=q if q.any() else None,
                lower=self.low[b],
                upper=self.high[b],
                symmetry="cell",
                references=self.references,
                cells=self.cells[b],
                warm=None if before is None else before.labels,
                starts=6 if before is None else 1,
                nodes=self.nodes,
                seconds=self.seconds,
                memory=memory,
            )
            if solution.lower == np.inf:
                out.empty[b] = 1.0
                continue
            mass, shown = sizes(local, solution.labels, w, k)
            weight = np.where(shown | (mass == 0), mass + 1, 0.0)
            kept[int(self.names[b])] = _Evaluation(q, solution.labels, solution.centers, weight)
            out.lower[b], out.prices[b], out.weight[b] = self._from_middle(solution.lower, q, b), q, weight
            out.first[b] = weight[:, None] * solution.centers
            out.second[b] = weight[:, None] * solution.centers**2
            for j in np.flatnonzero(shown):
                out.sums[b, j] = w[solution.labels == j] @ X[solution.labels == j]
            out.counts[b] = np.where(shown, mass, 0.0)
        half = half_widths(self.low, self.high)
        paid = (np.abs(out.prices) * half).sum(axis=(1, 2))
        out.lower[:] -= _ON_THE_WAY * (np.abs(out.lower) + paid) + 2.0**-64 * half.sum(axis=(1, 2))
        return out

    def _from_middle(self, lower: float, q: FloatArray, b: int) -> float:
        """The bound less what the prices pay in the middle of the boxes, rounded down."""
        if lower == -np.inf:  # nothing is known but that squared distances are not negative
            return -2.0 * float((np.abs(q) * half_widths(self.low[b], self.high[b])).sum())
        paid = q * middles(self.low[b], self.high[b])
        there = fsum(paid.ravel())
        return lower - there - 2.0**-50 * (abs(lower) + float(np.abs(paid).sum()))

    def _prices(
        self, local: Stack, X: FloatArray, w: FloatArray, b: int, before: "_Evaluation | None"
    ) -> FloatArray:
        step, about = float(self.steps[b]), self.centers[b]
        if before is not None:
            towards = 2 * before.weight[:, None] * (before.centroids - about)
            moved = before.prices + step * towards
            return np.asarray(moved)
        q: FloatArray = np.zeros(about.shape)
        if step > 0:
            labels = ((X[:, None] - about) ** 2).sum(axis=2).argmin(axis=1)
            for j in np.flatnonzero(sizes(local, labels, w, len(about))[1]):
                q[j] = 2 * (w[labels == j] @ (X[labels == j] - about[j]))
        return q


@dataclass(frozen=True, eq=False)
class OwnBound(Summable, wire="bounding.OwnBound"):
    """A lower bound on the cost of any k centres at a site."""

    lower: Annotated[FloatArray, Value("1", least=0.0)]


@dataclass(frozen=True, eq=False)
class AskOwnBound(Question[OwnBound], wire="bounding.AskOwnBound"):
    """How low can k centres of your own go? The sum over sites bounds the inertia of any centres for all."""

    sees = "rows"

    k: int
    seconds: float

    def answer_all(self, stack: Stack) -> list[OwnBound]:
        return [self._one(stack.site(s)) for s in range(len(stack))]

    def _one(self, local: Stack) -> OwnBound:
        X, w = np.asarray(local.X, dtype=np.float64), masses(local)
        if len(X) > MOST_ROWS:
            raise BadInput(f"{len(X)} rows at a site: exact solving is out of reach beyond {MOST_ROWS}")
        if not enough(local) or not w.any():
            return OwnBound(np.zeros(1))
        solution = exact(X, self.k, weights=w, seconds=0.5 * self.seconds)
        lower = solution.lower
        if not solution.complete:  # a row counts at least as much as the lightest
            lower = max(lower, float(w[w > 0].min()) * by_blocks(X[w > 0], self.k, 0.5 * self.seconds))
        return OwnBound(np.array([max(0.0, lower * (1 - _ON_THE_WAY))]))


def middles(low: FloatArray, high: FloatArray) -> FloatArray:
    """The middle of boxes, the same at every site and at the coordinator."""
    return np.asarray(0.5 * low + 0.5 * high)


def half_widths(low: FloatArray, high: FloatArray) -> FloatArray:
    """The largest distance of a point of the boxes from their middle, per coordinate, rounded up."""
    middle = middles(low, high)
    return np.asarray(np.maximum(high - middle, middle - low) * (1 + 2.0**-50))


class _Evaluation(NamedTuple):
    """The data of an evaluation that a site keeps."""

    prices: FloatArray  # (k, d)
    labels: NDArray[np.int32]  # (n,)
    centroids: FloatArray  # (k, d)
    weight: FloatArray  # (k,) 0 where it does not show its cluster
