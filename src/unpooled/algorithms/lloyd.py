"""Exact federated Lloyd: the clustering that pooling would have given, from totals only. The default.

Lloyd: Least squares quantization in PCM. IEEE Trans. Inf. Theory 28 (1982). That sums and counts over sites
give the pooled step exactly is Holzer et al., eq. 2. The start is seeding.py's.

R starts travel in the same exchanges; the lowest federated inertia wins. A start is not asked about again
once it rests, or once it is so far behind that twenty more rounds at its present pace would not bring it to
the front. A cluster whose total is empty, or below the sites' minimum size, stays where it is.

Where only a part of the sites answers a round (``participation``), every centre keeps the weight it has seen
so far and moves by its share of new weight, as mini-batch k-means does (Sculley, 2010); with all sites in
every round it is plain Lloyd.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpooled.algorithms.base import Method
from unpooled.algorithms.seeding import starts
from unpooled.codec import BoolArray, FloatArray, IntArray
from unpooled.errors import BadInput
from unpooled.messages import Message, SiteId
from unpooled.protocol import Steps, total
from unpooled.sampling import choose, is_full
from unpooled.summaries import AskClusterSums

_POLISH = 0.1  # the leader rests later than the others: it is the result
_STALE = 4  # rounds without a gain that a start is given where rows are hidden
_PATIENCE = 20  # rounds at its present pace that a start is given to catch up


@dataclass(frozen=True, eq=False)
class LloydState(Message):
    """R clusterings on their way."""

    starts: FloatArray  # (R, k, d) centres
    inertias: FloatArray  # (R,) of the centres before the last step; inf before the first
    scores: FloatArray  # (R,) the same, with rows that no site showed counted as if they had no cluster
    movements: FloatArray  # (R,) how far the last step moved them
    active: BoolArray  # (R,) not yet at rest
    lowest: FloatArray  # (R,) the lowest score so far
    stale: IntArray  # (R,) rounds since it fell
    seen: FloatArray  # (R, k) weight seen so far, for partial participation
    threshold: float  # movement that counts as rest
    n: float  # rows in all
    variance: float  # per row: its mean squared distance to the grand mean
    rounds: int

    @property
    def best(self) -> int:
        """The first of those that are lowest but for rounding."""
        return int(np.argmax(self.scores <= (1 + 1e-9) * self.scores.min()))

    @property
    def centers(self) -> FloatArray:
        best: FloatArray = self.starts[self.best]
        return best

    @property
    def movement(self) -> float:
        return float(self.movements.max())

    @property
    def inertia(self) -> float:
        return float(self.inertias[self.best])


@dataclass(frozen=True, eq=False, kw_only=True)
class Lloyd(Method):
    """Exact federated k-means. ``n_starts`` runs go side by side in the same exchanges."""

    n_starts: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_starts < 1:
            raise BadInput(f"Lloyd: n_starts must be >= 1, got {self.n_starts}")

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[LloydState]:
        got = yield from starts(
            sites, self.clusters, self.init, self.n_starts, rng, min_cluster_size=self.min_cluster_size
        )
        R = len(got.centers)
        return LloydState(
            starts=got.centers,
            inertias=np.full(R, np.inf),
            scores=np.full(R, np.inf),
            movements=np.full(R, np.inf),
            active=np.ones(R, dtype=np.bool_),
            lowest=np.full(R, np.inf),
            stale=np.zeros(R, dtype=np.int64),
            seen=np.zeros((R, self.clusters)),
            threshold=float(np.sqrt(self.tol * got.spread)),
            n=got.n,
            variance=got.spread * got.centers.shape[2],
            rounds=0,
        )

    def round(
        self, state: LloydState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[LloydState]:
        active = np.flatnonzero(state.active)
        before = state.starts[active]
        # down: the centres of every start still moving; up: sums about them, counts, inertia
        sums = yield from total(choose(sites, self.participation, rng), AskClusterSums(before))

        seen = sums.mass
        if not is_full(self.participation, sites):
            seen = state.seen[active] + sums.mass
        full = (sums.mass > 0) & (sums.mass >= self.min_cluster_size)
        after = before + np.where(full, 1 / np.where(full, seen, 1.0), 0.0)[..., None] * sums.sums

        moved = np.sqrt(((after - before) ** 2).sum(axis=(1, 2)))
        inertias = _with(state.inertias, active, sums.inertia.sum(axis=1))
        hidden = np.maximum(state.n - sums.mass.sum(axis=1), 0.0)
        hidden[hidden < 1e-9 * state.n] = 0.0
        scores = _with(state.scores, active, inertias[active] + hidden * state.variance)
        fell = state.lowest[active] - scores[active] > 0.01 * self.tol * scores[active]
        stale = np.where(fell, 0, state.stale[active] + 1)
        leading = scores[active] == scores.min()
        going = moved > np.where(leading, _POLISH, 1.0) * state.threshold
        if is_full(self.participation, sites):
            gain = state.scores[active] - scores[active]
            going &= _promising(scores[active], gain, float(scores.min()), stale, some_hidden=hidden.any())
        return replace(
            state,
            starts=_with(state.starts, active, after),
            inertias=inertias,
            scores=scores,
            movements=_with(state.movements, active, moved),
            active=_with(state.active, active, going),
            lowest=np.minimum(state.lowest, scores),
            stale=_with(state.stale, active, stale),
            seen=_with(state.seen, active, seen),
            rounds=state.rounds + 1,
        )

    def finished(self, state: LloydState) -> bool:
        return state.rounds >= self.max_rounds or not state.active.any()


def _promising(
    scores: FloatArray, gain: FloatArray, best: float, stale: IntArray, *, some_hidden: bool
) -> BoolArray:
    """Which starts still improve, and may yet win. ``gain`` is infinite in the first round.

    Every step gains where all rows are shown; where some are hidden, a step may lose a little.
    """
    slack, patience = (1.005, _STALE) if some_hidden else (1.0, 1)
    may_win = scores - _PATIENCE * np.maximum(gain, 0.0) <= slack * best
    promising: BoolArray = (stale < patience) & may_win
    return promising


def _with(whole: Any, where: Any, part: Any) -> Any:
    whole = whole.copy()
    whole[where] = part
    return whole
