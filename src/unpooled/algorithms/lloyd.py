"""Exact federated Lloyd: the clustering that pooling would have given, from totals only. The default.

Lloyd: Least squares quantization in PCM. IEEE Trans. Inf. Theory 28 (1982). That sums and counts over sites
give the pooled step exactly is Holzer et al., eq. 2. The start is seeding.py's.

R starts travel in the same exchanges; a start that has come to rest is not asked about again; the lowest
federated inertia wins. A cluster whose total is empty, or below the sites' minimum size, stays where it is.

Where only a part of the sites answers a round (``participation``), every centre keeps the weight it has seen
so far and moves by its share of new weight, as mini-batch k-means does (Sculley, 2010); with all sites in
every round it is plain Lloyd.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpooled.algorithms.base import Method
from unpooled.algorithms.seeding import starts
from unpooled.codec import BoolArray, FloatArray
from unpooled.errors import BadInput
from unpooled.messages import Message, SiteId
from unpooled.protocol import Steps, total
from unpooled.sampling import choose, is_full
from unpooled.summaries import AskClusterSums


@dataclass(frozen=True, eq=False)
class LloydState(Message):
    """R clusterings on their way."""

    starts: FloatArray  # (R, k, d) centres
    inertias: FloatArray  # (R,) of the centres before the last step; inf before the first
    movements: FloatArray  # (R,) how far the last step moved them
    active: BoolArray  # (R,) not yet at rest
    seen: FloatArray  # (R, k) weight seen so far, for partial participation
    threshold: float  # movement that counts as rest
    rounds: int

    @property
    def best(self) -> int:
        return int(np.argmin(self.inertias))

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
            movements=np.full(R, np.inf),
            active=np.ones(R, dtype=np.bool_),
            seen=np.zeros((R, self.clusters)),
            threshold=float(np.sqrt(self.tol * got.spread)),
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
        return replace(
            state,
            starts=_with(state.starts, active, after),
            inertias=_with(state.inertias, active, sums.inertia.sum(axis=1)),
            movements=_with(state.movements, active, moved),
            active=_with(state.active, active, moved > state.threshold),
            seen=_with(state.seen, active, seen),
            rounds=state.rounds + 1,
        )

    def finished(self, state: LloydState) -> bool:
        return state.rounds >= self.max_rounds or not state.active.any()


def _with(whole: Any, where: Any, part: Any) -> Any:
    whole = whole.copy()
    whole[where] = part
    return whole
