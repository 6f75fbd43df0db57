"""Exact federated Lloyd: the clustering that pooling would have given, from totals only. The default.

Lloyd: Least squares quantization in PCM. IEEE Trans. Inf. Theory 28 (1982). That sums and counts over sites
give the pooled step exactly is Holzer et al., eq. 2. The start is seeding.py's; ``n_starts`` of them run
concurrently in the same exchanges (restarts.py), and the lowest federated inertia wins.

A cluster whose total is empty, or below the sites' minimum size, stays where it is. Where only a part of the
sites answers a round (``participation``), every centre keeps the weight it has seen so far and moves by its
share of new weight, as mini-batch k-means does (Sculley, 2010); with all sites in every round it is plain
Lloyd.

Where cells are missing (``with_missing``) a row is compared to centres by its observed columns, and a centre
is the mean, column by column, of the rows that have it: k-POD of Chi, Chi and Baraniuk (The American
Statistician 70, 2016), whose filled cells add nothing to the sums. See docs/methods/missing.md for the proof.
"""

from dataclasses import dataclass, fields

import numpy as np

from unpooled.algorithms.method import Method, is_full, sample_sites
from unpooled.algorithms.restarts import ComparedState, RestartRules
from unpooled.algorithms.seeding import WITH_MISSING, Starts
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Steps, total
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskDrawnSums
from unpooled.protocol.questions.sums_with_missing import AskObservedMoments, AskObservedSums
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class LloydState(ComparedState):
    """One clustering between two rounds."""

    centers: FloatArray  # (k, d)
    inertia: float  # of the centres before the last step; inf before the first
    movement: float  # of the centres in the last step
    suppressed: float  # rows that sites suppressed in the last round
    seen: FloatArray  # (k,) or (k, d) weight seen so far, for partial participation
    threshold: float  # movement that counts as rest
    n: float  # rows in all
    variance: float  # per row: its mean squared distance to the grand mean
    rounds: int

    @property
    def score(self) -> float:
        """The inertia, with suppressed rows counted as if they had no cluster."""
        return self.inertia + self.suppressed * self.variance


@dataclass(frozen=True, eq=False, kw_only=True)
class Lloyd(Method, method="lloyd"):
    """Exact federated k-means: the clustering that Lloyd's algorithm finds on the pooled rows.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    n_starts : int
        The number of starts. They run side by side in the same round trips, and the best one is kept.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.algorithms import Lloyd
    >>> from unpooled.federation import Simulation
    >>> from unpooled.protocol import run
    >>> sites = Simulation.from_rows({"north": np.array([[0.0], [9.0]]), "south": np.array([[0.2], [9.2]])})
    >>> sorted(run(Lloyd(k=2), sites).state.centers.round(1).ravel().tolist())
    [0.1, 9.1]
    """

    citation = "Lloyd: Least Squares Quantization in PCM. IEEE Trans. Inf. Theory 28(2), 1982."
    advice = "Start here: ends where k-means on the pooled rows would"
    restart_rules = RestartRules(
        leader_tolerance=0.1, max_stale_rounds=1, max_stale_rounds_suppressed=4, sample_rows=True
    )
    asks = (AskDrawnSums, AskObservedMoments, AskObservedSums)  # of very many rows; where cells are missing

    n_starts: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_starts < 1:
            raise InputError(f"Lloyd: n_starts must be >= 1, got {self.n_starts}")

    @property
    def supports_missing(self) -> bool:
        """False for local k-means at the sites, which has no form for missing cells."""
        return not isinstance(self.init, str) or self.init != "k-fed"

    def with_missing(self) -> "LloydWithMissing":
        if not self.supports_missing:
            raise InputError(
                "--missing keep: the start k-fed needs rows without missing values. Use init adaptive"
            )
        return LloydWithMissing(**{f.name: getattr(self, f.name) for f in fields(self)})

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[LloydState]:
        seeding = yield from self.seeds(sites, 1, rng)
        return self.begin(seeding.centers[0], seeding)

    def begin(self, centers: FloatArray, seeding: Starts) -> LloydState:
        return LloydState(
            centers=centers,
            inertia=np.inf,
            movement=np.inf,
            suppressed=0.0,
            seen=np.zeros(centers.shape if self.question_set is WITH_MISSING else len(centers)),
            threshold=float(np.sqrt(self.tol * seeding.spread)),
            n=seeding.n,
            variance=seeding.spread * centers.shape[1],
            rounds=0,
        )

    def round(
        self, state: LloydState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[LloydState]:
        asked = sample_sites(sites, self.participation, rng)
        # down: the centres; up: sums about them, counts, inertia
        sums = yield from total(asked, self.question_set.sums(state.centers[None]))

        mass, known = sums.mass[0], sums.known[0]  # (k,), and (k, 1) or (k, d) where cells are missing
        seen = known if is_full(self.participation, sites) else state.seen.reshape(known.shape) + known
        full = (known > 0) & (known >= self.min_cluster_size)
        step = np.where(full, 1 / np.where(full, seen, 1.0), 0.0) * sums.sums[0]
        centers = state.centers + step
        suppressed = max(state.n - float(mass.sum()), 0.0)
        return LloydState(
            centers=centers,
            inertia=float(sums.inertia[0].sum()),
            movement=float(np.sqrt(((centers - state.centers) ** 2).sum())),
            suppressed=suppressed if suppressed >= 1e-9 * state.n else 0.0,
            seen=seen.reshape(state.seen.shape),
            threshold=state.threshold,
            n=state.n,
            variance=state.variance,
            rounds=state.rounds + 1,
        )

    def finished(self, state: LloydState) -> bool:
        return state.rounds >= self.max_rounds or state.movement <= state.threshold


@dataclass(frozen=True, eq=False, kw_only=True)
class LloydWithMissing(Lloyd):
    """Exact federated k-means of rows with missing cells, over the observed cells."""

    citation = (
        "Chi, Chi, Baraniuk: k-POD: A Method for k-Means Clustering of Missing Data. The American "
        "Statistician 70(1), 2016."
    )
    question_set = WITH_MISSING

    def with_missing(self) -> "LloydWithMissing":
        return self
