"""Standardisation: mean 0 and standard deviation 1 over all sites, by two totals.

The second total has squares about the mean that the first one gave, to avoid cancellation. ``standardise``
is for rows of arrays. For columns of tables schema_agreement.py asks for both totals together with those of
categories, and ``standard_scale`` reads them. Other scales of columns are in column_scales.py.
"""

import numpy as np

from unpooled.data.schema import ColumnTotals
from unpooled.data.transforms import Affine
from unpooled.protocol.algorithm import Steps, total
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.typing import BoolArray, FloatArray


def standardise(sites: tuple[SiteId, ...]) -> Steps[Affine]:
    """Agree on the scaling to mean 0 and standard deviation 1 over all sites.

    A constant column keeps scale 1.
    """
    # down: nothing; up: mass and sums
    first = yield from total(sites, AskMoments())
    # down: the mean; up: squares about it
    second = yield from total(sites, AskMoments(first.mean))
    mean, sd = first.mean + second.mean, np.sqrt(second.variance)
    return Affine(mean, np.where(is_constant(mean, sd), 1.0, sd))


def standard_scale(first: ColumnTotals, about: ColumnTotals, j: int, cells: float) -> tuple[float, float]:
    """Return the mean and the standard deviation of column ``j`` over ``cells`` cells.

    ``first`` and ``about`` are totals about 0 and about the means. Filled cells are at the mean and add
    nothing to the squares.
    """
    mean = float(first.mean[j]) + float(about.mean[j])
    deviation = float(about.mean[j]) ** 2 * float(about.count[j])
    return mean, float(np.sqrt(max(float(about.squares[j]) - deviation, 0.0) / cells))


def is_constant(center: FloatArray | float, scale: FloatArray | float) -> BoolArray:
    """Return where a scale is so small that only rounding tells the values of a column apart."""
    return np.asarray(scale <= 1e-12 * np.abs(center) + 1e-300)
