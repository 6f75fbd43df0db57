"""Choice of k: are there clusters at all, and if so how many?

Two figures decide. The gain says how much more likely the rows are as k clusters of one shape than as one
blob, per row: the sum of (n_j / n) log(n_j / n) over clusters, and half of log det T - log det W, where T and
W are the covariances of all rows and within clusters, in the space that the centres of the largest k span
(Symons, Clustering Criteria and Multivariate Normal Mixtures, Biometrics 37, 1981; with clusters of one size
it is Marriott's k^2 det W, Biometrics 27, 1971). The border says whether rows thin out between clusters:
pieces of one blob touch, whatever its shape. Both follow from sums.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpooled.protocol.algorithm import State, Steps, together, total
from unpooled.protocol.messages import Message, Question, SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskScatter
from unpooled.protocol.questions.description import AskBorders, AskCrossing
from unpooled.typing import FloatArray

_NEAR = 1.05  # restarts within this factor of the best inertia count as solutions


@dataclass(frozen=True, eq=False)
class Scores(Message):
    """The scores of one clustering; nan where an index does not exist."""

    k: int
    seen: int  # clusters that at least one site discloses
    mass: float  # rows in disclosed clusters
    inertia: float  # of these rows
    total_inertia: float  # inertia of these rows about their mean
    calinski_harabasz: float
    davies_bouldin: float
    silhouette: float
    stability: float  # mean adjusted Rand index of the near-best restarts with the best
    restarts: int  # near-best restarts that were compared
    border: float  # rows at the borders of clusters, against where they lie densest: 0 none, 1 as many
    touching: float  # the same of the cluster with the second most: two touch if a cluster was cut
    sizes: FloatArray  # (k,) rows of each cluster
    means: FloatArray  # (k, d) of the rows of each cluster

    @property
    def per_row(self) -> float:
        """Inertia per disclosed row: comparable between k although sites suppress small groups."""
        return self.inertia / max(self.mass, 1.0)


def score(
    sites: tuple[SiteId, ...],
    centers: FloatArray,
    restarts: FloatArray,
    sums_of: Callable[[FloatArray], Question[Any]] = AskClusterSums,
) -> Steps[Scores]:
    """Return the scores of ``centers`` (k, d), and their agreement with near-best ``restarts`` (R, k, d).

    ``sums_of`` asks for the sums of clusters; where cells are missing, ``AskObservedSums``.
    """

    def ask(question: Question[Any]) -> Steps[Any]:
        answer = yield from total(sites, question)
        return answer

    questions: list[Question[Any]] = [AskScatter(centers), sums_of(centers[None])]
    questions += [AskBorders(centers)] if len(centers) > 1 else []
    questions += [AskCrossing(centers, restarts)] if len(restarts) else []
    # down: the centres; up: scatter about them, sums, rows at borders, and crossings with the restarts
    scatter, sums, *more = yield from together([ask(q) for q in questions])
    mass, n = scatter.mass, float(scatter.mass.sum())
    k = int((mass > 0).sum())
    means = sums.means(centers[None])[0]
    ch = db = silhouette = border = touching = float("nan")
    if sums_of is AskClusterSums:
        within = float((sums.inertia[0] - mass * ((means - centers) ** 2).sum(axis=1)).sum())
        between = float((mass * ((means - mass @ means / max(n, 1e-300)) ** 2).sum(axis=1)).sum())
    else:
        within, between = sums.within_and_between(centers)
    if k >= 2 and n > k:
        ch = between * (n - k) / (max(within, 1e-300) * (k - 1))
        db = _davies_bouldin(centers[mass > 0], (scatter.distance[mass > 0] / mass[mass > 0]))
        silhouette = float(scatter.silhouette.sum() / n)
        counts = more.pop(0).counts
        # where cells are missing, only the rows count that tell two clusters apart
        border, touching = _borders(counts, n if sums_of is AskClusterSums else float(counts.sum()))
    agreeing = [adjusted_rand(c) for c in more[-1].counts] if len(restarts) else []
    return Scores(
        k=len(centers),
        seen=k,
        mass=n,
        inertia=float(scatter.inertia.sum()),
        total_inertia=within + between,
        calinski_harabasz=ch,
        davies_bouldin=db,
        silhouette=silhouette,
        stability=float(np.mean(agreeing)) if agreeing else 1.0,
        restarts=len(restarts),
        border=border,
        touching=touching,
        sizes=sums.mass[0],
        means=means,
    )


def _borders(counts: FloatArray, rows: float) -> tuple[float, float]:
    """The last step against the fullest one, of all clusters together and of the second least separate.

    nan if too many rows are in suppressed cells.

    >>> _borders(np.array([[0, 9, 40, 40, 9, 2, 0], [0, 0, 5, 20, 30, 40, 40.0]]), 235)
    (0.6666666666666666, 0.0)
    """
    if counts.sum() < _MIN_DISCLOSED * rows:
        return float("nan"), float("nan")
    steps = np.concatenate([counts.sum(axis=0)[None], counts])[:, 1:]  # not all that lies behind the centre
    full = steps.max(axis=1)
    share = steps[:, -1] / np.where(full > 0, full, 1.0)
    return float(share[0]), float(np.sort(share[1:])[-2])


def _davies_bouldin(centers: FloatArray, width: FloatArray) -> float:
    gaps = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2))
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(((width[:, None] + width[None]) / gaps).max(axis=1).mean())


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


def near_best(state: State) -> FloatArray:
    """Return the restarts of a method (R, k, d) whose inertia is near the best, without the best."""
    found, inertias, best = state.candidates
    keep = inertias <= _NEAR * inertias[best]
    keep[best] = False
    near: FloatArray = found[keep]
    return near


_MIN_DISCLOSED = 0.9  # share of the rows that must be seen to judge a k
_POINTS = 5  # a cluster has at least as many on average
_TIGHT = 1e-3  # smallest share of the variance within clusters: a category has none at all
_SLACK = 0.03  # a smaller k is taken if its gain falls short by less than this, and this share
_GAIN = 0.05  # clusters have at least this gain,
_HALF = 0.5  # and this share of the largest gain of any k;
_STABLE = 0.8  # restarts that are nearly as good have this adjusted Rand index on average;
_BORDER, _TOUCHING = 0.6, 0.8  # and borders hold at most this
_CLEAR_GAIN, _CLEAR_BORDER, _CLEAR_TOUCHING = 0.1, 0.4, 0.5  # largest shortfall and borders of a clear k


@dataclass(frozen=True, eq=False)
class Choice(Message):
    """The chosen k, whether the data support its clusters, and the reasons."""

    scores: tuple[Scores, ...]  # one per k
    gains: FloatArray  # (K,) per row; nan where there are too many columns for a covariance
    votes: dict[str, int]  # the k that each criterion names
    best: int  # index into scores
    clear: bool  # there are clusters, and it is clear how many
    reasons: tuple[str, ...]

    @property
    def k(self) -> int:
        return self.scores[self.best].k

    @property
    def none(self) -> bool:
        """Whether the rows fall into no clusters, for the values of k that were compared."""
        return self.k == 1 and len(self.scores) > 1


def gain(s: Scores, covariance: FloatArray, rows: float, basis: FloatArray) -> float:
    """Return the gain of k clusters of one shape over one blob, per row, minus the price of their parameters.

    ``basis`` (r, d) spans the space in which the gain is computed.
    """
    full = s.sizes > 0
    if full.sum() < 2 or not rows > 0:
        return 0.0
    shares = s.sizes[full] / rows  # suppressed rows count as within
    means = s.means[full] @ basis.T
    spread = np.sqrt(shares)[:, None] * (means - shares @ means / shares.sum())  # (k, r)
    values, vectors = np.linalg.eigh(basis @ covariance @ basis.T)
    kept = values > 1e-9 * values.max(initial=0.0)
    between = spread @ (vectors[:, kept] / np.sqrt(values[kept]))  # in units of all rows
    within = np.clip(1 - np.linalg.svd(between, compute_uv=False) ** 2, _TIGHT, 1.0)  # eigenvalues of W / T
    price = (len(shares) - 1) * (kept.sum() + 1) * np.log(rows) / (2 * rows)  # as in the BIC
    return float((shares * np.log(shares)).sum() - 0.5 * np.log(within).sum() - price)


def between(s: Scores) -> FloatArray:
    """Return the covariance (d, d) of the clusters' means, weighted by their rows."""
    shares = s.sizes / max(float(s.sizes.sum()), 1e-300)
    apart = np.sqrt(shares)[:, None] * (s.means - shares @ s.means)
    matrix: FloatArray = apart.T @ apart
    return matrix


