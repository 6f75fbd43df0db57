"""Choice of k: are there clusters at all, and if so how many?

The data are compared with 20 reference tables: simulated tables that have the columns and correlations of the
data and no clusters (reference_tables.py). A k passes if

- clusters found in one half of the rows fit the other half better than in the references (replication.py),
- its clusters are sharper than those of the references (Calinski-Harabasz),
- the clusters of the two halves agree, and so do those of restarts,
- rows thin out between clusters. This is a veto, never evidence: references know only correlations, so that
  a bent cloud would look sharper than they do,
- no two clusters differ in one category or yes or no alone, because the shares of such a column are given.

Every k is compared with the references at the same k, so nothing depends on the largest k that is tried.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpooled.evaluation.reference_scores import ReferenceScores
from unpooled.evaluation.replication import Replication, adjusted_rand
from unpooled.protocol.algorithm import State, Steps, together, total
from unpooled.protocol.messages import Message, Question, SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskScatter
from unpooled.protocol.questions.description import AskBorders, AskCrossing
from unpooled.typing import FloatArray

_NEAR = 1.05  # restarts within this factor of the best inertia count as solutions
_MIN_DISCLOSED = 0.9  # share of the rows that must be seen to judge a k


@dataclass(frozen=True, eq=False)
class Scores(Message):
    """The scores of one clustering; nan where an index does not exist."""

    k: int
    seen: int  # clusters that at least one site discloses
    mass: float  # rows in disclosed clusters
    inertia: float  # of these rows
    total_inertia: float  # inertia of these rows about their mean
    ratio: float  # inertia between clusters, divided by the inertia within them
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
    within_groups: FloatArray | None = None,
) -> Steps[Scores]:
    """Return the scores of ``centers`` (k, d), and their agreement with near-best ``restarts`` (R, k, d).

    ``sums_of`` asks for the sums of clusters; where cells are missing, ``AskObservedSums``. Of summary tables
    ``within_groups`` (d,) is the variance within groups: borders are then estimated for the people in them.
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
        counts = counts if within_groups is None else _spread_out(counts, centers, within_groups)
        # where cells are missing, only the rows count that tell two clusters apart
        border, touching = _borders(counts, n if sums_of is AskClusterSums else float(counts.sum()))
    agreeing = [adjusted_rand(c) for c in more[-1].counts] if len(restarts) else []
    return Scores(
        k=len(centers),
        seen=k,
        mass=n,
        inertia=float(scatter.inertia.sum()),
        total_inertia=within + between,
        ratio=between / max(within, 1e-9 * (within + between), 1e-300),
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


def _spread_out(counts: FloatArray, centers: FloatArray, within: FloatArray) -> FloatArray:
    """Counts (k, steps) of people by position, from those of groups by the position of their means.

    The people of a group are spread about its mean with the variance ``within`` (d,). Those who lie beyond
    the border count as far on this side of it, as if the neighbour sent as many back.

    >>> two, even = np.array([[0.0], [8.0]]), np.array([[0, 0, 0, 4, 0, 0, 0], [0, 0, 0, 4, 0, 0, 0.0]])
    >>> _spread_out(even, two, np.array([1.0]))[0].round(2).tolist()
    [0.02, 0.22, 0.97, 1.6, 0.97, 0.22, 0.02]
    """
    steps = counts.shape[1]
    gaps = ((centers[:, None] - centers[None]) ** 2).sum(axis=2)
    np.fill_diagonal(gaps, np.inf)
    nearest = gaps.argmin(axis=1)
    ways = centers[nearest] - centers
    length = np.maximum(gaps[np.arange(len(centers)), nearest], 1e-300)
    deviation = 8 * np.sqrt((ways**2 @ within) / length) / np.sqrt(length)  # in steps, an eighth of the way
    at = np.arange(steps)
    spread = np.empty_like(counts)
    for j, sd in enumerate(np.maximum(deviation, 1e-6)):
        mirrored = 2 * steps - 1 - at  # where a person beyond the border counts
        kernel = np.exp(-0.5 * ((at[:, None] - np.append(at, mirrored)[None]) / sd) ** 2)
        below = np.arange(-4 * steps, 0)
        kernel[:, 0] += np.exp(-0.5 * ((at[:, None] - below) / sd) ** 2).sum(axis=1)
        both = kernel[:, :steps] + kernel[:, steps:]
        spread[j] = counts[j] @ (both / both.sum(axis=1, keepdims=True))
    return spread


def _davies_bouldin(centers: FloatArray, width: FloatArray) -> float:
    gaps = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2))
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(((width[:, None] + width[None]) / gaps).max(axis=1).mean())


