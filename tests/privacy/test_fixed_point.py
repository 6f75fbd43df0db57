"""Fixed point: rounding to 2^-64, exact sums in any order, and wrapping around instead of not fitting."""

from fractions import Fraction

import numpy as np
import pytest

from unpooled.errors import InputError
from unpooled.privacy.secure_sum.fixed_point import add, check_range, decode, encode, negated

pytestmark = pytest.mark.quick


def whole(words) -> list[int]:
    """Words as Python integers, by another way than the code's."""
    values = [int(words[0, j]) + (int(words[1, j]) << 64) for j in range(words.shape[1])]
    return [v - (1 << 128) if v >> 127 else v for v in values]


def wrapped(value: int) -> int:
    value %= 1 << 128
    return value - (1 << 128) if value >> 127 else value


def test_encoding_is_rounding_and_wraps_around() -> None:
    rng = np.random.default_rng(0)
    values = rng.choice([-1, 1], 4000) * np.exp2(rng.uniform(-84, 200, 4000))
    values[:9] = [0.0, -0.0, 2.0**-64, -(2.0**-64), 2.0**63, -(2.0**63), 2.0**64, np.nextafter(1, 0), 5e-324]
    result = whole(encode(values))
    assert result == [wrapped(round(Fraction(float(v)) * 2**64)) for v in values]
    assert whole(encode(np.array([1e308, -1e308]))) == [0, 0]  # a multiple of 2^128


def test_sums_are_those_of_integers_in_any_order() -> None:
    rng = np.random.default_rng(1)
    rows = [rng.standard_normal(50) * 10.0 ** rng.uniform(-9, 17, 50) for _ in range(9)]
    words = [encode(row) for row in rows]
    expected = [wrapped(sum(column)) for column in zip(*(whole(w) for w in words), strict=True)]
    for order in (range(9), reversed(range(9))):
        total = np.zeros_like(words[0])
        for i in order:
            add(total, words[i])
        assert whole(total) == expected


def test_the_words_of_a_sum_depend_on_the_sum_alone() -> None:
    """Parts beyond the range wrap around and are back in the sum: everything fits, nothing is reported."""
    for parts in ([2.0**100, 3072.0, -(2.0**100)], [1024.0, 2048.0, 0.0], [2.0**63, 3072.0 - 2.0**63, 0.0]):
        total = np.zeros((2, 1), dtype=np.uint64)
        for part in parts:
            add(total, encode(np.array([part])))
        assert decode(total).tolist() == [3072.0]


def test_decoding_is_to_the_nearest_float() -> None:
    rng = np.random.default_rng(2)
    integers = [int(rng.integers(1, 2**63)) << int(rng.integers(0, 64)) for _ in range(3000)]
    integers += [-i for i in integers[:1000]] + [2**64 - 1, 2**64, 2**127 - 1, -(2**127), 2**53 + 1, 1, 0]
    halves = [[i & (2**64 - 1) for i in integers], [i >> 64 & (2**64 - 1) for i in integers]]
    result = decode(np.array(halves, dtype=np.uint64))
    assert result.tolist() == [float(Fraction(wrapped(i), 2**64)) for i in integers]


def test_a_float_above_its_last_bit_comes_back_as_it_was() -> None:
    rng = np.random.default_rng(3)
    values = rng.choice([-1, 1], 3000) * np.exp2(rng.uniform(-11, 62, 3000))
    assert decode(encode(values)).tobytes() == values.tobytes()


def test_negation() -> None:
    words = encode(np.array([0.0, 1.5, -7.25, 2.0**-64]))
    assert whole(negated(words)) == [-w for w in whole(words)]
    assert whole(negated(negated(words))) == whole(words)


@pytest.mark.parametrize(("largest", "rows"), [(1e10, 1.0), (np.nan, 3.0), (1e8, 2000.0), (np.inf, 1.0)])
def test_what_could_go_beyond_the_range_is_reported_beforehand(largest: float, rows: float) -> None:
    with pytest.raises(InputError, match=r"site a: values up to .* are too large for secure sums"):
        check_range("site a", largest, rows)
    check_range("site a", 1e6, 1e6)
