"""Seeding: the starting centres. The default, "adaptive", is over-seeding by totals only.

No published method: k-means|| (Bahmani et al., 2012) with the proposals drawn by the server from each cell's
Gaussian, so that no row is ever a proposal. It needs only sums over sites, so it does not depend on how the
rows are split, works with many tiny sites, and can run under secure sums. Four exchanges:

1. moments: mass, mean and spread of every column;
2. first cells: a quarter of the cells, drawn from one Gaussian; totals per cell come back;
3. and 4. refine: cells with much scatter are replaced by several draws from their own Gaussian.

If there are very many rows, the sites draw a sample for all of this, once per run. The best few starts take
some Lloyd steps on the sample before they go on to all rows.

The server then reduces the cells (means with weights) to k centres, many times, and keeps the best distinct
solutions as starts. Several such sketches travel in the same exchanges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from unpooled import kernels
from unpooled.algorithms.same_centers import distinct
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Steps, each, total
from unpooled.protocol.messages import Question, SiteId
from unpooled.protocol.questions.cluster_sums import (
    AskClusterSums,
    AskDrawnSums,
    AskLocalMeans,
    AskMoments,
    ClusterSums,
    LocalMeans,
)
from unpooled.protocol.questions.sums_with_missing import AskObservedMoments, AskObservedSums, ObservedSums
from unpooled.typing import FloatArray, IntArray

INITS = ("adaptive", "k-fed", "random")
LOCAL_RESTARTS = 5  # of a site's own k-means, where starts are made from the sites' means
_SEARCH_DIMENSIONS = 40  # beyond this the server searches in the sketch's principal axes
_WIDE = 100  # columns from which fewer, finer sketches do better
_SWAPS = 30
_ROWS_A_CELL, _ROWS_A_CELL_WIDE = 50, 10  # rows of a sample for every cell of a sketch, at least
_STEPS_ON_DRAW, _GAIN_ON_DRAW, _WORSE_ON_DRAW = 5, 1e-3, 0.01


class QuestionSet(NamedTuple):
    """The two questions that find a start: about complete rows, or about rows with missing cells."""

    moments: Callable[..., Question[Any]]
    sums: Callable[[FloatArray], Question[Any]]


COMPLETE = QuestionSet(AskMoments, AskClusterSums)
WITH_MISSING = QuestionSet(AskObservedMoments, AskObservedSums)


@dataclass(frozen=True, eq=False)
class Starts:
    """Starting centres, and the size and spread of the data."""

    centers: FloatArray  # (R, k, d), R distinct starts, the most promising first
    n: float  # rows (or weight) in all
    spread: float  # mean variance of the columns


@dataclass(frozen=True, eq=False)
class Spread:
    """The number of rows, and the mean and variance of their columns."""

    n: float  # rows (or weight) in all
    mean: FloatArray  # (d,)
    variance: FloatArray  # (d,)


@dataclass(frozen=True, eq=False)
class Sketch:
    """A sketch of the data: cells with their means, weights and scatter."""

    means: FloatArray  # (m, d)
    mass: FloatArray  # (m,)
    scatter: FloatArray  # (m,) squared distances to the mean, summed


def starts(
    sites: tuple[SiteId, ...],
    k: int,
    init: str | FloatArray,
    count: int,
    rng: np.random.Generator,
    *,
    min_cluster_size: int = 1,
    question_set: QuestionSet = COMPLETE,
    sample_rows: bool = False,
) -> Steps[Starts]:
    """Return up to ``count`` starts of k centres each: "adaptive", "k-fed", "random", or the given centres.

    With ``sample_rows`` the adaptive starts of very many rows are made and refined on a sample of them, and
    starts that cannot be the best are left out.
    """
    moments = yield from spread_of(sites, question_set)
    if moments.n < k:
        raise InputError(f"k={k} clusters from {moments.n:g} rows")
    mean, sd = moments.mean, np.sqrt(moments.variance)
    if isinstance(init, np.ndarray):
        if init.shape != (k, len(mean)):
            raise InputError(f"init has shape {init.shape}, but k={k} and the rows have {len(mean)} columns")
        if not np.isfinite(init).all():
            raise InputError("init holds NaN or infinity")
        centers = init[None].astype(np.float64)
    elif init == "k-fed":
        # down: k; up: each site's means and counts
        replies = yield from each(sites, AskLocalMeans(k, n_init=LOCAL_RESTARTS))
        local_means = list(replies.values())
        centers = np.stack([merge_means(local_means, k, rng, 10, weighted=True) for _ in range(count)])
    elif init == "random":
        centers = mean + sd * rng.standard_normal((count, k, len(mean)))
    else:
        draw = (
            _draw_of(moments, k, min_cluster_size, rng) if sample_rows and question_set is COMPLETE else None
        )
        centers = yield from _adaptive(
            sites,
            k,
            count,
            moments,
            rng,
            min_cluster_size,
            draw.sums if draw is not None else question_set.sums,
        )
        if draw is not None:
            centers = yield from _refined_on_sample(sites, centers, draw, min_cluster_size)
    return Starts(centers, moments.n, float(moments.variance.mean()))


def merge_means(
    replies: list[LocalMeans], k: int, rng: np.random.Generator, restarts: int, *, weighted: bool
) -> FloatArray:
    """Return the server's k-means over all sites' means: (k, d)."""
    means = np.concatenate([r.means for r in replies])
    counts = np.concatenate([r.counts for r in replies])
    if len(means) < k:
        raise InputError(f"k={k} clusters from {len(means)} local means: the sites disclosed too few")
    seed = rng.integers(0, 2**63, size=1, dtype=np.uint64)
    clustering = kernels.kmeans(
        means, np.array([0, len(means)]), k, seed, counts if weighted else None, n_init=restarts
    )
    if not (clustering.mass > 0).all():
        distinct = int((clustering.mass > 0).sum())
        raise InputError(f"k={k} clusters from {distinct} distinct local means: the sites disclosed too few")
    centers: FloatArray = clustering.centers[0]
    return centers


def spread_of(sites: tuple[SiteId, ...], question_set: QuestionSet = COMPLETE) -> Steps[Spread]:
    """Ask for moments about zero, and about the mean where a large mean would make the variance inexact."""
    # down: nothing; up: mass, sums and squares of the columns
    about_zero = yield from total(sites, question_set.moments())
    mean = about_zero.mean
    if not about_zero.n > 0 or (about_zero.variance > 1e-8 * mean**2).all():
        return Spread(about_zero.n, mean, about_zero.variance)
    centred = yield from total(sites, question_set.moments(mean))
    return Spread(centred.n, mean + centred.mean, centred.variance)


@dataclass(frozen=True, eq=False)
class Draw:
    """A sample of the rows that all questions of a start read."""

    seed: int
    origin: FloatArray  # (d,)
    even: float  # the chance of a row at the origin
    far: float  # what a squared distance adds

    def sums(self, centers: FloatArray) -> AskDrawnSums:
        return AskDrawnSums(centers, self.origin, self.even, self.far, self.seed)


def _draw_of(moments: Spread, k: int, p: int, rng: np.random.Generator) -> Draw | None:
    """A sample of enough rows for each cell of a sketch; None unless there are more than twice as many."""
    wide = len(moments.mean) >= _WIDE
    rows = (_ROWS_A_CELL_WIDE if wide else _ROWS_A_CELL) * _max_cells(len(moments.mean), k) * p
    scatter = moments.n * float(moments.variance.sum())
    if moments.n <= 2 * rows or not scatter > 0:
        return None
    if moments.n >= 6 * rows and not wide:
        rows *= 2  # fewer rounds on all rows follow
    return Draw(int(rng.integers(2**63)), moments.mean, 0.5 * rows / moments.n, 0.5 * rows / scatter)


def _max_cells(d: int, k: int) -> int:
    return max(500 if d >= _WIDE else 300, 8 * k)


def _refined_on_sample(
    sites: tuple[SiteId, ...], centers: FloatArray, draw: Draw, p: int
) -> Steps[FloatArray]:
    """The starts that may be the best, after Lloyd steps on the sample; the best on the sample first.

    The steps end when the best start gains less than the error of the sample. Starts that are clearly worse,
    or have become the same, are left out.
    """
    lead = np.inf
    for _ in range(_STEPS_ON_DRAW):
        # down: every start's centres; up: sums of the drawn rows about them, counts, inertia
        sums = yield from total(sites, draw.sums(centers))
        inertia = sums.inertia.sum(axis=1)
        order = np.argsort(inertia, kind="stable")
        gain, lead = lead - inertia[order[0]], inertia[order[0]]
        distance = 0.02 * np.sqrt(lead / max(float(sums.mass[order[0]].sum()), 1e-300))
        moved = sums.means(centers, p)[order[inertia[order] <= (1 + _WORSE_ON_DRAW) * lead]]
        centers = moved[distinct(moved, distance)]
        if not gain > _GAIN_ON_DRAW * lead:
            break
    return centers


def _adaptive(
    sites: tuple[SiteId, ...],
    k: int,
    count: int,
    moments: Spread,
    rng: np.random.Generator,
    p: int,
    ask: Callable[[FloatArray], Any],
) -> Steps[FloatArray]:
    sketches = 3 if len(moments.mean) >= _WIDE else 5
    max_cells = max(2, min(_max_cells(len(moments.mean), k), int(moments.n / p)))
    first = max(2, max_cells // 4)
    mean, sd = moments.mean, np.sqrt(moments.variance)
    centers = mean + sd * rng.standard_normal((sketches, first, len(mean)))
    # down: cell centres; up: totals per cell
    sums = yield from total(sites, ask(centers))
    cells = _cells(sums, centers, p)
    while first > 2 and min(c.mass.sum() for c in cells) < 0.5 * moments.n:
        first = max(2, first // 4)  # small sites suppress small cells: ask again for coarser ones
        centers = centers[:, :first]
        sums = yield from total(sites, ask(centers))
        cells = _cells(sums, centers, p)
    whole = Sketch(mean[None], np.array([moments.n]), np.array([moments.n * moments.variance.sum()]))
    cells = [c if len(c.mass) else whole for c in cells]
    for target in (min(2 * first, max_cells), max_cells):
        proposals = [_refined(c, target, mean, sd, p, rng) for c in cells]
        centers = _padded(proposals)
        # down: refined cell centres; up: totals per cell
        sums = yield from total(sites, ask(centers))
        finer = _cells(sums, centers, p)
        cells = [b if _still_visible(a, b, k) else a for a, b in zip(cells, finer, strict=True)]
    return _reduced(cells, k, count, mean, sd, rng)


def _cells(sums: ClusterSums | ObservedSums, centers: FloatArray, p: int) -> list[Sketch]:
    """The cells of every sketch that hold at least p rows; a column that none of them has stays as drawn."""
    mass, known, inertia = sums.mass, sums.known, sums.inertia
    keep = mass >= max(p, 1e-300)
    step = sums.sums / np.where((known > 0) & keep[..., None], known, 1.0)
    moved = step**2
    lost = mass * moved.sum(axis=2) if known.shape[2] == 1 else (known * moved).sum(axis=2)
    scatter = inertia - lost
    scatter[scatter < 1e-12 * inertia] = 0.0  # equal rows: the rest is rounding error
    cells = zip(centers + step, mass, scatter, keep, strict=True)
    return [Sketch(m[large], n[large], s[large]) for m, n, s, large in cells]


def _still_visible(before: Sketch, after: Sketch, k: int) -> bool:
    """True if refining did not suppress too many rows: small cells may fall below the sites' minimum size."""
    too_few = len(before.mass) < min(2 * k, len(after.mass))
    return too_few or float(after.mass.sum()) >= 0.9 * float(before.mass.sum())


