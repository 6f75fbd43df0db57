"""k-FED: one exchange, every site clusters its own rows, the server clusters the sites' means.

Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021 (algorithms 1 and 2).

Two methods carry this name, and comparisons mix them up:

- ``variant="dennis"``, the original. A site projects its rows on their top k' singular directions, seeds
  there by k-means++, keeps per seed the rows that are at least three times nearer to it than to any other
  (the 1:3 rule), and runs Lloyd in full space from the means of those. The server takes one site's k' means
  and adds means farthest-first up to k, then does one unweighted Lloyd step (``server_steps``). With k' >= k
  nothing is ever added farthest-first, which is why it looks poor where it is run with k' = k. The authors'
  code does otherwise than their algorithm 2: its server goes on to convergence. ``as_published_code`` does so
  too, and gives the numbers that others published of this method.
- ``variant="holzer"``, the simplification of Holzer et al.: plain k-means at the sites, plain unweighted
  k-means of all means at the server.

The default (``variant="weighted"``) is the second with the means weighted by their sizes and ten restarts.
A site sends means and counts; a cluster below its minimum size is left out. Published code sends raw rows
where a site has fewer rows than clusters; here such a row is a cluster of one, and any minimum above 1
suppresses it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np

from unpooled import kernels
from unpooled.algorithms.method import Method, WorkLimits, sample_sites
from unpooled.algorithms.seeding import merge_means
from unpooled.errors import InputError
from unpooled.protocol.algorithm import State, Steps, each
from unpooled.protocol.declarations import Length, Repeats
from unpooled.protocol.limits import MAX_STEPS
from unpooled.protocol.messages import Question, SiteId
from unpooled.protocol.questions.cluster_sums import LOCAL_STEPS, AskLocalMeans, LocalMeans, disclosed_means
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class AskDennisMeans(Question[LocalMeans]):
    """Means and counts of the site's own clusters: at most k', by algorithm 1 of Dennis et al."""

    reads = "rows"
    asks_for = "the means and sizes of the clusters that the site finds in its own rows"

    k: Annotated[int, Length()]
    steps: Annotated[int, Repeats(max_value=MAX_STEPS)] = LOCAL_STEPS

    def answer_all(self, batch: SiteBatch) -> list[LocalMeans]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> LocalMeans:
        X = np.asarray(local.X, dtype=np.float64)
        if not len(X):
            return LocalMeans(np.zeros((0, X.shape[1])), np.zeros(0))
        _, _, directions = np.linalg.svd(X, full_matrices=False)
        basis = directions[: self.k].T
        Y = np.ascontiguousarray(X @ basis)
        rng = np.random.default_rng(np.asarray(local.seeds))
        starts = _clear_means(X, Y, _plain_seeds(Y, self.k, local.weights, rng))
        steps = kernels.local_steps(X, local.offsets, starts, local.weights, steps=self.steps, recount=True)
        # A mean is over ``support`` rows, the count is ``recount``: both must be large enough.
        enough = steps.support >= local.minimum * (1 - 1e-9)
        (reply,) = disclosed_means(
            local, steps.centers, steps.recount, steps.recount_squares, 1.0, allowed_cells=enough
        )
        return reply

    def max_lengths(self) -> dict[str, int]:
        return {"disclosed": self.k}


def _plain_seeds(Y: FloatArray, k: int, weights: FloatArray | None, rng: np.random.Generator) -> FloatArray:
    """Up to k distinct rows by plain k-means++, one candidate per draw; that of the kernels is greedy."""
    mass = np.ones(len(Y)) if weights is None else weights
    chosen: list[int] = []
    near = np.ones(len(Y))
    while len(chosen) < k and (chance := mass * near).sum() > 0:
        chosen.append(int(rng.choice(len(Y), p=chance / chance.sum())))
        distance = ((Y - Y[chosen[-1]]) ** 2).sum(axis=1)
        near = distance if len(chosen) == 1 else np.minimum(near, distance)
    return Y[chosen]


def _clear_means(X: FloatArray, Y: FloatArray, centers: FloatArray) -> FloatArray:
    """Means in full space of the rows that are three times nearer to their seed than to any other."""
    labels, near = kernels.nearest(Y, centers)
    second = np.full(len(Y), np.inf)
    for j in range(len(centers)):
        distance = ((Y - centers[j]) ** 2).sum(axis=1)
        second = np.where(labels == j, second, np.minimum(second, distance))
    clear = 9 * near <= second  # squared distances: one third of the distance
    means = np.empty((len(centers), X.shape[1]))
    for j in range(len(centers)):
        members = (labels == j) & clear
        means[j] = X[members if members.any() else labels == j].mean(axis=0)
    return means


@dataclass(frozen=True, eq=False)
class KFedState(State):
    """Centres after the one exchange."""

    centers: FloatArray  # (k, d)
    movement: float
    inertia: float


@dataclass(frozen=True, eq=False, kw_only=True)
class KFed(Method, method="k-fed"):
    """One-shot clustering after Dennis et al.: every site sends the means of its own clusters, once.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    variant : {"weighted", "dennis", "holzer"}
        How the coordinator clusters the means: by weighted k-means, as in the paper, or as Holzer et al. do.
    k_local : int or None
        The number of clusters that a site looks for (k'); None: ``k``.
    local_restarts : int
        The number of restarts of a site's k-means.
    server_restarts : int
        The number of restarts of the coordinator's k-means.
    server_steps : int
        The number of Lloyd steps of the paper's server.

    Examples
    --------
    >>> from unpooled.algorithms import KFed
    >>> KFed(k=3, k_local=2).k_local
    2
    """

    citation = "Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021."
    advice = "Sites can answer only once, hold few of the clusters each, and may disclose their own means"
    visibility = "each site's means"
    asks = (AskLocalMeans, AskDennisMeans)

    variant: Literal["weighted", "dennis", "holzer"] = "weighted"
    k_local: int | None = None
    local_restarts: int = 5
    server_restarts: int = 10
    server_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in ("weighted", "dennis", "holzer"):
            raise InputError(f"KFed: variant must be weighted, dennis or holzer, got {self.variant!r}")
        if self.server_steps < 1:
            raise InputError(f"KFed: server_steps must be >= 1, got {self.server_steps}")

    @classmethod
    def as_published(cls, *, k: int | None = None, k_local: int | None = None) -> Self:
        """Return the settings of algorithms 1 and 2 of Dennis et al."""
        return cls(k=k, k_local=k_local, variant="dennis")

    @classmethod
    def as_published_code(cls, *, k: int | None = None, k_local: int | None = None) -> Self:
        """Return the settings of Dennis et al.'s code, whose server goes on to convergence.

        Garst & Reinders compare with these.
        """
        return cls(k=k, k_local=k_local, variant="dennis", server_steps=300)

    @classmethod
    def as_published_by_holzer(cls, *, k: int | None = None, restarts: int = 5) -> Self:
        """Return the settings of Holzer et al.: 5 restarts to start DWF; the k-FED of their tables has 1."""
        return cls(k=k, variant="holzer", local_restarts=restarts, server_restarts=restarts)

    def work_limits(self) -> WorkLimits:
        return {
            AskLocalMeans: {"n_init": self.local_restarts, "steps": LOCAL_STEPS},
            AskDennisMeans: {"steps": LOCAL_STEPS},
        }

    @property
    def own_start(self) -> bool:
        return True

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[KFedState]:
        asked = sample_sites(sites, self.participation, rng)
        k_local = self.k_local or self.clusters
        # down: how many clusters to look for; up: each site's means and counts
        if self.variant == "dennis":
            replies = yield from each(asked, AskDennisMeans(k_local))
            centers = _dennis_server([r.means for r in replies.values()], self.clusters, self.server_steps)
        else:
            replies = yield from each(asked, AskLocalMeans(k_local, self.local_restarts))
            weighted = self.variant == "weighted"
            centers = merge_means(
                list(replies.values()), self.clusters, rng, self.server_restarts, weighted=weighted
            )
        return KFedState(centers, float("inf"), float("nan"))

    def round(
        self, state: KFedState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[KFedState]:
        return state
        yield ()

    def finished(self, state: KFedState) -> bool:
        return True


def _dennis_server(means: list[FloatArray], k: int, steps: int = 1) -> FloatArray:
    """Dennis et al., algorithm 2: one site's means, farthest-first up to k, unweighted Lloyd."""
    pool = np.concatenate(means)
    if len(pool) < k:
        raise InputError(f"k={k} clusters from {len(pool)} local means: the sites disclosed too few")
    first = next(m for m in means if len(m))
    centers = list(first[:k])
    nearest = np.min([((pool - c) ** 2).sum(axis=1) for c in centers], axis=0)
    while len(centers) < k:
        centers.append(pool[nearest.argmax()])
        nearest = np.minimum(nearest, ((pool - centers[-1]) ** 2).sum(axis=1))
    step = kernels.local_steps(pool, np.array([0, len(pool)]), np.array(centers), steps=steps)
    merged: FloatArray = step.centers[0]
    return merged
