"""A federation over any engine: packs envelopes, has them carried, opens and checks what comes back.

Whatever carries the bytes, they pass the same door at the site and the same check here. A reply that no
honest site could send is as none: the round goes on without it, and says whose it was and why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unpooled import codec
from unpooled.errors import BadReply, CodecError
from unpooled.messages import Refusal, Reply, SiteId
from unpooled.protocol import Answer, Asks, Carrier, Envelope, Gathered, Part, Turn, gather

MAX_ANSWER_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Post:
    """One site's envelope, and which asks of the exchange its parts are."""

    asks: tuple[int, ...]
    envelope: Envelope


def pack(turn: Turn, asks: Asks, seals: Mapping[SiteId, str] | None = None) -> dict[SiteId, Post]:
    """One envelope for every asked site, in site order."""
    posts = {}
    for site in sorted({site for ask in asks for site in ask.sites}):
        mine = tuple(i for i, ask in enumerate(asks) if site in ask.sites)
        parts = tuple(Part(asks[i].verb, asks[i].question_for(site), asks[i].view, i) for i in mine)
        posts[site] = Post(mine, Envelope(turn, parts, (seals or {}).get(site, "")))
    return posts


def opened(envelope: Envelope, data: bytes, limit: int = MAX_ANSWER_BYTES) -> Answer:
    """The answer to an envelope; CodecError or BadReply for anything that cannot be one."""
    answer: Answer = codec.decode(data, expect=Answer, limit=limit)
    if answer.turn != envelope.turn:
        raise BadReply(f"an answer to round {answer.turn.round}, exchange {answer.turn.exchange}")
    if len(answer.replies) != len(envelope.parts):
        raise BadReply(f"{len(answer.replies)} replies to {len(envelope.parts)} questions")
    for part, reply in zip(envelope.parts, answer.replies, strict=True):
        if not isinstance(reply, Refusal):
            part.question.check_reply(reply)
    return answer


class Posting:
    """The Federation over a Carrier.

    ``max_answer_bytes`` bounds an answer before it is parsed.
    """

    def __init__(self, carrier: Carrier, *, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._carrier = carrier
        self._limit = max_answer_bytes

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return tuple(sorted(self._carrier.sites))

    def ask(self, turn: Turn, asks: Asks) -> list[Gathered[Any]]:
        posts = pack(turn, asks)
        came = self._carrier.carry({site: codec.encode(post.envelope) for site, post in posts.items()})
        replies: list[dict[SiteId, Reply]] = [{} for _ in asks]
        for site, post in posts.items():
            for i, reply in zip(post.asks, self._replies(post.envelope, came.get(site)), strict=True):
                replies[i][site] = reply
        return [gather(ask, got) for ask, got in zip(asks, replies, strict=True)]

    def _replies(self, envelope: Envelope, data: bytes | str | None) -> tuple[Reply, ...]:
        """What a site sent; a refusal with the reason in place of what cannot be used."""
        if isinstance(data, bytes):
            try:
                return opened(envelope, data, self._limit).replies
            except (CodecError, BadReply) as error:
                data = f"its answer was not usable: {error}"
        return tuple(Refusal(data or "no answer") for _ in envelope.parts)
