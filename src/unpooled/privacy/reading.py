"""What may be read from noisy cells: means and spreads that know how noisy they are. All of it is free."""

from dataclasses import dataclass

import numpy as np

from unpooled import kernels
from unpooled.codec import BoolArray, FloatArray
from unpooled.privacy.cells import AskNoisyCells, Cells
from unpooled.privacy.moments import (
    AskNoisyGrid,
    AskNoisyMoments,
    AskNoisySpread,
    NoisyGrid,
    NoisyMoments,
    NoisySpread,
)


def shrunk(step: FloatArray, variance: FloatArray) -> FloatArray:
    """Steps (M, d), each column with noise of that variance (M,), drawn back by James-Stein, positive part.

    >>> shrunk(np.array([[3.0, 0.0, 4.0], [0.1, 0.0, 0.0]]), np.array([1.0, 1.0])).round(2)
    array([[2.88, 0.  , 3.84],
           [0.  , 0.  , 0.  ]])
    """
    d = step.shape[1]
    if d < 3:
        return step
    length = np.maximum((step**2).sum(axis=1), 1e-300)
    kept: FloatArray = np.maximum(0.0, 1 - (d - 2) * variance / length)
    return step * kept[:, None]


@dataclass(frozen=True, eq=False)
class Reading:
    """The cells of a release that stand out from its noise."""

    kept: BoolArray  # (M,)
    means: FloatArray  # (kept, d)
    count: FloatArray  # (kept,)
    spread: FloatArray  # (kept,) mean squared distance of a cell's rows to its mean, over all columns
    within: float  # the same over all rows
    doubt: float  # by how much ``within`` about these means may really be larger: their noise, and its own
    sc: float  # standard deviation of a count's noise


def read(asked: AskNoisyCells, got: Cells, least: int) -> Reading:
    """Means and spreads of the cells whose counts stand out; of the ``least`` largest if hardly any does."""
    sc, ss, sq = (sd * got.noises for sd in asked.sds)
    kept = got.count > 2 * sc
    if kept.sum() < 2:
        kept = np.zeros(len(kept), dtype=np.bool_)
        kept[np.argsort(-got.count, kind="stable")[:least]] = True
    count = np.maximum(got.count[kept], sc)
    step = shrunk(got.sums[kept] / count[:, None], (ss / count) ** 2)
    means = np.clip(asked.centers[kept] + step, -asked.box, asked.box)
    moved = (step**2).sum(axis=1)
    raw = got.squares[kept] / count - moved
    floor = 1e-4 * asked.rho**2
    within = float(np.clip((count @ raw) / count.sum(), floor, asked.rho**2))
    # towards the common value, as far as the noise of a cell's own is larger than spreads usually differ
    trust = 1 / (1 + (sq / count / (0.5 * within)) ** 2)
    spread = np.clip(within + trust * (raw - within), 0.05 * within, asked.rho**2)
    doubt = doubt_of(count, ss, sq, means.shape[1])
    return Reading(kept, means, count, spread, within, doubt, sc)


def doubt_of(count: FloatArray, ss: float, sq: float, d: int) -> float:
    """One standard deviation of a mean square over cells, and the squared noise of their means.

    A radius that is too small loses rows' residuals for good, so it is chosen from the upper end.
    """
    return float((sq * np.sqrt(len(count)) + d * ss**2 * (1 / count).sum()) / count.sum())


def scattered(reading: Reading, box: FloatArray, wanted: int, rng: np.random.Generator) -> FloatArray:
    """(about wanted, d) centres for the next release: every kept cell has children, more where it is large.

    In proportion to sqrt(count x spread), at least one each, and never so many that a child's count would
    drown.
    """
    size = np.sqrt(reading.count * reading.spread)
    most = np.maximum(1, np.floor(reading.count / (4 * reading.sc)))
    number = np.clip(np.round(wanted * size / size.sum()), 1, most).astype(int)
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
    made: FloatArray = np.clip(np.concatenate(out), -box, box)
    return made


