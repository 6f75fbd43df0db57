"""Numbers of single precision, as programs write them."""

import numpy as np
import numpy.typing as npt

from unpooled.typing import FloatArray


def shortest_float32(values: npt.ArrayLike) -> FloatArray:
    """Return numbers of single precision as a program writes and reads them: 61.1, not 61.09999847.

    >>> shortest_float32(np.array([61.1, -2.5e-7, 3e9, 0, np.nan], dtype=np.float32)).tolist()
    [61.1, -2.5e-07, 3000000000.0, 0.0, nan]
    """
    wide = np.asarray(values, dtype=np.float64)
    single = np.asarray(values, dtype=np.float32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        powers = np.floor(np.log10(np.abs(wide)))
        left = np.isfinite(powers)
        out = wide.copy()
        for digits in range(1, 10):
            at = np.flatnonzero(left)
            shift = digits - 1 - powers[at]
            ten = 10.0 ** np.abs(shift)
            near = np.where(shift >= 0, np.rint(wide[at] * ten) / ten, np.rint(wide[at] / ten) * ten)
            hit = (near.astype(np.float32) == single[at]) & (np.abs(shift) <= 22)  # such powers are exact
            out[at[hit]] = near[hit]
            left[at[hit]] = False
    for i in np.flatnonzero(left):  # the very large and the very small
        out[i] = float(str(single[i]))
    return out
