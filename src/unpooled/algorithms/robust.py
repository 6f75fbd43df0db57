"""k-means among sites some of which may be broken or hostile.

Pillutla, Kakade, Harchaoui: Robust aggregation for federated learning. IEEE Trans. Signal Process. 70 (2022):
the geometric median in place of the mean, by smoothed Weiszfeld steps. Here per cluster, since sites hold
different shares of the clusters, and with three things that clustering needs besides:

- weights are capped at what is usual for the cluster, or one site with a huge count would be the median;
- sites whose means lie much farther from the median than their counts explain are left out, and the mean of
  the others is taken: without hostile sites this is nearly the exact step;
- starts are compared by a trimmed mean over sites of the inertia that each reports of its own rows.

The method needs every site's own reply, so it cannot run under secure sums: with those a wrong reply cannot
be identified. A site that is left out in most of its clusters is a suspect, and the result names it. The
method is safe against fewer than half of the weight in every cluster; the tests check a fifth of the sites.
"""

from dataclasses import dataclass, replace

import numpy as np

from unpooled import kernels
from unpooled.algorithms.method import Method, sample_sites
from unpooled.algorithms.restarts import ComparedState, RestartRules
from unpooled.algorithms.seeding import LOCAL_RESTARTS, Starts
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Steps, each
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, ClusterSums, LocalMeans
from unpooled.typing import BoolArray, FloatArray

_TRIM = 0.25  # of the sites, at either end, where one number per site is averaged
_FAR = 3.0  # times the usual distance: beyond this a site's mean is left out
_FEW = (1, 2, 3, 5)  # sites that a start is made from, in turn
_STEPS = 50  # of Weiszfeld


