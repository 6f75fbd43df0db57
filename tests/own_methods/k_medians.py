"""Federated k-medians, written from docs/extending.md alone.

Rows go to the nearest centre by the sum of absolute differences, a centre is the column-wise median of its
rows over all sites. Medians are found from counts only: how many rows of cluster j have column c at or below
a threshold, to ``precision`` times the width of the column's box (a box of powers of two).
"""

from dataclasses import dataclass, replace
from math import ceil, log
from typing import Annotated

import numpy as np

from unpooled.algorithms import Method
from unpooled.protocol import (
    Centers,
    Count,
    FloatArray,
    Numbers,
    Question,
    SiteBatch,
    SiteId,
    State,
    Steps,
    Sum,
    Summable,
    total,
)


@dataclass(frozen=True, eq=False)
class Below(Summable, prefix="cold"):
    """Rows of a cluster at or below each threshold, and the L1 distances to the centre that was sent."""

    mass: Annotated[FloatArray, Count("k")]
    below: Annotated[FloatArray, Count("t k d")]
    distances: Annotated[FloatArray, Sum("k", rows="mass", min_value=0.0)]


@dataclass(frozen=True, eq=False)
class AskBelow(Question[Below], prefix="cold"):
    reads = "rows"

    centers: Annotated[FloatArray, Centers("k d")]
    thresholds: Annotated[FloatArray, Numbers("t k d")]

    def answer_all(self, batch: SiteBatch) -> list[Below]:
        return [self.one(batch.site(s)) for s in range(len(batch))]

    def one(self, site: SiteBatch) -> Below:
        X = np.asarray(site.X)
        weights = np.ones(len(X)) if site.weights is None else site.weights
        k = len(self.centers)
        away = np.abs(X[:, None, :] - self.centers).sum(axis=2)  # (n, k)
        label = away.argmin(axis=1)
        nearest = np.eye(k)[label]
        mass = nearest.T @ weights
        squares = nearest.T @ weights**2
        disclosed = site.disclosed(mass, squares)
        distances = (nearest * away).T @ weights
        halves = np.zeros((2, *self.thresholds.shape, 2))  # (weights | squares, t, k, d, below | above)
        for j in range(k):
            rows, w = X[label == j], weights[label == j]
            low = rows[:, None, :] <= self.thresholds[None, :, j, :]  # (n_j, t, d)
            for power in (1, 2):
                halves[power - 1, :, j, :, 0] = np.einsum("ntd,n->td", low, w**power)
                halves[power - 1, :, j, :, 1] = np.einsum("ntd,n->td", ~low, w**power)
        # A threshold that cuts off fewer rows than the minimum cuts off none: all are on the larger side.
        # (below + above = mass, which is disclosed: the small half cannot be found by subtraction either.)
        whole = np.asarray(site.disclosed(halves[0], halves[1])).all(axis=-1)
        larger = np.where(halves[0, ..., 0] > halves[0, ..., 1], mass[:, None], 0.0)
        below = np.where(whole, halves[0, ..., 0], larger)
        return Below(
            np.where(disclosed, mass, 0.0),
            np.where(disclosed[:, None], below, 0.0),
            np.where(disclosed, distances, 0.0),
        )


@dataclass(frozen=True, eq=False)
class KMediansState(State, prefix="cold"):
    centers: FloatArray  # (k, d)
    movement: float
    inertia: float
    low: FloatArray  # (d,)
    high: FloatArray  # (d,)


@dataclass(frozen=True, eq=False, kw_only=True)
class KMedians(Method, method="k-medians", prefix="cold"):
    citation = "Bradley, Mangasarian, Street: Clustering via Concave Minimization. NIPS 9, 1997."
    advice = "Outliers must not move the centres: L1 distances, medians"
    asks = (AskBelow,)
    own_objective = True

    precision: float = 1e-9  # of a median, relative to the width of the column's box
    cuts: int = 15  # thresholds in one exchange

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[KMediansState]:
        seeding = yield from self.seeds(sites, 1, rng)
        centers = np.asarray(seeding.centers[0])
        d = centers.shape[1]
        powers = 2.0 ** np.arange(-40, 41)
        grid = np.concatenate([-powers[::-1], [0.0], powers])  # (t,)
        result = yield from total(
            sites, AskBelow(centers.mean(axis=0)[None], np.repeat(grid, d).reshape(len(grid), 1, d))
        )
        some, rest = result.below[:, 0] > 0.5, result.below[:, 0] < result.mass[0] - 0.5  # (t, d)
        low = np.array([grid[max(int(np.argmax(some[:, c])) - 1, 0)] for c in range(d)])
        high = np.array([grid[int(np.argmin(rest[:, c])) if not rest[:, c].all() else -1] for c in range(d)])
        return KMediansState(centers, np.inf, np.nan, low, high)

    def round(
        self, state: KMediansState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[KMediansState]:
        shape = (2, *state.centers.shape)  # the lower and the upper median
        low, high = np.broadcast_to(state.low, shape).copy(), np.broadcast_to(state.high, shape).copy()
        share = np.arange(1, self.cuts + 1) / (self.cuts + 1)
        for _ in range(ceil(log(1 / self.precision) / log(self.cuts + 1))):
            between = low[None] + share[:, None, None, None] * (high - low)[None]  # (cuts, 2, k, d)
            cuts = between.reshape(-1, *shape[1:])
            result = yield from total(sites, AskBelow(state.centers, cuts))
            more = (2 * result.below - result.mass[:, None]).reshape(between.shape)  # below - above
            slack = 1e-9 * (1 + result.mass[:, None])
            reached = np.stack([more[:, 0] >= -slack, more[:, 1] > slack], axis=1)
            first = np.where(reached.any(axis=0), reached.argmax(axis=0), self.cuts)  # (2, k, d)
            edges = np.concatenate([low[None], between, high[None]])
            low = np.take_along_axis(edges, first[None], axis=0)[0]
            high = np.take_along_axis(edges, first[None] + 1, axis=0)[0]
        median = ((low + high) / 2).mean(axis=0)
        after = np.where(result.mass[:, None] > 0, median, state.centers)
        moved = float(np.linalg.norm(after - state.centers))
        return replace(state, centers=after, movement=moved, inertia=float(result.distances.sum()))

    def finished(self, state: KMediansState) -> bool:
        return bool(state.movement <= 2 * self.precision * float((state.high - state.low).max()))
