"""FKM: federated k-means whose local k shrinks to the clusters that a site has.

Garst & Reinders: Federated K-means clustering. 2023 (algorithm 1).

Every round a site assigns its rows to the received centres, drops those that get none, does one Lloyd step
and sends means and counts, leaving out clusters below p rows. The server runs weighted k-means on all means.

Departures, each of which ``as_published`` undoes unless stated:

- The authors' "means" of round 0 are raw records (k-means++ seeds). Here, always, they are the means and
  counts of one assignment to those seeds.
- Their library counts rows AFTER the step while the means belong to the assignment before it, which biases
  the fixed point (+1% inertia on overlapping data). The default counts ``before``. With ``after``, p limits
  the count after the step alone, as in their code; a site with a minimum above 1 limits both counts.
- Their server starts afresh every round, and there is no stopping rule: 100 rounds. The default also tries
  the centres at hand, keeps the better of the two, and stops when they rest.
- Their library (scikit-learn before 1.3) weighs the means in Lloyd's steps but not in k-means++, so that the
  server may miss a heavy cluster. The default weighs in both (``server_seeds``).
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np

from unpooled import kernels
from unpooled.algorithms import server_updates as updates
from unpooled.algorithms.method import Method, WorkLimits, sample_sites
from unpooled.errors import InputError
from unpooled.protocol.algorithm import State, Steps, each
from unpooled.protocol.declarations import Centers, Setting
from unpooled.protocol.messages import Question, SiteId
from unpooled.protocol.questions.cluster_sums import AskLocalMeans, LocalMeans, disclosed_means
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class AskOneStep(Question[LocalMeans]):
    """Means and counts of the site's clusters of at least p rows after one Lloyd step from these centres."""

    reads = "rows"
    asks_for = "for each centre: how many rows are nearest to it, and their mean"

    centers: Annotated[FloatArray, Centers("k d")]
    counts: str
    p: Annotated[float, Setting()]

    def answer_all(self, batch: SiteBatch) -> list[LocalMeans]:
        after = self.counts == "after"
        local = kernels.local_steps(
            batch.X, batch.offsets, self.centers, batch.weights, recount=after, threads=batch.threads
        )
        if not after:
            return disclosed_means(batch, local.centers, local.mass, local.squares, self.p)
        # The mean is over the rows before the step, the count after it, and the authors ask for p rows after
        # it only. A site with a minimum asks for both: its means must be of enough rows.
        before = batch.large(local.mass, local.squares, self.p) if batch.minimum > 1 else None
        return disclosed_means(
            batch, local.centers, local.recount, local.recount_squares, self.p, allowed_cells=before
        )

    def max_lengths(self) -> dict[str, int]:
        return {"disclosed": len(self.centers)}


@dataclass(frozen=True, eq=False, kw_only=True)
class FKMState(State):
    """The global centres. A cluster's index has no identity from round to round where the server restarts."""

    centers: FloatArray  # (k, d)
    movement: float
    inertia: float
    threshold: float
    rounds: int


