"""A second forecast, once the start is paid for: the rest of the run, tried on what was released.

Released cells say how the rows lie, up to noise. So points are drawn as they say, and on these the run is
repeated with new noise of the same size: how far its centres end above the best ones is what is to be
expected of the rows. It looks at released numbers only, so it is free. Unlike a formula it knows how many
clusterings of these very cells are nearly as good.
"""

from dataclasses import replace

import numpy as np

from unpooled import kernels
from unpooled.algorithms.private.estimates import CellEstimates, merged, standing_in
from unpooled.core.arrays import FloatArray
from unpooled.privacy.dp.forecast import reach


def excess_in_trial(
    reading: CellEstimates,
    box: FloatArray,
    k: int,
    steps: int,
    noise: tuple[float, float],
    rng: np.random.Generator,
    times: int = 3,
) -> float:
    """Inertia over that without noise, less 1: the median of some trials.

    noise: of a step, the standard deviations of a count and of a sum's column in units of the radius.
    """
    points, weights = standing_in(reading, box, rng)
    offsets = [0, len(points)]
    if len(points) < k:
        return float("nan")
    seed = int(rng.integers(2**63))
    best = float(kernels.kmeans(points, offsets, k, [seed], weights, n_init=10).inertia.sum())
    above = []
    for _ in range(times):
        centers = merged(*standing_in(_again(reading, box, rng), box, rng), k, rng)
        found, after = centers, centers
        for step in range(steps):
            got = kernels.totals(points, offsets, after[None], weights)
            mass = np.maximum(got.mass[0, 0], 1e-9)
            sd = reach(len(box)) * np.sqrt(got.inertia[0, 0] / mass) * noise[1]
            drawn = got.sums[0, 0] + sd[:, None] * rng.standard_normal(centers.shape)
            full = mass > 3 * noise[0]
            after = after + np.where(full[:, None], drawn / mass[:, None], 0.0)
            found = after if step <= 1 else found + (after - found) / step
        reached = kernels.totals(points, offsets, found[None], weights).inertia.sum()
        above.append(float(reached) / max(best, 1e-300) - 1)
    return float(np.median(above))


def _again(reading: CellEstimates, box: FloatArray, rng: np.random.Generator) -> CellEstimates:
    """The cells as another release of the same rows might have told them."""
    away = reading.noise[:, None] * rng.standard_normal(reading.means.shape)
    count = reading.count + reading.sc * rng.standard_normal(len(reading.count))
    return replace(
        reading, means=np.clip(reading.means + away, -box, box), count=np.maximum(count, reading.sc)
    )