def near_best(state: State) -> FloatArray:
    """Return the restarts of a method (R, k, d) whose inertia is near the best, without the best."""
    found, inertias, best = state.candidates
    keep = inertias <= _NEAR * inertias[best]
    keep[best] = False
    near: FloatArray = found[keep]
    return near


# A k passes if its split gain is so many standard deviations above that of the references,
_DEVIATIONS = 3.0
_MIN_DEVIATION = 0.02
_SHARPER = 1.03  # its clusters are sharper than theirs by this factor,
# (few deviations will do if they are much sharper: a category by itself has a large gain in references too)
_FEW_DEVIATIONS, _MUCH_SHARPER = 1.0, 1.5
_DEVIATIONS_OF_GROUPS = 2.0  # of summary tables if borders are clear: groups are few, so references vary more
_AGREEMENT = 0.6  # the clusters of two halves have this adjusted Rand index,
_STABLE = 0.8  # those of restarts that are nearly as good have this one,
_BORDER, _TOUCHING = 0.6, 0.8  # and borders hold at most this. It is clear with these:
_CLEAR_DEVIATIONS, _CLEAR_AGREEMENT, _CLEAR_BORDER, _CLEAR_TOUCHING = 5.0, 0.8, 0.4, 0.5
_HANDFUL = 10  # a cluster of fewer rows is single rows far from the others,
_ONE_COLUMN = 0.9  # of the squared distance of two means: they differ in that column alone
_FEW_GROUPS = 5  # one of fewer groups of summary tables is people who were grouped because they are alike


@dataclass(frozen=True, eq=False)
class Judgement(Message):
    """The judgement of one k; nan where a figure was not needed or could not be computed."""

    k: int
    replication: Replication
    expected: float  # mean split gain of the references
    deviation: float  # its standard deviation
    sharper: float  # Calinski-Harabasz index, divided by that of the references
    not_judged: str  # why there is no judgement; "" if there is one
    fault: str  # the condition that does not hold; "" if the k passes

    @property
    def passes(self) -> bool:
        """Whether the k passes: its clusters are reproduced."""
        return not self.fault and not self.not_judged

    @property
    def deviations(self) -> float:
        """The split gain, in standard deviations of the references above their mean."""
        return (self.replication.gain - self.expected) / self.deviation


