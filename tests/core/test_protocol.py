"""Asking: two verbs, protocols made of protocols, and who is missing when too few answer."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from helpers import Declines
from unpooled import InProcess, Site
from unpooled.core.arrays import FloatArray
from unpooled.core.declarations import Count, Setting
from unpooled.core.exchange import (
    Gathered,
    LazyRng,
    Summed,
    Trace,
    Turn,
    conduct,
    gather,
    round_rng,
    site_seed,
)
from unpooled.core.messages import Question, Summable
from unpooled.core.protocol import CopiedRng, each, together, total, viewed
from unpooled.core.stack import Stack
from unpooled.data.views import Affine
from unpooled.errors import TooFewAnswers
from unpooled.questions.clusters import AskMoments, Moments

pytestmark = pytest.mark.quick

ROWS = {"a": np.array([[1.0], [2.0]]), "b": np.array([[4.0]]), "c": np.array([[8.0], [16.0], [32.0]])}
SITES = ("a", "b", "c")


@pytest.fixture(params=["fused", "site by site"])
def federation(request):
    return InProcess.of(ROWS, fused=request.param == "fused")


# ---------------------------------------------------------------- a new protocol, invented in twelve lines


@dataclass(frozen=True, eq=False)
class Above(Summable, prefix="test_protocol"):
    rows: Annotated[FloatArray, Count("1")]


@dataclass(frozen=True, eq=False)
class AskAbove(Question[Above], prefix="test_protocol"):
    sees = "rows"

    limit: Annotated[float, Setting()]

    def answer_all(self, stack: Stack):
        return [Above(np.array([float((self.limit < stack.site(s).X).sum())])) for s in range(len(stack))]


def median(sites, low, high, n):
    while high - low > 1e-6:
        middle = (low + high) / 2
        above = yield from total(sites, AskAbove(middle))
        low, high = (middle, high) if above.rows[0] >= n / 2 else (low, middle)
    return low


def test_a_new_protocol_finds_the_median_of_rows_it_never_sees(federation):
    trace = Trace()
    found = conduct(median(SITES, 0.0, 64.0, 6), federation, trace=trace)
    assert found == pytest.approx(8.0, abs=1e-5)  # three of six rows lie above anything below 8
    assert trace.exchanges == 26  # 64 halved until it is below 1e-6
    assert {site: numbers for site, (numbers, _) in trace.left.items()} == dict.fromkeys(SITES, 26)


# ---------------------------------------------------------------- the two verbs


def test_each_shows_every_reply(federation):
    got = conduct(each(SITES, AskMoments()), federation)
    assert {s: r.sums[0] for s, r in got.items()} == {"a": 3.0, "b": 4.0, "c": 56.0}


def test_total_shows_only_the_sum(federation):
    got = conduct(total(SITES, AskMoments()), federation)
    assert isinstance(got, Moments)
    assert (got.n, got.sums[0], got.squares[0]) == (6.0, 63.0, 1365.0)


def test_a_question_may_differ_by_site(federation):
    origins = {"a": 1.0, "b": 2.0, "c": 4.0}
    got = conduct(each(SITES, lambda site: AskMoments(np.array([origins[site]]))), federation)
    assert {s: r.sums[0] for s, r in got.items()} == {"a": 1.0, "b": 2.0, "c": 44.0}


def test_some_sites_only(federation):
    trace = Trace()
    assert conduct(total(("c", "a"), AskMoments()), federation, trace=trace).n == 5.0
    assert set(trace.left) == {"a", "c"}


# ---------------------------------------------------------------- protocols made of protocols


def mean_of(sites, times):
    """The mean, asked so many times."""
    for _ in range(times):
        got = yield from total(sites, AskMoments())
    return float(got.mean[0])


def test_together_costs_the_exchanges_of_the_longest(federation):
    trace = Trace()
    steps = together([mean_of(("a",), 1), mean_of(("b",), 3), mean_of(SITES, 2)])
    assert conduct(steps, federation, trace=trace) == [1.5, 4.0, 10.5]
    assert trace.exchanges == 3
    assert {site: numbers for site, (numbers, _) in trace.left.items()} == {"a": 9, "b": 15, "c": 6}


def test_together_nests(federation):
    trace = Trace()

    def outer():
        first = yield from together([mean_of(("a",), 1), together([mean_of(("b",), 2), mean_of(("c",), 1)])])
        last = yield from mean_of(SITES, 1)
        return first, last

    first, last = conduct(outer(), federation, trace=trace)
    assert (first, trace.exchanges) == ([1.5, [4.0, pytest.approx(56 / 3)]], 3)
    assert last == 10.5


def test_together_of_nothing_and_of_what_asks_nothing(federation):
    def silent():
        return 7
        yield ()

    trace = Trace()
    assert conduct(together([]), federation, trace=trace) == []
    assert conduct(together([silent(), silent()]), federation, trace=trace) == [7, 7]
    assert trace.exchanges == 0


def test_viewed_shows_rows_as_the_view_makes_them(federation):
    halved = Affine(np.array([1.0]), np.array([2.0]))
    assert conduct(viewed(halved, mean_of(SITES, 2)), federation) == pytest.approx((10.5 - 1) / 2)
    assert conduct(viewed(None, mean_of(SITES, 1)), federation) == 10.5


def test_the_inner_view_holds(federation):
    inner, outer = Affine(np.zeros(1), np.array([2.0])), Affine(np.array([100.0]), np.ones(1))
    assert conduct(viewed(outer, viewed(inner, mean_of(SITES, 1))), federation) == 5.25


def test_views_differ_within_one_exchange(federation):
    views = [Affine(np.zeros(1), np.array([float(s)])) for s in (1, 2, 4)]
    got = conduct(together([viewed(v, mean_of(SITES, 2)) for v in views]), federation)
    assert got == [10.5, 5.25, 2.625]


# ---------------------------------------------------------------- randomness


def test_a_sites_seed_depends_on_all_that_it_should_and_on_nothing_else():
    turn = Turn("run", 1, 2, 3)
    known = site_seed(turn, 0, "a")
    assert known == site_seed(Turn("another run", 1, 2, 3), 0, "a")
    assert known == 2746910459297593467  # of another value, every result with a seed would change
    others = [
        site_seed(Turn("run", 9, 2, 3), 0, "a"),
        site_seed(Turn("run", 1, 9, 3), 0, "a"),
        site_seed(Turn("run", 1, 2, 9), 0, "a"),
        site_seed(turn, 1, "a"),
        site_seed(turn, 0, "b"),
    ]
    assert len({known, *others}) == 6


def test_the_coordinators_randomness_is_keyed_by_seed_and_round():
    draws = [round_rng(s, n).integers(2**60) for s in range(3) for n in range(3)]
    assert len(set(draws)) == 9
    assert round_rng(1, 2).integers(2**60) == draws[5]


# ---------------------------------------------------------------- who is missing


def refusing(*who: str) -> InProcess:
    return InProcess(
        [Site(s, X, guards=[Declines(f"{s} sleeps")] if s in who else []) for s, X in ROWS.items()]
    )


def test_silence_is_data():
    trace = Trace()
    got = conduct(total(SITES, AskMoments()), refusing("b"), trace=trace)
    assert got.n == 5.0
    assert trace.silent == {"b": "b sleeps"}
    assert set(trace.left) == {"a", "c"}
    assert list(conduct(each(SITES, AskMoments()), refusing("b"))) == ["a", "c"]


def test_too_few_answers_names_who_which_round_and_which_question():
    message = (
        r"^round 4, AskMoments: 1 of 3 sites answered, 2 needed; "
        r"missing: a \(a sleeps\), c \(c sleeps\)$"
    )
    with pytest.raises(TooFewAnswers, match=message):
        conduct(total(SITES, AskMoments()), refusing("a", "c"), number=4)


@pytest.mark.parametrize(("quorum", "enough"), [(0.0, True), (1 / 3, True), (0.34, False), (1.0, False)])
def test_the_quorum_is_a_share_of_those_asked(quorum, enough):
    steps, federation = total(SITES, AskMoments()), refusing("a", "c")
    if enough:
        assert conduct(steps, federation, quorum=quorum).n == 1.0
    else:
        with pytest.raises(TooFewAnswers):
            conduct(steps, federation, quorum=quorum)


def test_at_least_one_must_answer_whatever_the_quorum():
    with pytest.raises(TooFewAnswers, match="0 of 3 sites answered, 1 needed"):
        conduct(total(SITES, AskMoments()), refusing(*SITES), quorum=0.0)


def test_many_missing_sites_are_counted_rather_than_listed():
    sites = [Site(f"s{i}", np.ones((1, 1)), guards=[Declines("off")]) for i in range(9)]
    with pytest.raises(TooFewAnswers, match=r"s4 \(off\) and 4 more$"):
        conduct(total([s.name for s in sites], AskMoments()), InProcess(sites))


def test_a_site_that_sends_nothing_is_silent_too():
    class Lossy:
        """A runtime that loses what site b sends."""

        sites = SITES

        def ask(self, turn, asks):
            inner = InProcess.of(ROWS, fused=False)
            kept = [{s: r for s, r in got.each().items() if s != "b"} for got in inner.ask(turn, asks)]
            return [gather(ask, replies) for ask, replies in zip(asks, kept, strict=True)]

    trace = Trace()
    assert conduct(total(SITES, AskMoments()), Lossy(), trace=trace).n == 5.0
    assert trace.silent == {"b": "no answer"}


def test_what_was_only_summed_cannot_be_seen_one_by_one():
    got = Summed(SITES, sum=Moments(*np.ones((3, 1))), size=(3, 100))
    with pytest.raises(TypeError, match="only the sum"):
        got.each()
    assert got.left() == dict.fromkeys(SITES, (3, 100))
    assert isinstance(got, Gathered)


def test_a_lazy_rng_draws_what_the_round_would_and_can_be_copied():
    lazy = LazyRng(7, 3)
    copied = deepcopy(lazy)
    first = lazy.random()
    assert first == copied.random() == round_rng(7, 3).random()
    assert deepcopy(lazy).random() == lazy.random() != first


def test_a_copied_rng_draws_what_a_copy_would_and_leaves_the_original():
    original = np.random.default_rng(5).spawn(2)[1]
    expected = deepcopy(original).random(3)
    copies = [CopiedRng(original) for _ in range(2)]
    again = deepcopy(copies[0])
    for rng in (*copies, again):
        np.testing.assert_array_equal(rng.random(3), expected)
    assert deepcopy(copies[0]).random() == copies[0].random() == copies[1].random() != expected[0]
    np.testing.assert_array_equal(original.random(3), expected)
