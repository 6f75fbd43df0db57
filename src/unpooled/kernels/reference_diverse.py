"""``native/grouping/repair.hpp`` and ``classes.hpp`` in numpy: groups in which no class exceeds its limit.

Distances are added up as in ``reference_grouping``, and counts are whole numbers: both give the same groups.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from . import reference_grouping
from .reference_grouping import Groups, Improvement, Indices, Steps, apart, row_sum
from .reference_rows import Rows
from .results import Floats

SLACK = 1e-9  # see native/grouping/classes.hpp
NEARBY = (12, 144)  # see native/grouping/repair.hpp
PLAIN_SHARE, REPAIRED_SHARE = 0.5, 0.7  # see native/grouping/group.cpp


def groups(
    Z: Rows,
    min_size: int,
    classes: NDArray[np.int32],
    first: NDArray[np.int32],
    limits: Floats,
    progress: Callable[[float], object],
) -> Indices:
    """(n,) labels; Z has at least 2 ``min_size`` rows, and all rows together are within the limits."""
    labels = reference_grouping.groups(Z, min_size, lambda share: progress(PLAIN_SHARE * share))
    n, columns = Z.shape
    X = np.zeros((n, (columns + 3) // 4 * 4))
    X[:, :columns] = Z
    excess = _Excess(classes, first, limits)
    parts = [np.flatnonzero(labels == label).tolist() for label in range(int(labels.max()) + 1)]
    _Repair(X, excess, parts).run(
        lambda share: progress(PLAIN_SHARE + (REPAIRED_SHARE - PLAIN_SHARE) * share)
    )
    state, done = Groups(X, min_size), []
    for rows in parts:
        if len(rows) > state.max_size:
            done.append(rows)
        elif rows:
            state.fill(state.open(), rows)
    if state.members:
        _LimitedImprovement(state, excess).run(
            lambda share: progress(REPAIRED_SHARE + (1 - REPAIRED_SHARE) * share)
        )
    for label, rows in enumerate([*done, *state.members]):
        labels[rows] = label
    return labels


class _Excess:
    """How many rows of each class a group has above the limit, added up."""

    def __init__(self, classes: NDArray[np.int32], first: NDArray[np.int32], limits: Floats) -> None:
        self.column = np.repeat(np.arange(len(first) - 1), np.diff(first))
        self.limits = limits
        self.has = (classes >= 0).astype(np.int64)  # (n, columns)
        self.one_hot = np.zeros((len(classes), len(limits)), np.int64)
        row, column = np.nonzero(classes >= 0)
        self.one_hot[row, classes[row, column]] = 1

    def of(self, counts: Indices, known: Indices) -> Indices:
        """Counts (.., classes) and rows with a class (.., columns), by group."""
        allowed = np.floor(self.limits * known[..., self.column] + SLACK)
        return np.asarray(np.maximum(counts - allowed, 0).sum(axis=-1), dtype=np.int64)

    def counts(self, rows: list[int]) -> tuple[Indices, Indices]:
        return self.one_hot[rows].sum(axis=0), self.has[rows].sum(axis=0)

    def after(self, counts: Indices, known: Indices, out: Indices | None, enters: Indices | None) -> Indices:
        """The excess of groups without the rows ``out`` and with the rows ``enters``, by pair of rows."""
        if out is not None:
            counts, known = counts - self.one_hot[out], known - self.has[out]
        if enters is not None:
            counts, known = counts + self.one_hot[enters], known + self.has[enters]
        return self.of(counts, known)


class _Repair:
    """Swaps that lower the excess, and joins where there is none."""

    def __init__(self, X: Floats, excess: _Excess, parts: list[list[int]]) -> None:
        self.X, self.excess, self.parts = X, excess, parts
        self.means = np.array([row_sum(X[rows]) / len(rows) for rows in parts])
        self.counts, self.known = map(np.array, zip(*(excess.counts(rows) for rows in parts), strict=True))
        self.over = excess.of(self.counts, self.known)

    def run(self, progress: Callable[[float], object]) -> None:
        again = True
        while again:
            again = False
            for g in range(len(self.parts)):
                while self.parts[g] and self.over[g]:
                    near = self.nearest(g)
                    if not near:
                        return
                    if not self.swap(g, near):
                        self.join(g, near[0])
                    again = True
                    progress(g / len(self.parts))

    def nearest(self, g: int) -> list[int]:
        away = apart(self.means[g], self.means)
        return [int(b) for b in np.argsort(away, kind="stable") if b != g and self.parts[b]]

    def swap(self, g: int, near: list[int]) -> bool:
        begin = 0
        for end in (*NEARBY, len(near)):
            change, b, i, r = self.cheapest(g, near[begin:end])
            begin = end
            if change < np.inf:
                own, theirs = self.parts[g], self.parts[b]
                own[i], theirs[r] = theirs[r], own[i]
                self.refresh(g)
                self.refresh(b)
                return True
        return False

    def cheapest(self, g: int, near: list[int]) -> tuple[float, int, int, int]:
        """The change by the first of the best swaps, the group, and the rows given and taken."""
        if not near:
            return np.inf, -1, -1, -1
        own, sizes = self.parts[g], np.array([len(self.parts[b]) for b in near])
        others = np.array([row for b in near for row in self.parts[b]])
        of = np.repeat(near, sizes)  # which group holds each of them
        out, enters = np.array(own)[:, None], others[None, :]
        excess = self.excess.after(self.counts[g], self.known[g], out, enters)
        excess = excess + self.excess.after(self.counts[of], self.known[of], enters, out)
        X, Y = self.X[own], self.X[others]
        away = apart(X[:, None], self.means[of]) - apart(X, self.means[g])[:, None]
        between = apart(Y, self.means[g]) - apart(Y, self.means[of])
        both = 1.0 / len(own) + 1.0 / np.repeat(sizes, sizes)
        change = (away + between) - both * apart(X[:, None], Y)
        change[excess >= self.over[g] + self.over[of]] = np.inf
        best = change.min()
        i, at = np.nonzero(change == best)
        first = int(np.lexsort((at, i, np.repeat(np.arange(len(near)), sizes)[at]))[0])
        b = int(of[at[first]])
        begin = int(np.flatnonzero(of == b)[0])
        return float(best), b, int(i[first]), int(at[first]) - begin

    def join(self, g: int, other: int) -> None:
        self.parts[g] += self.parts[other]
        self.parts[other] = []
        self.over[other] = 0
        self.refresh(g)

    def refresh(self, g: int) -> None:
        self.means[g] = row_sum(self.X[self.parts[g]]) / len(self.parts[g])
        self.counts[g], self.known[g] = self.excess.counts(self.parts[g])
        self.over[g] = self.excess.of(self.counts[g], self.known[g])


class _LimitedImprovement(Improvement):
    """Moves and swaps that leave no excess."""

    resplits = False

    def __init__(self, state: Groups, excess: _Excess) -> None:
        super().__init__(state)
        self.excess = excess

    def steps(self, g: int, beside: list[int]) -> Steps:
        return _LimitedSteps(self.state, g, beside, self.excess)


class _LimitedSteps(Steps):
    def __init__(self, state: Groups, g: int, beside: list[int], excess: _Excess) -> None:
        super().__init__(state, g, beside)
        self.excess, self.own = excess, state.members[g]
        self.counts, self.known = excess.counts(self.own)
        theirs = [excess.counts(state.members[b]) for b in beside]
        self.their_counts, self.their_known = map(np.array, zip(*theirs, strict=True))
        self.others = np.array([row for b in beside for row in state.members[b]])

    def allowed(self, i: int, change: Floats) -> Floats:
        after, row = self.excess.after, np.array([self.own[i]])
        swaps = after(self.counts, self.known, row, self.others) + after(
            self.their_counts[self.of], self.their_known[self.of], self.others, row
        )
        moves = after(self.counts, self.known, row, None) + after(
            self.their_counts, self.their_known, None, row
        )
        change[np.insert(swaps, self.begins, moves) > 0] = np.inf
        return change
