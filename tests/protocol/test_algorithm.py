"""Asking: two verbs, protocols made of protocols, and who is missing when too few answer."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from helpers import Declines
from unpooled.data.transforms import Affine
from unpooled.errors import TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol.algorithm import each, together, total, transformed
from unpooled.protocol.declarations import Count, Setting
from unpooled.protocol.exchange import (
    Aggregate,
    Federation,
    Replies,
    RequestId,
    RoundLog,
    gather,
    round_rng,
    run_protocol,
    site_seed,
)
from unpooled.protocol.messages import Question, Summable
from unpooled.protocol.questions.cluster_sums import AskMoments, Moments
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site import Site
from unpooled.typing import FloatArray

pytestmark = pytest.mark.quick

ROWS = {"a": np.array([[1.0], [2.0]]), "b": np.array([[4.0]]), "c": np.array([[8.0], [16.0], [32.0]])}
SITES = ("a", "b", "c")


@pytest.fixture(params=["fused", "site by site"])
def federation(request):
    return (Simulation if request.param == "fused" else LocalFederation).from_rows(ROWS)


# ---------------------------------------------------------------- a new protocol, invented in twelve lines


@dataclass(frozen=True, eq=False)
class Above(Summable, prefix="test_protocol"):
    rows: Annotated[FloatArray, Count("1")]


@dataclass(frozen=True, eq=False)
class AskAbove(Question[Above], prefix="test_protocol"):
    reads = "rows"

    limit: Annotated[float, Setting()]

    def answer_all(self, batch: SiteBatch):
        return [Above(np.array([float((self.limit < batch.site(s).X).sum())])) for s in range(len(batch))]


def median(sites, low, high, n):
    while high - low > 1e-6:
        middle = (low + high) / 2
        above = yield from total(sites, AskAbove(middle))
        low, high = (middle, high) if above.rows[0] >= n / 2 else (low, middle)
    return low


def test_a_new_protocol_finds_the_median_of_rows_it_never_sees(federation):
    round_log = RoundLog()
    found = run_protocol(median(SITES, 0.0, 64.0, 6), federation, round_log=round_log)
    assert found == pytest.approx(8.0, abs=1e-5)  # three of six rows lie above anything below 8
    assert round_log.exchanges == 26  # 64 halved until it is below 1e-6
    assert {site: numbers for site, (numbers, _) in round_log.sent.items()} == dict.fromkeys(SITES, 26)


# ---------------------------------------------------------------- the two verbs


def test_each_returns_every_reply(federation):
    answer = run_protocol(each(SITES, AskMoments()), federation)
    assert {s: r.sums[0] for s, r in answer.items()} == {"a": 3.0, "b": 4.0, "c": 56.0}


def test_total_returns_only_the_sum(federation):
    answer = run_protocol(total(SITES, AskMoments()), federation)
    assert isinstance(answer, Moments)
    assert (answer.n, answer.sums[0], answer.squares[0]) == (6.0, 63.0, 1365.0)


def test_a_question_may_differ_by_site(federation):
    origins = {"a": 1.0, "b": 2.0, "c": 4.0}
    answer = run_protocol(each(SITES, lambda site: AskMoments(np.array([origins[site]]))), federation)
    assert {s: r.sums[0] for s, r in answer.items()} == {"a": 1.0, "b": 2.0, "c": 44.0}


def test_some_sites_only(federation):
    round_log = RoundLog()
    assert run_protocol(total(("c", "a"), AskMoments()), federation, round_log=round_log).n == 5.0
    assert set(round_log.sent) == {"a", "c"}


# ---------------------------------------------------------------- protocols made of protocols


def mean_of(sites, times):
    """The mean, asked ``times`` times."""
    for _ in range(times):
        answer = yield from total(sites, AskMoments())
    return float(answer.mean[0])


def test_together_costs_the_exchanges_of_the_longest(federation):
    round_log = RoundLog()
    steps = together([mean_of(("a",), 1), mean_of(("b",), 3), mean_of(SITES, 2)])
    assert run_protocol(steps, federation, round_log=round_log) == [1.5, 4.0, 10.5]
    assert round_log.exchanges == 3
    assert {site: numbers for site, (numbers, _) in round_log.sent.items()} == {"a": 9, "b": 15, "c": 6}


def test_together_nests(federation):
    round_log = RoundLog()

    def outer():
        first = yield from together([mean_of(("a",), 1), together([mean_of(("b",), 2), mean_of(("c",), 1)])])
        last = yield from mean_of(SITES, 1)
        return first, last

    first, last = run_protocol(outer(), federation, round_log=round_log)
    assert (first, round_log.exchanges) == ([1.5, [4.0, pytest.approx(56 / 3)]], 3)
    assert last == 10.5


def test_together_of_nothing_and_of_what_asks_nothing(federation):
    def silent():
        return 7
        yield ()

    round_log = RoundLog()
    assert run_protocol(together([]), federation, round_log=round_log) == []
    assert run_protocol(together([silent(), silent()]), federation, round_log=round_log) == [7, 7]
    assert round_log.exchanges == 0


def test_transformed_questions_read_transformed_rows(federation):
    halved = Affine(np.array([1.0]), np.array([2.0]))
    assert run_protocol(transformed(halved, mean_of(SITES, 2)), federation) == pytest.approx((10.5 - 1) / 2)
    assert run_protocol(transformed(None, mean_of(SITES, 1)), federation) == 10.5


def test_the_inner_transform_holds(federation):
    inner, outer = Affine(np.zeros(1), np.array([2.0])), Affine(np.array([100.0]), np.ones(1))
    assert run_protocol(transformed(outer, transformed(inner, mean_of(SITES, 1))), federation) == 5.25


def test_transforms_differ_within_one_exchange(federation):
    transforms = [Affine(np.zeros(1), np.array([float(s)])) for s in (1, 2, 4)]
    answer = run_protocol(together([transformed(v, mean_of(SITES, 2)) for v in transforms]), federation)
    assert answer == [10.5, 5.25, 2.625]


# ---------------------------------------------------------------- randomness


def test_a_sites_seed_depends_on_all_that_it_should_and_on_nothing_else():
    request_id = RequestId("run", 1, 2, 3)
    known = site_seed(request_id, 0, "a")
    assert known == site_seed(RequestId("another run", 1, 2, 3), 0, "a")
    assert known == 2746910459297593467  # of another value, every result with a seed would change
    others = [
        site_seed(RequestId("run", 9, 2, 3), 0, "a"),
        site_seed(RequestId("run", 1, 9, 3), 0, "a"),
        site_seed(RequestId("run", 1, 2, 9), 0, "a"),
        site_seed(request_id, 1, "a"),
        site_seed(request_id, 0, "b"),
    ]
    assert len({known, *others}) == 6


def test_the_coordinators_randomness_is_keyed_by_seed_and_round():
    draws = [round_rng(s, n).integers(2**60) for s in range(3) for n in range(3)]
    assert len(set(draws)) == 9
    assert round_rng(1, 2).integers(2**60) == draws[5]


# ---------------------------------------------------------------- who is missing


def refusing(*who: str) -> Simulation:
    return LocalFederation(
        [Site(s, X, guards=[Declines(f"{s} sleeps")] if s in who else []) for s, X in ROWS.items()]
    )


def test_silence_is_data():
    round_log = RoundLog()
    answer = run_protocol(total(SITES, AskMoments()), refusing("b"), round_log=round_log)
    assert answer.n == 5.0
    assert round_log.silent == {"b": "b sleeps"}
    assert set(round_log.sent) == {"a", "c"}
    assert list(run_protocol(each(SITES, AskMoments()), refusing("b"))) == ["a", "c"]


def test_too_few_answers_names_who_which_round_and_which_question():
    message = (
        r"^round 4, AskMoments: 1 of 3 sites answered, 2 needed; "
        r"missing: a \(a sleeps\), c \(c sleeps\)$"
    )
    with pytest.raises(TooFewAnswersError, match=message):
        run_protocol(total(SITES, AskMoments()), refusing("a", "c"), number=4)


@pytest.mark.parametrize(("quorum", "enough"), [(0.0, True), (1 / 3, True), (0.34, False), (1.0, False)])
def test_the_quorum_is_a_share_of_those_asked(quorum, enough):
    steps, federation = total(SITES, AskMoments()), refusing("a", "c")
    if enough:
        assert run_protocol(steps, federation, quorum=quorum).n == 1.0
    else:
        with pytest.raises(TooFewAnswersError):
            run_protocol(steps, federation, quorum=quorum)


def test_at_least_one_must_answer_whatever_the_quorum():
    with pytest.raises(TooFewAnswersError, match="0 of 3 sites answered, 1 needed"):
        run_protocol(total(SITES, AskMoments()), refusing(*SITES), quorum=0.0)


def test_many_missing_sites_are_counted_rather_than_listed():
    sites = [Site(f"s{i}", np.ones((1, 1)), guards=[Declines("off")]) for i in range(9)]
    with pytest.raises(TooFewAnswersError, match=r"s4 \(off\) and 4 more$"):
        run_protocol(total([s.name for s in sites], AskMoments()), LocalFederation(sites))


def test_a_site_that_sends_nothing_is_silent_too():
    class Lossy(Federation):
        """A runtime that loses what site b sends."""

        sites = SITES

        def ask(self, request_id, asks):
            inner = LocalFederation.from_rows(ROWS)
            kept = [
                {s: r for s, r in answer.each().items() if s != "b"} for answer in inner.ask(request_id, asks)
            ]
            return [gather(ask, replies) for ask, replies in zip(asks, kept, strict=True)]

    round_log = RoundLog()
    assert run_protocol(total(SITES, AskMoments()), Lossy(), round_log=round_log).n == 5.0
    assert round_log.silent == {"b": "no answer"}


def test_what_was_only_summed_cannot_be_seen_one_by_one():
    answer = Aggregate(SITES, sum=Moments(*np.ones((3, 1))), size=(3, 100))
    with pytest.raises(TypeError, match="only the sum"):
        answer.each()
    assert answer.sent() == dict.fromkeys(SITES, (3, 100))
    assert isinstance(answer, Replies)


def test_the_rng_of_a_round_depends_on_seed_and_number_and_can_be_copied():
    lazy = round_rng(7, 3)
    duplicate = deepcopy(lazy)
    first = lazy.random()
    own = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(3,)))
    assert first == duplicate.random() == own.random()
    assert deepcopy(lazy).random() == lazy.random() != first
