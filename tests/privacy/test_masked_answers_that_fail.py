"""Masked answers that do not leave: refused before they are paid for, made again if they were not kept."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import blobs
from unpooled import InProcess, SecureSums
from unpooled.core import codec
from unpooled.core.exchange import Answer, Envelope, Part, conduct
from unpooled.core.messages import LeftMasked, Refusal
from unpooled.core.protocol import total
from unpooled.errors import LedgerError
from unpooled.privacy.dp.moments import AskNoisyMoments
from unpooled.privacy.secure_sum.messages import AskMasked
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

NOISE = """
version = 2
[protect]
mode = "noise"
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
    sites = {f"s{i}": open_site(f"s{i}", X[i::4], parse(NOISE), folder=tmp_path / f"s{i}") for i in range(4)}
    yield InProcess(list(sites.values()), secure=SecureSums()), sites
    for site in sites.values():
        site.close()


def is_masking(post: Envelope) -> bool:
    return any(isinstance(part.question, AskMasked) for part in post.parts)


def changed(federation, change):
    """Have ``change`` put in its own envelope to s0 for the one that masks; all envelopes to s0, as sent."""
    carrier, sent = federation._remote._carrier, []
    carry = carrier.carry

    def carried(posts):
        post = codec.unwrap(posts["s0"], expect=Envelope) if "s0" in posts else None
        if post is not None:
            sent.append(change(post) if is_masking(post) else post)
            posts = {**posts, "s0": codec.wrap(sent[-1])}
        return carry(posts)

    carrier.carry = carried
    return sent


def spoiled(post: Envelope) -> Envelope:
    """The same envelope with other sealed shares than the others sealed."""
    return replace(
        post,
        parts=tuple(
            replace(part, question=replace(part.question, sealed=part.question.sealed ^ np.uint8(1)))
            if isinstance(part.question, AskMasked)
            else part
            for part in post.parts
        ),
    )


def test_a_masking_that_is_refused_is_not_paid_for(noisy, tmp_path):
    federation, sites = noisy
    sent = changed(federation, spoiled)
    conduct(total(federation.sites, NOISY), federation, run="r", quorum=0.5)
    (post,) = filter(is_masking, sent)
    for reply in sites["s0"].answer(post).replies:
        assert "are not what it sealed for this site and this sum" in reply.reason
    assert Ledger(tmp_path / "s0" / "ledger.sqlite", "s0").spent() == 0
    assert Ledger(tmp_path / "s1" / "ledger.sqlite", "s1").spent() == pytest.approx(NOISY.spends)


def test_a_masked_answer_that_could_not_be_kept_is_made_again(noisy, monkeypatch):
    """What the mask remembers of it is taken back with what the ledger did not take."""
    federation, sites = noisy
    sent = changed(federation, lambda post: post)
    keep = Ledger.keep
    full = ["s0"]

    def failing(self, turn, request, answer):
        (owner,) = self._db.execute("SELECT value FROM about WHERE key = 'site'").fetchone()
        if owner in full:
            raise LedgerError("the disk is full")
        keep(self, turn, request, answer)

    monkeypatch.setattr(Ledger, "keep", failing)
    with pytest.raises(LedgerError, match="the disk is full"):
        conduct(total(federation.sites, NOISY), federation, run="r")
    (post,) = filter(is_masking, sent)
    full.clear()
    replies = codec.unwrap(sites["s0"].respond(codec.wrap(post)), expect=Answer).replies
    assert not any(isinstance(reply, Refusal) for reply in replies)
    assert any(isinstance(reply, LeftMasked) for reply in replies)


def test_a_second_masking_with_other_noise_is_refused_before_it_is_paid_for(noisy, tmp_path):
    """The same sum, asked for together with one more part: its noise would be drawn again."""
    federation, sites = noisy
    sent = changed(federation, lambda post: post)
    conduct(total(federation.sites, NOISY), federation, run="r")
    (post,) = filter(is_masking, sent)
    more = replace(post, parts=(*post.parts, Part("each", NOISY, None, len(post.parts))))
    replies = codec.unwrap(sites["s0"].respond(codec.wrap(more)), expect=Answer).replies
    assert {reply.reason for reply in replies} == {"a second masking of the same sum"}
    assert Ledger(tmp_path / "s0" / "ledger.sqlite", "s0").spent() == pytest.approx(NOISY.spends)
