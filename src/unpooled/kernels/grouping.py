"""Microaggregation: rows in groups of ``min_size`` to 2 ``min_size`` - 1 that lie close.

Rows are cut in two across their principal axis until no part can be cut. Then, for up to 10 rounds, a group
is split anew together with its one or two nearest, and every row makes the best move to a near group or the
best swap with a row of one, as long as the squared distances to the groups' means fall. One column is solved
exactly. Domingo-Ferrer and Mateo-Sanz (2002) is the usual reference; their MDAV compares all pairs.

With ``ClassLimits`` no class exceeds its largest share in any group. The groups are repaired by the cheapest
swaps of two rows that lower the excess. Where no swap lowers it, two groups become one. Then moves and swaps
that leave no excess lower the squared distances again.

``native/grouping`` and ``reference_grouping`` add up in the same order: they give the same groups while
there are at most 512, and the compiled one gives the same groups on every machine.
"""

import importlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unpooled import kernels

from . import reference_diverse, reference_grouping
from .reference_rows import Rows

_NO_LIMITS = (np.zeros((0, 0), np.int32), np.zeros(1, np.int32), np.zeros(0))
LARGEST = 1e40  # products of six numbers of this size are still finite


class ClassLimits(NamedTuple):
    """The classes of rows in some columns, and the largest share of every class in a group.

    Shares are of the rows of a group that have a class in the column. All rows together keep the limits.
    """

    classes: NDArray[np.int32]  # (n, columns) numbers of classes, -1: none
    first: NDArray[np.int32]  # (columns + 1,) column c has the classes first[c] .. first[c + 1] - 1
    limits: NDArray[np.float64]  # (classes,)

    def excess(self, rows: NDArray[np.int64]) -> int:
        """Return how many of these rows are above the limits, added up over classes."""
        return int(self._above(rows).sum())

    def most_exceeded(self, rows: NDArray[np.int64]) -> int:
        """Return the class of which most of these rows are above its limit; -1 if there is none."""
        above = self._above(rows)
        return int(above.argmax()) if above.any() else -1

    def crowded(self, rows: NDArray[np.int64], row: int, size: int) -> bool:
        """Return whether a row would exceed a limit among these, even if ``size`` of them had a class."""
        own = self.classes[row]
        counts = (self.classes[rows] == own).sum(axis=0) + 1
        allowed = np.floor(self.limits[own] * size + reference_diverse.SLACK)
        return bool(((counts > allowed) & (own >= 0)).any())

    def _above(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(classes,) how many of these rows are above each limit."""
        above = np.zeros(len(self.limits), np.int64)
        for c, (begin, end) in enumerate(zip(self.first[:-1], self.first[1:], strict=True)):
            of = self.classes[rows, c]
            counts = np.bincount(of[of >= 0] - begin, minlength=end - begin)
            allowed = np.floor(self.limits[begin:end] * counts.sum() + reference_diverse.SLACK)
            above[begin:end] = np.maximum(counts - allowed, 0)
        return above


def groups(
    Z: Rows,
    min_size: int,
    *,
    limits: ClassLimits | None = None,
    progress: Callable[[float], object] | None = None,
) -> NDArray[np.int64]:
    """(n,) labels 0, 1, .. of groups of ``min_size`` to 2 ``min_size`` - 1 rows; of fewer rows, one group.

    Z (n, w) is finite and already scaled: columns count as they are. With ``limits`` no group exceeds one,
    and a group may be larger. ``progress`` is called now and then with the share that is done; what it raises
    ends the grouping.

    >>> labels = groups(np.array([[0.0, 1.0], [9.0, 1.0], [0.1, 1.0], [9.1, 1.0]]), 2)
    >>> bool(labels[0] == labels[2] != labels[1] == labels[3])
    True
    """
    rows = kernels._rows(Z)
    kernels._check_min(1 if limits is None else 2, min_size=min_size)
    n = len(rows)
    if n >= 2**31:
        raise ValueError(f"{n} rows are too many to be grouped at once")
    if n and not (float(rows.min()) >= -LARGEST and float(rows.max()) <= LARGEST):
        raise ValueError(f"rows to be grouped must be finite, and not larger than {LARGEST:g}")
    if limits is not None and limits.excess(np.arange(n)):
        raise ValueError("all rows together exceed a limit, so no groups can keep to it")
    tell = progress or (lambda share: None)
    tell(0.0)
    if n < 2 * min_size:
        labels = np.zeros(n, np.int64)
    elif min_size == 1:
        labels = np.arange(n)
    elif kernels.BACKEND == "native":
        labels = np.empty(n, np.int64)
        own = limits or _NO_LIMITS
        importlib.import_module("._native", __package__).groups(rows, min_size, *own, progress, labels)
    elif limits is None:
        labels = reference_grouping.groups(rows, min_size, tell)
    else:
        labels = reference_diverse.groups(rows, min_size, *limits, tell)
    tell(1.0)
    return labels
