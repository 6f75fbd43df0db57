"""The questions of ``certify``: a bound from parts of a site's rows; bounds for boxes of centroids, at prices
that stay at the site.

A bound is lowered at the site by what can still be lost on the way: a sum over thousands of sites is rounded
as often, and secure sums round prices to 2^-64.
"""

from dataclasses import dataclass
from math import floor, frexp, fsum, inf
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unpooled.errors import InputError
from unpooled.kernels.exact_solver import NEEDS_COMPILED, available, check_room, exact
from unpooled.optimality.exact import MAX_ROWS
from unpooled.optimality.parts import EFFORTS, bound_by_parts, not_above
from unpooled.optimality.questions import cost_about, masses, may_disclose_totals, sizes
from unpooled.protocol.declarations import (
    Box,
    Centers,
    Count,
    Numbers,
    Point,
    Repeats,
    Setting,
    Sum,
    Value,
    Work,
)
from unpooled.protocol.limits import MAX_NODES
from unpooled.protocol.messages import Question, Summable
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray, IntArray

UNLIMITED = 1e9  # billions of steps: years; numbers of a question are finite, and small
_KEPT = 100_000  # evaluations that a site remembers in a run; one without its parent starts anew
_ON_THE_WAY = 1e-12  # relative error of a sum over sites


@dataclass(frozen=True, eq=False)
class Bounds(Summable):
    """Per part of the search: lower bounds, and moments of the sites' centroids, added over sites.

    ``lower`` counts prices from the middle of the boxes: a site's cost at them plus q . (m - middle).
    """

    lower: Annotated[FloatArray, Value("B")]
    prices: Annotated[FloatArray, Value("B k d")]
    weight: Annotated[FloatArray, Count("B k", extra=1.0)]  # of a site's centroid: its rows and one more
    first: Annotated[FloatArray, Sum("B k d", rows="weight")]  # weight times centroid
    second: Annotated[FloatArray, Sum("B k d", min_value=0.0, rows="weight")]  # weight times its square
    sums: Annotated[FloatArray, Sum("B k d", rows="counts")]  # of the rows, by the sites' own partitions
    counts: Annotated[FloatArray, Count("B k")]  # rows in those sums
    empty: Annotated[
        FloatArray, Value("B", min_value=0.0, max_value=1.0)
    ]  # sites that found no point in the part


@dataclass(frozen=True, eq=False)
class AskBounds(Question[Bounds]):
    """Lower bounds for parts of the search, summed over sites, at prices that stay at the site.

    Evaluation b takes the prices of evaluation ``parents[b]`` and moves them by ``steps[b]`` along 2 w_k
    (m_k - M_k), with its centroids m, their weights w and ``centers[b]`` = M. One without a parent starts
    from the prices at which M is optimal for the rows nearest to each of M, or from zero if its step is 0.
    """

    reads = "rows"
    asks_for = "lower bounds for the quality of any clustering, each as one sum over the rows"

    low: Annotated[FloatArray, Box("B k d")]
    high: Annotated[FloatArray, Box("B k d")]
    cells: Annotated[IntArray, Numbers("B k")]
    references: Annotated[FloatArray, Point("k d")]
    centers: Annotated[FloatArray, Centers("B k d")]
    steps: Annotated[FloatArray, Numbers("B")]
    names: Annotated[IntArray, Numbers("B")]  # of the evaluations
    parents: Annotated[IntArray, Numbers("B")]  # -1 for none
    nodes: Annotated[int, Repeats(max_value=MAX_NODES)]
    seconds: Annotated[float, Setting()]  # for each evaluation, if these are fewer than its nodes take

    def answer_all(self, batch: SiteBatch) -> list[Bounds]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> Bounds:
        B, k, d = self.low.shape
        shapes = ((B,), (B, k, d), (B, k), (B, k, d), (B, k, d), (B, k, d), (B, k), (B,))
        out = Bounds(*(np.zeros(shape) for shape in shapes))
        X, w = np.asarray(local.X, dtype=np.float64), masses(local)
        if len(X) > MAX_ROWS or not may_disclose_totals(local) or not w.any():
            return out  # zeros keep the sums valid, since squared distances are not negative
        check_room(d, k)
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
            mass, disclosed = sizes(local, solution.labels, w, k)
            weight = np.where(disclosed | (mass == 0), mass + 1, 0.0)
            kept[int(self.names[b])] = _Evaluation(q, solution.labels, solution.centers, weight)
            if len(kept) > _KEPT:
                del kept[next(iter(kept))]
            out.lower[b], out.prices[b], out.weight[b] = self._from_middle(solution.lower, q, b), q, weight
            out.first[b] = weight[:, None] * solution.centers
            out.second[b] = weight[:, None] * solution.centers**2
            for j in np.flatnonzero(disclosed):
                out.sums[b, j] = w[solution.labels == j] @ X[solution.labels == j]
            out.counts[b] = np.where(disclosed, mass, 0.0)
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
        self, local: SiteBatch, X: FloatArray, w: FloatArray, b: int, before: "_Evaluation | None"
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
class PartsBound(Summable):
    """A lower bound on the cost of any k centres at a site, and the cost of the given ones."""

    lower: Annotated[FloatArray, Value("1", min_value=0.0)]
    inertia: Annotated[FloatArray, Sum("1", min_value=0.0, rows="mass")]
    mass: Annotated[FloatArray, Count("1")]