@dataclass(frozen=True, eq=False, kw_only=True)
class FKM(Method, method="fkm"):
    """Federated k-means after Garst & Reinders.

    Every round each site sends the means of its clusters, and the coordinator clusters these means.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    p : int
        The fewest rows in a cluster that a site sends.
    counts : {"before", "after"}
        Whether the weight of a mean is the number of rows before or after the site's step.
    server : {"better", "fresh"}
        Whether the coordinator keeps the better of a warm and a fresh start, or always starts fresh.
    server_seeds : {"weighted", "unweighted"}
        Whether k-means++ at the coordinator uses the weights of the means.
    server_restarts : int
        The number of restarts of the coordinator's k-means.
    stop : bool
        Whether a run stops when the centres rest. Otherwise it has ``max_rounds`` rounds.

    Examples
    --------
    >>> from unpooled.algorithms import FKM
    >>> FKM.as_published(k=3).server
    'fresh'
    """

    citation = "Garst, Reinders: Federated K-Means Clustering. arXiv:2310.01195, 2023."
    advice = "Sites hold different clusters, and may disclose their own means every round"
    visibility = "each site's means"
    asks = (AskLocalMeans, AskOneStep)

    p: int = 2
    counts: Literal["before", "after"] = "before"
    server: Literal["better", "fresh"] = "better"
    server_seeds: Literal["weighted", "unweighted"] = "weighted"
    server_restarts: int = 10
    stop: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p < 1:
            raise InputError(f"FKM: p must be >= 1, got {self.p}")
        if self.counts not in ("before", "after"):
            raise InputError(f"FKM: counts must be before or after, got {self.counts!r}")
        if self.server_seeds not in ("weighted", "unweighted"):
            raise InputError(f"FKM: server_seeds must be weighted or unweighted, got {self.server_seeds!r}")

    @classmethod
    def as_published(cls, *, k: int | None = None, p: int = 2, rounds: int = 100) -> Self:
        """Return the authors' settings: counts after the step, a fresh server a round, no stopping rule."""
        return cls(
            k=k,
            p=p,
            counts="after",
            server="fresh",
            server_seeds="unweighted",
            stop=False,
            max_rounds=rounds,
        )

    def work_limits(self) -> WorkLimits:
        return {AskLocalMeans: {"n_init": 1, "steps": 1}}

    @property
    def own_start(self) -> bool:
        return True

    @property
    def stops_at_rest(self) -> bool:
        return self.stop and super().stops_at_rest

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[FKMState]:
        # down: k; up: means and counts after one assignment to each site's own k-means++ seeds
        replies = yield from each(sites, AskLocalMeans(self.clusters, 1, 1, self.p))
        means, counts = _joined(list(replies.values()))
        if len(means) < self.clusters:
            raise InputError(
                f"k={self.clusters} clusters from {len(means)} local means of at least {self.p} rows"
            )
        centers, _ = self.clustered(means, counts, rng)
        variance = np.average(
            (means - np.average(means, axis=0, weights=counts)) ** 2, axis=0, weights=counts
        )
        threshold = float(np.sqrt(self.tol * variance.mean()))
        return FKMState(
            centers=centers, movement=float("inf"), inertia=float("nan"), threshold=threshold, rounds=0
        )

    def round(self, state: FKMState, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[FKMState]:
        asked = sample_sites(sites, self.participation, rng)
        # down: the global centres; up: each site's means and counts after one step
        replies = yield from each(asked, AskOneStep(state.centers, self.counts, self.p))
        means, counts = _joined(list(replies.values()))
        centers, moved = state.centers, 0.0
        if len(means) >= self.clusters:
            centers, moved = self._merged(state.centers, means, counts, rng)
        elif self.participation != 1.0:
            moved = float("inf")
        return replace(state, centers=centers, movement=moved, rounds=state.rounds + 1)

    def finished(self, state: FKMState) -> bool:
        rests = self.stop and state.rounds > 0 and state.movement <= state.threshold
        return state.rounds >= self.max_rounds or rests

    def _merged(
        self, before: FloatArray, means: FloatArray, counts: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """New centres and their movement; to measure it, a fresh clustering is matched to the old centres."""
        fresh, fresh_inertia = self.clustered(means, counts, rng)
        if self.server == "better":
            offsets = np.array([0, len(means)])
            warm = kernels.local_steps(means, offsets, before, counts, steps=300).centers[0]
            warm_inertia = kernels.totals(means, offsets, warm[None], counts).inertia.sum()
            if warm_inertia <= fresh_inertia * (1 + 1e-9):
                return warm, updates.movement(before, warm)
        fresh = _matched(before, fresh)
        return fresh, updates.movement(before, fresh)

    def clustered(
        self, means: FloatArray, counts: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Return the server's k-means of all means: centres (k, d) and their inertia."""
        if self.server_seeds == "unweighted" and len(means) >= self.clusters:
            return self._unweighted(means, counts, rng)
        seed = rng.integers(0, 2**63, size=1, dtype=np.uint64)
        clustering = kernels.kmeans(
            means, np.array([0, len(means)]), self.clusters, seed, counts, n_init=self.server_restarts
        )
        if not (clustering.mass > 0).all():
            distinct = int((clustering.mass > 0).sum())
            raise InputError(f"k={self.clusters} clusters from {distinct} distinct local means")
        return clustering.centers[0], float(clustering.inertia[0])

    def _unweighted(
        self, means: FloatArray, counts: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Weighted Lloyd from unweighted k-means++ seeds; all restarts in one kernel call, as if sites."""
        n, restarts = len(means), self.server_restarts
        seeds = rng.integers(0, 2**63, size=restarts, dtype=np.uint64)
        rows, offsets = np.tile(means, (restarts, 1)), n * np.arange(restarts + 1)
        starts = kernels.kmeans(rows, offsets, self.clusters, seeds, max_iter=0)
        if not (starts.mass > 0).all():
            distinct = int((starts.mass[0] > 0).sum())
            raise InputError(f"k={self.clusters} clusters from {distinct} distinct local means")
        weights = np.tile(counts, restarts)
        ends = kernels.local_steps(rows, offsets, starts.centers, weights, steps=300).centers
        inertias = kernels.totals(means, np.array([0, n]), ends, counts).inertia[0].sum(axis=1)
        best = int(inertias.argmin())
        return ends[best], float(inertias[best])


def _joined(replies: list[LocalMeans]) -> tuple[FloatArray, FloatArray]:
    return np.concatenate([r.means for r in replies]), np.concatenate([r.counts for r in replies])


def _matched(before: FloatArray, after: FloatArray) -> FloatArray:
    """``after`` in the order that moves ``before`` least: an optimal matching."""
    from scipy.optimize import linear_sum_assignment

    cost = ((before[:, None] - after[None]) ** 2).sum(axis=2)
    ordered: FloatArray = after[linear_sum_assignment(cost)[1]]
    return ordered
