"""Fixed-point numbers modulo 2^64, 2^128, ...: masked and added exactly, in any order.

A number x travels as round(x 2^fraction) in ``limbs`` words of 64 bits, two's complement, least word first.
One limb is as long as the number itself and needs a declared bound; two limbs, the default, need none for
numbers up to 2^63 / sites and are finer than a float64 for everything above 2^-12.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message
from unpooled.errors import BadInput

Words = npt.NDArray[np.uint64]  # (limbs, N), least word first

MAX_LIMBS = 4


@dataclass(frozen=True)
class Fixed(Message, wire="fixed.Fixed"):
    """A fixed-point format: ``limbs`` words, of which ``fraction`` bits lie behind the point."""

    limbs: int = 2
    fraction: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.limbs <= MAX_LIMBS:
            raise BadInput(f"fixed point: limbs must be 1..{MAX_LIMBS}, got {self.limbs}")
        if not 64 * self.limbs - 960 <= self.fraction <= 960:  # nothing overflows a float64
            raise BadInput(
                f"fixed point: fraction must be {64 * self.limbs - 960}..960 bits, got {self.fraction}"
            )

    @classmethod
    def within(cls, bound: float, sites: int) -> "Fixed":
        """One word a number, as fine as it can be if no number of any site exceeds ``bound``.

        >>> Fixed.within(1e6, sites=10)  # 1e7 < 2^24
        Fixed(limbs=1, fraction=39)
        """
        if not (math.isfinite(bound) and bound > 0):
            raise BadInput(f"fixed point: bound must be a positive number, got {bound}")
        return cls(1, 63 - math.frexp(bound * sites * (1 + 2**-39))[1])

    def largest(self, sites: int) -> float:
        """The largest number that each of so many sites may add without the sum overflowing."""
        return math.ldexp(1.0, 64 * self.limbs - 1 - self.fraction) / sites * (1 - 2**-40)

    @property
    def step(self) -> float:
        """The distance between neighbouring numbers."""
        return math.ldexp(1.0, -self.fraction)

    def fits(self, values: FloatArray, sites: int) -> bool:
        """True if all are finite, and small enough that their sum over so many sites cannot overflow."""
        return bool(np.isfinite(values).all() and (np.abs(values) <= self.largest(sites)).all())

    def encode(self, values: FloatArray) -> Words:
        """Numbers (N,) that fit to words (limbs, N).

        >>> Fixed(1, 2).encode(np.array([1.5, -0.25])).astype(np.int64)
        array([[ 6, -1]])
        """
        words = np.empty((self.limbs, len(values)), dtype=np.uint64)
        # words of the absolute value from the top down: a float64 minus its whole part is exact
        rest = np.ldexp(np.abs(values), self.fraction - 64 * (self.limbs - 1))
        for i in range(self.limbs - 1, 0, -1):
            whole = np.floor(rest)
            words[i] = whole.astype(np.uint64)
            rest = np.ldexp(rest - whole, 64)
        words[0] = np.rint(rest).astype(np.uint64)
        negative = np.signbit(values)
        words[:, negative] = negated(words[:, negative])
        return words

    def decode(self, words: Words) -> FloatArray:
        """Words (limbs, N) to the nearest float64 (N,).

        >>> Fixed(1, 2).decode(np.array([[6, 2**64 - 1]], dtype=np.uint64))
        array([ 1.5 , -0.25])
        """
        negative = words[-1] >> np.uint64(63) == 1
        magnitude = words.copy()
        magnitude[:, negative] = negated(words[:, negative])
        values, pending = np.zeros(words.shape[1]), np.ones(words.shape[1], dtype=np.bool_)
        for i in range(self.limbs - 1, -1, -1):  # from the highest word that is not 0
            at = np.flatnonzero(pending & (magnitude[i] > 0))
            pending[at] = False
            values[at] = np.ldexp(*_leading(magnitude[: i + 1, at]))
        values = np.ldexp(values, -self.fraction)
        return np.where(negative, -values, values)


def _leading(words: Words) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Integers whose highest word is not 0, rounded once to (float64, exponent).

    The 64 leading bits are converted, which rounds to nearest. Of the lower bits it only matters whether any
    is set, so the last of the 64 is set if one is (a sticky bit).
    """
    highest = words[-1]
    bits = np.frexp(highest.astype(np.float64))[1].astype(np.uint64)
    bits -= (highest >> (bits - np.uint64(1)) == 0).astype(np.uint64)  # float64 may round 2^n - 1 to 2^n
    shift = np.uint64(64) - bits
    lead, sticky = highest << shift, np.zeros(len(highest), dtype=np.bool_)
    if len(words) > 1:
        lead |= np.where(shift > 0, words[-2] >> (np.uint64(64) - np.maximum(shift, 1).astype(np.uint64)), 0)
        sticky = (words[-2] << shift != 0) | (words[:-2] != 0).any(axis=0)
    lead |= sticky.astype(np.uint64)
    return lead.astype(np.float64), 64 * (len(words) - 1) - shift.astype(np.int64)


def add(total: Words, more: Words) -> None:
    """total += more, modulo 2^(64 limbs), in place."""
    carry: Any = None
    for a, b in zip(total, more, strict=True):
        a += b
        over = a < b
        if carry is not None:
            a += carry
            over |= a < carry
        carry = over.astype(np.uint64)


def negated(words: Words) -> Words:
    """-words, modulo 2^(64 limbs)."""
    out = ~words
    one = np.zeros_like(out)
    one[0] = 1
    add(out, one)
    return out
