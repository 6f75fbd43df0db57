"""The search for rows: two sets of rows that differ by one row x have n - n' = 1 and Q - Q' = |S - S'|^2.

The sets are unions of groups of one partition, compared with those of all others: first single groups, then
unions of more, then differences of unions by a few rows. Every row found is subtracted from its group in each
partition, and the search starts again on what is left.

If columns have few different values, Q fits by chance too: x + y - z with a right angle at z. By the centres
that were sent, such a row mostly lies outside the set that it should be in. A search that meets one accepts
only rows on which several pairs of partitions agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from unpooled.site.audit.known_sums import Space
from unpooled.typing import BoolArray, FloatArray, IntArray

_SIZES = (1, 2, 3, 4, 6)  # groups in a union, in the order of the search
_SUBSETS = 5000  # unions of one partition
_UNIONS = 200_000  # unions of all partitions
_FEW = 8  # rows by which two unions differ, in the search among differences
_PAIRS = 200_000  # such differences
_WORK = 6e9  # comparisons in all: half a minute
_MAKE, _TAKE = 1e3, 1e4  # the time to make a set, and to subtract a row in a partition, in comparisons
_BLOCK = 256  # sets compared at once: their products stay in the cache
_EXACT = 1e-9  # tolerance for Q = |S|^2, relative to the square of a row
_AGREE = 2  # pairs of partitions that must agree on a row, where Q fits by chance too


_NONE = -1  # as a partition: the empty set; below it: cells whose rows are not known


@dataclass(frozen=True, eq=False)
class Sets:
    """Sets of rows, sorted by n: their sums, and of which groups they consist."""

    n: FloatArray  # (m,)
    sums: FloatArray  # (m, d)
    squares: FloatArray  # (m,)
    made: IntArray  # (m, 2, 3): partition, subset, complement; the second part is subtracted

    def __getitem__(self, index: IntArray | BoolArray) -> "Sets":
        return Sets(self.n[index], self.sums[index], self.squares[index], self.made[index])

    @staticmethod
    def joined(parts: "list[Sets]") -> "Sets":
        names = ("n", "sums", "squares", "made")
        return Sets(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def each_once(self, spread: float) -> "Sets":
        mix = np.random.default_rng(0).standard_normal(self.sums.shape[1])
        key = np.round(self.sums @ mix / spread**0.5, 5)
        order = np.lexsort((key, self.n))
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (np.diff(key[order]) != 0) | (np.diff(self.n[order]) != 0)
        return self[order[new]]


def rows_in(space: Space) -> Iterator[FloatArray]:
    """Rows (d,) about the space's origin, each as soon as it is found and subtracted."""
    work, step = _WORK, 0
    sets = _unions(space, 2)
    if _cost(sets) < work:
        _one_apart(sets, space, 2)  # to know whether Q fits by chance, before any row is taken
    for row in _one_apart(_with_spared(space), space, 1):
        if space.take(row):
            yield row
    while step <= len(_SIZES) and space.rows > 0:
        unions = step < len(_SIZES)
        if not unions and space.chance:
            return
        sets = _unions(space, _SIZES[step]) if unions else _differences(space)
        work -= _cost(sets)
        found = 0
        for row in _one_apart(sets, space, _SIZES[step] if unions else 2) if work > 0 else ():
            work -= _TAKE * len(space.partitions)
            if space.take(row):
                found += 1
                yield row
        if work <= 0:
            return
        step = 0 if found else step + 1


