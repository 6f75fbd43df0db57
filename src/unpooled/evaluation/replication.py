"""Replication: clusters found in one half of the rows are judged in the other half.

Each half starts from the clusters of all rows and takes some Lloyd steps of its own, so that halves differ by
their rows and not by their starts. The split gain says how much more likely the rows of a half are as the
clusters of the other half than as one blob, per row: the sum of p log p over the shares p of clusters, and
half of log det T - log det W, where T and W are the covariances of all rows and within clusters, in the space
that the means span (Symons, Clustering Criteria and Multivariate Normal Mixtures, Biometrics 37, 1981). It
needs no price for parameters, because the clusters come from other rows, and no k but its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.protocol.algorithm import Steps, together, total
from unpooled.protocol.messages import Message, Question, SiteId
from unpooled.protocol.questions.description import AskCrossing
from unpooled.protocol.questions.half_sums import AskHalfSums
from unpooled.typing import FloatArray

SPLITS = 3  # of the rows into two halves; figures are means over them
STEPS = 5  # Lloyd steps of a half
_NOISE = 0.02  # of the variance, added to it: without noise a single 0/1 column would decide about the gain
OTHER_HALF = np.arange(2 * SPLITS) ^ 1  # the set of centres of the other half of the same split


@dataclass(frozen=True, eq=False)
class Replication(Message):
    """How the clusters of k hold from half to half, over all splits."""

    gain: float  # mean split gain
    agreement: float  # mean adjusted Rand index of the clusters of two halves, over all rows


def replicate(
    sites: tuple[SiteId, ...],
    centers: FloatArray,
    key: int,
    share: float,
    total_of: Callable[[FloatArray, FloatArray], FloatArray],
    sums_of: Callable[[FloatArray, int, float], Question[Any]] = AskHalfSums,
    rows: FloatArray | None = None,
) -> Steps[Replication]:
    """Return how clusters with ``centers`` (k, d) hold from half to half, by totals only.

    ``key`` divides the rows, and each half has ``share`` of them. ``total_of`` gives the covariances of all
    rows of a half (halves, d, d), from shares (halves, k) and means (halves, k, d) of its clusters.
    ``rows`` (halves,) are those of each half: rows that sites suppress are in no cluster.
    """

    def ask(question: Question[Any]) -> Steps[Any]:
        answer = yield from total(sites, question)
        return answer

    halves = np.repeat(centers[None], 2 * SPLITS, axis=0)
    for _ in range(STEPS):
        # down: the centres of every half; up: their sums over its rows
        sums = yield from total(sites, sums_of(halves, key, share))
        halves = sums.means(halves)
    questions: list[Question[Any]] = [sums_of(halves[OTHER_HALF], key, share)]
    questions += [AskCrossing(halves[2 * i], halves[2 * i + 1][None]) for i in range(SPLITS)]
    # down: the centres of the other half; up: sums over rows, and rows in both halves' clusters
    sums, *crossings = yield from together([ask(q) for q in questions])
    means = sums.means(halves[OTHER_HALF])
    everyone = sums.mass.sum(axis=1) if rows is None else np.maximum(rows, sums.mass.sum(axis=1))
    shares = sums.mass / np.maximum(everyone, 1e-300)[:, None]
    gains = split_gains(shares, means, total_of(shares, means))
    agreement = float(np.mean([adjusted_rand(crossing.counts[0]) for crossing in crossings]))
    return Replication(float(gains.mean()), agreement)


def split_gains(shares: FloatArray, means: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the gains (...,) of clusters with shares (..., k) and means (..., k, d) over one blob.

    ``covariance`` (..., d, d), or (d, d), is that of all rows.

    >>> shares, means = np.array([0.5, 0.5]), np.array([[-2.0], [2.0]])
    >>> gain = split_gains(shares, means, np.array([[5.0]]))  # variance 1 within clusters
    >>> bool(np.isclose(gain, -np.log(2) - np.log((1 / 5 + 0.02) / 1.02) / 2))
    True
    """
    weighted = shares[..., None] * means
    in_clusters = np.maximum(shares.sum(axis=-1), 1e-300)[..., None, None]  # suppressed rows are in none
    mean = weighted.sum(axis=-2, keepdims=True) / in_clusters
    apart = np.sqrt(shares)[..., None] * (means - mean)  # (..., k, d)
    r = max(1, min(means.shape[-2] - 1, means.shape[-1]))
    basis = np.linalg.svd(apart, full_matrices=False)[2][..., :r, :]  # (..., r, d)
    inside = basis @ covariance @ np.swapaxes(basis, -1, -2)
    values, vectors = np.linalg.eigh(inside)
    kept = values > 1e-9 * np.maximum(values.max(axis=-1, keepdims=True), 1e-300)
    whiten = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1.0)), 0.0)[..., None] * np.swapaxes(
        vectors, -1, -2
    )
    between = whiten @ (basis @ np.swapaxes(apart, -1, -2))  # in units of all rows
    within = np.clip(1 - np.linalg.svd(between, compute_uv=False) ** 2, 0.0, 1.0)  # eigenvalues of W / T
    entropy = (shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=-1)
    gains: FloatArray = entropy - 0.5 * np.log((within + _NOISE) / (1 + _NOISE)).sum(axis=-1)
    return gains


def between(shares: FloatArray, means: FloatArray) -> FloatArray:
    """Return the covariances (..., d, d) of means (..., k, d), weighted by shares (..., k)."""
    apart = np.sqrt(shares)[..., None] * (means - (shares[..., None] * means).sum(axis=-2, keepdims=True))
    matrices: FloatArray = np.swapaxes(apart, -1, -2) @ apart
    return matrices


def adjusted_rand(counts: FloatArray) -> float:
    """Return the adjusted Rand index from a table of counts.

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
    largest = (rows + columns) / 2
    return 1.0 if largest == expected else (both - expected) / (largest - expected)
