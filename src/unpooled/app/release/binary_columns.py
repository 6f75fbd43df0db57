"""Binary columns: the mean of a column with two values discloses a count, in any coding of the two values.

A column of the values a and b with a share p of b has the mean a + (b - a) p and the variance
(b - a)^2 p (1 - p). Someone who knows a and b can compute the number of people from the mean. Therefore the
preset applies to the counts of such columns. The sites agree on most of them (``binary_from_values``); all
other columns are examined by their means and deviations.

- Moments of rows are exact. Two values of any size are detected, because the number of people in every
  cluster must be whole (``binary_from_rows``).
- Moments of summary tables are rounded, and a value that one person stands alone with is cut. There, pairs of
  whole numbers at most ``SPAN`` apart are tried (``binary_from_summaries``).
"""

import math
from typing import NamedTuple

import numpy as np

from unpooled.typing import BoolArray, FloatArray

SPAN = 4  # between two values that are tried for summary tables: 0 and 1, 1 and 2, -1 and 1, 3 and 7
_MAX_RATIO, _MIN_RATIO = 1.25, 0.5  # of the variance of a summary table's column to that of two values
_WHOLE = 1e-4  # people: a number nearer to a whole number counts as whole
_EXACT = 1e-7  # of the squared distance of both values: the rounding of sums of rows
_AT_ONCE = 1 << 18  # numbers of people that are tried together


class BinaryColumn(NamedTuple):
    """Two values that a column can have, and how many people have each, by cluster."""

    low: float
    high: float
    lows: FloatArray  # (k,)
    highs: FloatArray  # (k,)

    @property
    def is_rate(self) -> bool:
        return (self.low, self.high) == (0.0, 1.0)


def binary_from_values(low: float, high: float, means: FloatArray, sizes: FloatArray) -> BinaryColumn:
    """Return the people behind means (k,) of a column whose two values the sites agreed on.

    >>> binary_from_values(0.0, 1.0, np.array([0.3]), np.array([10.0]))
    BinaryColumn(low=0.0, high=1.0, lows=array([7.]), highs=array([3.]))
    """
    share = np.clip((means - low) / (high - low), 0.0, 1.0)
    return BinaryColumn(low, high, _people(sizes * (1 - share)), _people(sizes * share))


def binary_from_rows(
    means: FloatArray, spreads: FloatArray, sizes: FloatArray, fill: float = 0.0, filled: int = 0
) -> list[BinaryColumn]:
    """Return all pairs of values that fit exact means and deviations (k,) over the rows of each cluster.

    ``filled`` rows have no value and were filled with ``fill``. If there is one cluster, some pair fits every
    mean and deviation; then the values must be short numbers.

    >>> means, variances = np.array([1.025, 1.5]), np.array([0.025 * 0.975, 0.25])
    >>> binary_from_rows(means, variances**0.5, np.array([120.0, 10.0]))
    [BinaryColumn(low=1.0, high=2.0, lows=array([117.,   5.]), highs=array([3., 5.]))]
    """
    columns: list[BinaryColumn] = []
    n = np.rint(sizes)
    people = int(n.sum()) - filled
    if people < 2 or np.abs(n - sizes).max() > _WHOLE:
        return columns
    middle = float((n * means).sum() - filled * fill) / people
    x, f = means - middle, fill - middle
    squares = spreads**2 + x**2
    variance = float((n * squares).sum() - filled * f**2) / people
    if variance <= _EXACT * float(np.abs(x).max() ** 2) or variance <= 0:
        return columns
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
                with_high = np.rint(highs[at]) + 0.0
                with_low = n - np.rint(n_missing[at]) - with_high
                columns.append(BinaryColumn(_tidy(one, span), _tidy(other, span), with_low, with_high))
    return sorted(columns, key=_rank)


def _solved(
    x: FloatArray, squares: FloatArray, n: FloatArray, f: float | None, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return (tried, k) people with the high value, people without a value, and where the squares fit."""
    if f is None:
        wrong = np.abs(squares - (low + high) * x + low * high)
        return n * (x - low) / (high - low), np.zeros_like(wrong), wrong <= _EXACT * (high - low) ** 2
    first, second = n * (x - low), n * (squares - low**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        highs = (first * (f + low) - second) / ((high - low) * (f - high))
        n_missing = (second - first * (low + high)) / ((f - low) * (f - high))
    return highs, n_missing, np.isfinite(highs) & np.isfinite(n_missing)


def binary_from_summaries(
    means: FloatArray, between: FloatArray, within: float, sizes: FloatArray, *, known: bool
) -> list[BinaryColumn]:
    """Return all pairs of whole numbers that fit a column of summary tables, by its means and variances.

    ``between`` is the variance between groups in each cluster, ``within`` the variance within groups. If the
    latter is not ``known``, the total variance has no lower bound. Means from 0 to 1 always fit a rate.
    """
    overall = float(np.average(means, weights=sizes))
    variance = float(np.average(between + (means - overall) ** 2, weights=sizes)) + within
    columns = []
    for span in range(1, SPAN + 1):
        slack = 0.02 * span
        for low in range(math.ceil(means.max() - slack) - span, math.floor(means.min() + slack) + 1):
            high, inside = low + span, np.clip(means, low, low + span)
            two = (overall - low) * (high - overall)
            max_between = _MAX_RATIO * (inside - low) * (high - inside) + (0.05 * span) ** 2
            fits = variance <= _MAX_RATIO * two + 1e-6 and (between <= max_between).all()
            rate = (low, high) == (0, 1) and (means >= 0).all() and (means <= 1).all()
            if fits and (rate or not known or variance >= _MIN_RATIO * two):
                share = (inside - low) / span
                columns.append(BinaryColumn(low, high, _people(sizes * (1 - share)), _people(sizes * share)))
    return sorted(columns, key=_rank)


def _rank(two: BinaryColumn) -> tuple[bool, int, float]:
    """Return the sorting key, the likeliest pair first: 0 and 1, then short numbers, then near ones."""
    return not two.is_rate, len(f"{two.low:g}{two.high:g}"), two.high - two.low


def _people(count: FloatArray) -> FloatArray:
    """Return whole numbers of people; a fraction of a person is one."""
    return np.where(count > 1e-6, np.maximum(np.rint(count), 1.0), 0.0)


def _short(value: float, span: float) -> bool:
    """Return True if a number has at most three decimals, to the precision of means over such a span.

    >>> _short(0.25, 1.0), _short(12.3456, 1.0)
    (True, False)
    """
    return abs(value - round(value, 3)) <= 1e-7 * span + 1e-12 * abs(value)


def _tidy(value: float, span: float) -> float:
    return round(value, 3) + 0.0 if _short(value, span) else value
