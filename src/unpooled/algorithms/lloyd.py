"""Exact federated Lloyd: the clustering that pooling would have given, from totals only. The default.

Lloyd: Least squares quantization in PCM. IEEE Trans. Inf. Theory 28 (1982). That sums and counts over sites
give the pooled step exactly is Holzer et al., eq. 2. The start is seeding.py's; ``n_starts`` of them race in
the same exchanges (restarts.py), and the lowest federated inertia wins.

A cluster whose total is empty, or below the sites' minimum size, stays where it is. Where only a part of the
sites answers a round (``participation``), every centre keeps the weight it has seen so far and moves by its
share of new weight, as mini-batch k-means does (Sculley, 2010); with all sites in every round it is plain
Lloyd.

Where cells are missing (``over_holes``) a row is compared to centres by its observed columns, and a centre is
the mean, column by column, of the rows that have it: k-POD of Chi, Chi and Baraniuk (The American
Statistician 70, 2016), whose filled cells add nothing to the sums. docs/methods/missing.md has the proof.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from unpooled.algorithms.base import Method, Race, choose, is_full
from unpooled.algorithms.seeding import OBSERVED, Starts
from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message, SiteId
from unpooled.core.protocol import Algorithm, Steps, total
from unpooled.errors import BadInput
from unpooled.questions.clusters import AskDrawnSums
from unpooled.questions.observed import AskObservedMoments, AskObservedSums


@dataclass(frozen=True, eq=False)
class LloydState(Message):
    """One clustering between two rounds."""

    centers: FloatArray  # (k, d)
    inertia: float  # of the centres before the last step; inf before the first
    movement: float  # of the centres in the last step
    hidden: float  # rows that no site showed in the last round
    seen: FloatArray  # (k,) or (k, d) weight seen so far, for partial participation
    threshold: float  # movement that counts as rest
    n: float  # rows in all
    variance: float  # per row: its mean squared distance to the grand mean
    rounds: int

    @property
    def score(self) -> float:
        """The inertia, with rows that no site showed counted as if they had no cluster."""
        return self.inertia + self.hidden * self.variance


@dataclass(frozen=True, eq=False, kw_only=True)
class Lloyd(Method, method="lloyd"):
    """Exact federated k-means. ``n_starts`` runs go side by side in the same exchanges."""

    citation = "Lloyd: Least Squares Quantization in PCM. IEEE Trans. Inf. Theory 28(2), 1982."
    advice = "Start here: the clustering that pooling would give, whatever the split"
    race = Race(polish=0.1, stale=1, stale_hidden=4, draws=True)
    asks = (AskDrawnSums, AskObservedMoments, AskObservedSums)  # of very many rows; where cells are missing

    n_starts: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_starts < 1:
            raise BadInput(f"Lloyd: n_starts must be >= 1, got {self.n_starts}")

    @property
    def side_by_side(self) -> int:
        return self.n_starts

    @property
    def keeps_holes(self) -> bool:
        """False for local k-means at the sites, which has no form for missing cells."""
        return not isinstance(self.init, str) or self.init != "k-fed"

    def over_holes(self) -> Any:
        if not self.keeps_holes:
            raise BadInput(
                "--missing keep: the start k-fed needs rows without missing cells; adaptive does not"
            )
        return LloydOverHoles(**{f.name: getattr(self, f.name) for f in fields(self)})

    def restarted(self, n: int | None) -> Algorithm[LloydState]:
        return self if n is None else replace(self, n_starts=n)

    def drops(self, sites: tuple[SiteId, ...]) -> bool:
        return is_full(self.participation, sites)

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[LloydState]:
        learnt = yield from self.seeds(sites, 1, rng)
        return self.begin(learnt.centers[0], learnt)

    def begin(self, centers: FloatArray, learnt: Starts) -> LloydState:
        return LloydState(
            centers=centers,
            inertia=np.inf,
            movement=np.inf,
            hidden=0.0,
            seen=np.zeros(centers.shape if self.asked is OBSERVED else len(centers)),
            threshold=float(np.sqrt(self.tol * learnt.spread)),
            n=learnt.n,
            variance=learnt.spread * centers.shape[1],
            rounds=0,
        )

    def round(
        self, state: LloydState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[LloydState]:
        asked = choose(sites, self.participation, rng)
        # down: the centres; up: sums about them, counts, inertia
        sums = yield from total(asked, self.asked.sums(state.centers[None]))

        mass, known = sums.mass[0], sums.known[0]  # (k,), and (k, 1) or (k, d) over holes
        seen = known if is_full(self.participation, sites) else state.seen.reshape(known.shape) + known
        full = (known > 0) & (known >= self.min_cluster_size)
        step = np.where(full, 1 / np.where(full, seen, 1.0), 0.0) * sums.sums[0]
        centers = state.centers + step
        hidden = max(state.n - float(mass.sum()), 0.0)
        return LloydState(
            centers=centers,
            inertia=float(sums.inertia[0].sum()),
            movement=float(np.sqrt(((centers - state.centers) ** 2).sum())),
            hidden=hidden if hidden >= 1e-9 * state.n else 0.0,
            seen=seen.reshape(state.seen.shape),
            threshold=state.threshold,
            n=state.n,
            variance=state.variance,
            rounds=state.rounds + 1,
        )

    def finished(self, state: LloydState) -> bool:
        return state.rounds >= self.max_rounds or state.movement <= state.threshold


@dataclass(frozen=True, eq=False, kw_only=True)
class LloydOverHoles(Lloyd):
    """Exact federated k-means of rows with missing cells, over the cells that there are."""

    citation = (
        "Chi, Chi, Baraniuk: k-POD: A Method for k-Means Clustering of Missing Data. The American "
        "Statistician 70(1), 2016."
    )
    asked = OBSERVED

    def over_holes(self) -> Any:
        return self
