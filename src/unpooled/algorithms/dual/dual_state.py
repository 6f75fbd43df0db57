"""The state of a dual method between rounds, and the answers of a round with silent sites filled in."""

from dataclasses import dataclass
from math import fsum

import numpy as np

from unpooled.optimality.exact import relative_gap
from unpooled.optimality.questions import NodeSolution
from unpooled.protocol.algorithm import State
from unpooled.protocol.messages import Message, SiteId
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Evaluations(Message):
    """The answers of the sites at L sets of prices."""

    prices: FloatArray  # (L, N, k, d)
    centroids: FloatArray  # (L, N, k, d)
    values: FloatArray  # (L, N)
    counts: FloatArray  # (L, N, k) 0 where the cost is linear in the price: no count, or at the edge

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def none(cls, sites: int, k: int, d: int) -> "Evaluations":
        shapes = ((sites, k, d), (sites, k, d), (sites,), (sites, k))
        return cls(*(np.zeros((0, *shape)) for shape in shapes))

    def and_then(
        self,
        prices: FloatArray,
        centroids: FloatArray,
        values: FloatArray,
        counts: FloatArray,
        max_length: int,
    ) -> "Evaluations":
        """Return these evaluations and one more; only the last ``max_length`` are kept."""
        kept = (self.prices, self.centroids, self.values, self.counts)
        new = (prices, centroids, values, counts)
        return Evaluations(
            *(np.concatenate([a, b[None]])[-max_length:] for a, b in zip(kept, new, strict=True))
        )

    def heights(self, at: FloatArray) -> FloatArray:
        """Return the value of every tangent (L,) at the prices (N, k, d)."""
        rise: FloatArray = (self.centroids * (at - self.prices)).sum(axis=(1, 2, 3))
        heights: FloatArray = self.values.sum(axis=1) + rise
        return heights


@dataclass(frozen=True, eq=False, kw_only=True)
class DualState(State):
    """The multipliers, the answers of the sites, and the bounds so far."""

    sites: tuple[SiteId, ...]  # N, those that answered at the start
    prices: FloatArray  # (N, k, d) to be sent next; they sum to zero over the sites
    references: FloatArray  # (k, d)
    box: FloatArray  # (2, d)
    n: float  # rows in all
    centers: FloatArray  # (k, d) the best so far
    upper_bound: float  # their inertia; inf where some rows are suppressed
    lower_bound: float  # on the inertia of any k centres, if bound_condition holds
    bound_condition: str
    polished: FloatArray  # (k, d) centres to try next: a Lloyd step from the last ones tried
    past: Evaluations  # newest last
    curve: FloatArray  # (p, p) minus the approximated Hessian
    lowers: FloatArray  # (rounds,) the dual value of every round
    uppers: FloatArray  # (rounds,) the primal value of every round
    residual: float  # norm of the consensus constraints (38)
    cap: float  # how far the bundle's next step may go
    movement: float
    done: bool

    @property
    def rounds(self) -> int:
        return len(self.lowers)

    @property
    def inertia(self) -> float:
        return self.upper_bound

    @property
    def gap(self) -> float:
        """The largest possible distance from the optimum: 1 - lower_bound / upper_bound (35)."""
        return relative_gap(self.lower_bound, self.upper_bound) if np.isfinite(self.upper_bound) else np.inf

    @property
    def iterate_gap(self) -> float:
        """The gap (35) of the last round alone: its dual value, and the inertia of its mean centroids."""
        last = np.isfinite(self.uppers[-1:]).any()
        return relative_gap(float(self.lowers[-1]), float(self.uppers[-1])) if last else np.inf


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One round's answers for all sites; a silent site, or one that suppresses its value, gets a lower bound
    from its prices."""

    centroids: FloatArray  # (N, k, d)
    counts: FloatArray  # (N, k)
    seen: FloatArray  # (N, k)
    values: FloatArray  # (N,)
    answered: FloatArray  # (N,)

    @classmethod
    def from_replies(cls, state: DualState, replies: dict[SiteId, NodeSolution]) -> "Evaluated":
        low, high = state.box
        cheapest = np.where(state.prices > 0, low, high)  # (N, k, d)
        N, k, d = state.prices.shape
        paid = state.prices * cheapest
        values = paid.sum(axis=(1, 2))  # squared distances are not negative
        values -= 2.0**-52 * (k * d + 2) * np.abs(paid).sum(axis=(1, 2))
        centroids, counts, seen, answered = cheapest.copy(), np.zeros((N, k)), np.zeros((N, k)), np.zeros(N)
        for i, site in enumerate(state.sites):
            if site in replies:
                reply, answered[i] = replies[site], 1.0
                counts[i], seen[i] = reply.counts, reply.seen
                centroids[i] = reply.centroids
                if reply.complete[0]:
                    values[i] = max(values[i], float(reply.value[0]))
            elif len(state.past.values) and np.array_equal(state.past.prices[-1][i], state.prices[i]):
                values[i], centroids[i] = state.past.values[-1][i], state.past.centroids[-1][i]
        mean = _mean(centroids, seen, counts, state.centers)
        suppressed = (seen == 0) & (answered[:, None] > 0)
        # a suppressed centroid counts as the mean, so that it does not change the prices
        centroids = np.where(suppressed[..., None], mean, centroids)
        return cls(centroids, counts, seen, values, answered)

    def bound(self, prices: FloatArray, box: FloatArray) -> float:
        """Return the sum of the values at prices (N, k, d), rounded down.

        It is a bound if prices cancel over sites; what rounding leaves of them pays a little in the box.
        """
        left, size = prices.sum(axis=0), np.abs(prices).sum(axis=0)
        reach = np.abs(box).max(axis=0)
        paid = np.maximum(left * box[0], left * box[1]) + 2.0**-52 * (len(prices) + 2) * size * reach
        doubt = 2.0**-52 * (paid.size + 2) * (np.abs(self.values).sum() + np.abs(paid).sum())
        return float(fsum(self.values) - paid.sum() - doubt)

    def mean(self, *, weighted: bool, fallback: FloatArray) -> FloatArray:
        """Return the mean of the sites' centroids (k, d): weighted by their counts, or plain (33)."""
        counts = self.counts if weighted else self.seen
        return _mean(self.centroids, self.seen, counts, fallback)

    def curved(self, box: FloatArray) -> FloatArray:
        """Return counts (N, k) where the cost is quadratic in the price; 0 if it is at the edge."""
        edge = 1e-9 * (box[1] - box[0])
        inside = ((self.centroids > box[0] + edge) & (self.centroids < box[1] - edge)).all(axis=2)
        return np.where(inside, self.counts, 0.0)


def _mean(centroids: FloatArray, seen: FloatArray, counts: FloatArray, fallback: FloatArray) -> FloatArray:
    weight = seen * counts
    mass = weight.sum(axis=0)
    sums = (weight[..., None] * centroids).sum(axis=0)
    return np.where(mass[:, None] > 0, sums / np.where(mass > 0, mass, 1.0)[:, None], fallback)