def _refined(
    cells: Sketch, target: int, mean: FloatArray, sd: FloatArray, p: int, rng: np.random.Generator
) -> FloatArray:
    """Centres for the next pass: cells with much scatter are replaced by draws from their own Gaussian.

    With many columns all centres move to the principal axes of the cells. Rows are then separated by these
    axes alone, along which clusters differ, and no longer by the noise of all columns.
    """
    extra = _allotted(cells, target - len(cells.mass), p, rng)
    axes = _axes(cells.means, cells.mass)
    means, spread = cells.means, sd
    if axes is not None:
        means, spread = (cells.means - mean) @ axes, np.sqrt((sd[:, None] ** 2 * axes**2).sum(axis=0))
    total_variance = max(float((sd**2).sum()), 1e-300)
    split = np.repeat(np.arange(len(extra)), np.where(extra > 0, extra + 1, 0))  # a cell for every draw
    scale = np.sqrt(cells.scatter[split] / (cells.mass[split] * total_variance))
    drawn = means[split] + scale[:, None] * spread * rng.standard_normal((len(split), len(spread)))
    flat = np.concatenate([means[extra == 0], drawn])
    return flat if axes is None else mean + flat @ axes.T


def _allotted(cells: Sketch, add: int, p: int, rng: np.random.Generator) -> IntArray:
    """The number of further centres for each cell: in proportion to its scatter, at most one per p rows."""
    share = np.where(cells.mass >= 2 * p, cells.scatter, 0.0)
    if add <= 0 or not share.sum() > 0:
        return np.zeros(len(cells.mass), dtype=np.int64)
    quota = add * share / share.sum()
    extra = np.floor(quota).astype(np.int64)
    rest = quota - extra
    if rest.sum() > 0:
        extra += rng.multinomial(add - int(extra.sum()), rest / rest.sum())
    capped: IntArray = np.minimum(extra, (cells.mass / p).astype(np.int64))
    return capped


