"""Which k? Five views of the same question, a recommendation with its reasons, or "no clear k"."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from unpooled.analysis.reference_blobs import blobs
from unpooled.analysis.scores import Scores
from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message

_VOTES = 3  # of five that must name the same k
_STABLE = 0.8
_SHOWN = 0.9  # share of the rows that must be seen to judge a k
_FALLING = 0.05  # how far the gap may lie below its largest value
_MARGIN = 0.02  # the gap to a blob that counts, beyond two errors


@dataclass(frozen=True, eq=False)
class Choice(Message, wire="choice.Choice"):
    """The k that is taken, whether the data speak for it, and why."""

    scores: tuple[Scores, ...]  # one per k
    gaps: FloatArray  # (K,) log inertia of a blob less that of the data; nan where it was not computed
    errors: FloatArray  # (K,)
    votes: dict[str, int]  # what each criterion would take
    best: int  # index into scores
    clear: bool
    reasons: tuple[str, ...]

    @property
    def k(self) -> int:
        return self.scores[self.best].k


def choose(
    scores: list[Scores], rows: float, covariance: FloatArray | None, rng: np.random.Generator
) -> Choice:
    """From the scores of every k, and the covariance if there is one, to a recommendation."""
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
    best_k, got = max(counted.items(), key=lambda item: (item[1], silhouettes[item[0]]))
    best = ks.index(best_k)
    doubts = []
    if got < min(_VOTES, len(votes)):
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
    reasons = [f"{got} of {len(votes)} criteria agree: {', '.join(agreeing)}"]
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
    """What each criterion would take, among the k whose clusters are all seen, and most of their rows."""
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
    """Where the inertia curve bends most: the largest fall in the ratio of successive gains.

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
    """Which scores can be compared: of clusters that are all seen, with most of their rows if possible."""
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
