"""A second forecast, after the start was released: the rest of the run, tried on synthetic points.

Released cells describe the distribution of the rows, up to noise. Points are drawn from it, and on these the
run is repeated with new noise of the same size: the excess of its inertia over the best one is the expected
excess on the rows. It uses released numbers only, so it costs no budget. Unlike a formula it takes into
account how many clusterings of these cells are nearly as good.
"""

from dataclasses import replace

import numpy as np

from unpooled import kernels
from unpooled.algorithms.private.estimates import CellEstimates, merged, restarts, synthetic_points
from unpooled.typing import FloatArray


def excess_in_trial(
    reading: CellEstimates,
    box: FloatArray,
    k: int,
    steps: int,
    noise: tuple[float, float],
    reach: FloatArray,
    rng: np.random.Generator,
    times: int = 3,
) -> float:
    """Return the relative excess of the inertia over that without noise: the median of ``times`` trials.

    noise: the standard deviations, in one step, of a count and of a sum's column in units of the radius.
    reach: (k,) or (1,) radii in root mean squares.
    """
    points, weights = synthetic_points(reading, box, rng)
    offsets = [0, len(points)]
    if len(points) < k:
        return float("nan")
    seed = int(rng.integers(2**63))
    best = float(kernels.kmeans(points, offsets, k, [seed], weights, n_init=restarts(k)).inertia.sum())
    above = []
    for _ in range(times):
        centers = merged(*synthetic_points(_again(reading, box, rng), box, rng), k, rng)
        estimate, after = centers, centers
        for step in range(steps):
            totals = kernels.totals(points, offsets, after[None], weights)
            mass = np.maximum(totals.mass[0, 0], 1e-9)
            sd = reach * np.sqrt(totals.inertia[0, 0] / mass) * noise[1]
            drawn = totals.sums[0, 0] + sd[:, None] * rng.standard_normal(centers.shape)
            full = mass > 3 * noise[0]
            after = after + np.where(full[:, None], drawn / mass[:, None], 0.0)
            estimate = after if step <= 1 else estimate + (after - estimate) / step
        reached = kernels.totals(points, offsets, estimate[None], weights).inertia.sum()
        above.append(float(reached) / max(best, 1e-300) - 1)
    return float(np.median(above))


def _again(reading: CellEstimates, box: FloatArray, rng: np.random.Generator) -> CellEstimates:
    """The cells with new noise, as in another release of the same rows."""
    away = reading.noise[:, None] * rng.standard_normal(reading.means.shape)
    count = reading.count + reading.sc * rng.standard_normal(len(reading.count))
    return replace(
        reading, means=np.clip(reading.means + away, -box, box), count=np.maximum(count, reading.sc)
    )
