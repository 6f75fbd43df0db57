"""Sums that do not depend on their order: of float64 arrays, exact to the last bit and rounded once.

A sum is held as whole numbers: limb l counts units of 2^(32 (low + l)), each from -2^31 to 2^31 - 1. Every
finite float64 is such a number, so sums of sums lose nothing, whatever their order and nesting, and equal
sums have equal limbs. The limbs that all numbers of an array leave empty at either end are not held.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unpooled.typing import BoolArray, FloatArray, IntArray

_BITS = 32
_HALF, _UNIT = 1 << (_BITS - 1), 1 << _BITS
_AT_ONCE = 1 << 20  # numbers below 2^32 whose sum float64 still holds exactly
LOW, HIGH = -34, 34  # limbs that a float64, or a sum of very many, can need
Limbs = npt.NDArray[np.int32]  # (L, ...)


@dataclass(frozen=True, eq=False)
class ExactSum:
    """The sum of arrays of one shape; ``a + b`` is the sum of both.

    >>> large, small = exact_sum(np.array([[1e16], [1.0]])), exact_sum(np.array([[-1e16]]))
    >>> (large + small).rounded()
    array([1.])
    """

    low: int
    limbs: Limbs  # (L, ...): L is 0 where all sums are zero

    @property
    def shape(self) -> tuple[int, ...]:
        return self.limbs.shape[1:]

    def __add__(self, other: "ExactSum") -> "ExactSum":
        low = min(self.low, other.low)
        high = max(self.low + len(self.limbs), other.low + len(other.limbs))
        out = np.zeros((high - low, *self.shape), dtype=np.int64)
        for part in (self, other):
            out[part.low - low : part.low - low + len(part.limbs)] += part.limbs
        return normalized(low, out)

    def where(self, disclosed: BoolArray) -> "ExactSum":
        """Return the same with zeros where ``disclosed``, over the leading axes of the arrays, is False."""
        mask = disclosed.reshape(disclosed.shape + (1,) * (len(self.shape) - disclosed.ndim))
        return normalized(self.low, np.where(mask, self.limbs, 0).astype(np.int64))

    def rounded(self) -> FloatArray:
        """Return the float64 nearest to every sum, ties to even."""
        digits = self.limbs.astype(np.int64).reshape(len(self.limbs), int(np.prod(self.shape)))
        if not len(digits):
            return np.zeros(self.shape)
        negative = _sign(digits) < 0
        digits[:, negative] *= -1
        digits = np.concatenate([np.zeros((2, digits.shape[1]), np.int64), digits])
        for i in range(2, len(digits) - 1):  # from -2^31 .. 2^31 to 0 .. 2^32 - 1; the last is not negative
            carry = digits[i] >> _BITS
            digits[i] -= carry << _BITS
            digits[i + 1] += carry
        top = len(digits) - 1 - (digits[:0:-1] > 0).argmax(axis=0)  # where all are 0: the last, which is 0
        lead = _leading(digits.astype(np.uint64), np.maximum(top, 2))
        with np.errstate(over="ignore"):  # a sum beyond the range is inf
            values = np.ldexp(lead[0], lead[1] + _BITS * (self.low - 2))
        values[negative] *= -1.0
        return values.reshape(self.shape)


def _sign(digits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(N,) the sign of numbers (L, N): that of their highest digit that is not 0."""
    sign = np.zeros(digits.shape[1], dtype=np.int64)
    for row in digits:
        sign = np.where(row != 0, np.sign(row), sign)
    return sign


def _leading(digits: npt.NDArray[np.uint64], top: npt.NDArray[np.int64]) -> tuple[FloatArray, IntArray]:
    """Numbers (L, N) of digits below 2^32, rounded once to (float64, exponent); ``top`` has the leading one.

    The 64 leading bits are converted, which rounds to nearest; of the others it matters only whether one is
    set, and then the last of the 64 is.
    """
    at, columns = np.uint64, np.arange(digits.shape[1])
    first, second, third = (digits[top - i, columns] for i in range(3))
    below = (np.arange(len(digits))[:, None] < top - 2) & (digits > 0)
    bits = np.frexp(first.astype(np.float64))[1]  # exact: first is below 2^32
    shift = (_BITS - bits).astype(at)
    lead = ((first << at(_BITS)) | second) << shift
    lead |= third >> (at(_BITS) - shift)
    rest = ((third << shift) & at(_UNIT - 1)) | below.any(axis=0).astype(at)
    lead |= (rest != 0).astype(at)
    return lead.astype(np.float64), _BITS * (top - 1) - shift.astype(np.int64)


def normalized(low: int, sums: npt.NDArray[np.int64]) -> ExactSum:
    """Return the sum of limbs (L, ...) of any size, each brought into its range, without empty ends."""
    out = [*sums]
    i = 0
    while i < len(out):
        carry = (out[i] + _HALF) >> _BITS
        if carry.any():
            out[i] = out[i] - (carry << _BITS)
            if i + 1 == len(out):
                out.append(np.zeros_like(carry))
            out[i + 1] = out[i + 1] + carry
        i += 1
    used = [i for i, limb in enumerate(out) if limb.any()]
    if not used:
        return ExactSum(0, np.zeros((0, *sums.shape[1:]), dtype=np.int32))
    return ExactSum(low + used[0], np.stack(out[used[0] : used[-1] + 1]).astype(np.int32))


def exact_sum(block: FloatArray) -> ExactSum:
    """Return the sum of a block (S, ...) over its first axis; ValueError if a number is not finite.

    From the highest limb to the lowest: what it holds of every number is cut off, which is exact, and added.
    """
    if len(block) > _AT_ONCE:
        halves = (block[: len(block) // 2], block[len(block) // 2 :])
        return exact_sum(halves[0]) + exact_sum(halves[1])
    rest = np.array(block, dtype=np.float64)
    largest = float(np.abs(rest).max(initial=0.0))
    if not np.isfinite(largest):
        raise ValueError("a number that is not finite")
    limbs, at = [], (int(np.frexp(largest)[1]) - 1) // _BITS
    while largest > 0:
        part = _times(rest, -_BITS * at)
        np.trunc(part, out=part)
        limbs.append(part.sum(axis=0).astype(np.int64))
        rest -= _times(part, _BITS * at)
        if not rest.any():
            break
        at -= 1
    return normalized(at, np.array(limbs[::-1], dtype=np.int64).reshape(len(limbs), *block.shape[1:]))


def _times(values: FloatArray, exponent: int) -> FloatArray:
    """values 2^exponent; where the power is a float64, the product is as exact, and ten times as quick."""
    scaled: FloatArray = values * 2.0**exponent if abs(exponent) <= 1000 else np.ldexp(values, exponent)
    return scaled


def added(sums: Iterable[ExactSum]) -> ExactSum:
    """Return the sum of at least one sum."""
    first, *others = sums
    for other in others:
        first = first + other
    return first
