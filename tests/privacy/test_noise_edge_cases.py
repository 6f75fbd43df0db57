"""Noise that nobody paid for, that was used up, or that would not fit: there is none."""

import copy
import json
import pickle

import numpy as np
import pytest

from helpers import ledger_of
from unpooled.errors import CodecError, InputError, QueryRefusedError
from unpooled.privacy.dp.noise import BudgetAccountant, Noise, SimulatedAccountant
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, NoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, NoisyMoments
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

X = np.random.default_rng(0).normal(size=(60, 2))
BOX = np.full(2, 9.0)
RULES = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = {epsilon}\n[domain]\nrows = {rows}\n'


def asked(site, question) -> Response:
    request = Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),))
    return codec.unwrap(site.respond(codec.wrap(request)), expect=Response)


def batch(noise=()) -> SiteBatch:
    return SiteBatch(X, np.array([0, len(X)]), None, np.zeros(1, np.uint64), noise=noise)


def test_noise_is_charged_and_not_made():
    with pytest.raises(TypeError, match=r"only BudgetAccountant\.spend creates noise"):
        Noise(object(), 1.0, None)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_charged_noise_cannot_be_copied(copied):
    (noise,) = SimulatedAccountant().spend([1.0], [1.0])
    with pytest.raises(TypeError, match=r"only BudgetAccountant\.spend creates noise"):
        copied(noise)


def test_noise_without_a_charge_is_not_made_by_a_subclass_or_without_its_constructor():
    with pytest.raises(TypeError, match=r"only BudgetAccountant\.spend creates noise"):
        type("Free", (Noise,), {})
    with pytest.raises(AttributeError):
        object.__new__(Noise).added(np.zeros(1, np.int64), 2.0**-30, 1.0)


def test_an_accountant_cannot_give_noise_away():
    with pytest.raises(TypeError, match="Generous must not override spend"):
        type("Generous", (BudgetAccountant,), {"spend": lambda self, prices, shares: ()})


def test_a_question_that_keeps_its_noise_gets_no_second_reply_out_of_it():
    (noise,) = SimulatedAccountant().spend([1.0], [1.0])
    assert isinstance(AskNoisyMoments(1.0, BOX).answer(batch((noise,))), NoisyMoments)
    noise.used()  # as a site does once the reply is there
    with pytest.raises(TypeError, match="already used"):
        AskNoisyMoments(1.0, BOX).answer(batch((noise,)))


@pytest.mark.parametrize(
    "question", [AskNoisyMoments(1.0, BOX), AskNoisyCells(1.0, X[:1], BOX, np.ones(1), (0.4, 0.4, 0.2))]
)
def test_without_a_purchase_there_is_no_reply(question):
    with pytest.raises(QueryRefusedError, match="answered with noise, and no noise was charged"):
        question.answer(batch())


@pytest.mark.parametrize("bins", [0, -1, 4097])
def test_a_histogram_of_too_many_bins_is_no_message(bins):
    with pytest.raises(InputError, match="bins must be from 1 to 4096"):
        AskNoisyMoments(1.0, BOX, bins)
    data = codec.encode(AskNoisyMoments(1.0, BOX, 32))
    size = int.from_bytes(data[8:12], "little")
    head = json.loads(data[24 : 24 + size])
    head["root"]["fields"]["bins"] = bins
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    forged = data[:8] + len(text).to_bytes(4, "little") + data[12:24] + text + data[24 + size :]
    with pytest.raises(CodecError, match=r"refuses its values: .*bins must be from 1 to 4096"):
        codec.decode(forged)


def test_sums_that_would_not_fit_are_refused_by_the_declared_rows_and_not_by_those_there_are():
    """Sixty rows, and a billion declared: the refusal must not tell which it is."""
    for rows, fits in ((10**6, True), (2**31, False)):
        site = open_site("a", X, parse(RULES.format(epsilon=60, rows=rows)))
        (reply,) = asked(site, AskNoisyMoments(5.0, BOX)).replies
        assert isinstance(reply, NoisyMoments) is fits
        if not fits:
            assert reply.reason == (
                "2147483648 declared rows are too many for mu = 5: sums would not fit in 64 bits"
            )
            assert ledger_of(site).spent() == 0


@pytest.mark.parametrize("m", [None, 2.0], ids=["nearest", "memberships"])
def test_a_site_without_a_whole_row_answers_with_noise_like_any_other(m):
    """An error, or a refusal, would tell that there is nobody."""
    question = AskNoisyCells(0.05, np.array([[0.0, 0.0], [3.0, 3.0]]), BOX, np.ones(1), (0.4, 0.4, 0.2), m)
    for rows in (np.full((60, 2), np.nan), np.zeros((0, 2)), X):
        site = open_site("a", rows, parse(RULES.format(epsilon=1, rows=100)))
        (reply,) = asked(site, question).replies
        assert not isinstance(reply, Refusal)
        assert isinstance(reply, NoisyCells)
        assert (reply.count != 0).all()
