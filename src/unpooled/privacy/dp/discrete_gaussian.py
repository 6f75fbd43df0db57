"""The discrete Gaussian, drawn exactly, many numbers at a time, from the system's entropy.

It gives the whole number n with a probability proportional to exp(-n^2 / 2 s^2), for a whole number s.

**Draws** (Karney, Sampling exactly from the normal distribution, ACM TOMS 2016; simpler here, as s is whole).
A candidate is a whole k >= 0 with a probability proportional to exp(-k^2 / 2), a whole j from 0 to s - 1, all
alike, and a sign. It is taken with the probability exp(-x (2k + x) / 2), where x = j / s, and gives
n = +-(k s + j); of the two ways to 0 one is not taken. The product of both probabilities is
exp(-(k + x)^2 / 2) = exp(-n^2 / 2 s^2), and every n has one k and one j: that is the distribution.

**Exactness.** Both draws ask whether a uniform real number u is below a number p. The first 64 bits of u,
from the system, tell unless they are too close to p: then bits are added to u, and digits to p, until they
do. Floating point serves only where its error cannot matter: for k up to 22, x (2k + x) / 2 is below 23 and
has an error below 2^-46, ``exp`` one below 2^-48 of its value, u as a float one below 2^-53; together less
than ``MARGIN``. Closer cases, one in 2^43, and larger k are left to whole numbers.
"""

import functools
import os
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil, floor

import numpy as np

from unpooled.errors import InputError
from unpooled.typing import IntArray

MARGIN = 2.0**-44
_FEW = 22  # the largest k of floating point
MAX_SCALE = 1 << 40  # of s: numbers of the result stay far below 2^63
_WORD = 64
_SMALLEST = 64  # candidates at a time

Bounds = Callable[[int], tuple[int, int]]


def discrete_gaussian(count: int, scale: float) -> IntArray:
    """(count,) independent numbers; s is ``scale``, rounded up to a whole number: never less noise."""
    if not 1 <= scale <= MAX_SCALE:
        raise InputError(f"noise of {scale:g} steps cannot be drawn. It must have from 1 to 2^40 steps.")
    s, parts, have = ceil(scale), [], 0
    while have < count:
        size = max(_SMALLEST, int((count - have) * 1.5 * 2 ** (s - 1).bit_length() / s))
        words = np.frombuffer(os.urandom(24 * size), dtype=np.uint64).reshape(3, size)
        parts.append(accepted(words, s))
        have += len(parts[-1])
    return np.concatenate(parts)[:count] if parts else np.zeros(0, dtype=np.int64)


def accepted(words: np.ndarray, s: int) -> IntArray:
    """The numbers that candidates give, each made of three uniform words; fewer than there are candidates."""
    bits = (s - 1).bit_length()
    j = (words[0] >> np.uint64(_WORD - bits)).astype(np.int64) if bits else np.zeros(words.shape[1], np.int64)
    inside = j < s
    j, minus, first, second = j[inside], words[0][inside] & np.uint64(1), words[1][inside], words[2][inside]
    k = _candidates(first)
    x, u = j / s, second * 2.0**-_WORD
    p = np.exp(-x * (k + x / 2))
    keep = u < p
    for i in np.flatnonzero((np.abs(u - p) < MARGIN) | (k > _FEW)):
        a, b = int(j[i]), int(k[i])
        exact = functools.partial(exp_bounds, a * (2 * b * s + a), 2 * s * s)
        keep[i] = LazyUniform(int(second[i])).is_below(exact)
    n = k * s + j
    keep &= (n > 0) | (minus == 0)
    drawn: IntArray = np.where(minus == 1, -n, n)[keep]
    return drawn


def _candidates(words: np.ndarray) -> IntArray:
    """k >= 0 with probabilities proportional to exp(-k^2 / 2): the limits that a uniform number is not below.

    >>> _candidates(np.array([0, 2**63, 2**64 - 2**40], dtype=np.uint64)).tolist()
    [0, 0, 5]
    """
    tops = _tops()
    k = np.searchsorted(tops, words, side="left").astype(np.int64)
    for i in np.flatnonzero(np.isin(words, tops)):  # a limit lies within the last bit
        k_max, u = 0, LazyUniform(int(words[i]))
        while not u.is_below(functools.partial(cdf_bounds, k_max)):
            k_max += 1
        k[i] = k_max
    return k


@functools.lru_cache(maxsize=1)
def _tops() -> np.ndarray:
    """The first 64 bits of every limit that is not as close to 1 as these can tell."""
    tops: list[int] = []
    while not tops or tops[-1] < 2**_WORD - 1:
        tops.append(cdf_bounds(len(tops), _WORD)[0])
    return np.array(tops, dtype=np.uint64)


class LazyUniform:
    """A uniform real number between 0 and 1, of which as many bits are drawn as comparisons need."""

    def __init__(self, word: int) -> None:
        self._drawn, self._bits = word, _WORD

    def is_below(self, bounds: Bounds) -> bool:
        """True if it is below a number p; ``bounds(b)`` encloses 2^b p in whole numbers."""
        while True:
            low, high = bounds(self._bits)
            if self._drawn + 1 <= low:
                return True
            if self._drawn >= high:
                return False
            self._drawn = self._drawn << _WORD | int.from_bytes(os.urandom(_WORD // 8), "big")
            self._bits += _WORD


def exp_bounds(above: int, below: int, bits: int) -> tuple[int, int]:
    """Whole numbers that enclose 2^bits exp(-above / below), one or two apart.

    >>> exp_bounds(0, 1, 8), exp_bounds(1, 2, 10)
    ((255, 257), (621, 622))
    """
    with localcontext(prec=_digits(bits)):
        return _enclosed((Decimal(-above) / Decimal(below)).exp(), bits)


def cdf_bounds(k_max: int, bits: int) -> tuple[int, int]:
    """Whole numbers that enclose 2^bits P(k <= k_max).

    >>> cdf_bounds(0, 10), cdf_bounds(40, 10)
    ((584, 585), (1023, 1025))
    """
    digits = _digits(bits)
    with localcontext(prec=digits):
        terms = [Decimal(1)]
        while terms[-1] > Decimal(10) ** -digits:
            terms.append((Decimal(-(len(terms) ** 2)) / 2).exp())
        return _enclosed(sum(terms[: k_max + 1], Decimal(0)) / sum(terms, Decimal(0)), bits)


def _digits(bits: int) -> int:
    return bits // 3 + 20


def _enclosed(value: Decimal, bits: int) -> tuple[int, int]:
    """Bounds of a number that was computed with all digits but some of the last ten."""
    exact, error = Fraction(value), Fraction(1, 10 ** (_digits(bits) - 10))
    return floor((exact - error) * 2**bits), ceil((exact + error) * 2**bits)
