"""The search for rows: two sets of rows that differ by one row x have n - n' = 1 and Q - Q' = |S - S'|^2.

The sets are unions of groups of one partition, compared with those of all others: first single groups, then
unions of more, then differences of unions by a few rows. Every row found is subtracted from its group in each
partition, and the search starts again on what is left.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.site.audit.partitions import Space, Sums

_SIZES = (1, 2, 3, 4, 6)  # groups in a union, in the order of the search
_SUBSETS = 5000  # unions of one partition
_UNIONS = 200_000  # unions of all partitions
_FEW = 8  # rows by which two unions differ, in the search among differences
_PAIRS = 200_000  # such differences
_WORK = 2e10  # comparisons in all: about a minute
_BLOCK = 4096
_EXACT = 1e-9  # tolerance for Q = |S|^2, relative to the square of a row


def rows_in(space: Space) -> Iterator[FloatArray]:
    """Rows (d,) about the space's origin, each as soon as it is found and subtracted."""
    work, step = _WORK, 0
    while step <= len(_SIZES) and work > 0 and space.rows > 0:
        sets = _unions(space, _SIZES[step]) if step < len(_SIZES) else _differences(space)
        work -= _cost(sets[0])
        found = 0
        for row in _one_apart(sets, space) if work > 0 else ():
            if space.take(row):
                found += 1
                yield row
        step = 0 if found else step + 1


def _unions(space: Space, size: int) -> Sums:
    """The sums of all unions of up to ``size`` groups, each set once, the empty one included.

    A - B is also the difference of the complements: so none of more than half of the rows is needed.
    """
    parts = [np.zeros((1, space.width + 2))]
    left = _UNIONS
    for p in space.partitions:
        live = np.flatnonzero(p.n > 0)
        values = np.column_stack([p.n, p.sums, p.squares])[live]
        sums = _subsets(len(live), size) @ values
        if (p.group >= 0).all() and np.isfinite(space.rows):
            sums = np.concatenate([sums, values.sum(axis=0) - sums])
            sums = sums[sums[:, 0] <= space.rows / 2 + 1]
        parts.append(sums[:left])
        left -= len(parts[-1])
    return _each_once(np.concatenate(parts), space)


def _differences(space: Space) -> Sums:
    """Differences A - B of unions by few rows, where A may contain B; and the unions themselves."""
    n, sums, squares = _unions(space, 2)
    if len(n) ** 2 > 1e7:
        n, sums, squares = _unions(space, 1)
    if len(n) ** 2 > 1e7:
        return n[:0], sums[:0], squares[:0]
    more = n[:, None] - n
    i, j = np.nonzero((more >= 0) & (more <= _FEW))
    less, by, square = n[i] - n[j], sums[i] - sums[j], squares[i] - squares[j]
    may = (less == 0) | (square - (by**2).sum(axis=1) / np.maximum(less, 1) >= -space.slack)
    few = np.column_stack([less, by, square])[may]
    few = few[np.argsort(few[:, 0], kind="stable")][:_PAIRS]
    return _each_once(np.concatenate([few, np.column_stack([n, sums, squares])]), space)


def _each_once(sets: FloatArray, space: Space) -> Sums:
    """The columns of sets (m, d + 2), without repetitions, sorted by n."""
    mix = np.random.default_rng(0).standard_normal(space.width)
    key = np.round(sets[:, 1:-1] @ mix / space.spread**0.5, 5)
    order = np.lexsort((key, sets[:, 0]))
    sets, key = sets[order], key[order]
    new = np.ones(len(sets), dtype=np.bool_)
    new[1:] = (np.diff(key) != 0) | (np.diff(sets[:, 0]) != 0)
    sets = sets[new]
    return sets[:, 0], np.ascontiguousarray(sets[:, 1:-1]), sets[:, -1]


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


def _levels(n: FloatArray) -> Iterator[tuple[slice, slice]]:
    """The sets of n rows, and those of n - 1, for every n; n is sorted."""
    values, starts = np.unique(n, return_index=True)
    ends = np.append(starts[1:], len(n))
    for i in range(1, len(values)):
        if values[i] - values[i - 1] == 1:
            yield slice(starts[i], ends[i]), slice(starts[i - 1], ends[i - 1])


def _cost(n: FloatArray) -> float:
    """The comparisons that a search takes."""
    return float(sum((a.stop - a.start) * (b.stop - b.start) for a, b in _levels(n)))


def _one_apart(sets: Sums, space: Space) -> FloatArray:
    """(m, d) the differences of two sets with n = 1 and Q = |S|^2, each once, the most frequent first."""
    n, sums, squares = sets
    norms = (sums**2).sum(axis=1)
    near = space.slack + 1e-13 * norms.max(initial=0.0)  # |S - S'|^2 by the product is less exact
    found = [sums[:0]]
    for larger, smaller in _levels(n):
        for a in range(larger.start, larger.stop, _BLOCK):
            A = slice(a, min(a + _BLOCK, larger.stop))
            for b in range(smaller.start, smaller.stop, _BLOCK):
                B = slice(b, min(b + _BLOCK, smaller.stop))
                off = sums[A] @ (2 * sums[B].T)
                off += (squares[A] - norms[A])[:, None]
                off -= squares[B] + norms[B]
                i, j = np.nonzero(np.abs(off, out=off) <= near)
                rows = sums[A][i] - sums[B][j]
                square = (rows**2).sum(axis=1)
                exact = np.abs(squares[A][i] - squares[B][j] - square) <= _EXACT * (space.spread + square)
                found.append(rows[exact])
    return _by_frequency(np.concatenate(found), space.spread)


def _by_frequency(rows: FloatArray, spread: float) -> FloatArray:
    if not len(rows):
        return rows
    key = np.round(rows / spread**0.5, 5)
    _, first, times = np.unique(key, axis=0, return_index=True, return_counts=True)
    return rows[first[np.argsort(-times, kind="stable")]]
