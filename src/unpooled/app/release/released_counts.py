"""Counts as they may be released: small ones redacted, and what would give them away; the rest rounded.

Every total of a release is a sum of counts that are shown in it, after rounding. So no total says anything
that the shown counts do not say, and nothing redacted follows from it by subtraction. Redacted counts of a
row, or of a column, are together at least the smallest count that may be shown, and no small one follows from
the others, for the case that somebody knows the true totals from elsewhere.
"""

from dataclasses import dataclass

import numpy as np

from unpooled.privacy.presets import Preset
from unpooled.protocol.suppression import complementary_suppression
from unpooled.typing import BoolArray, FloatArray

REDACTED = "[REDACTED]"


def rounded(counts: FloatArray, base: int) -> FloatArray:
    """The nearest multiples of ``base``; halves go up.

    >>> rounded(np.array([7.0, 8.0, 12.0, 13.0]), 5).tolist()
    [5.0, 10.0, 10.0, 15.0]
    """
    nearest: FloatArray = np.floor(counts / base + 0.5) * base
    return nearest


def large_enough(counts: FloatArray, preset: Preset) -> BoolArray:
    """True where a count is none, or large enough both as it is and rounded.

    >>> from unpooled.privacy.presets import PRESETS
    >>> large_enough(np.array([0.0, 7.0, 8.0, 11.0]), PRESETS["opensafely"]).tolist()
    [True, False, True, True]
    >>> large_enough(np.array([11.0, 12.0, 13.0]), PRESETS["cms"]).tolist()  # 11 and 12 would be shown as 10
    [False, False, True]
    """
    least = np.minimum(counts, rounded(counts, preset.rounding))
    enough: BoolArray = (counts == 0) | ((counts > 0) & (least >= preset.min_people))
    return enough


@dataclass(frozen=True, eq=False)
class Counts:
    """A table of counts of which some are shown, as multiples of the preset's rounding."""

    disclosed: BoolArray  # (rows, columns)
    values: FloatArray  # (rows, columns) rounded; 0 where not shown

    @classmethod
    def from_counts(cls, counts: FloatArray, preset: Preset) -> "Counts":
        """The counts (rows, columns) under a preset; nan: the site itself did not show it."""
        known = np.nan_to_num(counts)
        disclosed = large_enough(known, preset) & ~np.isnan(counts)
        small = ~disclosed & (known > 0)
        while True:
            before, disclosed = disclosed, _suppress_beside(disclosed, known, small)
            for turned in (False, True):
                mask, mass = (disclosed.T, known.T) if turned else (disclosed, known)
                mask = complementary_suppression(mask, mass, mass, float(preset.min_people))
                disclosed = mask.T if turned else mask
            if np.array_equal(before, disclosed):
                break
        return cls(disclosed, np.where(disclosed, rounded(known, preset.rounding), 0.0))

    def text(self, i: int, j: int) -> str:
        return f"{self.values[i, j]:.0f}" if self.disclosed[i, j] else REDACTED

    def total(self, j: int) -> str:
        """The sum of what is shown in a column; redacted if nothing but zeros is shown."""
        total = self.values[:, j].sum()
        return f"{total:.0f}" if total else REDACTED if not self.disclosed[:, j].all() else "0"

    @property
    def redacted(self) -> int:
        return int((~self.disclosed).sum())


def is_derivable(suppressed: BoolArray, i: int, j: int) -> bool:
    """True if a hidden cell follows from the true totals of all rows and columns and the cells not hidden.

    Rows and columns are the ends of hidden cells; a cell follows unless another way leads from its row to
    its column.

    >>> is_derivable(np.array([[True, True], [True, True]]), 0, 0)
    False
    >>> is_derivable(np.array([[True, True], [True, False]]), 0, 0)
    True
    """
    rows, seen_columns = {i}, np.zeros(suppressed.shape[1], dtype=np.bool_)
    waiting = [i]
    while waiting:
        row = waiting.pop()
        for column in np.flatnonzero(suppressed[row] & ~seen_columns).tolist():
            if (row, column) == (i, j):
                continue
            seen_columns[column] = True
            more = [r for r in np.flatnonzero(suppressed[:, column]).tolist() if r not in rows]
            rows.update(more)
            waiting += more
    return not seen_columns[j]


def _suppress_beside(disclosed: BoolArray, known: FloatArray, small: BoolArray) -> BoolArray:
    """Hide three cells beside each small one that would follow: of its row, of its column, and between both.

    Those with the fewest persons are taken; if there are no three, the smallest of its row or column.
    """
    disclosed = disclosed.copy()
    for i, j in zip(*(place.tolist() for place in np.nonzero(small)), strict=True):
        if not is_derivable(~disclosed & (known > 0), i, j):
            continue
        cost = np.where(known > 0, np.where(disclosed, known, 0.0), np.inf)
        three = cost[i][None, :] + cost[:, j][:, None] + cost
        three[i], three[:, j] = np.inf, np.inf
        row, column = np.unravel_index(int(three.argmin()), three.shape)
        if np.isfinite(three[row, column]):
            disclosed[i, column] = disclosed[row, j] = disclosed[row, column] = False
            continue
        line = np.where(disclosed & (known > 0), known, np.inf)
        for place in ((i, int(line[i].argmin())), (int(line[:, j].argmin()), j)):
            if np.isfinite(line[place]):
                disclosed[place] = False
                break
    return disclosed
