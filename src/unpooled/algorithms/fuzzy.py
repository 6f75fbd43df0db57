"""Federated fuzzy c-means (FFCM): every row belongs to every cluster, more or less.

Stallmann, Wilbik: Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM). FL-AAAI 2022
(equations 4-9); after Bezdek, Ehrlich, Full: FCM: The Fuzzy c-Means Clustering Algorithm. 1984.

Two ways to merge the sites' centres:

- ``merge="avg1"`` (eq. 8): the weighted mean of the sites' centres, cluster by cluster. It needs totals only.
- ``merge="avg2"`` (eq. 9): k-means of all sites' centres, unweighted; k-means++ in the first round, from the
  last centres after that. The server receives every site's centres.

With one local step and weights sum(u^m), avg1 IS fuzzy c-means of the pooled rows, to rounding. That is the
default, from the start of seeding.py, with R starts in the same exchanges; the lowest objective J_m wins.

As the authors' code has it, and departing from the printed text: memberships are standard, (d_j / d_l) to the
power -2 / (m - 1) with unsquared distances (printed eq. 5 squares them, which equals m' = (m + 1) / 2); sites
run to convergence (the text says one update), and weigh by sum(u) (printed eq. 7: sum(u^m)). The start is
rand[0, 1)^d, wherever the data lie. A centre on a row has membership 1 there.

Stopping rule: the sum over clusters of the movement of each centre is below a threshold.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from unpooled import kernels
from unpooled.algorithms.method import Method, WorkLimits, is_full, sample_sites
from unpooled.algorithms.restarts import ComparedState, RestartRules
from unpooled.algorithms.seeding import Starts, spread_of
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Steps, each, together, total
from unpooled.protocol.messages import Question, SiteId
from unpooled.protocol.questions.cluster_sums import AskLocalMeans, AskMoments
from unpooled.protocol.questions.fuzzy_sums import (
    LOCAL_STEPS,
    AskBorderline,
    AskDirections,
    AskFuzzyMeans,
    AskFuzzyMoves,
    AskFuzzyScatter,
    AskFuzzySums,
    FuzzySums,
    check_m,
)
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class FuzzyState(ComparedState):
    """One fuzzy clustering between two rounds."""

    centers: FloatArray  # (k, d)
    inertia: float  # J_m of the centres before the last step; inf before the first, nan in avg2
    score: float  # the same, with suppressed rows counted as if they had no cluster
    movement: float  # of the centres in the last step, summed over clusters
    seen: FloatArray  # (k,) weight seen so far, for partial participation
    threshold: float  # movement that counts as rest
    n: float  # rows in all
    idle: float  # J_m per row if all centres were the grand mean
    rounds: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Fuzzy(Method, method="fuzzy"):
    """Fuzzy c-means over sites. By default exact: the clustering that pooling would have given.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    m : float
        The fuzzifier, above 1. The nearer to 1, the nearer are memberships to labels.
    merge : {"avg1", "avg2"}
        How the coordinator merges the sites' centres: by their weights, or by k-means over them.
    local_steps : int or "converge"
        The number of steps of a site in a round.
    weights : {"sum(u^m)", "sum(u)"}
        The weight of a site's centre in ``avg1``.
    n_starts : int
        The number of starts, which run side by side in ``avg1``.
    unit_start : bool
        Whether centres start in rand[0, 1)^d as in the paper, whatever ``init`` is.
    server_restarts : int
        The number of restarts of k-means++ in the first round of ``avg2``.
    tol_kind : {"relative", "absolute"}
        ``tol`` is relative to the root of the columns' mean variance, or it is the movement itself.

    Examples
    --------
    >>> from unpooled.algorithms import Fuzzy
    >>> Fuzzy(k=3, m=1.5).fuzzifier
    1.5
    """

    citation = (
        "Stallmann, Wilbik: Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM). "
        "FL-AAAI 2022."
    )
    advice = "Rows between clusters belong to several: memberships instead of labels (FederatedFuzzyCMeans)"
    asks = (
        AskLocalMeans,
        AskFuzzySums,
        AskFuzzyMoves,
        AskFuzzyMeans,
        AskFuzzyScatter,
        AskBorderline,
        AskDirections,
    )

    m: float = 2.0
    merge: Literal["avg1", "avg2"] = "avg1"
    local_steps: int | str = 1
    weights: Literal["sum(u^m)", "sum(u)"] = "sum(u^m)"
    n_starts: int = 10
    unit_start: bool = False
    server_restarts: int = 10
    tol: float = 1e-5
    tol_kind: Literal["relative", "absolute"] = "relative"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_m(self.m, "Fuzzy")
        if self.merge not in ("avg1", "avg2"):
            raise InputError(f"Fuzzy: merge must be avg1 or avg2, got {self.merge!r}")
        steps = self.local_steps
        if isinstance(steps, bool) or (steps != "converge" and not (isinstance(steps, int) and steps >= 1)):
            raise InputError(f'Fuzzy: local_steps must be a whole number >= 1 or "converge", got {steps!r}')
        if self.weights not in ("sum(u^m)", "sum(u)"):
            raise InputError(f"Fuzzy: weights must be sum(u^m) or sum(u), got {self.weights!r}")
        if self.tol_kind not in ("relative", "absolute"):
            raise InputError(f"Fuzzy: tol_kind must be relative or absolute, got {self.tol_kind!r}")
        for name in ("n_starts", "server_restarts"):
            if getattr(self, name) < 1:
                raise InputError(f"Fuzzy: {name} must be >= 1, got {getattr(self, name)}")

    @classmethod
    def as_published(
        cls,
        *,
        k: int | None = None,
        m: float = 2.0,
        merge: Literal["avg1", "avg2"] = "avg1",
        rounds: int = 100,
    ) -> Self:
        """Return the authors' settings: sites run to convergence, weights sum(u), start rand[0, 1)^d."""
        return cls(
            k=k,
            m=m,
            merge=merge,
            local_steps="converge",
            weights="sum(u)",
            n_starts=1,
            unit_start=True,
            tol=1e-3,
            tol_kind="absolute",
            max_rounds=rounds,
        )

    def work_limits(self) -> WorkLimits:
        steps: dict[str, float] = {"steps": self._steps or LOCAL_STEPS}
        return {**super().work_limits(), AskFuzzyMoves: steps, AskFuzzyMeans: steps}

    @property
    def own_start(self) -> bool:
        return self.unit_start

    @property
    def fuzzifier(self) -> float:
        return self.m

    @property
    def restart_rules(self) -> RestartRules | None:
        if self.merge == "avg2":
            return None
        return RestartRules(
            tie_tolerance=1e-6, drop=self.local_steps == 1, score_slack=1.005, duplicate_distance=0.02
        )

    def seeds(self, sites: tuple[SiteId, ...], count: int, rng: np.random.Generator) -> Steps[Starts]:
        if not self.unit_start:
            return (yield from super().seeds(sites, count, rng))
        # down: nothing; up: mass, sums and squares of the columns
        moments = yield from spread_of(sites)
        if moments.n < self.clusters:
            raise InputError(f"k={self.clusters} clusters from {moments.n:g} rows")
        centers = rng.random((count, self.clusters, len(moments.mean)))
        return Starts(centers, moments.n, float(moments.variance.mean()))

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[FuzzyState]:
        seeding = yield from self.seeds(sites, 1, rng)
        return self.begin(seeding.centers[0], seeding)

    def begin(self, centers: FloatArray, seeding: Starts) -> FuzzyState:
        k, d = centers.shape
        return FuzzyState(
            centers=centers,
            inertia=np.inf if self.merge == "avg1" else np.nan,
            score=np.inf,
            movement=np.inf,
            seen=np.zeros(k),
            threshold=self.tol * (1.0 if self.tol_kind == "absolute" else float(np.sqrt(seeding.spread))),
            n=seeding.n,
            idle=seeding.spread * d * float(k) ** (1 - self.m),
            rounds=0,
        )

    def round(
        self, state: FuzzyState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[FuzzyState]:
        asked = sample_sites(sites, self.participation, rng)
        if self.merge == "avg2":
            return (yield from self._clustered(state, asked, rng))
        # down: the centres; up: weighted sums about them, weights, J_m
        sums = yield from total(asked, self._question(state.centers[None], state.threshold))

        seen = sums.weight[0] if is_full(self.participation, sites) else state.seen + sums.weight[0]
        full = seen > 0
        step = np.where(full, 1 / np.where(full, seen, 1.0), 0.0)[:, None] * sums.sums[0]
        centers = state.centers + step
        return replace(
            state,
            centers=centers,
            inertia=float(sums.inertia[0].sum()),
            score=float(_scored(sums, state.n, state.idle)[0]),
            movement=_moved(state.centers, centers),
            seen=seen,
            rounds=state.rounds + 1,
        )

    def _question(self, centers: FloatArray, rest: float) -> Question[FuzzySums]:
        if self.local_steps == 1 and self.weights == "sum(u^m)":
            return AskFuzzySums(centers, self.m)
        return AskFuzzyMoves(centers, self.m, self._steps, rest, self.weights)

    @property
    def _steps(self) -> int:
        return self.local_steps if isinstance(self.local_steps, int) else 0

    def _clustered(
        self, state: FuzzyState, asked: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[FuzzyState]:
        """Eq. 9: k-means of all sites' centres."""
        before = state.centers
        # down: the centres; up: each site's own centres
        replies = yield from each(asked, AskFuzzyMeans(before, self.m, self._steps, state.threshold))
        means = np.concatenate([reply.means for reply in replies.values()])
        after, offsets = before, np.array([0, len(means)])
        if len(means) >= self.clusters:
            if np.isinf(state.movement):  # the first merge
                seed = rng.integers(0, 2**63, size=1, dtype=np.uint64)
                clustering = kernels.kmeans(means, offsets, self.clusters, seed, n_init=self.server_restarts)
                after = np.where(clustering.mass[0][:, None] > 0, clustering.centers[0], before)
            else:
                after = kernels.local_steps(means, offsets, before, steps=300).centers[0]
        # too few means for k-means: go on only if other sites, which may disclose more, are asked next round
        waiting = len(means) < self.clusters and self.participation != 1.0
        moved = np.inf if waiting else _moved(before, after)
        return replace(state, centers=after, movement=moved, rounds=state.rounds + 1)

    def finished(self, state: FuzzyState) -> bool:
        return state.rounds >= self.max_rounds or state.movement <= state.threshold

    def score_restarts(
        self, sites: tuple[SiteId, ...], centers: FloatArray
    ) -> Steps[tuple[FloatArray, FloatArray]]:
        """Return J_m of every restart (R, k, d), and the same with suppressed rows as if in no cluster."""
        asks: list[Steps[Any]] = [total(sites, AskFuzzySums(centers, self.m)), total(sites, AskMoments())]
        # down: every restart's centres; up: their sums, and the moments
        sums, moments = yield from together(asks)
        idle = float(moments.variance.sum()) * float(centers.shape[1]) ** (1 - self.m)
        return sums.inertia.sum(axis=1), _scored(sums, moments.n, idle)


def _scored(sums: FuzzySums, n: float, idle: float) -> FloatArray:
    """(R,) J_m, plus the J_m of suppressed rows as if all centres were the grand mean."""
    suppressed = np.maximum(n - sums.rows.sum(axis=1), 0.0)
    scores: FloatArray = sums.inertia.sum(axis=1) + np.where(suppressed > 1e-9 * n, suppressed, 0.0) * idle
    return scores


def _moved(before: FloatArray, after: FloatArray) -> float:
    """The movement of the centres, summed over clusters."""
    return float(np.sqrt(((after - before) ** 2).sum(axis=1)).sum())
