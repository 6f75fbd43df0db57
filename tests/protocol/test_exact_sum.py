"""Exact sums: equal to rational arithmetic, whatever the order, the nesting and the sizes of the numbers."""

from fractions import Fraction

import numpy as np
import pytest

from helpers import bits
from unpooled.errors import ReplyError
from unpooled.protocol import codec
from unpooled.protocol.exact_sum import added, exact_sum
from unpooled.protocol.partial_sum import PartialSum, partial_sum
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments, ClusterSums, Moments

pytestmark = pytest.mark.quick

KINDS = {
    "near one": lambda rng, shape: rng.standard_normal(shape),
    "of all sizes": lambda rng, shape: np.ldexp(rng.standard_normal(shape), rng.integers(-1074, 1000, shape)),
    "ties": lambda rng, shape: np.ldexp(rng.integers(-3, 4, shape) * 1.0, rng.integers(-60, 60, shape)),
    "subnormal": lambda rng, shape: np.ldexp(rng.integers(-9, 9, shape) * 1.0, -1074),
    "cancelling": lambda rng, shape: np.concatenate(
        [x := rng.standard_normal(shape), -x, np.ldexp(rng.standard_normal(shape), -80)]
    ),
    "whole": lambda rng, shape: rng.integers(-(2**53), 2**53, shape).astype(float),
}


def rational(column):
    """The float64 nearest to the sum, by Python's fractions."""
    return float(sum(map(Fraction, column.tolist()), Fraction(0)))


@pytest.mark.parametrize("kind", KINDS)
def test_law_the_sum_is_the_nearest_number_in_any_order_and_nesting(kind):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        block = KINDS[kind](rng, (int(rng.integers(1, 12)), 3))
        whole = exact_sum(block)
        assert whole.rounded().tolist() == [rational(column) for column in block.T]
        parts = np.array_split(block[rng.permutation(len(block))], rng.integers(1, len(block) + 1))
        nested = added(exact_sum(part) for part in parts)
        assert nested.low == whole.low
        assert np.array_equal(nested.limbs, whole.limbs)


def test_a_rounded_partial_sum_would_lose_what_an_exact_one_keeps():
    tiny = 2.0**-53
    left, right = np.array([[1.0], [tiny]]), np.array([[tiny], [0.0]])
    assert left.sum() + right.sum() == 1.0
    assert (exact_sum(left) + exact_sum(right)).rounded() == 1.0 + 2 * tiny


def test_what_is_not_finite_is_refused_and_what_is_too_large_is_infinite():
    assert np.isinf(exact_sum(np.full((3, 1), 1.7e308)).rounded())
    with pytest.raises(ReplyError, match=r"sums of Moments holds a number that is not finite"):
        partial_sum([[Moments(np.ones(1), np.array([np.inf]), np.ones(1))]])


def clusters(seed, k=2, d=3):
    rng = np.random.default_rng(seed)
    mass = rng.integers(1, 9, (1, k)).astype(float)
    return ClusterSums(rng.standard_normal((1, k, d)), mass, 9 * d * mass)


def test_equal_subtotals_have_equal_bytes_and_travel():
    replies = [clusters(seed) for seed in range(5)]
    flat = partial_sum([replies])
    nested = partial_sum([[partial_sum([replies[3:]]), *replies[:2], partial_sum([[replies[2]]])]])
    assert bits(nested) == bits(flat)
    assert flat.sites == 5
    again = codec.decode(bits(flat), expect=PartialSum)
    again.check_for(AskClusterSums(np.zeros((1, 2, 3))))
    assert np.array_equal(again.reply().sums, exact_sum(np.stack([r.sums for r in replies])).rounded())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "Moments"}, "a sum of Moments where ClusterSums"),
        ({"kind": "no such"}, "a sum of no such"),
        ({"sites": 0}, "a sum over 0 sites"),
        ({"low": (0,)}, "a sum of 3 fields"),
        ({"low": (10**6, 0, 0)}, "is not a sum of numbers"),
        ({"low": (30, 0, 0)}, "not finite"),
    ],
)
def test_a_partial_sum_that_no_federation_could_send_is_refused(change, why):
    honest = partial_sum([[clusters(0), clusters(1)]])
    fields = {name: getattr(honest, name) for name in ("kind", "sites", "low", "limbs")}
    with pytest.raises(ReplyError, match=why):
        PartialSum(**{**fields, **change}).check_for(AskClusterSums(np.zeros((1, 2, 3))))


def test_counts_below_a_minimum_go_with_the_sums_that_belong_to_them():
    one = ClusterSums(np.ones((1, 2, 3)), np.array([[2.0, 7.0]]), np.full((1, 2), 9.0))
    least = partial_sum([[one, one]]).suppress_below(AskClusterSums(np.zeros((1, 2, 3))).figures(), 5)
    reply = least.reply()
    assert reply.mass.tolist() == [[0.0, 14.0]]
    assert reply.sums[0, :, 0].tolist() == [0.0, 2.0]
    assert reply.inertia.tolist() == [[0.0, 18.0]]
    few = partial_sum([[Moments(np.ones(1), np.ones(2), np.ones(2))]])
    suppressed = few.suppress_below(AskMoments().figures(), 2).reply()
    assert suppressed.mass.tolist() == [0.0]
    assert suppressed.sums.tolist() == [0.0, 0.0]