@dataclass(frozen=True, eq=False)
class AskPartsBound(Question[PartsBound]):
    """A lower bound on the inertia of any k centres, from parts of the site's rows.

    Every part of the rows may have k centres of its own.
    The sum over sites bounds the inertia of any centres for all. Bounds are multiples of ``unit``, rounded
    down: their sum is exact, in float64 and in secure sums. A site that has fewer rows than its minimum for
    every centre adds nothing. ``work`` limits the steps of arithmetic more than the effort does, for sites
    that must answer in time.
    """

    reads = "rows"
    asks_for = "a lower bound for the quality of any clustering, as one sum over the rows"

    centers: Annotated[FloatArray, Centers("k d")]
    effort: str
    unit: Annotated[float, Setting()]
    work: Annotated[float, Work(max_value=UNLIMITED, label="billions of steps")] = UNLIMITED

    def answer_all(self, batch: SiteBatch) -> list[PartsBound]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> PartsBound:
        if self.effort not in EFFORTS or not 0 < self.unit < inf or not self.work > 0:
            raise InputError(
                f"effort must be one of {', '.join(EFFORTS)}, unit and work above 0, got {self.effort}"
            )
        if not available():
            raise InputError(NEEDS_COMPILED)
        w = masses(local)
        min_size = 1.0 if local.minimum <= 1 else local.minimum * len(self.centers)
        if not local.large(np.array([w.sum()]), np.array([w @ w]), min_size=min_size)[0] or not w.any():
            return PartsBound(np.zeros(1), np.zeros(1), np.zeros(1))
        X = np.asarray(local.X, dtype=np.float64)
        cost = cost_about(X, self.centers, w)
        effort = EFFORTS[self.effort]
        max_work = min(
            effort.work, 1e9 * self.work / max(1.0, len(X) / 10_000)
        )  # bound_by_parts allows more for many rows
        lower = bound_by_parts(X, self.centers, effort._replace(work=max_work), w)
        steps = floor(not_above(lower, cost) / self.unit * (1 - 1e-12))
        return PartsBound(np.array([steps * self.unit]), np.array([cost]), np.array([w.sum()]))


def unit_for(inertia: float) -> float:
    """Return a power of two that is about 1e-12 of the inertia, and not too small for secure sums.

    >>> unit_for(5.0) == 2.0**-37, unit_for(0.0) == 2.0**-64
    (True, True)
    """
    return float(max(2.0 ** (frexp(inertia)[1] - 40), 2.0**-64)) if inertia > 0 else 2.0**-64


def middles(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the middle of boxes, the same at every site and at the coordinator."""
    return np.asarray(0.5 * low + 0.5 * high)


def half_widths(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the largest distance of a point of the boxes from their middle, per coordinate, rounded up."""
    middle = middles(low, high)
    return np.asarray(np.maximum(high - middle, middle - low) * (1 + 2.0**-50))


class _Evaluation(NamedTuple):
    """The data of an evaluation that a site keeps."""

    prices: FloatArray  # (k, d)
    labels: NDArray[np.int32]  # (n,)
    centroids: FloatArray  # (k, d)
    weight: FloatArray  # (k,) 0 where its cluster is suppressed