def spanned(scores: list[Scores]) -> FloatArray:
    """Return the directions (r, d) in which the clusters of the largest k differ."""
    means = scores[-1].means[scores[-1].sizes > 0]
    _, lengths, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    basis: FloatArray = directions[lengths > 1e-9 * lengths.max(initial=1e-300)]
    return basis


def choose(
    scores: list[Scores],
    rows: float,
    covariance: FloatArray | None,
    points: float | None = None,
    within: Mapping[int, FloatArray] | None = None,
) -> Choice:
    """Recommend a k from the scores of every k, and the covariance of all rows if there is one.

    ``within`` is the covariance within clusters by k, where cells are missing: with that of the means it is
    the covariance of all rows, while one of all observed cells may contradict the means.

    k = 1 is added where it is not among several k: "no clusters" is an answer too. ``points`` is the number
    of rows that were clustered, where they are groups.
    """
    if covariance is not None and not np.trace(covariance) > 0:
        covariance = None
    if len(scores) > 1 and scores[0].k > 1:
        scores = [_one(scores[0]), *scores]
    gains = np.full(len(scores), np.nan)
    if covariance is not None:
        basis = spanned(scores)
        matrices = [within[s.k] + between(s) if within and s.k in within else covariance for s in scores]
        gains = np.array([gain(s, m, rows, basis) for s, m in zip(scores, matrices, strict=True)])
    if len(scores) == 1:
        doubts = _doubts(scores[0], float(gains[0]), rows) or _overlap(scores[0]) if scores[0].k > 1 else []
        reasons = doubts or ["k was given", *_good(scores[0])]
        return Choice(tuple(scores), gains, {}, 0, not doubts, tuple(reasons))
    judged = _seen(scores, rows, rows if points is None else points)
    votes = _votes([scores[i] for i in judged], gains[judged])
    min_gain = _HALF * float(np.nanmax(gains[judged], initial=0.0))
    better = [
        i
        for i in judged
        if scores[i].k > 1 and not gains[i] < min_gain and not _doubts(scores[i], float(gains[i]), rows)
    ]
    if not better:
        return _none(scores, gains, votes, judged)
    best = _leading(scores, gains, better)
    doubts = _rivals(scores, gains, judged, best)
    reasons = doubts or [_compared(scores, gains, best), *_good(scores[best])]
    return Choice(tuple(scores), gains, votes, best, not doubts, tuple(reasons))


