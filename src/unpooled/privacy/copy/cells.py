"""The cells of a copy: means of groups in which nobody dominates, rounded; persons by level."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.core.arrays import BoolArray, FloatArray, IntArray
from unpooled.privacy.copy.persons import Held

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


def spread_of(x: FloatArray, g: int) -> ColumnSpread | None:
    """The spread of the values (nan: none); None if too few persons have one to hide a dominating one.

    The two farthest never count, so that neither of them decides what is far. A column that is constant but
    for a few is shown as its median: exactly if g persons have it, else rounded, for it is somebody's own.
    """
    there = np.sort(x[~np.isnan(x)])
    n = len(there)
    if n < max(g, _FEWEST):
        return None
    median = float(np.median(there))
    cut = min(g, (n - 1) // 3)
    middle = there[cut : n - cut]
    apart = np.sort(np.abs(there - median))[cut : n - max(cut, 2)]
    typical = float(apart.mean()) if len(apart) else 0.0
    if not typical > max(1e-12 * abs(median), 1e-150):  # nothing but rounding
        typical = 0.0
    constant = median
    if abs(median) < 1e-150:
        constant = 0.0
    elif (there == median).sum() < g:
        step = 2.0 ** np.ceil(np.log2(abs(median)) - 20)  # a millionth
        constant = float(np.round(median / step) * step)
    return ColumnSpread(median, float(middle.mean()), float(middle.std()), typical, constant)


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
    values: FloatArray, nobody: BoolArray, spread: ColumnSpread, g: int, share: float = 1.0
) -> tuple[FloatArray, FloatArray, float]:
    """Of values (G, most) by group: persons who have one (0: too few), their mean, the variance within.

    A cell in which one person has more than ``share`` of the total is not shown either.

    The company rule: a deviation from the site's median is cut to the power of two above twice the third
    largest of the group (or the site's typical one, if larger), so at most two persons are cut, and nobody
    moves the mean further than others nearly do.
    """
    values = np.where(nobody, np.nan, values)
    there = ~np.isnan(values)
    known = there.sum(axis=1).astype(np.float64)
    shown = (known >= g) & ~dominated(values, share)
    if not spread.typical:  # constant but for a few persons: the column is shown as its median
        return np.where(shown, known, 0.0), np.where(shown, spread.constant, 0.0), float("nan")
    away = np.where(there, values - spread.median, 0.0)
    size = np.abs(away)
    third = np.partition(size, -3, axis=1)[:, -3] if size.shape[1] >= 3 else size.min(axis=1)
    limit = 2.0 ** np.ceil(np.log2(2.0 * np.maximum(third, spread.typical)))
    away = np.clip(away, -limit[:, None], limit[:, None])
    mean = away.sum(axis=1) / np.maximum(known, 1.0)
    residual = np.where(there & shown[:, None], away - mean[:, None], 0.0)
    variance = float((residual**2).sum() / max(float(known[shown].sum()), 1.0))
    grid = np.maximum(spread.grid, limit / 64)  # coarser where values are far: a cut one is a known number
    rounded = np.round((spread.median + mean) / grid) * grid + 0.0
    return (
        np.where(shown, known, 0.0),
        np.where(shown, rounded, 0.0),
        float(f"{variance:.1e}") if shown.sum() >= _GROUPS_FOR_SPREAD else float("nan"),
    )


def category_cells(
    has: Held, place: IntArray, levels: int, labels: IntArray, count: int, g: int
) -> tuple[FloatArray, FloatArray]:
    """Persons of each group who have a value (0: too few), and by level, in whole persons.

    Who has several levels counts in parts; the parts of a group are rounded so that they add up to it, since
    a third of a person would tell that he has three rows.
    """
    group = labels[has.who]
    summed: Any = np.bincount(group * levels + place[has.level], has.share, count * levels)
    parts: FloatArray = np.round(summed.reshape(count, levels), 9)
    known = np.bincount(labels[np.unique(has.who)], minlength=count).astype(np.float64)
    by_level = np.floor(parts)
    lacking = (known - by_level.sum(axis=1)).astype(np.int64)  # go to the largest remainders
    rank = np.argsort(np.argsort(by_level - parts, axis=1, kind="stable"), axis=1, kind="stable")
    by_level += rank < lacking[:, None]
    shown = known >= g
    return np.where(shown, known, 0.0), np.where(shown[:, None], by_level, 0.0)
