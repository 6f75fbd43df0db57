"""Choice of k: five criteria, and a recommendation with its reasons, or "no clear k"."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled import kernels
from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message, SiteId
from unpooled.core.protocol import Steps, together, total
from unpooled.questions.clusters import AskClusterSums, AskScatter
from unpooled.questions.description import AskCrossing

_NEAR = 1.05  # restarts within this factor of the best inertia count as solutions


@dataclass(frozen=True, eq=False)
class Scores(Message, wire="scores.Scores"):
    """The scores of one clustering; nan where an index does not exist."""

    k: int
    seen: int  # clusters that at least one site shows
    mass: float  # rows in clusters that are shown
    inertia: float  # of these rows
    calinski_harabasz: float
    davies_bouldin: float
    silhouette: float
    stability: float  # mean adjusted Rand index of the near-best restarts with the best
    restarts: int  # near-best restarts that were compared

    @property
    def per_row(self) -> float:
        """Inertia per row that is shown: comparable between k although sites suppress small groups."""
        return self.inertia / max(self.mass, 1.0)


def score(sites: tuple[SiteId, ...], centers: FloatArray, restarts: FloatArray) -> Steps[Scores]:
    """The scores of ``centers`` (k, d), and their agreement with near-best ``restarts`` (R, k, d)."""

    def ask(question: Any) -> Steps[Any]:
        answer = yield from total(sites, question)
        return answer

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
    """(R, k, d): restarts of a method whose inertia is near the best, without the best."""
    if not hasattr(state, "candidates"):  # no restarts
        return np.zeros((0, *state.centers.shape))
    found, inertias, best = state.candidates
    keep = inertias <= _NEAR * inertias[best]
    keep[best] = False
    near: FloatArray = found[keep]
    return near


_DRAWS = 4
_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Blob:
    """The inertia of reference data without clusters, a uniform box and a Gaussian, per k."""

    log_inertia: FloatArray  # (2, K) mean over draws of log(inertia per row); box, Gaussian
    error: FloatArray  # (2, K)

    def gap(self, inertia_per_row: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(K,) log inertia of the tighter of the two blobs less that of the data, and its error."""
        which = self.log_inertia.argmin(axis=0)
        columns = np.arange(self.log_inertia.shape[1])
        return (
            self.log_inertia[which, columns] - np.log(np.maximum(inertia_per_row, 1e-300)),
            self.error[which, columns],
        )


def blobs(covariance: FloatArray, n: int, ks: list[int], rng: np.random.Generator) -> Blob:
    """Simulate both references for every k."""
    values, vectors = np.linalg.eigh(covariance)
    scale = np.sqrt(np.maximum(values, 0.0))
    m = int(min(n, _ROWS))
    logs = np.empty((2, _DRAWS, len(ks)))
    for kind in range(2):
        shape = (_DRAWS, 2, m, len(scale))
        drawn = rng.uniform(-np.sqrt(3), np.sqrt(3), shape) if kind == 0 else rng.standard_normal(shape)
        rows = np.ascontiguousarray((drawn * scale) @ vectors.T)
        for i, k in enumerate(ks):
            logs[kind, :, i] = _log_inertia(rows, k, exact=n <= _ROWS, rng=rng)
    error = logs.std(axis=1, ddof=1) * np.sqrt(1 + 1 / _DRAWS)
    return Blob(logs.mean(axis=1), error)


def _log_inertia(rows: FloatArray, k: int, *, exact: bool, rng: np.random.Generator) -> FloatArray:
    """(draws,) log inertia per row of k-means on rows (draws, 2, m, d).

    If the data have more rows than are drawn, the centres of one half are also scored on the other: the bias
    of fitting their own rows and that on other rows cancel.
    """
    draws, _, m, d = rows.shape
    fitted = np.ascontiguousarray(rows[:, 0]).reshape(-1, d)
    offsets = np.arange(draws + 1) * m
    seeds = rng.integers(0, 2**63, size=draws, dtype=np.uint64)
    fit = kernels.kmeans(fitted, offsets, min(k, m), seeds, n_init=2, max_iter=100, swaps=10, threads=2)
    logs: FloatArray = np.log(np.maximum(fit.inertia / m, 1e-300))
    if exact:
        return logs
    others = [
        kernels.nearest(rows[i, 1], fit.centers[i][fit.mass[i] > 0]).sqdist.mean() for i in range(draws)
    ]
    return np.asarray((logs + np.log(np.maximum(others, 1e-300))) / 2)


_VOTES = 3  # criteria of five that must name the same k
_STABLE = 0.8  # least mean adjusted Rand index between near-best restarts
_SHOWN = 0.9  # share of the rows that must be seen to judge a k
_FALLING = 0.05  # largest accepted distance of the gap below its largest value
_MARGIN = 0.02  # the gap to a blob that counts, beyond two errors


@dataclass(frozen=True, eq=False)
class Choice(Message, wire="choice.Choice"):
    """The k that is taken, whether the data speak for it, and why."""

    scores: tuple[Scores, ...]  # one per k
    gaps: FloatArray  # (K,) log inertia of a blob less that of the data; nan where it was not computed
    errors: FloatArray  # (K,)
    votes: dict[str, int]  # the k that each criterion names
    best: int  # index into scores
    clear: bool
    reasons: tuple[str, ...]

    @property
    def k(self) -> int:
        return self.scores[self.best].k