def _one(like: Scores) -> Scores:
    """The scores of all rows as one cluster, which need no question."""
    nan = float("nan")
    mean = like.sizes @ like.means / max(float(like.sizes.sum()), 1.0)
    return replace(
        like,
        k=1,
        seen=1,
        inertia=like.total_inertia,
        calinski_harabasz=nan,
        davies_bouldin=nan,
        silhouette=nan,
        stability=1.0,
        restarts=0,
        border=nan,
        touching=nan,
        sizes=like.sizes.sum()[None],
        means=mean[None],
    )


def _blob(s: Scores, gained: float) -> str:
    """The reason why these clusters are no better than pieces of one blob; empty if they are."""
    if gained <= _GAIN:
        return f"one blob describes the rows as well as {s.k} clusters do"
    if s.border > _BORDER or s.touching > _TOUCHING:
        return "rows do not thin out between the clusters: they are pieces of larger ones"
    return ""


def _leading(scores: list[Scores], gains: FloatArray, better: list[int]) -> int:
    """The smallest k whose gain is nearly the largest; without gains the largest silhouette."""
    if np.isnan(gains[better]).all():
        return max(better, key=lambda i: float(np.nan_to_num(scores[i].silhouette, nan=-1.0)))
    largest = float(gains[better].max())
    return next(i for i in better if gains[i] >= largest - _SLACK - _SLACK * largest)


def _none(scores: list[Scores], gains: FloatArray, votes: dict[str, int], judged: list[int]) -> Choice:
    """The answer that there are no clusters: k = 1 where it was compared, else the best of what there is."""
    tried = [i for i in judged if scores[i].k > 1]
    ones = [i for i in judged if scores[i].k == 1]
    best = ones[0] if ones else max(tried, key=lambda i: float(np.nan_to_num(gains[i], nan=-np.inf)))
    span = f"{scores[tried[0]].k} to {scores[tried[-1]].k}" if len(tried) > 1 else "those that were tried"
    top = max(tried, key=lambda i: float(np.nan_to_num(gains[i], nan=-np.inf)), default=best)
    if not votes or not tried:
        why = "the sites disclose too little to judge any k"
    elif gains[top] <= _GAIN:
        why = f"one blob describes the rows as well as any k from {span}"
    elif scores[top].stability < _STABLE:
        why = f"for every k from {span} equally good restarts cut the rows in other places"
    else:
        why = f"for every k from {span} rows do not thin out between the clusters, as if one blob were cut"
    return Choice(tuple(scores), gains, votes, best, False, (why,))


