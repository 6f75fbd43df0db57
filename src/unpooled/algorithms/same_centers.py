"""Starts that became the same: sets of centres that are equal up to their order."""

import numpy as np

from unpooled import kernels
from unpooled.typing import BoolArray, FloatArray


def distinct(sets: FloatArray, distance: float, *, both_ways: bool = False) -> BoolArray:
    """Return the mask of the sets of centres (R, k, d) that do not repeat an earlier one of the mask.

    A set repeats another if each of its centres is near one of the other, ``both_ways`` also the reverse.

    >>> distinct(np.array([[[0.0], [5.0]], [[5.1], [0.0]], [[0.0], [4.0]]]), 0.2).tolist()
    [True, False, True]
    """
    count, k, d = sets.shape
    # how far each set is from each other one, in one call: squared distances of its centres, added up
    squares = kernels.totals(sets.reshape(-1, d), np.arange(count + 1) * k, sets).inertia.sum(axis=2)
    sure, possible = distance**2 * (1 - 1e-9), k * distance**2 * (1 + 1e-9)

    def near(i: int, j: int) -> bool:
        if squares[i, j] <= sure or squares[i, j] > possible:
            return bool(squares[i, j] <= sure)
        return bool(kernels.nearest(sets[i], sets[j]).sqdist.max() <= distance**2)

    kept = list[int]()
    for i in range(count):
        if not any(near(i, j) and (not both_ways or near(j, i)) for j in kept):
            kept.append(i)
    mask = np.zeros(count, dtype=np.bool_)
    mask[kept] = True
    return mask
