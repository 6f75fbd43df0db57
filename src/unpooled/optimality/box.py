"""The box that centroids lie in. It must enclose every row of every site, or bounds over it would be
false."""

import numpy as np
import numpy.typing as npt

from unpooled.errors import InputError
from unpooled.optimality.questions import AskOutside, AskRange
from unpooled.protocol.algorithm import Steps, each, total
from unpooled.protocol.messages import SiteId
from unpooled.typing import FloatArray


def enclosing(sites: tuple[SiteId, ...], box: FloatArray | None) -> Steps[FloatArray]:
    """Return the given box (2, d), if no site has rows outside, or the hull of the sites' own ranges."""
    if box is not None:
        # down: the box; up: how many sites have rows outside
        outside = yield from total(sites, AskOutside(box))
        if outside.sites[0] > 0:
            raise InputError(
                f"the box excludes rows of {outside.sites[0]:.0f} of {len(sites)} sites: "
                "a bound over it would be false"
            )
        return box
    around, suppressed = yield from hull(sites)
    if suppressed:
        raise InputError(
            f"{len(suppressed)} of {len(sites)} sites do not disclose the range of their columns "
            f"({', '.join(suppressed[:3])}). Pass a public range as box=(lowest, highest) in Python or, if "
            "the sites trust each other, use a minimum cluster size of 1"
        )
    return around


def hull(sites: tuple[SiteId, ...]) -> Steps[tuple[FloatArray, list[SiteId]]]:
    """Return the box (2, d) around the ranges that sites disclose, and the sites that disclose none."""
    # down: nothing; up: the range of every site's columns
    ranges = yield from each(sites, AskRange())
    suppressed = [site for site, r in ranges.items() if r.withheld[0]]
    disclosed = [r for r in ranges.values() if len(r.low)]
    if not disclosed and not suppressed:
        raise InputError(f"there are no rows at {len(ranges)} sites")
    if not disclosed:
        return np.zeros((2, 0)), suppressed
    return np.array(
        [np.min([r.low for r in disclosed], axis=0), np.max([r.high for r in disclosed], axis=0)]
    ), suppressed


def check_box(box: npt.ArrayLike) -> FloatArray:
    """Return the box (2, d) as an array; InputError unless it is finite and lowest is not above highest."""
    array = np.asarray(box, dtype=np.float64)
    if array.ndim != 2 or len(array) != 2 or not np.isfinite(array).all():
        raise InputError("box must be finite, (2, d): the lowest and the highest value of every column")
    bad = np.flatnonzero(array[0] > array[1])
    if len(bad):
        j = int(bad[0])
        raise InputError(f"box is empty in column {j}: from {array[0, j]} to {array[1, j]}")
    return array


def check_squares(box: FloatArray) -> None:
    """Raise InputError where squares of distances in the box would vanish or overflow."""
    widest = float((0.5 * box[1] - 0.5 * box[0]).max()) * 2
    if widest > 0 and not 1e-140 < widest < 1e140:
        raise InputError(
            f"rows differ by up to {widest:.0e}: squares of such numbers are beyond float64. Scale them"
        )
