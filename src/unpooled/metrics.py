"""How good a clustering is: federated, as small protocols; and for evaluation, on pooled data in simulation.

The federated ones need one total and no labels:

>>> from unpooled.protocol import conduct
>>> from unpooled.runtimes import InProcess
>>> sites = InProcess.of({"a": np.array([[0.0], [2.0]]), "b": np.array([[10.0], [12.0]])})
>>> conduct(inertia(sites.sites, np.array([[1.0], [11.0]])), sites)
4.0
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.codec import FloatArray
from unpooled.errors import BadInput
from unpooled.messages import SiteId
from unpooled.protocol import Steps, total
from unpooled.summaries import AskClusterSums, AskScatter

Labels = npt.NDArray[Any]


# ---------------------------------------------------------------- federated


def inertia(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[float]:
    """Squared distances of all rows to their nearest centre, summed."""
    sums = yield from total(sites, AskClusterSums(centers[None]))
    return float(sums.inertia.sum())


def simplified_silhouette(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[float]:
    """Mean of (b - a) / max(a, b), with distances a and b to the nearest and second nearest centre."""
    got = yield from total(sites, AskScatter(centers))
    return float(got.silhouette.sum() / got.mass.sum())


def davies_bouldin(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[float]:
    """Davies-Bouldin index about the given centres; lower is better.

    Equals scikit-learn's where the centres are the means of their clusters, as at the end of Lloyd.
    """
    got = yield from total(sites, AskScatter(centers))
    used = got.mass > 0
    if used.sum() < 2:
        raise BadInput(f"Davies-Bouldin needs at least 2 clusters with rows, got {int(used.sum())}")
    width = got.distance[used] / got.mass[used]
    gaps = np.sqrt(((centers[used][:, None] - centers[used][None]) ** 2).sum(axis=2))
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore"):
        return float(((width[:, None] + width[None]) / gaps).max(axis=1).mean())


def calinski_harabasz(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[float]:
    """Calinski-Harabasz index of the nearest-centre assignment; higher is better. Equals scikit-learn's."""
    sums = yield from total(sites, AskClusterSums(centers[None]))
    mass, means = sums.mass[0], sums.means(centers[None])[0]
    within = sums.inertia[0] - mass * ((means - centers) ** 2).sum(axis=1)
    used = mass > 0
    n, k = float(mass.sum()), int(used.sum())
    if k < 2:
        raise BadInput(f"Calinski-Harabasz needs at least 2 clusters with rows, got {k}")
    grand = mass @ means / n
    between = float((mass * ((means - grand) ** 2).sum(axis=1)).sum())
    return between * (n - k) / (max(float(within.sum()), 1e-300) * (k - 1))


# ---------------------------------------------------------------- for evaluation, with all rows at hand


def majority_accuracy(truth: Labels, labels: Labels) -> float:
    """Share of rows that carry their cluster's most frequent true label (many clusters to one label).

    >>> majority_accuracy(np.array([0, 0, 1, 1]), np.array([2, 2, 2, 5]))
    0.75
    """
    truth, labels = np.asarray(truth), np.asarray(labels)
    if truth.shape != labels.shape:
        raise BadInput(f"{len(truth)} true labels for {len(labels)} labels")
    _, rows = np.unique(labels, return_inverse=True)
    _, columns = np.unique(truth, return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    return float(table.max(axis=1).sum() / len(labels))


def evaluate(X: FloatArray, labels: Labels, truth: Labels | None = None) -> dict[str, float]:
    """What can be said with all rows at hand: silhouette; given truth also ARI, v-measure and accuracy."""
    from sklearn import metrics as pooled

    scores: dict[str, float] = {}
    if 1 < len(np.unique(labels)) < len(labels):
        scores["silhouette"] = float(pooled.silhouette_score(X, labels))
        scores["davies_bouldin"] = float(pooled.davies_bouldin_score(X, labels))
        scores["calinski_harabasz"] = float(pooled.calinski_harabasz_score(X, labels))
    if truth is not None:
        scores["ari"] = float(pooled.adjusted_rand_score(truth, labels))
        scores["v_measure"] = float(pooled.v_measure_score(truth, labels))
        scores["majority_accuracy"] = majority_accuracy(truth, labels)
    return scores
