"""The cells of a summary table: rounded means of groups in which nobody dominates, and people by category."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple

import numpy as np

from unpooled.privacy.microaggregation.people import CategoryMembership
from unpooled.protocol.exact_sum import exact_sum
from unpooled.typing import BoolArray, FloatArray, IntArray

_STEPS = 16  # of the scale of a column: means are multiples of its sixteenth
_FEWEST = 5  # people with a number, below which a column is suppressed: two extreme ones could be computed
_GROUPS_FOR_SPREAD = 10  # with fewer groups the variance is suppressed


@dataclass(frozen=True)
class ColumnSpread:
    """The location and spread of a column, without the g most extreme people at either end."""

    median: float
    mean: float
    deviation: float
    typical: float  # mean distance to the median; 0 for a column that is constant except for a few people
    constant: float = 0.0  # the value in place of such a column, see ``spread_of``
    values: tuple[float, ...] = ()  # if it has at most two: those that at least g people have

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ColumnSpread":
        return cls(**{**values, "values": tuple(values["values"])})

    @property
    def grid(self) -> float:
        """The step of rounding: a power of two, at most a sixteenth of the typical distance.

        >>> ColumnSpread(0.0, 0.0, 1.0, 5.0).grid
        0.25
        """
        return float(2.0 ** np.floor(np.log2(self.typical)) / _STEPS)


def spread_of(x: FloatArray, min_group_size: int) -> ColumnSpread | None:
    """Return the spread of the values (nan: missing); None if too few people have one.

    The two farthest never count, so that neither of them decides what is far. A column that is constant
    except for a few people is disclosed as its median: exactly if g people have it, otherwise rounded,
    because it is the value of one person. Sums are exact: they do not depend on how the rows are divided
    (``distributed.whole_site``).
    """
    there = np.sort(x[~np.isnan(x)]) + 0.0
    if too_few(len(there), min_group_size):
        return None
    inner, near = TrimmedRange.from_count(len(there), min_group_size)
    median = float(np.median(there))
    middle = there[inner.first : inner.end]
    mean = _sum(middle) / len(middle)
    apart = np.sort(np.abs(there - median))[near.first : near.end]
    low, high = float(there[0]), float(there[-1])
    ends = int((there == low).sum()), int((there == high).sum())
    return spread_from(
        median,
        mean,
        _sum((middle - mean) ** 2) / len(middle),
        _sum(apart) / len(apart),
        int((there == median).sum()) >= min_group_size,
        common_of_two(low, high, *ends, len(there), min_group_size),
    )


def too_few(n: int, min_group_size: int) -> bool:
    """Return whether so few people have a value that a column is suppressed."""
    return n < max(min_group_size, _FEWEST)


class TrimmedRange(NamedTuple):
    """The positions, in order, of the values that count."""

    first: int
    end: int

    @classmethod
    def from_count(cls, n: int, min_group_size: int) -> tuple["TrimmedRange", "TrimmedRange"]:
        """Of n values themselves, and of their distances to the median."""
        cut = min(min_group_size, (n - 1) // 3)
        return cls(cut, n - cut), cls(cut, n - max(cut, 2))


def common_of_two(
    low: float, high: float, lows: int, highs: int, people: int, min_group_size: int
) -> tuple[float, ...]:
    """Return the values that at least g people have, by the people at both ends; () if there are others.

    >>> common_of_two(0.0, 1.0, 90, 10, 100, 5), common_of_two(0.0, 1.0, 97, 3, 100, 5)
    ((0.0, 1.0), (0.0,))
    """
    if low == high:
        return (float(low),) if lows >= min_group_size else ()
    if lows + highs < people:
        return ()
    return tuple(float(v) for v, n in ((low, lows), (high, highs)) if n >= min_group_size)


def spread_from(
    median: float, mean: float, variance: float, typical: float, common: bool, values: tuple[float, ...]
) -> ColumnSpread:
    """Return the spread of a column; with ``common``, enough people have the median itself."""
    if not typical > max(1e-12 * abs(median), 1e-150):  # only rounding
        typical = 0.0
    constant = median
    if abs(median) < 1e-150:
        constant = 0.0
    elif not common:
        step = 2.0 ** np.ceil(np.log2(abs(median)) - 20)  # a millionth
        constant = float(np.round(median / step) * step)
    return ColumnSpread(median, mean, float(np.sqrt(variance)), typical, constant, values)


def _sum(values: FloatArray) -> float:
    return float(exact_sum(values).rounded())


class WithinGroupSquares(NamedTuple):
    """Squared distances of values from the means of their groups, and the numbers of people and groups."""

    squares: float
    people: float
    groups: int

    @classmethod
    def together(cls, parts: Sequence["WithinGroupSquares"]) -> "WithinGroupSquares":
        return cls(
            fsum(part.squares for part in parts),
            fsum(part.people for part in parts),
            sum(part.groups for part in parts),
        )

    @property
    def variance(self) -> float:
        """The variance within groups, to two digits; nan if it is of too few groups."""
        if self.groups < _GROUPS_FOR_SPREAD:
            return float("nan")
        return float(f"{self.squares / max(self.people, 1.0):.1e}")


def dominated(values: FloatArray, share: float) -> BoolArray:
    """Return (G,) True where one person has more than ``share`` of the sum of values (G, most), nan: missing.

    Values below zero count by their size.

    >>> dominated(np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 3.0], [0.0, 0.0, np.nan]]), 0.5)
    array([False,  True, False])
    """
    size = np.abs(np.nan_to_num(values))
    dominating: BoolArray = size.max(axis=1) > share * size.sum(axis=1)
    return dominating


def number_cells(
    values: FloatArray, nobody: BoolArray, spread: ColumnSpread, min_group_size: int, share: float = 1.0
) -> tuple[FloatArray, FloatArray, WithinGroupSquares]:
    """Return, by group of values (G, most): people with a value (0: too few), their mean, the squares within.

    A cell in which one person has more than ``share`` of the total is suppressed, too. A deviation from the
    site's median is cut to the power of two above twice the third largest of the group (or the site's typical
    one, if larger). So at most two people are cut, and nobody moves the mean further than others nearly do.
    A column of two values keeps them: in an update another value counts as the nearer one.
    """
    values = np.where(nobody, np.nan, values)
    if len(spread.values) == 2:
        low, high = spread.values
        values = np.where(np.isnan(values), np.nan, np.where(values - low <= high - values, low, high))
    there = ~np.isnan(values)
    known = there.sum(axis=1).astype(np.float64)
    disclosed = (known >= min_group_size) & ~dominated(values, share)
    if not spread.typical:  # constant except for a few people: the column is disclosed as its median
        return (
            np.where(disclosed, known, 0.0),
            np.where(disclosed, spread.constant, 0.0),
            WithinGroupSquares(0.0, 0.0, 0),
        )
    away = np.where(there, values - spread.median, 0.0)
    size = np.abs(away)
    third = np.partition(size, -3, axis=1)[:, -3] if size.shape[1] >= 3 else size.min(axis=1)
    limit = 2.0 ** np.ceil(np.log2(2.0 * np.maximum(third, spread.typical)))
    away = np.clip(away, -limit[:, None], limit[:, None])
    mean = away.sum(axis=1) / np.maximum(known, 1.0)
    residual = np.where(there & disclosed[:, None], away - mean[:, None], 0.0)
    inside = WithinGroupSquares(
        float((residual**2).sum()), float(known[disclosed].sum()), int(disclosed.sum())
    )
    grid = np.maximum(spread.grid, limit / 64)  # coarser for far values: a cut one is a known number
    rounded = np.round((spread.median + mean) / grid) * grid + 0.0
    return np.where(disclosed, known, 0.0), np.where(disclosed, rounded, 0.0), inside


def category_cells(
    has: CategoryMembership,
    place: IntArray,
    categories: int,
    labels: IntArray,
    count: int,
    min_group_size: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the people of each group who have a value (0: too few), and by category, in whole people.

    A person with several categories counts in parts. The parts of a group are rounded so that they add up to
    it, because a third of a person would reveal that they have three rows.
    """
    group = labels[has.who]
    summed: Any = np.bincount(group * categories + place[has.category], has.share, count * categories)
    parts: FloatArray = np.round(summed.reshape(count, categories), 9)
    known = np.bincount(labels[np.unique(has.who)], minlength=count).astype(np.float64)
    by_category = np.floor(parts)
    lacking = (known - by_category.sum(axis=1)).astype(np.int64)  # go to the largest remainders
    rank = np.argsort(np.argsort(by_category - parts, axis=1, kind="stable"), axis=1, kind="stable")
    by_category += rank < lacking[:, None]
    disclosed = known >= min_group_size
    return np.where(disclosed, known, 0.0), np.where(disclosed[:, None], by_category, 0.0)
