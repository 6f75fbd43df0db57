"""Estimates from released noisy cells: means and spreads, with their noise. They cost no privacy budget."""

from dataclasses import dataclass

import numpy as np

from unpooled import kernels
from unpooled.privacy.dp.forecast import reach
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, NoisyCells, radius_limits
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread, NoisyMoments, NoisySpread
from unpooled.typing import BoolArray, FloatArray, IntArray

_WIDEST = 6.0  # times the narrowest radius


def shrunk(step: FloatArray, variance: FloatArray) -> FloatArray:
    """Steps (M, d), each column with noise of that variance (M,), shrunk by positive-part James-Stein.

    >>> shrunk(np.array([[3.0, 0.0, 4.0], [0.1, 0.0, 0.0]]), np.array([1.0, 1.0])).round(2)
    array([[2.88, 0.  , 3.84],
           [0.  , 0.  , 0.  ]])
    """
    d = step.shape[1]
    if d < 3:
        return step
    length = np.maximum((step**2).sum(axis=1), 1e-300)
    significant: FloatArray = np.maximum(0.0, 1 - (d - 2) * variance / length)
    return step * significant[:, None]


@dataclass(frozen=True, eq=False)
class CellEstimates:
    """The cells of a release that stand out from its noise."""

    significant: BoolArray  # (M,)
    means: FloatArray  # (kept, d)
    count: FloatArray  # (kept,)
    spread: FloatArray  # (kept,) mean squared distance of a cell's rows to its mean, over all columns
    room: FloatArray  # (kept,) an upper estimate of spread
    rho: FloatArray  # (kept,) the radius to which its residuals were cut
    noise: FloatArray  # (kept,) standard deviation of each column of a mean
    sc: float  # standard deviation of a count

    def about(self, centers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means (k,) of ``room`` and ``rho`` over the cells nearest to each centre, or over all."""
        home, k = kernels.nearest(self.means, centers).labels, len(centers)
        mass = np.bincount(home, self.count, k)
        room, rho = (
            np.where(
                mass > 0,
                np.bincount(home, self.count * of, k) / np.where(mass > 0, mass, 1.0),
                self.count @ of / self.count.sum(),
            )
            for of in (self.room, self.rho)
        )
        return room, rho


def read(question: AskNoisyCells, reply: NoisyCells, min_cells: int) -> CellEstimates:
    """Return means and spreads of the cells whose counts stand out, at least of the ``min_cells`` largest."""
    sc, ss, sq = question.noise(reply)
    totals = question.in_units(reply)
    significant = reply.count > 2 * sc
    if significant.sum() < 2:
        significant = np.zeros(len(significant), dtype=np.bool_)
        significant[np.argsort(-reply.count, kind="stable")[:min_cells]] = True
    count, rho, ss, sq = (
        np.maximum(reply.count[significant], sc),
        question.radii[significant],
        ss[significant],
        sq[significant],
    )
    step = shrunk(totals.sums[significant] / count[:, None], (ss / count) ** 2)
    means = np.clip(question.centers[significant] + step, -question.box, question.box)
    spread, room = spreads(count, step, totals.squares[significant], rho, ss, sq)
    return CellEstimates(significant, means, count, spread, room, rho, ss / count, sc)


def is_clipped(step: FloatArray, rho: FloatArray) -> BoolArray:
    """Return the mask (M,) of cells whose mean moved about as far as cut residuals allow, so it may move on.

    >>> is_clipped(np.array([[0.95, 0.0], [0.5, 0.0]]), np.array([1.0, 1.0]))
    array([ True, False])
    """
    far: BoolArray = (step**2).sum(axis=1) > 0.8 * rho**2
    return far


def spreads(
    count: FloatArray, step: FloatArray, squares: FloatArray, rho: FloatArray, ss: FloatArray, sq: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean squared distances (M,) of cells' rows to their means, and upper estimates of them.

    A radius that is too small keeps a mean from reaching rows that lie further away, so it is chosen from
    the upper estimate: cell by cell, since a cell inside its cluster says nothing about one far from its own.
    """
    raw = squares / count - (step**2).sum(axis=1)
    weight = count / count.sum()
    within = float(np.clip(weight @ raw, 1e-4 * (weight @ rho**2), rho.max() ** 2))
    # shrink towards the common value, the more the larger a cell's noise is against the true differences
    own = sq / count
    differ = max(0.25 * within**2, float(weight @ ((raw - within) ** 2 - own**2)))
    trust = 1 / (1 + own**2 / differ)
    spread = np.clip(within + trust * (raw - within), 0.05 * within, rho**2)
    # upper estimate: one standard deviation, and the noise of the mean about which squares were taken
    doubt = np.sqrt(trust) * own + step.shape[1] * (ss / count) ** 2
    held = is_clipped(step, rho)
    return np.where(held, rho**2, spread), np.where(held, rho**2, np.clip(doubt, spread, rho**2))


def radius(box: FloatArray, square: FloatArray, before: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the length to which rows are cut: ``reach`` root mean squares, at least ``before`` / 5."""
    return np.clip(np.maximum(reach * np.sqrt(square), 0.2 * before), *radius_limits(box))


def best_reach(
    points: FloatArray,
    weights: FloatArray,
    centers: FloatArray,
    noise: FloatArray,
    cell_noise: FloatArray,
) -> FloatArray:
    """Return the radius (k,) of every cluster, in root mean squares, at which its centre is expected nearest.

    A small radius cuts the cluster's tails, which moves its mean; a large one adds noise. Both are known for
    synthetic points: ``noise`` (k,) is the standard deviation of each column of a centre, in radii. The
    points are drawn about cells (m,), as many about each, whose means have the standard deviation
    ``cell_noise`` in each column: a small cell that noise moved away from its cluster looks like a tail, so
    as much of the shift as this noise explains does not count.
    """
    d, k = points.shape[1], len(centers)
    home = kernels.nearest(points, centers).labels
    away = points - centers[home]
    length = np.sqrt((away**2).sum(axis=1))
    mass = np.maximum(np.bincount(home, weights, k), 1e-300)
    rms = np.sqrt(np.bincount(home, weights * length**2, k) / mass)
    cell = np.repeat(np.arange(len(cell_noise)), len(points) // len(cell_noise))
    own = np.unique(cell * k + home, return_inverse=True)  # the parts of cells in clusters
    least, chosen = np.full(k, np.inf), np.full(k, reach(d))
    for wider in np.geomspace(1.0, _WIDEST, 12):
        rho = wider * reach(d) * rms
        cut = weights * np.minimum(1.0, rho[home] / np.maximum(length, 1e-300)) - weights
        inside = np.bincount(home, weights * (length <= rho[home]), k) / mass
        shift = np.stack([np.bincount(home, cut * away[:, j], k) for j in range(d)], axis=1) / mass[:, None]
        # steps repeat the shift until the rows within the radius balance it; doubled, because the points show
        # tails only as far as the cells do
        part = np.bincount(own[1], -cut) * cell_noise[own[0] // k]
        by_noise = d * np.bincount(own[0] % k, part**2, k) / mass**2
        beyond = np.maximum((shift**2).sum(axis=1) - by_noise, 0.0)
        loss = beyond * (2 / np.maximum(inside, 0.2)) ** 2 + d * (noise * rho) ** 2
        chosen = np.where(loss < least, wider * reach(d), chosen)
        least = np.minimum(loss, least)
    return chosen


def mean_of_rows(question: AskNoisyCells, reply: NoisyCells) -> tuple[FloatArray, float]:
    """Return the mean (d,) of all rows in cells, and the variance of its noise in each column."""
    sc, ss, _ = question.noise(reply)
    n = max(float(reply.count.sum()), sc)
    mean = (reply.count @ question.centers + question.in_units(reply).sums.sum(axis=0)) / n
    by_counts = sc**2 * float(((question.centers - mean) ** 2).sum()) / len(mean)
    return mean, (by_counts + float(ss @ ss)) / n**2


def gain_over_mean(question: AskNoisyCells, reply: NoisyCells) -> float:
    """Return how much more the inertia of the rows' mean is than that of the question's centres.

    For one row x, nearest to c, |x - mean|^2 - |x - c|^2 = 2 (x - c) (c - mean) + |c - mean|^2: squares, the
    noisiest part of a reply, are not needed. No other mean has a smaller inertia by the same reply, so noise
    makes the mean look better than it is, and not the centres.
    """
    away = question.centers - mean_of_rows(question, reply)[0]
    sums = question.in_units(reply).sums
    return float(2 * (sums * away).sum() + reply.count @ (away**2).sum(axis=1))


def averaged(
    estimate: FloatArray, estimate_weight: FloatArray, after: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return centres (k, d), a mean of steps of weight ``estimate_weight`` (k,), with one more step.

    Weight 0 starts anew.

    >>> ones = np.ones((2, 1))
    >>> averaged(0 * ones, ones[:, 0], 4 * ones, np.array([3.0, 0.0]))
    (array([[3.],
           [4.]]), array([4., 0.]))
    """
    total = np.where(weight > 0, estimate_weight + weight, 0.0)
    share = np.where(weight > 0, weight / np.where(weight > 0, total, 1.0), 1.0)
    return estimate + (after - estimate) * share[:, None], total


def scattered(
    reading: CellEstimates, box: FloatArray, count: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Return about ``count`` centres for the next release, and the index of the cell of each.

    A cell gets new centres in proportion to sqrt(count x spread), at least one, and never so many that
    their counts would be smaller than the noise.
    """
    size = np.sqrt(reading.count * reading.spread)
    max_number = np.maximum(1, np.floor(reading.count / (4 * reading.sc)))
    number = np.clip(np.round(count * size / size.sum()), 1, max_number).astype(int)
    out = []
    for mean, spread, m in zip(reading.means, reading.spread, number, strict=True):
        if m == 1:
            out.append(mean[None])
            continue
        away = rng.standard_normal((m, len(box)))
        if m == 2:
            away[1] = -away[0]
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        out.append(mean + 0.7 * np.sqrt(spread) * away)
    return np.clip(np.concatenate(out), -box, box), np.repeat(np.arange(len(number)), number)


def thinned(candidates: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Return ``count`` of the candidates (m, d), far from each other: k-means++ sampling."""
    chosen = [int(rng.integers(len(candidates)))]
    distance = ((candidates - candidates[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(candidates)):
        if not distance.sum() > 0:
            break
        chosen.append(int(rng.choice(len(candidates), p=distance / distance.sum())))
        distance = np.minimum(distance, ((candidates - candidates[chosen[-1]]) ** 2).sum(axis=1))
    picked: FloatArray = candidates[chosen]
    return picked


def restarts(k: int) -> int:
    """Return the number of restarts of a k-means of released cells: many clusters need more of them."""
    return 60 if k >= 50 else 10


def merged(means: FloatArray, weights: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Weighted k-means of the means down to (k, d); fewer means than that are split a little."""
    if len(means) < k:
        extra = means[rng.choice(len(means), k - len(means), p=weights / weights.sum())]
        near = 1e-3 * rng.standard_normal(extra.shape)
        return np.concatenate([means, extra + near])
    clustering = kernels.kmeans(
        means, [0, len(means)], k, [int(rng.integers(2**63))], weights, n_init=restarts(k)
    )
    centers: FloatArray = clustering.centers[0].copy()
    centers[clustering.mass[0] <= 0] = means[int(np.argmax(weights))]
    return centers


def synthetic_points(
    reading: CellEstimates, box: FloatArray, rng: np.random.Generator, max_points: int = 6000
) -> tuple[FloatArray, FloatArray]:
    """Synthetic points (m, d) and weights (m,) from the released cells: normal draws about every mean.

    Where clusters overlap, k-means of the cells' means alone would end too far from that of the rows.
    """
    m, d = reading.means.shape
    draws = max(1, min(60, max_points // m))
    away = rng.standard_normal((m, draws, d)) * np.sqrt(reading.spread / d)[:, None, None]
    points = np.clip((reading.means[:, None] + away).reshape(-1, d), -box, box)
    return points, np.repeat(reading.count / draws, draws)


def fuzzy_from(
    points: FloatArray, weights: FloatArray, start: FloatArray, m: float
) -> tuple[FloatArray, float]:
    """Fuzzy c-means of weighted points from the centres ``start``; and the mean square of a row's addition to
    a step."""
    centers = start
    for _ in range(100):
        totals = kernels.fuzzy(points, [0, len(points)], centers[None], m, weights)
        after = centers + totals.sums[0, 0] / np.maximum(totals.mass[0, 0], 1e-12)[:, None]
        moved, centers = float(np.abs(after - centers).max()), after
        if moved < 1e-6:
            break
    return centers, float(totals.inertia.sum() / weights.sum())


def overall(
    question: AskNoisyMoments, reply: NoisyMoments, box: FloatArray
) -> tuple[float, FloatArray, float]:
    """Return the number of rows, their mean (d,), and the root of their mean squared distance to it."""
    reach = float(np.linalg.norm(box))
    n = max(float(reply.histogram.sum()), 1.0)
    middles = (np.arange(question.bins) + 0.5) / question.bins * reach
    second = float(reply.histogram @ middles**2) / n
    variance = float(reply.noise[0]) * (reach / (question.mu * 0.5**0.5) / n) ** 2
    mean = np.clip(shrunk(reply.sums[None] / n, np.array([variance]))[0], -box, box)
    return n, mean, float(np.sqrt(min(max(second - mean @ mean, 0.02 * reach**2), reach**2)))


def standard_units(question: AskNoisySpread, reply: NoisySpread) -> FloatArray:
    """Return standard deviations (d,) relative to the bounds.

    Variances are shrunk towards their mean, the more the larger their noise is against their differences: a
    column that seems narrow by chance would outweigh all others.
    """
    n, d = max(float(reply.count[0]), 1.0), len(reply.sums)
    _, ss, sq = (sd * float(np.sqrt(reply.noise[0])) / n for sd in question.sds(d))
    means = np.clip(reply.sums / n, -1.0, 1.0)
    raw = 0.75 + reply.squares / n - means**2
    noise = sq**2 + (2 * means * ss) ** 2  # variances
    common = float(np.clip(raw.mean(), max(noise.mean() ** 0.5, 1e-4), 1.0))
    differ = max(0.25 * common**2, float(((raw - common) ** 2 - noise).mean()))
    drawn = common + (raw - common) / (1 + noise / differ)
    return np.sqrt(np.clip(drawn, np.clip(np.sqrt(noise), 1e-4, 1.0), 1.0))