@dataclass(frozen=True, eq=False, kw_only=True)
class RobustState(ComparedState):
    """One clustering between two rounds."""

    centers: FloatArray  # (k, d)
    score: float  # trimmed mean over sites of inertia per row; inf before the first round
    inertia: float  # of the sites that were not left out
    movement: float
    threshold: float
    suspects: tuple[SiteId, ...]  # left out in most of their clusters in the last round
    rounds: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Robust(Method, method="robust"):
    """k-means that a fifth of the sites cannot spoil: a geometric median over the sites.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    weight_cap : float
        The largest weight of a site in a cluster, as a multiple of the usual one.
    n_starts : int
        The number of starts, which run side by side.

    Examples
    --------
    >>> from unpooled.algorithms import Robust
    >>> Robust(k=3).weight_cap
    1.5
    """

    citation = (
        "Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning. "
        "IEEE Trans. Signal Process. 70, 2022."
    )
    advice = "Some sites may be broken or hostile: a geometric median over sites, and suspects by name"
    visibility = "each site's means and sums"
    asks = (AskLocalMeans,)
    # the sites left out may alternate without end
    restart_rules = RestartRules(tie_tolerance=0.0, leader_max_stale_rounds=5)

    weight_cap: float = 1.5
    n_starts: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight_cap > 0:
            raise InputError(f"Robust: weight_cap must be above 0, got {self.weight_cap}")
        if self.n_starts < 1:
            raise InputError(f"Robust: n_starts must be >= 1, got {self.n_starts}")

    @property
    def own_start(self) -> bool:
        return not isinstance(self.init, np.ndarray)

    def seeds(self, sites: tuple[SiteId, ...], count: int, rng: np.random.Generator) -> Steps[Starts]:
        if len(sites) < 3:
            raise InputError(f"Robust: needs at least 3 sites to tell which one is wrong, got {len(sites)}")
        # down: k; up: each site's means and counts
        replies = yield from each(sites, AskLocalMeans(self.clusters, n_init=LOCAL_RESTARTS))
        nonempty = [reply for reply in replies.values() if len(reply.counts)]
        if not nonempty:
            raise InputError(f"k={self.clusters} clusters from 0 local means: the sites disclosed too few")
        if isinstance(self.init, np.ndarray):
            centers = self.init[None].astype(np.float64)
        else:
            centers = _starts(nonempty, self.clusters, count, rng)
        return Starts(centers, np.nan, float(np.median([_spread(reply) for reply in nonempty])))

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[RobustState]:
        seeding = yield from self.seeds(sites, 1, rng)
        return self.begin(seeding.centers[0], seeding)

    def begin(self, centers: FloatArray, seeding: Starts) -> RobustState:
        threshold = float(np.sqrt(self.tol * seeding.spread))
        return RobustState(
            centers=centers,
            score=np.inf,
            inertia=np.inf,
            movement=np.inf,
            threshold=threshold,
            suspects=(),
            rounds=0,
        )

    def round(
        self, state: RobustState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[RobustState]:
        asked = sample_sites(sites, self.participation, rng)
        # down: the centres; up: each site's sums, counts, inertia
        replies = yield from each(asked, AskClusterSums(state.centers[None]))
        sums = list(replies.values())
        centers, out = _merged(sums, state.centers, self)
        suspects = tuple(
            name for name, o, t in zip(replies, out, sums, strict=True) if _suspect(o, t.mass[0])
        )
        honest = np.array([float(name not in suspects) for name in replies])
        return replace(
            state,
            centers=centers,
            score=_score(sums),
            inertia=float(honest @ np.array([t.inertia[0].sum() for t in sums])),
            movement=float(np.sqrt(((centers - state.centers) ** 2).sum())),
            suspects=suspects,
            rounds=state.rounds + 1,
        )

    def finished(self, state: RobustState) -> bool:
        return state.rounds >= self.max_rounds or state.movement <= state.threshold


def _suspect(out: BoolArray, mass: FloatArray) -> bool:
    """True if a site was left out in more than half of the clusters in which it has rows."""
    return bool(out[mass > 0].sum() > (mass > 0).sum() / 2)


def _spread(reply: LocalMeans) -> float:
    """The variance of a site's means, per column."""
    mean = np.average(reply.means, axis=0, weights=reply.counts)
    return float(np.average((reply.means - mean) ** 2, axis=0, weights=reply.counts).mean())


def _starts(replies: list[LocalMeans], k: int, count: int, rng: np.random.Generator) -> FloatArray:
    """(R, k, d): k-means of the means of a few sites each; many such groups contain no hostile site."""
    starts: list[FloatArray] = []
    for r in range(4 * count):
        chosen = rng.permutation(len(replies))[: _FEW[r % len(_FEW)]]
        means = np.concatenate([replies[i].means for i in chosen])
        usual = np.median(np.concatenate([replies[i].counts for i in chosen]))
        counts = np.minimum(np.concatenate([replies[i].counts for i in chosen]), 2 * usual)
        if len(means) < k:
            continue
        seed = rng.integers(0, 2**63, size=1, dtype=np.uint64)
        clustering = kernels.kmeans(means, np.array([0, len(means)]), k, seed, counts, n_init=5)
        if (clustering.mass > 0).all():
            starts.append(clustering.centers[0])
        if len(starts) == count:
            break
    if not starts:
        raise InputError(
            f"k={k} clusters from too few local means of a few sites each: the sites disclosed too few"
        )
    return np.stack(starts)


def _score(replies: list[ClusterSums]) -> float:
    """Inertia per row, site by site, averaged without the lowest and highest."""
    rows = np.array([t.mass[0].sum() for t in replies])
    per_row = np.array([t.inertia[0].sum() for t in replies])[rows > 0] / rows[rows > 0]
    cut = int(_TRIM * len(per_row))
    return float(np.sort(per_row)[cut : len(per_row) - cut].mean()) if len(per_row) else float("inf")


def _merged(
    replies: list[ClusterSums], centers: FloatArray, settings: Robust
) -> tuple[FloatArray, BoolArray]:
    """The next centres (k, d), and a mask (sites, k) of the sites left out of each cluster."""
    mass = np.stack([t.mass[0] for t in replies])  # (sites, k)
    sums = np.stack([t.sums[0] for t in replies])
    inertia = np.stack([t.inertia[0] for t in replies])
    out = np.zeros(mass.shape, dtype=np.bool_)
    after = centers.copy()
    for j in range(len(centers)):
        present = np.flatnonzero((mass[:, j] > 0) & (mass[:, j] >= settings.min_cluster_size))
        if not len(present):
            continue
        n = mass[present, j]
        weight = np.minimum(n, settings.weight_cap * np.median(n))
        moves = sums[present, j] / n[:, None]
        middle = geometric_median(moves, weight)
        # the usual distance of a mean of n rows from the cluster's mean is spread / sqrt(n)
        spread = max(
            float(np.sqrt(np.median(inertia[present, j] / n))), 1e-9 * float(np.abs(moves).max()), 1e-100
        )
        far = np.linalg.norm(moves - middle, axis=1) * np.sqrt(weight) / spread
        near = far <= _FAR * max(float(np.median(far)), 1e-12)
        out[present[~near], j] = True
        after[j] += np.average(moves[near], axis=0, weights=weight[near] if (~near).any() else n)
    return after, out


def geometric_median(points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the point (d,) whose weighted sum of distances to the points (m, d) is smallest.

    >>> geometric_median(np.array([[0.0], [1.0], [1000.0]]), np.ones(3)).round(3)
    array([1.])
    """
    middle = np.median(points, axis=0)
    floor = max(1e-9 * float(np.abs(points).max()), 1e-100)
    for _ in range(_STEPS):
        pull = weights / np.maximum(np.linalg.norm(points - middle, axis=1), floor)
        new = pull @ points / pull.sum()
        if np.linalg.norm(new - middle) <= 1e-10 * max(float(np.abs(new).max()), 1e-300):
            break
        middle = new
    return middle
