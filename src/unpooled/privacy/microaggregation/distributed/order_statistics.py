"""Order statistics of numbers that are in several parts, by counting: exact, and no part sends its numbers.

A float64 is a whole number of 64 bits whose order is that of the floats. The number at a rank is found from
its leading bits to its last: in every step each part counts, of its numbers that begin as the sought one
does, how many go on with each of the possible next bits, and the counts of all parts are added up.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.typing import FloatArray, IntArray

Keys = npt.NDArray[np.uint64]
_SIGN = np.uint64(1 << 63)
_BITS = (13, 13, 13, 13, 12)  # of every step: 64 in all
STEPS = len(_BITS)


def keys_of(x: FloatArray) -> Keys:
    """(n,) whole numbers in the order of the floats; 0 and -0 are the same."""
    bits = (x + 0.0).view(np.uint64)
    keys: Keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return keys


def value_of(key: int) -> float:
    """The float of a whole number.

    >>> [value_of(int(key)) for key in keys_of(np.array([-2.5, 0.0, 1e300]))]
    [-2.5, 0.0, 1e+300]
    """
    one = np.array([key], dtype=np.uint64)
    bits = np.where(one & _SIGN, one ^ _SIGN, ~one)
    return float(bits.view(np.float64)[0])


def digit_counts(keys: Keys, step: int, prefixes: Iterable[int]) -> dict[int, IntArray]:
    """By prefix: how many of the numbers that begin with it go on with each of the possible next bits."""
    below = sum(_BITS[step + 1 :])
    heads = keys >> np.uint64(below)
    begin, mask = heads >> np.uint64(_BITS[step]), np.uint64((1 << _BITS[step]) - 1)
    return {
        prefix: np.bincount(
            (heads[begin == np.uint64(prefix)] & mask).astype(np.int64), minlength=1 << _BITS[step]
        )
        for prefix in prefixes
    }


class RankSearch:
    """The search for the numbers at some ranks, from 0 on, of all parts together.

    >>> parts, search = [np.array([3.0, -1.0]), np.array([2.0, 2.0])], RankSearch([0, 2])
    >>> for step in range(STEPS):
    ...     counts = [digit_counts(keys_of(x), step, search.prefixes) for x in parts]
    ...     search.narrow({prefix: sum(c[prefix] for c in counts) for prefix in search.prefixes})
    >>> search.values, search.before, search.equal
    ({0: -1.0, 2: 2.0}, {0: 0, 2: 1}, {0: 1, 2: 2})
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self._prefix = dict.fromkeys(ranks, 0)
        self.before = {rank: rank for rank in ranks}  # numbers with the same prefix that come before
        self.equal = dict.fromkeys(ranks, 0)  # numbers with the same prefix
        self._step = 0

    @property
    def prefixes(self) -> tuple[int, ...]:
        return tuple(sorted(set(self._prefix.values())))

    def narrow(self, counts: Mapping[int, Any]) -> None:
        """Take the counts of a step over all parts."""
        for rank, prefix in self._prefix.items():
            ends = np.cumsum(counts[prefix])
            digit = int(np.searchsorted(ends, self.before[rank], side="right"))
            self.before[rank] -= int(ends[digit - 1]) if digit else 0
            self.equal[rank] = int(counts[prefix][digit])
            self._prefix[rank] = (prefix << _BITS[self._step]) | digit
        self._step += 1

    @property
    def values(self) -> dict[int, float]:
        """The number at every rank, once all steps are done."""
        return {rank: value_of(key) for rank, key in self._prefix.items()}

    def inside(self, first: int, end: int) -> tuple[float, float, int, int]:
        """Of the numbers at ranks ``first`` to ``end`` - 1: the least and the largest, and how many of each.

        The others lie strictly between. If both are the same number, all are the least.
        """
        low, high = self.values[first], self.values[end - 1]
        if low == high:
            return low, high, end - first, 0
        return low, high, self.equal[first] - self.before[first], self.before[end - 1] + 1