def _votes(scores: list[Scores], gains: FloatArray) -> dict[str, int]:
    """The k that each criterion names, among the k whose clusters are all seen, and most of their rows."""
    named = {"gain": gains}
    for name, sign in (("silhouette", 1), ("calinski_harabasz", 1), ("davies_bouldin", -1)):
        named[name.replace("_", "-")] = np.array([sign * getattr(s, name) for s in scores])
    known = {name: named[name] for name in sorted(named) if not np.isnan(named[name]).all()}
    return {name: scores[int(np.nanargmax(values))].k for name, values in known.items()}


def _seen(scores: list[Scores], rows: float, points: float) -> list[int]:
    """Indices of comparable scores: all clusters are seen and have points, with most rows if possible."""
    whole = [i for i, s in enumerate(scores) if s.seen == s.k and s.k <= max(points / _POINTS, 1.0)]
    return [i for i in whole if scores[i].mass >= _MIN_DISCLOSED * rows] or whole or list(range(len(scores)))


def _overlap(s: Scores) -> list[str]:
    if s.border > _CLEAR_BORDER or s.touching > _CLEAR_TOUCHING:
        return ["clusters run into each other, many rows lie at their borders"]
    return []


def _rivals(scores: list[Scores], gains: FloatArray, judged: list[int], best: int) -> list[str]:
    """Doubts about the best k beside the other k."""
    s, doubts = scores[best], []
    higher = [i for i in judged if i != best and gains[i] > gains[best] - _SLACK]
    near = [i for i in higher if scores[i].stability >= _STABLE and not _blob(scores[i], float(gains[i]))]
    if near:
        others = " or ".join(f"{scores[i].k}" for i in near[:3])
        doubts.append(f"{others} clusters describe the rows about as well")
    elif higher and max(gains[higher]) > gains[best] + _CLEAR_GAIN:
        doubts.append(f"{s.k} clusters are separate, but finer groups within them may matter")
    doubts += _overlap(s)
    if best == len(scores) - 1 and len(judged) > 1:
        doubts.append(f"{s.k} is the largest k that was tried; there may be more clusters")
    elif best == max(judged):
        doubts.append(f"k above {s.k} cannot be judged: there are too few rows, or sites disclose too few")
    return doubts


def _compared(scores: list[Scores], gains: FloatArray, best: int) -> str:
    """The reason for the best k: its gain beside the gains of the neighbouring k."""
    if np.isnan(gains[best]):
        return f"{scores[best].k} clusters have the largest silhouette ({scores[best].silhouette:.2f})"
    beside = [i for i in (best - 1, best + 1) if 0 <= i < len(scores) and scores[i].k > 1]
    compared = [f"gain {gains[best]:.2f}", *(f"{gains[i]:.2f} for k = {scores[i].k}" for i in beside)]
    return f"{scores[best].k} clusters describe the rows best ({', '.join(compared)})"


def _doubts(s: Scores, gained: float, rows: float) -> list[str]:
    doubts = []
    empty = s.k - s.seen
    if empty and s.mass > 0.999 * rows:
        doubts.append(f"{empty} of {s.k} clusters have no rows: there are fewer rows that differ")
    if s.mass < _MIN_DISCLOSED * rows:
        share = 100 * (1 - s.mass / max(rows, 1.0))
        doubts.append(
            f"{share:.0f}% of the rows are in groups that are too small at their sites to be disclosed"
        )
    blob = _blob(s, gained)
    if blob:
        doubts.append(blob)
    if s.stability < _STABLE:
        doubts.append(
            f"restarts that are as good disagree about the clusters (agreement {s.stability:.2f} of 1)"
        )
    return doubts


def _good(s: Scores) -> list[str]:
    reasons = []
    if np.isfinite(s.border):
        reasons.append(f"rows thin out between them (borders hold {100 * s.border:.0f}% of the densest part)")
    if s.restarts:
        reasons.append(f"restarts agree about the clusters (agreement {s.stability:.2f} of 1)")
    return reasons
