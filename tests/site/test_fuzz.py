"""Garbage at both ends: no crash, nothing accepted that was altered into nonsense, memory flat.

The default suite draws 6,000 messages of each kind, ``pytest -m long`` a million.
"""

import random
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from tests.amounts import amounts

from helpers import opened
from unpooled.errors import CodecError, ReplyError
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments
from unpooled.site import Site
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, Protect


@pytest.fixture(params=amounts(2_000, 1_000_000))
def messages(request):
    return request.param


X = np.random.default_rng(0).normal(size=(60, 2))
REQUEST_ID = RequestId("run", 7, 1, 0)
CENTERS = np.array([[[-1.0, 0.0], [1.0, 0.0]]])
REQUEST = Request(
    REQUEST_ID,
    (Part("total", AskClusterSums(CENTERS), None, 0), Part("total", AskMoments(np.zeros(2)), None, 1)),
)


def mutant(whole: bytes, other: bytes, rng: random.Random) -> bytes:
    """A message with bytes flipped, cut, inserted, repeated, or spliced with another."""
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(7):
            case 0 if data:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data = data[:at]
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 16))
            case 3:
                data[at : at + rng.randrange(1, 32)] = b""
            case 4:
                data = data[:at] + bytearray(other[rng.randrange(len(other)) :])
            case 5 if len(data) > 24:  # within the skeleton, where the names are
                at = rng.randrange(20, min(len(data), 400))
                data[at] = rng.choice(b'0123456789{}[]",:-eE.truefalsn')
            case _:
                data = bytearray(rng.randbytes(rng.randrange(0, 200)))
    return bytes(data)


@contextmanager
def little_memory():
    """What is done within needs little memory beyond what is there, whatever a message says of its sizes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 2**26  # the peak, in bytes
    finally:
        tracemalloc.stop()


def signed(data: bytes) -> bytes:
    """A mutant whose checksum fits: made so on purpose, and not by a bad line."""
    return codec._checksum(data) + data


@little_memory()
def test_no_altered_message_is_accepted_at_either_end(messages):
    rng = random.Random(0)
    site = open_site("a", X, Policy(protect=Protect(one_row_per_person=True, no_sensitive_columns=True)))
    asked = codec.wrap(REQUEST)
    answer = site.receive(asked)
    for _ in range(messages):
        data = mutant(answer, asked, rng)
        if data != answer:
            with pytest.raises((CodecError, ReplyError)):
                opened(REQUEST, data, limit=1 << 20)
        data = mutant(asked, answer, rng)
        if data not in (asked, answer):
            reply = codec.unwrap(site.respond(data), expect=Response)
            assert all(isinstance(r, Refusal) for r in reply.replies)


@little_memory()
def test_the_coordinator_accepts_no_forged_answer_that_is_nonsense(messages):
    """What is accepted has the right kinds, shapes and signs; bits of a number may differ, and no more."""
    rng = random.Random(1)
    answer = Site("a", X).answer(REQUEST)
    whole = codec.encode(answer)
    refused = 0
    for _ in range(messages):
        data = signed(mutant(whole, codec.encode(REQUEST), rng))
        try:
            result = opened(REQUEST, data, limit=1 << 20)
        except (CodecError, ReplyError):
            refused += 1
            continue
        for part, reply, original in zip(REQUEST.parts, result.replies, answer.replies, strict=True):
            if isinstance(reply, Refusal):
                continue
            part.question.check_reply(reply)
            for name in codec.field_names(type(original)):
                assert getattr(reply, name).shape == getattr(original, name).shape
    assert refused > 0.7 * messages


@little_memory()
def test_a_site_never_crashes_and_answers_only_what_it_can_read(messages):
    rng = random.Random(2)
    site = open_site("a", X, Policy(protect=Protect(one_row_per_person=True, no_sensitive_columns=True)))
    whole = codec.encode(REQUEST)
    other = codec.encode(replace(REQUEST, request_id=replace(REQUEST_ID, exchange=1)))
    answered = 0
    for _ in range(messages):
        data = signed(mutant(whole, other, rng))
        reply = codec.unwrap(site.respond(data), expect=Response)
        if not isinstance(reply.replies[0] if reply.replies else Refusal(""), Refusal):
            answered += 1
            request = codec.unwrap(data, expect=Request)  # what was answered can be read
            assert len(reply.replies) == len(request.parts)
    assert answered < 0.3 * messages


@pytest.mark.parametrize("size", [2**20, 2**24 + 1, 2**26])
def test_a_message_too_large_is_not_parsed(size, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("parsed")

    monkeypatch.setattr(codec.json, "loads", never)
    site = Site("a", X, max_message_bytes=2**20 - 1)
    with pytest.raises(CodecError, match="are allowed"):
        site.receive(b"UNPL" + bytes(size))
