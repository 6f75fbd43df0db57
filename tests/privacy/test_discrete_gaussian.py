"""The discrete Gaussian: every decision as exact arithmetic takes it, and the distribution of OpenDP's."""

from fractions import Fraction
from math import ceil, factorial, isqrt

import numpy as np
import pytest
from scipy.stats import chi2

from unpooled.errors import InputError
from unpooled.privacy.dp import discrete_gaussian as module
from unpooled.privacy.dp.discrete_gaussian import (
    LazyUniform,
    accepted,
    cdf_bounds,
    discrete_gaussian,
    exp_bounds,
)
from unpooled.privacy.dp.noise import SimulatedAccountant

FINE = 160  # bits of the exact arithmetic here, which is not that of the module
TERMS = 16


def exp_minus(gamma):
    """exp(-gamma) to 2^-FINE, from its series, by halving the argument."""
    halvings = max(0, (ceil(gamma) + 1).bit_length())
    small, one = gamma / 2**halvings, 1 << (FINE + 40 + 2 * halvings)
    value = Fraction(sum(int(one * (-small) ** i / factorial(i)) for i in range(60)), one)
    for _ in range(halvings):
        value = Fraction(int(value * value * one), one)
    return value


WEIGHTS = [exp_minus(Fraction(k * k, 2)) for k in range(TERMS + 8)]
LIMITS = [Fraction(sum(WEIGHTS[: k + 1]), sum(WEIGHTS)) for k in range(TERMS)]


def by_hand(words, s):
    """The module's candidates, one by one, in fractions; the words are all the bits that there are."""
    found = []
    for first, second, third in words.T.tolist():
        j = first >> (64 - (s - 1).bit_length()) if s > 1 else 0
        if j >= s:
            continue
        k = sum(Fraction(second, 2**64) >= limit for limit in LIMITS)
        if Fraction(third, 2**64) >= exp_minus(Fraction(j * (2 * k * s + j), 2 * s * s)):
            continue
        n = k * s + j
        if n or not first & 1:
            found.append(-n if first & 1 else n)
    return found


@pytest.mark.parametrize("s", [1, 2, 3, 7, 1000, 2**30 + 1, 2**40])
def test_every_decision_is_that_of_exact_arithmetic(s):
    words = np.frombuffer(np.random.default_rng(s).bytes(24 * 200), dtype=np.uint64).reshape(3, -1)
    assert accepted(words, s).tolist() == by_hand(words, s) != []


def test_a_tie_is_decided_by_further_bits(monkeypatch):
    """Words whose 64 bits are those of the limit: with zeros behind them they are below, with ones not."""
    s = 2**30 + 7
    j, k = 123_456_789, 2
    limit = exp_bounds(j * (2 * k * s + j), 2 * s * s, 64)[0]
    word = cdf_bounds(k - 1, 64)[0] + 1  # just above the limit to k
    place = j << (64 - (s - 1).bit_length())
    tie = np.array([[place], [word], [limit]], dtype=np.uint64)
    asked = []
    for byte, found in ((b"\x00", [k * s + j]), (b"\xff", [])):
        monkeypatch.setattr(module.os, "urandom", lambda n, byte=byte: asked.append(n) or byte * n)
        assert accepted(tie, s).tolist() == found
    assert asked == [8, 8]
    for byte, candidate in ((b"\x00", 0), (b"\xff", 1)):
        monkeypatch.setattr(module.os, "urandom", lambda n, byte=byte: byte * n)
        assert module._candidates(np.array([cdf_bounds(0, 64)[0]], dtype=np.uint64)).tolist() == [candidate]
    rest = iter([b"\xff" * 8, b"\x00" * 8])  # far in the tail: 1 - 2^-128, whatever it is compared with
    monkeypatch.setattr(module.os, "urandom", lambda n: next(rest))
    (far,) = module._candidates(np.array([2**64 - 1], dtype=np.uint64)).tolist()
    assert LIMITS[far - 1] <= 1 - Fraction(1, 2**128) < LIMITS[far]


def test_bounds_enclose_and_shrink():
    for bits in (64, 128):
        for k, limit in enumerate(LIMITS):
            low, high = cdf_bounds(k, bits)
            assert low <= limit * 2**bits <= high <= low + 2
        for above, below in ((0, 1), (1, 3), (22, 1), (isqrt(2 * 10**40), 10**19)):
            low, high = exp_bounds(above, below, bits)
            assert low <= exp_minus(Fraction(above, below)) * 2**bits <= high <= low + 2

    def half(bits):
        return 1 << bits - 1, 1 << bits - 1

    assert LazyUniform(2**63 - 1).is_below(half)
    assert not LazyUniform(2**63).is_below(half)


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("s", [1, 4])
def test_small_scales_have_the_probabilities_of_the_formula(s):
    drawn, values = discrete_gaussian(200_000, s), np.arange(-4 * s, 4 * s + 1)
    every = np.exp(-(np.arange(-40 * s, 40 * s + 1) ** 2) / (2 * s * s)).sum()
    wanted = len(drawn) * np.exp(-(values**2) / (2 * s * s)) / every
    seen = np.array([(drawn == value).sum() for value in values])
    assert chi2.sf(((seen - wanted) ** 2 / wanted).sum(), len(values) - 1) > 1e-9


@pytest.mark.usefixtures("seeded_noise")
def test_opendp_draws_from_the_same_distribution():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    scale, count = 2.0**30 * 1.37, 20_000
    peer = np.array(dp.m.make_gaussian(*space, scale=scale)([0] * count))
    ours = discrete_gaussian(count, scale)
    edges = np.quantile(np.concatenate([ours, peer]), np.linspace(0, 1, 41))
    a, b = (np.histogram(drawn, edges)[0] for drawn in (ours, peer))
    assert chi2.sf(((a - b) ** 2 / (a + b)).sum(), 39) > 1e-12  # the peer's draws have no seed
    low = (ours & 0xFF).astype(int)  # the last bits are as even as the theory says
    assert chi2.sf(((np.bincount(low, minlength=256) - count / 256) ** 2 / (count / 256)).sum(), 255) > 1e-9


def test_the_scale_is_never_rounded_down_and_has_limits():
    assert discrete_gaussian(0, 5.0).tolist() == []
    assert set(discrete_gaussian(500, 1.0)) <= set(range(-40, 41))
    wide = discrete_gaussian(20_000, 1.2)  # as of 2
    assert wide.std() == pytest.approx(2.0, rel=0.1)
    for scale in (0.5, float("nan"), float("inf"), 2.0**41):
        with pytest.raises(InputError, match="cannot be drawn"):
            discrete_gaussian(3, scale)


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("whole", [0, 5, 2**40 + 3])
def test_the_last_bits_of_an_answer_tell_nothing_of_the_sum(whole):
    """A coordinator that asks with the least noise there may be reads the last bits of many answers."""
    count, step = 40_000, 2.0**-30
    (noise,) = SimulatedAccountant().spend([0.1], [1.0])
    answers = noise.added(np.full(count, whole, dtype=np.int64), step, 2.0**10 * step)
    seen = np.bincount((answers / step).astype(np.int64) & 15, minlength=16)
    assert chi2.sf(((seen - count / 16) ** 2 / (count / 16)).sum(), 15) > 1e-9
    with pytest.raises(InputError, match="does not fit steps"):
        noise.added(np.zeros(1, dtype=np.int64), step, 2.0**9 * step)
