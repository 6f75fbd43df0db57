"""Masked answers that do not leave: refused before they are paid for, made again if they were not kept."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import blobs
from unpooled.errors import LedgerError
from unpooled.federation import LocalFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.secure_sum.stage_messages import AskMasked
from unpooled.protocol import codec
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import Part, Request, Response, run_protocol
from unpooled.protocol.messages import MaskedElsewhere, Refusal
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

DP = """
format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 1
[domain]
rows = 1000
"""
NOISY = AskNoisyMoments(0.01, np.full(2, 30.0))


@pytest.fixture
def noisy(tmp_path):
    """Four sites with a budget, whose noise is added within secure sums."""
    X, _ = blobs(0, n=160, d=2, k=3)
    sites = {f"s{i}": open_site(f"s{i}", X[i::4], parse(DP), folder=tmp_path / f"s{i}") for i in range(4)}
    yield LocalFederation(list(sites.values()), secure=SecureSums()), sites
    for site in sites.values():
        site.close()


def is_masking(request: Request) -> bool:
    return any(isinstance(part.question, AskMasked) for part in request.parts)


def changed(federation, change):
    """Have ``change`` put in its own request to s0 for the one that masks; all requests to s0, as sent."""
    transport, sent = federation._transport, []
    send_and_receive = transport.send_and_receive

    def carried(requests):
        request = codec.unwrap(requests["s0"], expect=Request) if "s0" in requests else None
        if request is not None:
            sent.append(change(request) if is_masking(request) else request)
            requests = {**requests, "s0": codec.wrap(sent[-1])}
        return send_and_receive(requests)

    transport.send_and_receive = carried
    return sent


def spoiled(request: Request) -> Request:
    """The same request with other sealed shares than the others sealed."""
    return replace(
        request,
        parts=tuple(
            replace(part, question=replace(part.question, sealed=part.question.sealed ^ np.uint8(1)))
            if isinstance(part.question, AskMasked)
            else part
            for part in request.parts
        ),
    )


def test_a_masking_that_is_refused_is_not_paid_for(noisy, tmp_path):
    federation, sites = noisy
    sent = changed(federation, spoiled)
    run_protocol(total(federation.sites, NOISY), federation, run="r", quorum=0.5)
    (request,) = filter(is_masking, sent)
    for reply in sites["s0"].answer(request).replies:
        assert "are not what it sealed for this site and this sum" in reply.reason
    assert Ledger(tmp_path / "s0" / "ledger.sqlite", "s0").spent() == 0
    assert Ledger(tmp_path / "s1" / "ledger.sqlite", "s1").spent() == pytest.approx(NOISY.privacy_cost)


def test_a_masked_answer_that_could_not_be_kept_is_made_again(noisy, monkeypatch):
    """What the mask remembers of it is taken back with what the ledger did not take."""
    federation, sites = noisy
    sent = changed(federation, lambda request: request)
    keep = Ledger.keep
    full = ["s0"]

    def failing(self, request_id, request, answer):
        (owner,) = self._db.execute("SELECT site FROM names").fetchone()
        if owner in full:
            raise LedgerError("the disk is full")
        keep(self, request_id, request, answer)

    monkeypatch.setattr(Ledger, "keep", failing)
    with pytest.raises(LedgerError, match="the disk is full"):
        run_protocol(total(federation.sites, NOISY), federation, run="r")
    (request,) = filter(is_masking, sent)
    full.clear()
    replies = codec.unwrap(sites["s0"].respond(codec.wrap(request)), expect=Response).replies
    assert not any(isinstance(reply, Refusal) for reply in replies)
    assert any(isinstance(reply, MaskedElsewhere) for reply in replies)


def test_a_second_masking_with_other_noise_is_refused_before_it_is_paid_for(noisy, tmp_path):
    """The same sum, asked for together with one more part: its noise would be drawn again."""
    federation, sites = noisy
    sent = changed(federation, lambda request: request)
    run_protocol(total(federation.sites, NOISY), federation, run="r")
    (request,) = filter(is_masking, sent)
    more = replace(request, parts=(*request.parts, Part("each", NOISY, None, len(request.parts))))
    replies = codec.unwrap(sites["s0"].respond(codec.wrap(more)), expect=Response).replies
    assert {reply.reason for reply in replies} == {"a second masking of the same sum"}
    assert Ledger(tmp_path / "s0" / "ledger.sqlite", "s0").spent() == pytest.approx(NOISY.privacy_cost)
