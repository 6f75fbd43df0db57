"""The cells of a copy: means of groups in which nobody dominates, rounded; persons by level."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple

import numpy as np

from unpooled.privacy.microaggregation.people import CategoryMembership
from unpooled.protocol.exact_sum import exact_sum
from unpooled.typing import BoolArray, FloatArray, IntArray

_STEPS = 16  # of the scale of a column: means are multiples of its sixteenth
_FEWEST = 5  # persons with a number, below which a column is not shown: two far ones could be read off
_GROUPS_FOR_SPREAD = 10  # fewer groups show no variance


@dataclass(frozen=True)
class ColumnSpread:
    """Where the values of a column lie, without the g most extreme persons at either end."""

    median: float
    mean: float
    deviation: float
    typical: float  # mean distance to the median; 0 for a column that is constant but for a few persons
    constant: float = 0.0  # the value in place of such a column, see ``spread_of``

    @property
    def grid(self) -> float:
        """The step of rounding: a power of two, at most a sixteenth of the typical distance.

        >>> ColumnSpread(0.0, 0.0, 1.0, 5.0).grid
        0.25
        """
        return float(2.0 ** np.floor(np.log2(self.typical)) / _STEPS)


def spread_of(x: FloatArray, min_group_size: int) -> ColumnSpread | None:
    """The spread of the values (nan: none); None if too few persons have one to hide a dominating one.

    The two farthest never count, so that neither of them decides what is far. A column that is constant but
    for a few is shown as its median: exactly if g persons have it, else rounded, for it is somebody's own.
    Sums are exact: they are those of the whole, however its rows are divided (``whole``).
    """
    there = np.sort(x[~np.isnan(x)]) + 0.0
    if too_few(len(there), min_group_size):
        return None
    inner, near = TrimmedRange.from_count(len(there), min_group_size)
    median = float(np.median(there))
    middle = there[inner.first : inner.end]
    mean = _sum(middle) / len(middle)
    apart = np.sort(np.abs(there - median))[near.first : near.end]
    return spread_from(
        median,
        mean,
        _sum((middle - mean) ** 2) / len(middle),
        _sum(apart) / len(apart),
        int((there == median).sum()) >= min_group_size,
    )


def too_few(n: int, min_group_size: int) -> bool:
    """True if so few persons have a value that a column is not shown."""
    return n < max(min_group_size, _FEWEST)


class TrimmedRange(NamedTuple):
    """The places, in order, of the values that count."""

    first: int
    end: int

    @classmethod
    def from_count(cls, n: int, min_group_size: int) -> tuple["TrimmedRange", "TrimmedRange"]:
        """Of n values themselves, and of their distances to the median."""
        cut = min(min_group_size, (n - 1) // 3)
        return cls(cut, n - cut), cls(cut, n - max(cut, 2))


def spread_from(median: float, mean: float, variance: float, typical: float, common: bool) -> ColumnSpread:
    """The spread of a column; ``common`` says that enough persons have the median itself."""
    if not typical > max(1e-12 * abs(median), 1e-150):  # nothing but rounding
        typical = 0.0
    constant = median
    if abs(median) < 1e-150:
        constant = 0.0
    elif not common:
        step = 2.0 ** np.ceil(np.log2(abs(median)) - 20)  # a millionth
        constant = float(np.round(median / step) * step)
    return ColumnSpread(median, mean, float(np.sqrt(variance)), typical, constant)


def _sum(values: FloatArray) -> float:
    return float(exact_sum(values).rounded())


class WithinGroupSquares(NamedTuple):
    """Squared distances of values from the means of their groups, and of how many persons and groups."""

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
    """(G,) True where one person has more than ``share`` of a group's total of values (G, most), nan: none.

    Values below zero count by their size.

    >>> dominated(np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 3.0], [0.0, 0.0, np.nan]]), 0.5)
    array([False,  True, False])
    """
    size = np.abs(np.nan_to_num(values))
    found: BoolArray = size.max(axis=1) > share * size.sum(axis=1)
    return found


def number_cells(
    values: FloatArray, nobody: BoolArray, spread: ColumnSpread, min_group_size: int, share: float = 1.0
) -> tuple[FloatArray, FloatArray, WithinGroupSquares]:
    """Of values (G, most) by group: persons who have one (0: too few), their mean, the squares within.

    A cell in which one person has more than ``share`` of the total is not shown either.

    The company rule: a deviation from the site's median is cut to the power of two above twice the third
    largest of the group (or the site's typical one, if larger), so at most two persons are cut, and nobody
    moves the mean further than others nearly do.
    """
    values = np.where(nobody, np.nan, values)
    there = ~np.isnan(values)
    known = there.sum(axis=1).astype(np.float64)
    shown = (known >= min_group_size) & ~dominated(values, share)
    if not spread.typical:  # constant but for a few persons: the column is shown as its median
        return (
            np.where(shown, known, 0.0),
            np.where(shown, spread.constant, 0.0),
            WithinGroupSquares(0.0, 0.0, 0),
        )
    away = np.where(there, values - spread.median, 0.0)
    size = np.abs(away)
    third = np.partition(size, -3, axis=1)[:, -3] if size.shape[1] >= 3 else size.min(axis=1)
    limit = 2.0 ** np.ceil(np.log2(2.0 * np.maximum(third, spread.typical)))
    away = np.clip(away, -limit[:, None], limit[:, None])
    mean = away.sum(axis=1) / np.maximum(known, 1.0)
    residual = np.where(there & shown[:, None], away - mean[:, None], 0.0)
    inside = WithinGroupSquares(float((residual**2).sum()), float(known[shown].sum()), int(shown.sum()))
    grid = np.maximum(spread.grid, limit / 64)  # coarser where values are far: a cut one is a known number
    rounded = np.round((spread.median + mean) / grid) * grid + 0.0
    return np.where(shown, known, 0.0), np.where(shown, rounded, 0.0), inside


def category_cells(
    has: CategoryMembership,
    place: IntArray,
    categories: int,
    labels: IntArray,
    count: int,
    min_group_size: int,
) -> tuple[FloatArray, FloatArray]:
    """Persons of each group who have a value (0: too few), and by level, in whole persons.

    Who has several levels counts in parts; the parts of a group are rounded so that they add up to it, since
    a third of a person would tell that he has three rows.
    """
    group = labels[has.who]
    summed: Any = np.bincount(group * categories + place[has.category], has.share, count * categories)
    parts: FloatArray = np.round(summed.reshape(count, categories), 9)
    known = np.bincount(labels[np.unique(has.who)], minlength=count).astype(np.float64)
    by_category = np.floor(parts)
    lacking = (known - by_category.sum(axis=1)).astype(np.int64)  # go to the largest remainders
    rank = np.argsort(np.argsort(by_category - parts, axis=1, kind="stable"), axis=1, kind="stable")
    by_category += rank < lacking[:, None]
    shown = known >= min_group_size
    return np.where(shown, known, 0.0), np.where(shown[:, None], by_category, 0.0)