def thinned(candidates: FloatArray, wanted: int, rng: np.random.Generator) -> FloatArray:
    """(wanted, d) of the candidates (m, d), far from each other: k-means++ sampling by squared distance."""
    chosen = [int(rng.integers(len(candidates)))]
    distance = ((candidates - candidates[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(wanted, len(candidates)):
        if not distance.sum() > 0:
            break
        chosen.append(int(rng.choice(len(candidates), p=distance / distance.sum())))
        distance = np.minimum(distance, ((candidates - candidates[chosen[-1]]) ** 2).sum(axis=1))
    picked: FloatArray = candidates[chosen]
    return picked


def merged(means: FloatArray, weights: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Weighted k-means of the means down to (k, d), 10 restarts; fewer means than that are split a little."""
    if len(means) < k:
        extra = means[rng.choice(len(means), k - len(means), p=weights / weights.sum())]
        near = 1e-3 * rng.standard_normal(extra.shape)
        return np.concatenate([means, extra + near])
    found = kernels.kmeans(means, [0, len(means)], k, [int(rng.integers(2**63))], weights, n_init=10)
    centers: FloatArray = found.centers[0].copy()
    centers[found.mass[0] <= 0] = means[int(np.argmax(weights))]
    return centers


def standing_in(
    reading: Reading, box: FloatArray, rng: np.random.Generator, most: int = 6000
) -> tuple[FloatArray, FloatArray]:
    """Points (m, d) and weights (m,) that lie as the released cells say: normal draws about every cell's
    mean.

    Where clusters overlap, k-means of the cells' means alone would end too far from that of the rows.
    """
    m, d = reading.means.shape
    draws = max(1, min(60, most // m))
    away = rng.standard_normal((m, draws, d)) * np.sqrt(reading.spread / d)[:, None, None]
    points = np.clip((reading.means[:, None] + away).reshape(-1, d), -box, box)
    return points, np.repeat(reading.count / draws, draws)


def fuzzy_from(
    points: FloatArray, weights: FloatArray, start: FloatArray, m: float
) -> tuple[FloatArray, float]:
    """Fuzzy c-means of weighted points from the centres ``start``; and the mean square of what rows add to
    a step."""
    centers = start
    for _ in range(100):
        got = kernels.fuzzy(points, [0, len(points)], centers[None], m, weights)
        after = centers + got.sums[0, 0] / np.maximum(got.mass[0, 0], 1e-12)[:, None]
        moved, centers = float(np.abs(after - centers).max()), after
        if moved < 1e-6:
            break
    return centers, float(got.inertia.sum() / weights.sum())


def overall(asked: AskNoisyMoments, got: NoisyMoments, box: FloatArray) -> tuple[float, FloatArray, float]:
    """How many rows, their mean (d,), and the root of their mean squared distance to it."""
    reach = float(np.linalg.norm(box))
    n = max(float(got.histogram.sum()), 1.0)
    middles = (np.arange(asked.bins) + 0.5) / asked.bins * reach
    second = float(got.histogram @ middles**2) / n
    variance = float(got.noise[0]) * (reach / (asked.mu * 0.5**0.5) / n) ** 2
    mean = np.clip(shrunk(got.sums[None] / n, np.array([variance]))[0], -box, box)
    return n, mean, float(np.sqrt(min(max(second - mean @ mean, 0.02 * reach**2), reach**2)))


def standard_units(asked: AskNoisySpread, got: NoisySpread) -> FloatArray:
    """(d,) standard deviations relative to the bounds; none is smaller than its noise."""
    n, d = max(float(got.count[0]), 1.0), len(got.sums)
    noise = float(np.sqrt(got.noise[0] * d / 0.4)) / (asked.mu * n)
    return np.sqrt(np.clip(got.squares / n - (got.sums / n) ** 2, min(max(noise, 1e-4), 1.0), 1.0))


def busy_cells(asked: AskNoisyGrid, got: NoisyGrid) -> tuple[FloatArray, FloatArray]:
    """Middles (m, d) and weights (m,) of the grid's cells that stand out from noise, alone or with
    neighbours.

    The threshold is what the largest of so many noises would reach.
    """
    from scipy.ndimage import uniform_filter

    d, sd = len(asked.box), float(np.sqrt(got.noise[0])) / asked.mu
    count = got.count.reshape((asked.side,) * d)
    threshold = np.sqrt(2 * np.log(max(count.size, 2)))
    stands_out = count > threshold * sd
    for width in (3, 5):
        around = uniform_filter(count, width, mode="constant") * width**d
        stands_out |= (around > threshold * sd * width ** (d / 2)) & (count > 0)
    flat = stands_out.ravel()
    if flat.sum() < 2:
        flat = got.count >= np.sort(got.count)[-min(8, len(got.count))]
    return asked.centers()[flat], np.maximum(got.count[flat], sd)
