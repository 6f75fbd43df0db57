"""Quality indices of a clustering: federated, as small protocols; and on pooled data, for evaluation.

The federated ones need one total and no labels:

>>> from unpooled.protocol.exchange import run_protocol
>>> from unpooled.federation import Simulation
>>> sites = Simulation.from_rows({"a": np.array([[0.0], [2.0]]), "b": np.array([[10.0], [12.0]])})
>>> run_protocol(inertia(sites.sites, np.array([[1.0], [11.0]])), sites)
4.0
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Steps, each, total
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskScatter
from unpooled.protocol.questions.fuzzy_sums import AskBorderline, AskFuzzyScatter, Borderline
from unpooled.typing import FloatArray

Labels = npt.NDArray[Any]


# ---------------------------------------------------------------- federated


def inertia(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[float]:
    """Sum of the squared distances of all rows to their nearest centres."""
    return (yield from inertia_and_mass(sites, centers))[0]


def inertia_and_mass(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[tuple[float, float]]:
    """Return the inertia, and the number (or weight) of its rows: sites suppress small clusters."""
    sums = yield from total(sites, AskClusterSums(centers[None]))
    return float(sums.inertia.sum()), float(sums.mass.sum())


def simplified_silhouette(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[float]:
    """Mean of (b - a) / max(a, b), with distances a and b to the nearest and second nearest centre."""
    reply = yield from total(sites, AskScatter(centers))
    return float(reply.silhouette.sum() / reply.mass.sum())


def davies_bouldin(sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[float]:
    """Davies-Bouldin index about the given centres; lower is better.

    Equals scikit-learn's where the centres are the means of their clusters, as at the end of Lloyd.
    """
    reply = yield from total(sites, AskScatter(centers))
    used = reply.mass > 0
    if used.sum() < 2:
        raise InputError(f"Davies-Bouldin needs at least 2 clusters with rows, got {int(used.sum())}")
    width = reply.distance[used] / reply.mass[used]
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
        raise InputError(f"Calinski-Harabasz needs at least 2 clusters with rows, got {k}")
    grand = mass @ means / n
    between = float((mass * ((means - grand) ** 2).sum(axis=1)).sum())
    return between * (n - k) / (max(float(within.sum()), 1e-300) * (k - 1))


# ---------------------------------------------------------------- federated, of fuzzy clusterings


def partition_coefficient(sites: tuple[SiteId, ...], centers: FloatArray, m: float = 2.0) -> Steps[float]:
    """Bezdek's coefficient: mean sum of rows' squared memberships, from 1 / k (no clusters) to 1 (crisp)."""
    reply = yield from total(sites, AskFuzzyScatter(centers, m))
    return float(reply.sharp.sum() / max(float(reply.rows.sum()), 1e-300))


def xie_beni(sites: tuple[SiteId, ...], centers: FloatArray, m: float = 2.0) -> Steps[float]:
    """Xie-Beni index: J_m per row over the smallest squared distance of two centres; lower is better."""
    reply = yield from total(sites, AskFuzzyScatter(centers, m))
    gaps = _gaps(centers, "Xie-Beni")
    with np.errstate(divide="ignore"):
        return float(reply.inertia.sum() / max(float(reply.rows.sum()), 1e-300) / np.float64(gaps.min() ** 2))


def fuzzy_davies_bouldin(sites: tuple[SiteId, ...], centers: FloatArray, m: float = 2.0) -> Steps[float]:
    """Davies-Bouldin with a cluster's width as its mean distance weighted by u^m; lower is better.

    As m tends to 1 it becomes ``davies_bouldin``.
    """
    reply = yield from total(sites, AskFuzzyScatter(centers, m))
    used = reply.weight > 0
    gaps = _gaps(centers[used], "fuzzy Davies-Bouldin")
    width = reply.distance[used] / reply.weight[used]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (width[:, None] + width[None]) / gaps
    return float(ratio.max(axis=1).mean())


def _gaps(centers: FloatArray, index: str) -> FloatArray:
    """(k, k) distances between centres, infinite from each to itself."""
    if len(centers) < 2:
        raise InputError(f"{index} needs at least 2 clusters with rows, got {len(centers)}")
    gaps: FloatArray = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2))
    np.fill_diagonal(gaps, np.inf)
    return gaps


def borderline(
    sites: tuple[SiteId, ...], centers: FloatArray, m: float = 2.0, limit: float = 0.6
) -> Steps[dict[SiteId, Borderline]]:
    """Per site and cluster, the rows whose largest membership is below ``limit``, and the other ones."""
    return (yield from each(sites, AskBorderline(centers, m, limit)))


# ---------------------------------------------------------------- for evaluation, on pooled rows


def within_sse(X: FloatArray, centers: FloatArray) -> float:
    """Stallmann & Wilbik's "within SSE": distances (not squared) to the nearest centre, over rows x columns.

    >>> within_sse(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]]))
    1.25
    """
    return float(np.sqrt(kernels.nearest(X, centers).sqdist).sum() / np.size(X))


def outside_sse(X: FloatArray, centers: FloatArray) -> float:
    """Their "outside SSE": distances (not squared) to all centres but the nearest, over rows x columns."""
    every = sum(float(np.sqrt(kernels.nearest(X, c[None]).sqdist).sum()) for c in centers)
    return every / np.size(X) - within_sse(X, centers)


def knowledge_gap(found: FloatArray, true: FloatArray) -> float:
    """Distances between found and true centres, summed over the best matching of the two.

    >>> two = np.array([[0.0], [10.0]])
    >>> knowledge_gap(np.array([[0.0], [1.0]]), two), nearest_gap(np.array([[0.0], [1.0]]), two)
    (9.0, 1.0)
    """
    from scipy.optimize import linear_sum_assignment

    if found.shape != true.shape:
        raise InputError(
            f"{len(found)} centres found, {len(true)} true ones: they cannot be matched one to one"
        )
    cost = np.sqrt(((found[:, None] - true[None]) ** 2).sum(axis=2))
    return float(cost[linear_sum_assignment(cost)].sum())


def nearest_gap(found: FloatArray, true: FloatArray) -> float:
    """Return the gap of Stallmann & Wilbik's code: distances of found centres to the nearest true ones.

    A true centre that no found centre is near adds nothing.
    """
    return float(np.sqrt(kernels.nearest(found, true).sqdist).sum())


def majority_accuracy(truth: Labels, labels: Labels) -> float:
    """Share of rows that carry their cluster's most frequent true label (many clusters to one label).

    >>> majority_accuracy(np.array([0, 0, 1, 1]), np.array([2, 2, 2, 5]))
    0.75
    """
    truth, labels = np.asarray(truth), np.asarray(labels)
    if truth.shape != labels.shape:
        raise InputError(f"{len(truth)} true labels for {len(labels)} labels")
    _, rows = np.unique(labels, return_inverse=True)
    _, columns = np.unique(truth, return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    return float(table.max(axis=1).sum() / len(labels))


def evaluate(X: FloatArray, labels: Labels, truth: Labels | None = None) -> dict[str, float]:
    """Scores on pooled rows: silhouette and others; given truth also ARI, v-measure and accuracy."""
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