def _unions(space: Space, size: int) -> Sets:
    """All unions of up to ``size`` groups, each set once, the empty one included.

    A - B is also the difference of the complements: so none of more than half of the rows is needed.
    """
    made = np.full((1, 2, 3), _NONE)
    parts = [Sets(np.zeros(1), np.zeros((1, space.width)), np.zeros(1), made)]
    left = _UNIONS
    for number, p in enumerate(space.partitions):
        live = np.flatnonzero(p.n > 0)
        values = np.column_stack([p.n, p.sums, p.squares])[live]
        sums = _subsets(len(live), size) @ values
        made = np.full((len(sums), 2, 3), _NONE)
        made[:, 0] = np.column_stack([np.full(len(sums), number), np.arange(len(sums)), np.zeros(len(sums))])
        if (p.group >= 0).all() and np.isfinite(space.rows):
            sums, made = np.concatenate([sums, values.sum(axis=0) - sums]), np.concatenate([made, made])
            made[len(made) // 2 :, 0, 2] = 1
            half = sums[:, 0] <= space.rows / 2 + 1
            sums, made = sums[half], made[half]
        parts.append(Sets(sums[:left, 0], sums[:left, 1:-1], sums[:left, -1], made[:left]))
        left -= len(parts[-1].n)
    return Sets.joined(parts).each_once(space.spread)


def _with_spared(space: Space) -> Sets:
    """All groups, and the cells that may lack rows, which fit as long as no row was subtracted."""
    parts = [_unions(space, 1)]
    for n, sums, squares in space.spared:
        made = np.full((len(n), 2, 3), _NONE)
        made[:, 0, 0] -= 1 + len(parts)
        parts.append(Sets(n, sums, squares, made))
    return Sets.joined(parts).each_once(space.spread)


def _differences(space: Space) -> Sets:
    """Differences A - B of unions by few rows, where A may contain B; and the unions themselves."""
    sets = _unions(space, 2)
    if len(sets.n) ** 2 > 1e7:
        sets = _unions(space, 1)
    if len(sets.n) ** 2 > 1e7:
        return sets[np.zeros(0, dtype=np.int64)]
    more = sets.n[:, None] - sets.n
    i, j = np.nonzero((more >= 0) & (more <= _FEW))
    A, B = sets[i], sets[j]
    n, sums, squares = A.n - B.n, A.sums - B.sums, A.squares - B.squares
    may = (n == 0) | (squares - (sums**2).sum(axis=1) / np.maximum(n, 1) >= -space.slack)
    few = Sets(n, sums, squares, np.stack([A.made[:, 0], B.made[:, 0]], axis=1))[may]
    few = few[np.argsort(few.n, kind="stable")[:_PAIRS]]
    return Sets.joined([few, sets]).each_once(space.spread)


@lru_cache(maxsize=256)
def _subsets(k: int, size: int) -> FloatArray:
    """(m, k) of 0 and 1: the subsets of 1 to ``size`` of k groups, as long as they are not too many.

    >>> _subsets(3, 2).tolist()[2:5]
    [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """
    chosen: list[tuple[int, ...]] = []
    for s in range(1, min(size, k) + 1):
        if len(chosen) + comb(k, s) > _SUBSETS and s > 1:
            break
        chosen += combinations(range(k), s)
    mask = np.zeros((len(chosen), k))
    for i, groups in enumerate(chosen):
        mask[i, list(groups)] = 1
    return mask


def _neighbours(n: FloatArray) -> Iterator[tuple[slice, slice]]:
    """The sets of n rows, and those of n - 1, for every n; n is sorted."""
    values, starts = np.unique(n, return_index=True)
    ends = np.append(starts[1:], len(n))
    for i in range(1, len(values)):
        if values[i] - values[i - 1] == 1:
            yield slice(starts[i], ends[i]), slice(starts[i - 1], ends[i - 1])


def _cost(sets: Sets) -> float:
    """The comparisons that a search takes, or as many as take the time of making the sets."""
    pairs = sum((a.stop - a.start) * (b.stop - b.start) for a, b in _neighbours(sets.n))
    return float(pairs) + _MAKE * len(sets.n)


def _one_apart(sets: Sets, space: Space, size: int) -> FloatArray:
    """(m, d) the differences of two sets with n = 1 and Q = |S|^2, each once, the most frequent first."""
    n, sums, squares = sets.n, sets.sums, sets.squares
    norms = (sums**2).sum(axis=1)
    near = space.slack + 1e-13 * norms.max(initial=0.0)  # |S - S'|^2 by the product is less exact
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for larger, smaller in _neighbours(n):
        for a in range(larger.start, larger.stop, _BLOCK):
            A = slice(a, min(a + _BLOCK, larger.stop))
            for b in range(smaller.start, smaller.stop, _BLOCK):
                B = slice(b, min(b + _BLOCK, smaller.stop))
                off = sums[A] @ (2 * sums[B].T)
                off += (squares[A] - norms[A])[:, None]
                off -= squares[B] + norms[B]
                i, j = np.nonzero(np.abs(off, out=off) <= near)
                pairs.append(np.column_stack([i + a, j + b]))
    i, j = np.concatenate(pairs).T
    rows = sums[i] - sums[j]
    square = (rows**2).sum(axis=1)
    exact = np.abs(squares[i] - squares[j] - square) <= _EXACT * (space.spread + square)
    return _agreed(rows[exact], sets[i[exact]], sets[j[exact]], space, size)


def _agreed(rows: FloatArray, A: Sets, B: Sets, space: Space, size: int) -> FloatArray:
    """The rows that lie in A and not in B, each once."""
    if not len(rows):
        return rows
    unknown = (A.made[:, 0, 0] < _NONE) | (B.made[:, 0, 0] < _NONE)
    inside = unknown | (_holds(rows, A, space, size) - _holds(rows, B, space, size) == 1)
    space.chance = space.chance or not inside.all()
    key = np.round(rows[inside] / space.spread**0.5, 5)
    _, first, which = np.unique(key, axis=0, return_index=True, return_inverse=True)
    parts = np.concatenate([A.made[inside, :, 0], B.made[inside, :, 0]], axis=1)
    agree = np.unique(np.column_stack([which.ravel(), np.sort(parts, axis=1)]), axis=0)[:, 0]
    times = np.bincount(agree, minlength=len(first))
    if space.chance:
        first, times = first[times >= _AGREE], times[times >= _AGREE]
    best: FloatArray = rows[inside][first[np.argsort(-times, kind="stable")]]
    return best


def _holds(rows: FloatArray, sets: Sets, space: Space, size: int) -> IntArray:
    """(m,) 1 where the row lies in its set, 0 where not; less 1 where it lies in what is subtracted."""
    out = np.zeros(len(rows), dtype=np.int64)
    for part, sign in ((0, 1), (1, -1)):
        of, subset, flip = sets.made[:, part].T
        for number in np.unique(of[of >= 0]):
            p, mine = space.partitions[number], np.flatnonzero(of == number)
            far = ((rows[mine, None] - p.centers) ** 2).sum(axis=2)
            group = p.group[far.argmin(axis=1)]
            live = np.flatnonzero(p.n > 0)
            member = np.zeros((len(_subsets(len(live), size)), len(p.n) + 1))  # the last: in no group
            member[:, live] = _subsets(len(live), size)
            out[mine] += sign * ((member[subset[mine], group] > 0) ^ (flip[mine] == 1))
    return out
