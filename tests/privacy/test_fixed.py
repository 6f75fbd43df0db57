"""Fixed point: exact where a float64 is, modulo two to the 64 limbs, and refused where it would overflow."""

from fractions import Fraction

import numpy as np
import pytest

from unpooled.errors import BadInput
from unpooled.privacy.secure_sum.fixed_point import Fixed, add, negated


def whole(words, fixed: Fixed) -> list[int]:
    """Words as Python integers, by another way than the code's."""
    bits = 64 * fixed.limbs
    values = [sum(int(words[i, j]) << (64 * i) for i in range(fixed.limbs)) for j in range(words.shape[1])]
    return [v - (1 << bits) if v >> (bits - 1) else v for v in values]


@pytest.mark.parametrize("fixed", [Fixed(1, 30), Fixed(2, 64), Fixed(3, 100), Fixed(4, 160), Fixed(2, -3)])
def test_encoding_is_rounding(fixed: Fixed) -> None:
    rng = np.random.default_rng(0)
    top = min(np.log2(fixed.largest(7)), 900)
    values = rng.choice([-1, 1], 400) * np.exp2(rng.uniform(-fixed.fraction - 20, top, 400))
    values[:4] = [0.0, -0.0, fixed.step, -fixed.step]
    got = whole(fixed.encode(values), fixed)
    assert got == [round(Fraction(float(v)) * Fraction(2) ** fixed.fraction) for v in values]


@pytest.mark.parametrize("fixed", [Fixed(1, 30), Fixed(2, 64), Fixed(3, 100)])
def test_sums_are_those_of_integers_in_any_order(fixed: Fixed) -> None:
    rng = np.random.default_rng(1)
    rows = [rng.standard_normal(50) * 10.0 ** rng.uniform(-9, 8, 50) for _ in range(9)]
    words = [fixed.encode(row) for row in rows]
    expected = [sum(column) for column in zip(*(whole(w, fixed) for w in words), strict=True)]
    for order in (range(9), reversed(range(9))):
        total = np.zeros_like(words[0])
        for i in order:
            add(total, words[i])
        assert whole(total, fixed) == expected
    near = [float(Fraction(v) / 2**fixed.fraction) for v in expected]
    np.testing.assert_allclose(fixed.decode(total), near, rtol=4e-16, atol=0)
    assert not (lambda a: (add(a, negated(total)), a)[1])(total.copy()).any()


def test_two_limbs_keep_a_float_as_it_is() -> None:
    values = np.array([1.0, -3.5, 0.1, 1e15 + 0.125, -(2.0**-40), 12345.678])
    np.testing.assert_array_equal(Fixed().decode(Fixed().encode(values)), values)


def test_what_would_overflow_does_not_fit() -> None:
    fixed = Fixed.within(100.0, 5)
    total = np.zeros((1, 2), dtype=np.uint64)
    for _ in range(5):
        add(total, fixed.encode(np.array([100.0, -100.0])))
    np.testing.assert_array_equal(fixed.decode(total), [500.0, -500.0])
    assert fixed.fits(np.array([100.0, -100.0]), 5)
    for wrong in (110.0, -110.0, np.nan, np.inf):
        assert not fixed.fits(np.array([0.0, wrong]), 5)


@pytest.mark.parametrize("bound", [1.0, 2.0, 0.9999999999999999, 1e6, 1e-8, 1e30])
@pytest.mark.parametrize("sites", [3, 4, 100])
def test_a_declared_bound_fits_and_leaves_no_bit_unused(bound: float, sites: int) -> None:
    fixed = Fixed.within(bound, sites)
    assert bound <= fixed.largest(sites) <= 2 * bound * (1 + 1e-9)


@pytest.mark.parametrize("limbs", [1, 2, 3, 4])
def test_the_widest_settings_do_not_overflow_a_float(limbs: int) -> None:
    for fraction in (64 * limbs - 960, 960):
        fixed = Fixed(limbs, fraction)
        values = np.array([0.9, -0.9, 0.0]) * fixed.largest(1)
        np.testing.assert_allclose(fixed.decode(fixed.encode(values)), values, rtol=1e-15)


@pytest.mark.parametrize("wrong", [{"limbs": 0}, {"limbs": 5}, {"fraction": 2000}, {"fraction": -900}])
def test_impossible_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(BadInput, match="fixed point"):
        Fixed(**wrong)
    with pytest.raises(BadInput, match="bound"):
        Fixed.within(-1.0, 3)
