"""Fixed-point numbers modulo 2^128: masked and added exactly, in any order, all in one format.

A number x is sent as round(x 2^64) modulo 2^128, in two words of 64 bits, two's complement, least word first.
Every number has words: one beyond the range wraps around. The words of a sum are therefore the sum modulo
2^128, whatever the parts were. Sums below 2^63 (9.2e18) are decoded as
they are; ``BOUND`` is that limit, and a coordinator checks it by what sites stated before it asks
(docs/secure-sums.md). A number above 2^-12 is not rounded: its last bit is in the words.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.errors import InputError
from unpooled.protocol.exact_sum import ExactSum, normalized
from unpooled.typing import FloatArray

Words = npt.NDArray[np.uint64]  # (LIMBS, N), least word first

LIMBS = 2
FRACTION = 64  # bits behind the point
BOUND = 2.0**63  # of a sum
_LOWER = np.uint64(2**32 - 1)


def encode(values: FloatArray) -> Words:
    """Finite numbers (N,) to words (2, N).

    >>> encode(np.array([1.5, -0.25])).astype(np.int64)
    array([[-9223372036854775808, -4611686018427387904],
           [                   1,                   -1]])
    """
    words = np.empty((LIMBS, len(values)), dtype=np.uint64)
    absolute = np.fmod(np.abs(values), 2.0**64)  # exact, as are the next two lines
    whole = np.floor(absolute)
    rest = np.rint(np.ldexp(absolute - whole, FRACTION))
    over = rest == 2.0**64  # rounded up to the next whole number
    words[1] = whole.astype(np.uint64) + over.astype(np.uint64)
    words[0] = np.where(over, 0.0, rest).astype(np.uint64)
    negative = np.signbit(values)
    words[:, negative] = negated(words[:, negative])
    return words


def decode(words: Words) -> FloatArray:
    """Words (2, N) to the nearest float64 (N,).

    >>> decode(encode(np.array([1.5, -0.25, 2.0**80])))
    array([ 1.5 , -0.25,  0.  ])
    """
    negative = words[1] >> np.uint64(63) == 1
    magnitude = words.copy()
    magnitude[:, negative] = negated(words[:, negative])
    values: FloatArray = np.ldexp(magnitude[0].astype(np.float64), -FRACTION)  # where the high word is 0
    large = np.flatnonzero(magnitude[1])
    values[large] = np.ldexp(*_leading(magnitude[:, large]))
    values[negative] *= -1.0
    return values


def _leading(words: Words) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Integers (2, N) whose high word is not 0, rounded once to (float64, exponent).

    The 64 leading bits are converted, which rounds to nearest. Of the lower bits it only matters whether any
    is set, so the last of the 64 is set if one is (a sticky bit).
    """
    low, high = words
    bits = np.frexp(high.astype(np.float64))[1].astype(np.uint64)
    bits -= (high >> (bits - np.uint64(1)) == 0).astype(np.uint64)  # float64 may round 2^n - 1 to 2^n
    shift = np.uint64(64) - bits
    below = np.where(shift > 0, low >> (np.uint64(64) - np.maximum(shift, 1).astype(np.uint64)), 0)
    lead = high << shift | below | (low << shift != 0).astype(np.uint64)
    return lead.astype(np.float64), -shift.astype(np.int64)


def exact_of(words: Words) -> ExactSum:
    """Words (2, N) as a sum of its own, nothing rounded.

    >>> exact_of(encode(np.array([1.5, -0.25]))).rounded()
    array([ 1.5 , -0.25])
    """
    halves = [part for word in words for part in (word & _LOWER, word >> np.uint64(32))]
    digits = np.stack(halves).astype(np.int64)
    digits[-1] = np.where(digits[-1] >= 2**31, digits[-1] - 2**32, digits[-1])  # two's complement
    return normalized(-FRACTION // 32, digits)


def words_of(total: ExactSum) -> Words:
    """A sum of shape (N,) as words (2, N): to the nearest step of 2^-64, modulo 2^128.

    >>> decode(words_of(exact_of(encode(np.array([1.5, -0.25])))))
    array([ 1.5 , -0.25])
    """
    first, count = -FRACTION // 32, 2 * LIMBS
    digits = np.zeros((count, *total.shape), dtype=np.int64)
    carry = np.zeros(total.shape, dtype=np.int64)
    for place in range(min(total.low, first), first + count):
        at = place - total.low
        digit = carry + (total.limbs[at] if 0 <= at < len(total.limbs) else 0)
        carry = digit >> 32  # where the limbs end, the sign goes on
        if place == first - 1:  # of what is smaller than a step, half of one or more counts as one
            carry += ((digit & 0xFFFFFFFF) >= 2**31).astype(np.int64)
        elif place >= first:
            digits[place - first] = digit & 0xFFFFFFFF
    parts = digits.astype(np.uint64)
    return np.stack([parts[0] | parts[1] << np.uint64(32), parts[2] | parts[3] << np.uint64(32)])


def add(total: Words, more: Words) -> None:
    """total += more, modulo 2^128, in place."""
    carry: Any = None
    for a, b in zip(total, more, strict=True):
        a += b
        over = a < b
        if carry is not None:
            a += carry
            over |= a < carry
        carry = over.astype(np.uint64)


def negated(words: Words) -> Words:
    """-words, modulo 2^128."""
    out = ~words
    one = np.zeros_like(out)
    one[0] = 1
    add(out, one)
    return out


def check_range(what: str, largest: float, rows: float) -> None:
    """Raise InputError if the sum of squares of ``rows`` values up to ``largest`` could leave the range."""
    if not rows * largest**2 < BOUND:
        raise InputError(
            f"{what}: values up to {largest:.3g} are too large for secure sums, their squares would add up "
            f"to more than {BOUND:.1e}; scale the columns, or give them in another unit"
        )
