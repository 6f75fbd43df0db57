"""``native/grouping`` in numpy: the oracle of its tests, and what runs where nothing was compiled.

Everything is added up in the order of the compiled kernel, so that both give the same bits: over columns in
four partial sums, column j in number j mod 4, then (0 + 1) + (2 + 3); over rows one after the other, which is
what ``cumsum`` does. Here all groups are compared to find the nearest; the compiled kernel does so while
there are at most 512.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .reference_rows import Rows
from .results import Floats

Indices = NDArray[np.int64]

SAMPLE, CUT_TURNS, LARGE, FLAT = 512, 8, 32, 1e-24  # see native/grouping/cut.hpp
RESPLIT_TURNS, ROUNDING = 4, 1e-12  # see native/grouping/resplit.hpp
NEAREST, ROUNDS, ENOUGH, WORTH = 12, 10, 1e-3, 1e-9  # see native/grouping/groups.hpp and group.cpp
CUT_SHARE = 0.15  # of the time, for the first groups


def groups(Z: Rows, min_size: int, progress: Callable[[float], object]) -> Indices:
    """(n,) labels; Z has at least 2 ``min_size`` rows and ``min_size`` is at least 2."""
    n, columns = Z.shape
    X = np.zeros((n, (columns + 3) // 4 * 4))
    X[:, :columns] = Z
    if columns == 1:
        parts = _column(X, min_size)
    else:
        state = Groups(X, min_size)
        _cut(state, progress)
        Improvement(state).run(progress)
        parts = [np.array(rows) for rows in state.members if len(rows)]
    labels = np.empty(n, np.int64)
    for label, rows in enumerate(parts):
        labels[rows] = label
    return labels


def _dot(A: Floats, B: Floats) -> Floats:
    """Sums of products over the last axis, in lanes."""
    product = A * B
    lanes = product[..., :4].copy()
    for j in range(4, product.shape[-1], 4):
        lanes += product[..., j : j + 4]
    return np.asarray((lanes[..., 0] + lanes[..., 1]) + (lanes[..., 2] + lanes[..., 3]))


def apart(A: Floats, B: Floats) -> Floats:
    """Squared distances."""
    R = A - B
    return _dot(R, R)


def row_sum(X: Floats) -> Floats:
    """The sum of rows, one after the other."""
    return np.asarray(np.cumsum(X, axis=0)[-1])


def _principal(X: Floats, axis: Floats, turns: int) -> Floats:
    """Power iteration on centred rows, from the axis given."""
    for _ in range(turns):
        longer = row_sum(_dot(X, axis)[:, None] * X)
        size = np.sqrt(_dot(longer, longer))
        if not size > 0:
            break
        axis = longer / size
    return axis


class Groups:
    """Members, means, and when each group changed last. A slot without members is free."""

    def __init__(self, X: Floats, min_size: int) -> None:
        self.X, self.min_size, self.max_size = X, min_size, 2 * min_size - 1
        self.members: list[list[int]] = []
        self.free: list[int] = []
        self.changed: list[int] = []
        self.now = 0
        self.means = np.full((len(X) // min_size + 1, X.shape[1]), np.inf)  # of a free slot: near no group

    def open(self) -> int:
        if self.free:
            return self.free.pop()
        self.members.append([])
        self.changed.append(0)
        return len(self.members) - 1

    def close(self, g: int) -> None:
        self.members[g] = []
        self.means[g] = np.inf
        self.free.append(g)
        self.touch(g)

    def fill(self, g: int, rows: list[int]) -> None:
        self.members[g] = rows
        self.means[g] = row_sum(self.X[rows]) / len(rows)
        self.touch(g)

    def touch(self, g: int) -> None:
        self.now += 1
        self.changed[g] = self.now

    def squared_error(self) -> float:
        """Row by row in the order of groups."""
        order = [row for rows in self.members for row in rows]
        label = [g for g, rows in enumerate(self.members) for _ in rows]
        return float(np.cumsum(apart(self.X[order], self.means[label]))[-1])


def _cut(state: Groups, progress: Callable[[float], object]) -> None:
    """The first groups: rows cut in two across their principal axis until no part can be cut."""
    n, done = len(state.X), 0
    waiting = [np.arange(n)]
    while waiting:
        rows = waiting.pop()
        if len(rows) < 2 * state.min_size:
            state.fill(state.open(), rows.tolist())
            done += len(rows)
            continue
        rows, cut = _halves(state.X, rows, state.min_size)
        waiting += [rows[cut:], rows[:cut]]
        progress(CUT_SHARE * done / n)


def _halves(X: Floats, rows: Indices, min_size: int) -> tuple[Indices, int]:
    """The rows along their axis, and how many are in the first part."""
    n = len(rows)
    mean = row_sum(X[rows]) / n
    centred = X[rows] - mean
    sample = centred[:: 1 if n < 2 * SAMPLE else n // SAMPLE]
    axis = _principal(sample, sample[int(_dot(sample, sample).argmax())], CUT_TURNS)
    order = np.lexsort((rows, _dot(centred, axis)))
    low = min_size if n < LARGE * min_size else n // 8
    first = np.arange(low, n - low + 1)
    sums = np.cumsum(centred[order], axis=0)[first - 1]
    gain = _dot(sums, sums) * (1.0 / first + 1.0 / (n - first))
    best = int(gain.argmax())
    flat = not gain[best] > FLAT * n * _dot(mean, mean)
    return rows[order], n // 2 if flat else int(first[best])


def _best_parts(sums: Floats, min_size: int) -> tuple[float, list[int]]:
    """Consecutive parts with the least squared error: the sum over parts of |sum|^2 / size, and their ends.

    ``sums`` (count + 1, width) are those of the first 0, 1, .. count rows, about their mean.
    """
    count = len(sums) - 1
    value, origin = np.full(count + 1, -np.inf), np.zeros(count + 1, np.int64)
    value[0] = 0.0
    for end in range(min_size, count + 1):
        if end < count and count - end < min_size:
            continue  # too few would be left
        size = np.arange(min_size, min(2 * min_size - 1, end) + 1)
        size = size[(size == end) | (end - size >= min_size)]
        if len(size):
            found = value[end - size] + apart(sums[end], sums[end - size]) / size
            best = int(found.argmax())
            value[end], origin[end] = found[best], end - size[best]
    ends, end = [], count
    while end > 0:
        ends.append(end)
        end = int(origin[end])
    return float(value[count]), ends[::-1]


def _column(X: Floats, min_size: int) -> list[Indices]:
    """One column: the best groups are consecutive."""
    order = np.argsort(X[:, 0], kind="stable")
    sums = np.zeros((len(X) + 1, 4))
    np.cumsum(X[order, 0] - np.cumsum(X[:, 0])[-1] / len(X), out=sums[1:, 0])
    return np.split(order, _best_parts(sums, min_size)[1][:-1])


class Improvement:
    """Rounds over all groups whose neighbourhood changed."""

    resplits = True

    def __init__(self, state: Groups) -> None:
        self.state = state
        self.left = state.squared_error()
        self.worth = WORTH * self.left / len(state.X)
        self.seen: list[int] = []
        self.beside: list[list[int]] = []

    def run(self, progress: Callable[[float], object]) -> None:
        for number in range(ROUNDS):
            slots = len(self.state.members)
            self.seen += [-1] * (slots - len(self.seen))
            self.beside += [[] for _ in range(slots - len(self.beside))]
            gained = 0.0
            for g in range(slots):
                gained += self.visit(g)
                progress(1 - (1 - CUT_SHARE) * 0.5**number * (1 - 0.5 * g / slots))
            self.left -= gained
            if not gained > ENOUGH * (self.left + gained):
                return

    def visit(self, g: int) -> float:
        """By how much the squared error falls."""
        state, before = self.state, self.seen[g]
        around = [g, *self.beside[g]]
        if not state.members[g] or not any(state.changed[b] > before for b in around):
            return 0.0
        self.seen[g] = state.now
        beside = self.beside[g] = self.nearest(g)
        gained = 0.0
        for count in range(2, min(3, len(beside) + 1) + 1 if self.resplits else 2):
            which = [g, *beside[: count - 1]]
            if all(state.members[b] for b in which) and any(state.changed[b] > before for b in which):
                gained += self.resplit(which)
        whole = state.changed[g] > before
        chosen = [b for b in beside if state.members[b] and (whole or state.changed[b] > before)]
        return gained + self.trade(g, chosen) if chosen else gained

    def nearest(self, g: int) -> list[int]:
        means = self.state.means[: len(self.state.members)]
        away = apart(means[g], means)
        away[g] = np.inf
        order = np.argsort(away, kind="stable")[:NEAREST]
        return [int(b) for b in order if away[b] < np.inf]

    def resplit(self, which: list[int]) -> float:
        """All rows of some groups in order along their common axis, in the best consecutive parts."""
        state = self.state
        rows = np.array([row for g in which for row in state.members[g]])
        X = state.X[rows] - row_sum(state.X[rows]) / len(rows)
        before, at = 0.0, 0
        for g in which:
            size = len(state.members[g])
            own = row_sum(X[at : at + size])
            before += float(_dot(own, own) / size)
            at += size
        axis = _principal(X, state.means[which[1]] - state.means[which[0]], RESPLIT_TURNS)
        order = np.argsort(_dot(X, axis), kind="stable")
        sums = np.concatenate([np.zeros((1, X.shape[1])), np.cumsum(X[order], axis=0)])
        after, ends = _best_parts(sums, state.min_size)
        if not after - before > self.worth + ROUNDING * before:
            return 0.0
        for part, own_rows in enumerate(np.split(rows[order], ends[:-1])):
            state.fill(which[part] if part < len(which) else state.open(), own_rows.tolist())
        for g in which[len(ends) :]:
            state.close(g)
        return after - before

    def steps(self, g: int, beside: list[int]) -> "Steps":
        return Steps(self.state, g, beside)

    def trade(self, g: int, beside: list[int]) -> float:
        """Each row of the group makes the best move to one beside it, or the best swap with a row of one."""
        state, own = self.state, self.state.members[g]
        gained, i, steps = 0.0, 0, None
        while i < len(own):
            steps = steps or self.steps(g, beside)
            change, b, row = steps.best(i)
            if not change < -self.worth:
                i += 1
                continue
            gained -= change
            theirs = state.members[b]
            if row < 0:  # a move: the last row is now number i
                theirs.append(own[i])
                own[i] = own[-1]
                own.pop()
            else:
                own[i], theirs[row] = theirs[row], own[i]
                i += 1
            state.fill(g, own)
            state.fill(b, theirs)
            steps = None
        return gained


class Steps:
    """The change by the moves and swaps of a group's rows, as long as none is made."""

    def __init__(self, state: Groups, g: int, beside: list[int]) -> None:
        own = state.members[g]
        sizes = np.array([len(state.members[b]) for b in beside])
        self.beside, self.may_leave = beside, len(own) > state.min_size
        self.room = sizes < state.max_size
        self.size, self.sizes = len(own), sizes
        self.X = state.X[own]
        self.Y = state.X[[row for b in beside for row in state.members[b]]]
        self.of = np.repeat(np.arange(len(beside)), sizes)  # which group beside holds each row of Y
        self.begins = np.cumsum(sizes) - sizes
        mean, means = state.means[g], state.means[beside]
        self.here = apart(self.X, mean)
        self.there = apart(self.X[:, None], means)
        self.between = apart(self.Y, mean) - apart(self.Y, means[self.of])
        self.both = 1.0 / self.size + 1.0 / sizes

    def allowed(self, i: int, change: Floats) -> Floats:
        """The changes, infinite where a step is not allowed; the move to a group comes before its swaps."""
        return change

    def best(self, i: int) -> tuple[float, int, int]:
        """The change of squared error, the group and the row there, or -1 for a move.

        The first of the best, in the order of groups: the move, then the swaps.
        """
        here, there, n = self.here[i], self.there[i], self.sizes
        move = np.full(len(n), np.inf)
        if self.may_leave:
            leaves = self.size * here / (self.size - 1)
            move = np.where(self.room, n * there / (n + 1) - leaves, np.inf)
        away = there - here
        swap = (away[self.of] + self.between) - self.both[self.of] * apart(self.X[i], self.Y)
        change = self.allowed(i, np.insert(swap, self.begins, move))
        at = int(change.argmin())
        begins = self.begins + np.arange(len(n))  # of each group's changes, the move first
        q = int(np.searchsorted(begins, at, side="right")) - 1
        return float(change[at]), self.beside[q], at - int(begins[q]) - 1
