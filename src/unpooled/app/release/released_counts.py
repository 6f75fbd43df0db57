"""Counts for a release: small counts and those that would disclose them are redacted, the others rounded.

Every total of a release is the sum of disclosed counts, after rounding. Therefore no total discloses more
than these counts, and no redacted count can be computed from it by subtraction. The redacted counts of a row
or a column add up to at least the smallest count that may be disclosed, and a small one cannot be computed
from the others, even by someone who knows the true totals.
"""

from dataclasses import dataclass

import numpy as np

from unpooled.privacy.presets import Preset
from unpooled.protocol.suppression import complementary_suppression
from unpooled.typing import BoolArray, FloatArray

REDACTED = "[REDACTED]"


def rounded(counts: FloatArray, base: int) -> FloatArray:
    """Return the nearest multiples of ``base``; halves are rounded up.

    >>> rounded(np.array([7.0, 8.0, 12.0, 13.0]), 5).tolist()
    [5.0, 10.0, 10.0, 15.0]
    """
    nearest: FloatArray = np.floor(counts / base + 0.5) * base
    return nearest


def large_enough(counts: FloatArray, preset: Preset) -> BoolArray:
    """Return True where a count is 0, or large enough both before and after rounding.

    >>> from unpooled.privacy.presets import PRESETS
    >>> large_enough(np.array([0.0, 7.0, 8.0, 11.0]), PRESETS["opensafely"]).tolist()
    [True, False, True, True]
    >>> large_enough(np.array([11.0, 12.0, 13.0]), PRESETS["cms"]).tolist()  # 11 and 12 would become 10
    [False, False, True]
    """
    smaller = np.minimum(counts, rounded(counts, preset.rounding))
    enough: BoolArray = (counts == 0) | ((counts > 0) & (smaller >= preset.min_people))
    return enough


@dataclass(frozen=True, eq=False)
class Counts:
    """A table of counts of which some are disclosed, as multiples of the preset's rounding."""

    disclosed: BoolArray  # (rows, columns)
    values: FloatArray  # (rows, columns) rounded; 0 where redacted

    @classmethod
    def from_counts(cls, counts: FloatArray, preset: Preset) -> "Counts":
        """Return the counts (rows, columns) under a preset; the site itself suppressed those that are nan."""
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
        """Return a count as the release shows it."""
        return f"{self.values[i, j]:.0f}" if self.disclosed[i, j] else REDACTED

    def total(self, j: int) -> str:
        """Return the sum of a column's disclosed counts; redacted if all these are 0 and others redacted."""
        total = self.values[:, j].sum()
        return f"{total:.0f}" if total else REDACTED if not self.disclosed[:, j].all() else "0"

    @property
    def redacted(self) -> int:
        return int((~self.disclosed).sum())


def is_derivable(suppressed: BoolArray, i: int, j: int) -> bool:
    """Return True if a suppressed cell can be computed from all true totals and the cells not suppressed.

    Rows and columns are the nodes of a graph, suppressed cells its edges. A cell can be computed unless
    another path leads from its row to its column.

    >>> is_derivable(np.array([[True, True], [True, True]]), 0, 0)
    False
    >>> is_derivable(np.array([[True, True], [True, False]]), 0, 0)
    True
    """
    rows, reached_columns = {i}, np.zeros(suppressed.shape[1], dtype=np.bool_)
    queue = [i]
    while queue:
        row = queue.pop()
        for column in np.flatnonzero(suppressed[row] & ~reached_columns).tolist():
            if (row, column) == (i, j):
                continue
            reached_columns[column] = True
            more = [r for r in np.flatnonzero(suppressed[:, column]).tolist() if r not in rows]
            rows.update(more)
            queue += more
    return not reached_columns[j]


def _suppress_beside(disclosed: BoolArray, known: FloatArray, small: BoolArray) -> BoolArray:
    """Suppress three cells with each small one that could be computed, the four corners of a rectangle.

    The three with the fewest people are taken; if there are no three, the smallest cell of the row or column.
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