@dataclass(frozen=True, eq=False)
class Choice(Message):
    """The chosen k, whether the data support its clusters, and the reasons."""

    scores: tuple[Scores, ...]  # one per k
    judgements: tuple[Judgement, ...]  # one per k
    votes: dict[str, int]  # the k that each criterion names
    best: int  # index into scores
    verdict: str  # "clear", "unclear", "none" (no clusters) or "not judged"
    support: tuple[str, ...]  # what speaks for the k
    doubts: tuple[str, ...]  # what speaks against it, or against any k
    also: tuple[int, ...]  # the other k that pass

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks for the chosen k and against it, in words."""
        verb = "passes" if len(self.also) == 1 else "pass"
        others = [f"k = {_listed(self.also)} {verb} too"] if self.also else []
        return (*self.support, *self.doubts, *others)

    @property
    def k(self) -> int:
        return self.scores[self.best].k

    @property
    def clear(self) -> bool:
        """Whether there are clusters, and it is clear how many."""
        return self.verdict == "clear"

    @property
    def none(self) -> bool:
        """Whether the rows fall into no clusters, for the values of k that were compared."""
        return self.verdict == "none" and self.k == 1

    @property
    def judgement(self) -> Judgement:
        """The judgement of the chosen k."""
        return self.judgements[self.best]


def not_judged(s: Scores, rows: float, groups: float) -> str:
    """Return why clusters cannot be judged, before any reference is made; "" if they can.

    ``groups`` is the number of groups of summary tables, or of rows if sites answer from rows.
    """
    if s.seen < s.k and s.mass > 0.999 * rows:
        return f"{s.k - s.seen} of {s.k} clusters have no rows: there are fewer rows that differ"
    if s.seen < s.k or s.mass < _MIN_DISCLOSED * rows:
        share = 100 * (1 - s.mass / max(rows, 1.0))
        return f"{share:.0f}% of the rows are in groups that are too small at their sites to be disclosed"
    if s.k * _HANDFUL > rows or s.k * _FEW_GROUPS > groups:
        return "there are too few rows, or groups of rows, for as many clusters"
    return ""


def early_fault(s: Scores, replication: Replication, group_size: int, coded: Sequence[slice] = ()) -> str:
    """Return the condition that fails without a look at references; "" if there is none.

    ``group_size`` is the number of people in a group of summary tables; 1 if sites answer from rows.
    ``coded`` are the prepared columns of each category, and of each number with two values.
    """
    smallest = float(s.sizes.min())
    if smallest < _HANDFUL:
        return f"a cluster has fewer than {_HANDFUL} rows, far from all others"
    if group_size > 1 and smallest < _FEW_GROUPS * group_size:
        return f"a cluster has fewer than {_FEW_GROUPS} groups of the summary tables"
    if s.border > _BORDER or s.touching > _TOUCHING:
        return "rows do not thin out between the clusters"
    if _one_column_apart(s.means, coded):
        return "two clusters differ in one column alone, a yes or no or a category"
    if replication.gain <= 0:
        return "one blob describes the rows as well"
    if replication.agreement < _AGREEMENT:
        return "the two halves of the rows give other clusters"
    if s.stability < _STABLE:
        return "restarts that are as good give other clusters"
    return ""


def _one_column_apart(means: FloatArray, coded: Sequence[slice]) -> bool:
    """Whether a cluster and the nearest other one differ in one coded column alone.

    Its shares are taken as given: men and women of one cluster are not two clusters.

    >>> means = np.array([[0.0, 2.0], [0.1, 0.0], [9.0, 2.0]])  # the second column is yes or no
    >>> _one_column_apart(means, [slice(1, 2)]), _one_column_apart(means[1:], [slice(1, 2)])
    (True, False)
    """
    squares = (means[:, None] - means[None]) ** 2
    nearest = (squares.sum(axis=2) + np.diag(np.full(len(means), np.inf))).argmin(axis=1)
    apart = squares[np.arange(len(means)), nearest]
    inside = [apart[:, one].sum(axis=1) for one in coded]
    return any(bool((own > _ONE_COLUMN * apart.sum(axis=1)).any()) for own in inside)


def judge(
    s: Scores,
    replication: Replication,
    references: ReferenceScores | None,
    group_size: int,
    coded: Sequence[slice] = (),
) -> Judgement:
    """Return the judgement of one k; ``references`` are not needed if a condition fails without them."""
    nan = float("nan")
    fault = early_fault(s, replication, group_size, coded)
    if references is None:
        return Judgement(s.k, replication, nan, nan, nan, "", fault)
    expected = float(references.gains.mean())
    deviation = max(float(references.gains.std(ddof=1)), _MIN_DEVIATION)
    usual = float(np.exp(np.log(np.maximum(references.ratios, 1e-12)).mean()))
    sharper = s.ratio / usual
    enough = _DEVIATIONS_OF_GROUPS if group_size > 1 and not _run_together(s) else _DEVIATIONS
    enough = _FEW_DEVIATIONS if sharper >= _MUCH_SHARPER else enough
    if not fault and (replication.gain < expected + enough * deviation or sharper < _SHARPER):
        fault = "simulated tables without clusters look the same"
    return Judgement(s.k, replication, expected, deviation, sharper, "", fault)


def unjudged(s: Scores, why: str) -> Judgement:
    """Return the judgement of a k that cannot be judged."""
    nan = float("nan")
    return Judgement(s.k, Replication(nan, nan), nan, nan, nan, why, "")


def choose(scores: Sequence[Scores], judgements: Sequence[Judgement]) -> Choice:
    """Recommend a k from the scores and the judgements of every k.

    k = 1 is added where it is not among several k: "no clusters" is an answer too.
    """
    scores, judgements = list(scores), list(judgements)
    if len(scores) > 1 and scores[0].k > 1:
        scores, judgements = [_one(scores[0]), *scores], [unjudged(_one(scores[0]), ""), *judgements]
    tried = [i for i, s in enumerate(scores) if s.k > 1]
    judged = [i for i in tried if not judgements[i].not_judged]
    passing = [i for i in judged if judgements[i].passes]
    votes = _votes([scores[i] for i in judged]) if len(tried) > 1 else {}

    def result(best: int, verdict: str, doubts: Sequence[str]) -> Choice:
        support = _support(judgements[best]) if best in passing else []
        also = tuple(judgements[i].k for i in passing if i != best)
        return Choice(
            tuple(scores), tuple(judgements), votes, best, verdict, tuple(support), tuple(doubts), also
        )

    if not tried:
        return result(0, "clear", ())
    if not judged:
        sharpest = max(tried, key=lambda i: (np.nan_to_num(scores[i].silhouette, nan=-1.0), -i))
        return result(sharpest, "not judged", [*dict.fromkeys(judgements[i].not_judged for i in tried)])
    if not passing:
        best = 0 if scores[0].k == 1 else max(judged, key=lambda i: scores[i].silhouette)
        return result(best, "none", _faults([judgements[i] for i in tried]))
    best = max(passing, key=lambda i: (scores[i].silhouette * judgements[i].sharper, -i))
    k, doubts = scores[best].k, _doubts(scores[best], judgements[best])
    if len(tried) > 1 and best == tried[-1]:
        doubts.append(f"{k} is the largest k that was tried; there may be more clusters")
    elif best == judged[-1] and best != tried[-1]:
        doubts.append(f"k above {k} was not judged: {judgements[best + 1].not_judged}")
    return result(best, "unclear" if doubts else "clear", doubts)


def _support(j: Judgement) -> list[str]:
    """The reasons for a k that passes."""
    gain, agreement = j.replication.gain, j.replication.agreement
    return [
        f"the clusters are sharper than those of simulated tables without clusters (gain {gain:.2f}, "
        f"simulated {j.expected:.2f} ± {j.deviation:.2f})",
        f"clusters found in one half of the rows hold in the other half (agreement {agreement:.2f} of 1, "
        "from the same start)",
    ]


def _doubts(s: Scores, j: Judgement) -> list[str]:
    """What keeps a k that passes from being clear."""
    doubts = []
    if j.deviations < _CLEAR_DEVIATIONS and j.sharper < _MUCH_SHARPER:
        doubts.append("the clusters are not much sharper than those of simulated tables")
    if j.replication.agreement < _CLEAR_AGREEMENT:
        doubts.append("many rows change their cluster from half to half")
    if _run_together(s):
        doubts.append("clusters run into each other, many rows lie at their borders")
    return doubts


def _run_together(s: Scores) -> bool:
    return s.border > _CLEAR_BORDER or s.touching > _CLEAR_TOUCHING


def _faults(judgements: Sequence[Judgement]) -> list[str]:
    """For every k the condition that fails, as in "k = 2 to 4: ..."."""
    by_fault: dict[str, list[int]] = {}
    for j in judgements:
        by_fault.setdefault(j.fault or f"nothing was judged: {j.not_judged}", []).append(j.k)
    if len(by_fault) == 1:
        return [next(iter(by_fault))]
    return [f"for k = {_listed(ks)} {fault}" for fault, ks in by_fault.items()]


def _listed(ks: Sequence[int]) -> str:
    """Numbers in words, neighbours as a range.

    >>> _listed([2, 3, 4, 7]), _listed([2, 3]), _listed([5])
    ('2 to 4 and 7', '2 and 3', '5')
    """
    runs: list[list[int]] = []
    for k in ks:
        if runs and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    words = [
        word
        for run in runs
        for word in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(k) for k in run])
    ]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _one(like: Scores) -> Scores:
    """The scores of all rows as one cluster, which need no question."""
    nan = float("nan")
    mean = like.sizes @ like.means / max(float(like.sizes.sum()), 1.0)
    return replace(
        like,
        k=1,
        seen=1,
        inertia=like.total_inertia,
        ratio=nan,
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


def _votes(scores: Sequence[Scores]) -> dict[str, int]:
    """The k that each criterion names, among the k that were judged."""
    named: dict[str, FloatArray] = {}
    for name, of, sign in (
        ("calinski-harabasz", "calinski_harabasz", 1),
        ("davies-bouldin", "davies_bouldin", -1),
        ("simplified-silhouette", "silhouette", 1),
    ):
        named[name] = np.array([sign * getattr(s, of) for s in scores])
    known = {name: values for name, values in named.items() if not np.isnan(values).all()}
    return {name: scores[int(np.nanargmax(values))].k for name, values in known.items()}