def _padded(proposals: list[FloatArray]) -> FloatArray:
    """Sketches of unequal size in one array; a repeated centre gets no rows, since ties go to the first."""
    longest = max(map(len, proposals))
    return np.stack([np.concatenate([c, np.repeat(c[-1:], longest - len(c), axis=0)]) for c in proposals])


# ---------------------------------------------------------------- at the server: starts from cells


def _reduced(
    cells: list[Sketch], k: int, count: int, mean: FloatArray, sd: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """(R, k, d): the best distinct clusterings of the sketches, scored on all sketches together."""
    means = np.concatenate([c.means for c in cells])
    mass = np.concatenate([c.mass for c in cells]) / len(cells)
    if not len(means):
        raise InputError(f"no cell of rows is disclosed: all are below the sites' minimum size (k={k})")
    axes = _axes(means, mass)
    flat = np.ascontiguousarray((means - mean) @ axes) if axes is not None else means
    candidates = _candidates(cells, flat, mass, k, count, rng)
    runs = np.stack([_filled(c, k, flat, rng) for c in candidates])
    scores = _score(flat, mass, runs)
    # rounded to 9 digits, so that floating-point error does not order equal scores
    runs = runs[np.argsort(np.round(scores / (scores.max() + 1e-300), 9), kind="stable")]
    scale = np.sqrt(scores.min() / mass.sum() + 1e-300) + 1e-9 * float(np.linalg.norm(sd))
    chosen: FloatArray = runs[distinct(runs, 0.02 * scale)][:count]
    return chosen if axes is None else np.stack([_lifted(c, flat, means, mass) for c in chosen])


def _axes(means: FloatArray, mass: FloatArray) -> FloatArray | None:
    """(d, 40) principal axes of the sketch, where there are more columns than that."""
    if means.shape[1] <= _SEARCH_DIMENSIONS:
        return None
    centred = (means - np.average(means, axis=0, weights=mass)) * np.sqrt(mass)[:, None]
    if len(centred) >= means.shape[1]:
        return np.ascontiguousarray(np.linalg.eigh(centred.T @ centred)[1][:, : -_SEARCH_DIMENSIONS - 1 : -1])
    # fewer cells than columns: the axes from the cells' products, which are a smaller matrix
    weights = np.linalg.eigh(centred @ centred.T)[1][:, : -_SEARCH_DIMENSIONS - 1 : -1]
    return np.ascontiguousarray(np.linalg.qr(centred.T @ weights)[0])


def _candidates(
    cells: list[Sketch], flat: FloatArray, mass: FloatArray, k: int, count: int, rng: np.random.Generator
) -> list[FloatArray]:
    """Clusterings of every sketch alone and of all together, each a k-means++ start with swaps."""
    ends = np.cumsum([0] + [len(c.mass) for c in cells])
    pieces = [slice(a, b) for a, b in pairwise(ends)]
    per_sketch = -(-count // len(cells)) + (1 if len(cells) > 1 else 3)
    jobs = [piece for piece in pieces for _ in range(per_sketch)]
    if len(cells) > 1:
        jobs += [slice(0, len(mass))] * 2
    offsets = np.concatenate([[0], np.cumsum([j.stop - j.start for j in jobs])]).astype(np.int64)
    clusterings = kernels.kmeans(
        np.concatenate([flat[j] for j in jobs]),
        offsets,
        k,
        rng.integers(0, 2**63, size=len(jobs), dtype=np.uint64),
        np.concatenate([mass[j] for j in jobs]),
        max_iter=100,
        swaps=_SWAPS,
        threads=2,
    )
    return [c[m > 0] for c, m in zip(clusterings.centers, clusterings.mass, strict=True)]


def _filled(centers: FloatArray, k: int, flat: FloatArray, rng: np.random.Generator) -> FloatArray:
    """k centres where the sketch has fewer distinct cells: the rest are drawn about its cells."""
    missing = k - len(centers)
    if missing == 0:
        return centers
    spread = flat.std(axis=0) + 1e-12
    about = flat[rng.integers(len(flat), size=missing)]
    return np.concatenate([centers, about + 0.1 * spread * rng.standard_normal(about.shape)])


def _score(flat: FloatArray, mass: FloatArray, candidates: FloatArray) -> FloatArray:
    """Weighted inertia of every candidate on all sketches."""
    totals = kernels.totals(flat, np.array([0, len(flat)]), candidates, mass, threads=2)
    scores: FloatArray = totals.inertia[0].sum(axis=1)
    return scores


def _lifted(centers: FloatArray, flat: FloatArray, means: FloatArray, mass: FloatArray) -> FloatArray:
    """From the principal axes back to all columns: the means of the cells that went to each centre."""
    labels, _ = kernels.nearest(flat, centers)
    weights = np.bincount(labels, mass, len(centers))
    sums = np.stack([np.bincount(labels, mass * column, len(centers)) for column in means.T], axis=1)
    return sums / np.where(weights > 0, weights, 1.0)[:, None]
