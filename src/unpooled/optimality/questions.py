"""The questions of the dual methods: a site's range, its priced clustering, the cost of given centres.

A site's own centroids are means of its rows, shifted by the prices it was sent: a cluster of one row would
reveal that row. A cluster below the site's minimum is therefore suppressed, centroid and count alike, and so
is any cluster that would follow by subtraction; the value is a sum over all its rows and is disclosed if
there are at least ``minimum`` rows. Suppression makes the bound weaker, never false.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from unpooled import kernels
from unpooled.errors import InputError
from unpooled.kernels.exact_solver import exact
from unpooled.optimality.exact import MAX_ROWS
from unpooled.protocol.declarations import (
    Box,
    Centers,
    Count,
    Extreme,
    Mean,
    Numbers,
    Point,
    Repeats,
    Sum,
    Value,
)
from unpooled.protocol.limits import MAX_NODES
from unpooled.protocol.messages import Question, Reply, Summable
from unpooled.protocol.site_batch import SiteBatch
from unpooled.protocol.suppression import complementary_suppression, zero_suppressed
from unpooled.typing import BoolArray, FloatArray, Rows


def masses(local: SiteBatch) -> FloatArray:
    """Return the rows' weights (n,)."""
    return np.ones(len(local.X)) if local.weights is None else local.weights


def may_disclose_totals(local: SiteBatch) -> bool:
    """Return whether sums over all rows of the site may be disclosed."""
    w = masses(local)
    return bool(local.large(np.array([w.sum()]), np.array([w @ w]))[0])


def sizes(local: SiteBatch, labels: NDArray[Any], w: FloatArray, k: int) -> tuple[FloatArray, BoolArray]:
    """Return the weight of every cluster (k,), and a mask of the clusters that may be disclosed."""
    mass = np.bincount(labels, w, k).astype(np.float64)
    squares = np.bincount(labels, w * w, k).astype(np.float64)
    large = local.large(mass, squares)
    return mass, complementary_suppression(large, mass, squares, local.minimum * (1 - 1e-9)) & (mass > 0)


@dataclass(frozen=True, eq=False)
class Range(Reply):
    """The box around a site's rows; empty arrays where it has none or does not disclose it."""

    low: Annotated[FloatArray, Extreme("disclosed")]  # or (0,)
    high: Annotated[FloatArray, Extreme("disclosed")]  # or (0,)
    withheld: Annotated[FloatArray, Value("1", min_value=0.0, max_value=1.0)]  # 1 if there are rows


@dataclass(frozen=True, eq=False)
class AskRange(Question[Range]):
    """The lowest and highest value of every column; only from a site whose minimum size is 1.

    Each value belongs to one row, so a site with a minimum above 1 does not disclose them.
    """

    reads = "rows"
    asks_for = "the lowest and the highest value of every column"

    def answer_all(self, batch: SiteBatch) -> list[Range]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> Range:
        X = np.asarray(local.X, dtype=np.float64)[masses(local) > 0]
        if not len(X) or local.minimum > 1:
            return Range(np.zeros(0), np.zeros(0), np.array([float(len(X) > 0)]))
        return Range(X.min(axis=0), X.max(axis=0), np.zeros(1))

    def reply_numbers(self, d: int) -> int:
        return 2 * d + 1


@dataclass(frozen=True, eq=False)
class Outside(Summable):
    """The number of sites with rows outside a box."""

    sites: Annotated[FloatArray, Value("1", min_value=0.0, max_value=1.0)]


@dataclass(frozen=True, eq=False)
class AskOutside(Question[Outside]):
    """Whether any row of the site lies outside the box: yes or no, not how many."""

    reads = "rows"
    asks_for = "whether any row lies outside given bounds: yes or no"

    box: Annotated[FloatArray, Box("2 d")]

    def answer_all(self, batch: SiteBatch) -> list[Outside]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> Outside:
        X = local.X[masses(local) > 0]
        return Outside(np.array([float(bool(((self.box[0] > X) | (self.box[1] < X)).any()))]))


@dataclass(frozen=True, eq=False)
class Objective(Summable):
    """The cost of sets of centres, over every row."""

    inertia: Annotated[FloatArray, Sum("R", min_value=0.0, rows="mass")]
    mass: Annotated[FloatArray, Count("1")]