def choose(
    scores: list[Scores], rows: float, covariance: FloatArray | None, rng: np.random.Generator
) -> Choice:
    """Recommend a k from the scores of every k, and the covariance if there is one."""
    ks = [s.k for s in scores]
    gaps, errors = np.full(len(ks), np.nan), np.full(len(ks), np.nan)
    per_row = np.array([s.per_row for s in scores])
    if covariance is not None and np.trace(covariance) > 0:
        n = int(max(s.mass for s in scores))
        gaps, errors = blobs(covariance, n, ks, rng).gap(per_row)
    if len(ks) == 1:
        return _single(scores, rows, gaps, errors)
    votes = _votes(scores, rows, covariance, gaps, errors)
    if not votes:
        return Choice(tuple(scores), gaps, errors, {}, 0, False, ("too little is shown to judge any k",))
    counted = Counter(votes.values())
    silhouettes = {s.k: np.nan_to_num(s.silhouette, nan=-1.0) for s in scores}
    best_k, agreed = max(counted.items(), key=lambda item: (item[1], silhouettes[item[0]]))
    best = ks.index(best_k)
    doubts = []
    if agreed < min(_VOTES, len(votes)):
        doubts.append("the criteria disagree: " + ", ".join(f"{name} says {k}" for name, k in votes.items()))
    elif gaps[best] < np.nanmax(gaps[_seen(scores, rows)], initial=-np.inf) - errors[best] - _FALLING:
        named = ", ".join(name for name, k in votes.items() if k == best_k)
        most = max(_seen(scores, rows), key=lambda i: float(gaps[i]))
        doubts.append(
            f"{named} say {best_k}, but up to k = {ks[most]} clusters grow tighter than pieces of one blob"
        )
    if best == max(_seen(scores, rows)) < len(ks) - 1:
        doubts.append(f"k above {best_k} cannot be judged: sites are too small to show so many groups")
    doubts += _doubts(scores[best], rows, float(gaps[best]), float(errors[best]))
    if doubts:
        return Choice(tuple(scores), gaps, errors, votes, best, False, tuple(doubts))
    agreeing = [name for name, k in votes.items() if k == best_k]
    reasons = [f"{agreed} of {len(votes)} criteria agree: {', '.join(agreeing)}"]
    reasons += _good(scores[best], float(gaps[best]))
    return Choice(tuple(scores), gaps, errors, votes, best, True, tuple(reasons))


def _single(scores: list[Scores], rows: float, gaps: FloatArray, errors: FloatArray) -> Choice:
    doubts = _doubts(scores[0], rows, float(gaps[0]), float(errors[0])) if scores[0].k > 1 else []
    reasons = doubts or ["k was given", *_good(scores[0], float(gaps[0]))]
    return Choice(tuple(scores), gaps, errors, {}, 0, not doubts, tuple(reasons))


def _votes(
    scores: list[Scores],
    rows: float,
    covariance: FloatArray | None,
    gaps: FloatArray,
    errors: FloatArray,
) -> dict[str, int]:
    """The k that each criterion names, among the k whose clusters are all seen, and most of their rows."""
    seen = _seen(scores, rows)
    scores, gaps, errors = [scores[i] for i in seen], gaps[seen], errors[seen]
    ks, per_row = [s.k for s in scores], np.array([s.per_row for s in scores])
    votes = {}
    for name, sign in (("silhouette", 1), ("calinski_harabasz", 1), ("davies_bouldin", -1)):
        values = np.array([sign * getattr(s, name) for s in scores])
        if not np.isnan(values).all():
            votes[name.replace("_", "-")] = ks[int(np.nanargmax(values))]
    knee = knee_of(ks, per_row, float(np.trace(covariance)) if covariance is not None else None)
    if knee is not None:
        votes["knee of the inertia"] = knee
    if np.isfinite(gaps).all():
        votes["gap"] = ks[int(np.argmax(gaps >= gaps.max() - errors - 0.01))]
    return votes


def knee_of(ks: list[int], inertia: FloatArray, whole: float | None = None) -> int | None:
    """The k at which the inertia curve bends most: the largest fall in the ratio of successive gains.

    ``whole`` is the inertia of one cluster, which lets the curve begin at k = 1.

    >>> knee_of([2, 3, 4, 5], np.array([50.0, 10.0, 9.0, 8.2]), 100.0)
    3
    """
    if whole is not None and ks[0] > 1:
        ks, inertia = [1, *ks], np.concatenate([[whole], inertia])
    if len(ks) < 3 or not inertia[0] > 0:
        return None
    steps = np.diff(np.log(np.maximum(inertia, 1e-300))) / np.diff(np.log(ks))
    return ks[int(np.argmax(np.diff(steps))) + 1]


def _seen(scores: list[Scores], rows: float) -> list[int]:
    """Indices of comparable scores: all clusters are seen, with most of their rows if possible."""
    whole = [i for i, s in enumerate(scores) if s.seen == s.k]
    return [i for i in whole if scores[i].mass >= _SHOWN * rows] or whole or list(range(len(scores)))


def _doubts(s: Scores, rows: float, gap: float, error: float) -> list[str]:
    doubts = []
    if s.mass < _SHOWN * rows:
        share = 100 * (1 - s.mass / max(rows, 1.0))
        doubts.append(
            f"{share:.0f} % of the rows are in groups that are too small at their sites to be shown"
        )
    if gap <= _MARGIN + 2 * error:
        doubts.append("one blob without clusters, cut into as many pieces, would look much the same")
    if s.stability < _STABLE:
        doubts.append(
            f"restarts that are as good disagree about the clusters (agreement {s.stability:.2f} of 1)"
        )
    return doubts


def _good(s: Scores, gap: float) -> list[str]:
    reasons = []
    if s.restarts:
        reasons.append(f"restarts agree about the clusters (agreement {s.stability:.2f} of 1)")
    if np.isfinite(gap):
        tighter = 100 * (1 - np.exp(-gap))
        reasons.append(f"inertia is {tighter:.0f} % below that of one blob cut into as many pieces")
    return reasons
