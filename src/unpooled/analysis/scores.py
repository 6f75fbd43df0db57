"""How good each clustering is, for every k in the same exchange: indices, and how far restarts agree."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message, SiteId
from unpooled.core.protocol import Steps, together, total
from unpooled.questions.clusters import AskClusterSums, AskScatter
from unpooled.questions.description import AskCrossing

_NEAR = 1.05  # restarts within this factor of the best inertia count as solutions


@dataclass(frozen=True, eq=False)
class Scores(Message, wire="scores.Scores"):
    """Of one clustering; nan where an index does not exist."""

    k: int
    seen: int  # clusters of which some site shows rows
    mass: float  # rows in clusters that are shown
    inertia: float  # of these rows
    calinski_harabasz: float
    davies_bouldin: float
    silhouette: float
    stability: float  # mean adjusted Rand index of the near-best restarts with the best
    restarts: int  # near-best restarts that were compared

    @property
    def per_row(self) -> float:
        """Inertia per row that is shown: comparable between k where sites hide small groups."""
        return self.inertia / max(self.mass, 1.0)


def score(sites: tuple[SiteId, ...], centers: FloatArray, restarts: FloatArray) -> Steps[Scores]:
    """The scores of ``centers`` (k, d), and how far ``restarts`` (R, k, d), all nearly as good, agree."""

    def ask(question: Any) -> Steps[Any]:
        got = yield from total(sites, question)
        return got

    questions: list[Any] = [AskScatter(centers), AskClusterSums(centers[None])]
    if len(restarts):
        questions.append(AskCrossing(centers, restarts))
    # down: the centres; up: scatter about them, sums, and crossings with the restarts
    scatter, sums, *crossing = yield from together([ask(q) for q in questions])
    mass, n = scatter.mass, float(scatter.mass.sum())
    k = int((mass > 0).sum())
    ch = db = silhouette = float("nan")
    if k >= 2 and n > k:
        means = sums.means(centers[None])[0]
        within = float((sums.inertia[0] - mass * ((means - centers) ** 2).sum(axis=1)).sum())
        between = float((mass * ((means - mass @ means / n) ** 2).sum(axis=1)).sum())
        ch = between * (n - k) / (max(within, 1e-300) * (k - 1))
        db = _davies_bouldin(centers[mass > 0], (scatter.distance[mass > 0] / mass[mass > 0]))
        silhouette = float(scatter.silhouette.sum() / n)
    agreeing = [adjusted_rand(c) for c in crossing[0].counts] if crossing else []
    return Scores(
        k=len(centers),
        seen=k,
        mass=n,
        inertia=float(scatter.inertia.sum()),
        calinski_harabasz=ch,
        davies_bouldin=db,
        silhouette=silhouette,
        stability=float(np.mean(agreeing)) if agreeing else 1.0,
        restarts=len(restarts),
    )


def _davies_bouldin(centers: FloatArray, width: FloatArray) -> float:
    gaps = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2))
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(((width[:, None] + width[None]) / gaps).max(axis=1).mean())


def adjusted_rand(counts: FloatArray) -> float:
    """The adjusted Rand index from a table of counts.

    >>> adjusted_rand(np.array([[5.0, 0.0], [0.0, 7.0]]))
    1.0
    >>> round(adjusted_rand(np.array([[3.0, 2.0], [2.0, 3.0]])), 3)
    -0.08
    """

    def pairs(values: FloatArray) -> float:
        return float((values * (values - 1)).sum() / 2)

    n = counts.sum()
    both, rows, columns = pairs(counts), pairs(counts.sum(axis=1)), pairs(counts.sum(axis=0))
    expected = rows * columns / max(pairs(np.array([n])), 1e-300)
    most = (rows + columns) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def near_best(state: Any) -> FloatArray:
    """(R, k, d): restarts of a method whose inertia is near its best one's, other than the best."""
    if not hasattr(state, "candidates"):  # no restarts
        return np.zeros((0, *state.centers.shape))
    found, inertias, best = state.candidates
    keep = inertias <= _NEAR * inertias[best]
    keep[best] = False
    near: FloatArray = found[keep]
    return near