@dataclass(frozen=True, eq=False)
class AskObjective(Question[Objective]):
    """Sum of squared distances to the nearest centre, for R sets of centres: the dual paper's eq. 34."""

    reads = "rows"
    asks_for = "how far the rows are from their nearest centres, as one sum for each set of centres"

    centers: Annotated[FloatArray, Centers("R k d")]

    def answer_all(self, batch: SiteBatch) -> list[Objective]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> Objective:
        if not may_disclose_totals(local):
            return Objective(np.zeros(len(self.centers)), np.zeros(1))
        w = masses(local)
        costs = [cost_about(local.X, c, w) for c in self.centers]
        return Objective(np.array(costs), np.array([w.sum()]))


def cost_about(X: Rows, centers: FloatArray, w: FloatArray) -> float:
    """Return the weighted sum of squared distances to the nearest centre; InputError if it is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        cost = float(w @ squares(X, centers))
    if not np.isfinite(cost):
        raise InputError("the inertia is infinite: squares of such numbers are beyond float64. Scale them")
    return cost


def squares(X: Rows, centers: FloatArray) -> FloatArray:
    """Return squared distances to the nearest centre (n,); a square that underflows counts as 1e-290."""
    labels, squares = kernels.nearest(X, centers)
    faint = np.flatnonzero(squares < 1e-290)
    apart = (X[faint] != centers[labels[faint]]).any(axis=1)
    squares[faint[apart]] = 1e-290
    return squares


@dataclass(frozen=True, eq=False)
class NodeSolution(Reply):
    """A site's own clustering at the prices it was sent."""

    # a lower bound on its cost at these prices, tight if the search was complete
    value: Annotated[FloatArray, Value("1")]
    centroids: Annotated[FloatArray, Mean("k d", rows="counts")]  # zeros where suppressed
    counts: Annotated[FloatArray, Count("k")]  # zero where suppressed
    # 1 where the centroid is disclosed: of a cluster that is large enough, or empty
    seen: Annotated[FloatArray, Value("k", min_value=0.0, max_value=1.0)]
    # 1 if the value is disclosed; 1 if the search was complete
    complete: Annotated[FloatArray, Value("2", min_value=0.0, max_value=1.0)]


@dataclass(frozen=True, eq=False)
class AskNode(Question[NodeSolution]):
    """The site's own clustering with a price q_k . m_k on centroid k: the dual paper's eq. 14, with boxes."""

    reads = "rows"
    asks_for = "the centres that the site finds in its own rows, at prices that the coordinator sets"

    prices: Annotated[FloatArray, Numbers("k d")]
    low: Annotated[FloatArray, Box("k d")]  # of every centroid's box
    high: Annotated[FloatArray, Box("k d")]
    symmetry: str  # none, cell, pair or published
    references: Annotated[FloatArray, Point("k d")]  # the reference points of the symmetry
    # limit of the search; unlike a time limit it makes runs repeatable
    nodes: Annotated[int, Repeats(max_value=MAX_NODES)]

    def answer_all(self, batch: SiteBatch) -> list[NodeSolution]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> NodeSolution:
        k, w = len(self.prices), masses(local)
        X = np.asarray(local.X, dtype=np.float64)
        if len(X) > MAX_ROWS:
            raise InputError(f"{len(X)} rows at a site: exact solving is out of reach beyond {MAX_ROWS}")
        solution = exact(
            X,
            k,
            weights=w,
            prices=self.prices if self.prices.any() else None,
            lower=self.low,
            upper=self.high,
            symmetry=self.symmetry,
            references=self.references,
            starts=10,
            nodes=self.nodes,
            memory=local.memory[0] if local.memory else None,
        )
        counts, disclosed = sizes(local, solution.labels, w, k)
        seen = disclosed | (counts == 0)
        if not may_disclose_totals(local) and len(X):
            return NodeSolution(
                np.zeros(1), np.zeros_like(solution.centers), np.zeros(k), np.zeros(k), np.zeros(2)
            )
        return NodeSolution(
            np.array([solution.lower]),
            zero_suppressed(seen, solution.centers) + 0.0,
            np.where(disclosed, counts, 0.0),
            seen.astype(np.float64),
            np.array([1.0, float(solution.complete)]),
        )
