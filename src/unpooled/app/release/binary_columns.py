"""Columns of two values: their mean is a count, in whatever numbers the two values are written.

Of a column of a and b, a share p of b has the mean a + (b - a) p and the variance (b - a)^2 p (1 - p): who
knows a and b reads the number of persons off the mean. So such a column is found by its means and deviations,
and its counts are held to the preset.

Where moments are those of rows, they are exact, and two values of any size are found: the persons of every
cluster must come out as whole numbers (``binary_from_rows``). Moments of copies are rounded, and cut where a person
stands alone; there, two whole numbers that are no further apart than ``SPAN`` are tried (``binary_from_summaries``).
"""

import math
from typing import NamedTuple

import numpy as np

from unpooled.typing import BoolArray, FloatArray

SPAN = 4  # between two values that are looked for in copies: 0 and 1, 1 and 2, -1 and 1, 3 and 7
_MOST, _LEAST = 1.25, 0.5  # times the variance of two values that one of a column of copies may seem to be
_WHOLE = 1e-4  # persons: what is nearer to a whole number is one
_EXACT = 1e-7  # of the squared distance of both values: what sums of rows lose
_AT_ONCE = 1 << 18  # numbers of persons that are tried together


class BinaryColumn(NamedTuple):
    """Two values that a column can have, and how many persons have each, by cluster."""

    low: float
    high: float
    lows: FloatArray  # (k,)
    highs: FloatArray  # (k,)

    @property
    def is_rate(self) -> bool:
        return (self.low, self.high) == (0.0, 1.0)


def binary_from_rows(
    means: FloatArray, spreads: FloatArray, sizes: FloatArray, fill: float = 0.0, filled: int = 0
) -> list[BinaryColumn]:
    """All two values that a column can have, by exact means and deviations (k,) over rows of each cluster.

    ``filled`` of the rows have no value, and count as ``fill``. Of one cluster alone every mean and deviation
    can be that of two values; there, the values must be short numbers.

    >>> binary_from_rows(np.array([1.025, 1.5]), np.array([0.025 * 0.975, 0.25]) ** 0.5, np.array([120.0, 10.0]))
    [BinaryColumn(low=1.0, high=2.0, lows=array([117.,   5.]), highs=array([3., 5.]))]
    """
    found: list[BinaryColumn] = []
    n = np.rint(sizes)
    people = int(n.sum()) - filled
    if people < 2 or np.abs(n - sizes).max() > _WHOLE:
        return found
    middle = float((n * means).sum() - filled * fill) / people
    x, f = means - middle, fill - middle
    squares = spreads**2 + x**2
    variance = float((n * squares).sum() - filled * f**2) / people
    if variance <= _EXACT * float(np.abs(x).max() ** 2) or variance <= 0:
        return found
    deviation, tried = math.sqrt(variance), np.arange(1, people)
    for start in range(0, len(tried), _AT_ONCE):
        some = tried[start : start + _AT_ONCE, None]
        odds = np.sqrt(some / (people - some))
        low, high = -deviation * odds, deviation / odds
        highs, n_missing, fits = _solved(x, squares, n, f if filled else None, low, high)
        fits &= (np.abs(highs - np.rint(highs)) < _WHOLE) & (np.abs(n_missing - np.rint(n_missing)) < _WHOLE)
        fits &= (highs > -_WHOLE) & (n_missing > -_WHOLE) & (highs + n_missing < n + _WHOLE)
        for at in np.flatnonzero(fits.all(axis=1)).tolist():
            one, other = float(low[at, 0]) + middle, float(high[at, 0]) + middle
            span = other - one
            if len(n) > 1 or (_short(one, span) and _short(other, span)):
                many = np.rint(highs[at]) + 0.0
                lows = n - np.rint(n_missing[at]) - many
                found.append(BinaryColumn(_tidy(one, span), _tidy(other, span), lows, many))
    return sorted(found, key=_rank)


def _solved(
    x: FloatArray, squares: FloatArray, n: FloatArray, f: float | None, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """(tried, k) persons with the high value, and without a value; and where the squares fit to that."""
    if f is None:
        wrong = np.abs(squares - (low + high) * x + low * high)
        return n * (x - low) / (high - low), np.zeros_like(wrong), wrong <= _EXACT * (high - low) ** 2
    first, second = n * (x - low), n * (squares - low**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        highs = (first * (f + low) - second) / ((high - low) * (f - high))
        n_missing = (second - first * (low + high)) / ((f - low) * (f - high))
    return highs, n_missing, np.isfinite(highs) & np.isfinite(n_missing)


def binary_from_summaries(
    means: FloatArray, remote: FloatArray, within: float, sizes: FloatArray, *, known: bool
) -> list[BinaryColumn]:
    """All two whole numbers that a column of copies can have, by mean and variance between groups.

    ``within`` is the variance within groups; where it is not ``known``, the variance of all says less.
    Whatever lies between 0 and 1 counts as a rate.
    """
    overall = float(np.average(means, weights=sizes))
    variance = float(np.average(remote + (means - overall) ** 2, weights=sizes)) + within
    found = []
    for span in range(1, SPAN + 1):
        slack = 0.02 * span
        for low in range(math.ceil(means.max() - slack) - span, math.floor(means.min() + slack) + 1):
            high, inside = low + span, np.clip(means, low, low + span)
            two = (overall - low) * (high - overall)
            most = _MOST * (inside - low) * (high - inside) + (0.05 * span) ** 2
            fits = variance <= _MOST * two + 1e-6 and (remote <= most).all()
            rate = (low, high) == (0, 1) and (means >= 0).all() and (means <= 1).all()
            if fits and (rate or not known or variance >= _LEAST * two):
                share = (inside - low) / span
                found.append(BinaryColumn(low, high, _people(sizes * (1 - share)), _people(sizes * share)))
    return sorted(found, key=_rank)


def _rank(two: BinaryColumn) -> tuple[bool, int, float]:
    """The likeliest first: 0 and 1, then short numbers, then near ones."""
    return not two.is_rate, len(f"{two.low:g}{two.high:g}"), two.high - two.low


def _people(many: FloatArray) -> FloatArray:
    """Whole persons; a part of one is one."""
    return np.where(many > 1e-6, np.maximum(np.rint(many), 1.0), 0.0)


def _short(value: float, span: float) -> bool:
    """True if a number has three decimals at most, as exactly as means over values so far apart tell.

    >>> _short(0.25, 1.0), _short(12.3456, 1.0)
    (True, False)
    """
    return abs(value - round(value, 3)) <= 1e-7 * span + 1e-12 * abs(value)


def _tidy(value: float, span: float) -> float:
    return round(value, 3) + 0.0 if _short(value, span) else value
