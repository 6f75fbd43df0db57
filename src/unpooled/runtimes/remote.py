"""A federation over any engine: packs envelopes, has them carried, opens and checks what comes back.

With every engine, messages pass the same guards at the site and the same checks here. A reply that no honest
site could send is dropped: the round goes on without it, and records the site and the reason.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unpooled.core import codec
from unpooled.core.exchange import (
    STAGE,
    Answer,
    Carrier,
    Envelope,
    Gathered,
    Part,
    Turn,
    countersignable,
    gather,
)
from unpooled.core.messages import LeftMasked, Refusal, Reply, SiteId
from unpooled.core.protocol import Asks
from unpooled.core.statements import Statements
from unpooled.core.subtotal import Subtotal
from unpooled.errors import BadReply, CodecError
from unpooled.privacy.secure_sum import SecureSums
from unpooled.runtimes.membership import Membership

MAX_ANSWER_BYTES = 64 * 2**20
_HEAD = re.compile("[0-9]{1,18}:[0-9a-f]{64}")  # of a site's log: the number of its last line, and its hash


@dataclass(frozen=True, eq=False)
class Post:
    """One site's envelope, and the indices of the asks that its parts belong to."""

    asks: tuple[int, ...]
    envelope: Envelope


def pack(turn: Turn, asks: Asks) -> dict[SiteId, Post]:
    """One envelope for every asked site, in site order."""
    posts = {}
    for site in sorted({site for ask in asks for site in ask.sites}):
        indices = tuple(i for i, ask in enumerate(asks) if site in ask.sites)
        parts = tuple(Part(asks[i].verb, asks[i].question_for(site), asks[i].view, i) for i in indices)
        posts[site] = Post(indices, Envelope(turn, parts))
    return posts


def check_answer(envelope: Envelope, answer: Answer) -> None:
    """Raise BadReply unless this can be an answer to the envelope."""
    if answer.turn != envelope.turn:
        raise BadReply(f"an answer to round {answer.turn.round}, exchange {answer.turn.exchange}")
    if len(answer.replies) != len(envelope.parts):
        raise BadReply(f"{len(answer.replies)} replies to {len(envelope.parts)} questions")
    stages = (part.question for part in envelope.parts if part.verb == STAGE)
    masked = {index for question in stages for index in getattr(question, "parts", ())}
    for part, reply in zip(envelope.parts, answer.replies, strict=True):
        if isinstance(reply, Refusal):
            continue
        if part.verb == "total" and part.index in masked:
            if not isinstance(reply, LeftMasked):
                raise BadReply("a reply that was to leave masked did not")
        elif isinstance(reply, Subtotal):
            reply.check_for(part.question)
        else:
            part.question.check_reply(reply)


class RemoteFederation:
    """The Federation over a Carrier.

    ``max_answer_bytes`` bounds an answer before it is parsed. With ``secure`` every total is a secure sum,
    with ``exact_sums`` the exact sum, which does not depend on the order of the sites.
    ``heads`` are the last heads of the sites' logs, from earlier runs on. After every exchange ``keep`` gets
    all new ones in the order in which they came, also with answers that cannot be used, to be kept as
    evidence; with ``sign`` (e.g. an Identity's) every head goes back to its site countersigned, with the next
    envelope. ``keys`` are the fingerprints of the sites' keys, ``federations`` the members that are
    federations: these say first who their members are.
    """

    def __init__(
        self,
        carrier: Carrier,
        *,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        secure: SecureSums | None = None,
        exact_sums: bool = False,
        sign: Callable[[bytes], bytes] | None = None,
        heads: Mapping[SiteId, str] | None = None,
        keep: Callable[[list[tuple[SiteId, str]]], None] | None = None,
        keys: Mapping[SiteId, str] | None = None,
        federations: Sequence[SiteId] = (),
    ) -> None:
        self._carrier = carrier
        self.federations = tuple(federations)
        tree = federations or any((keys or {}).values())
        self._membership = Membership(carrier, keys or {}, federations) if tree else None
        self.exact_sums = exact_sums
        self._sign, self._keep = sign, keep
        self.heads: dict[SiteId, str] = dict(heads or {})
        self._limit = max_answer_bytes
        self._statements = Statements()
        self._away: dict[SiteId, str] = {}  # federations that have not said who their members are, and why
        self._secure_sums: Any = None
        if secure is not None:
            from unpooled.privacy.secure_sum.coordinator import SecureSummation

            self._secure_sums = SecureSummation(
                tuple(carrier.sites), self._exchange, secure, sign, self.federations
            )

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return tuple(sorted(self._carrier.sites))

    @property
    def secure(self) -> bool:
        """True if every total is a secure sum."""
        return self._secure_sums is not None

    def ask(self, turn: Turn, asks: Asks) -> list[Gathered[Any]]:
        if self._secure_sums is not None:
            turn = self._secure_sums.named(turn)
        before = 0
        if self._membership is not None:
            before, self._away = int(self._membership.asks(turn.run)), self._membership.silent(turn)
        if self._secure_sums is not None:
            self._secure_sums.begin(turn)
            if any(ask.verb == "total" for ask in asks):
                got = self._secure_sums.ask(turn, asks)
                return [replace(one, exchanges=one.exchanges + before) for one in got]
        posts = pack(turn, asks)
        answers = self._exchange({site: post.envelope for site, post in posts.items()})
        replies: list[dict[SiteId, Reply]] = [{} for _ in asks]
        for site, post in posts.items():
            for i, reply in zip(post.asks, answers[site], strict=True):
                replies[i][site] = reply
        return [
            replace(gather(ask, by_site, self.exact_sums), exchanges=1 + before)
            for ask, by_site in zip(asks, replies, strict=True)
        ]

    def members(self, turn: Turn, above: tuple[str, ...]) -> tuple[str, ...]:
        """The fingerprints of the keys of all members, for the federation above that asked for them."""
        return () if self._membership is None else self._membership.keys(turn, above)

    def _exchange(self, envelopes: Mapping[SiteId, Envelope]) -> dict[SiteId, tuple[Reply, ...]]:
        posts = {
            site: replace(post, countersigned=self._countersigned(site)) for site, post in envelopes.items()
        }
        came = dict(self._carrier.carry(_encoded({s: p for s, p in posts.items() if s not in self._away})))
        came |= self._away
        answers = {site: self._decoded(came.get(site)) for site in posts}
        self._note_heads(answers)
        return {site: self._replies(site, post, answers[site]) for site, post in posts.items()}

    def _decoded(self, data: bytes | str | None) -> Answer | str:
        """The answer of a site; the reason if there is none, or none that can be read."""
        if not isinstance(data, bytes):
            return data or "no answer"
        try:
            answer: Answer = codec.unwrap(data, expect=Answer, limit=self._limit)
            return answer
        except CodecError as error:
            return f"its answer was not usable: {error}"

    def _note_heads(self, answers: Mapping[SiteId, Answer | str]) -> None:
        """Note and keep the heads that came with answers, whatever else is in them."""
        new = []
        for site, answer in answers.items():
            head = answer.head if isinstance(answer, Answer) else ""
            if _HEAD.fullmatch(head) and self.heads.get(site) != head:
                self.heads[site] = head
                new.append((site, head))
        if new and self._keep is not None:
            self._keep(new)

    def _countersigned(self, site: SiteId) -> str:
        head = self.heads.get(site, "")
        return (
            f"{head}:{self._sign(countersignable(site, head)).hex()}"
            if head and self._sign is not None
            else ""
        )

    def _replies(self, site: SiteId, envelope: Envelope, answer: Answer | str) -> tuple[Reply, ...]:
        """The replies of a site; refusals with the reason if its answer cannot be used."""
        if isinstance(answer, Answer):
            try:
                check_answer(envelope, answer)
                self._statements.check(site, envelope, answer.replies)
                return answer.replies
            except BadReply as error:
                answer = f"its answer was not usable: {error}"
        return tuple(Refusal(answer) for _ in envelope.parts)


def _encoded(envelopes: Mapping[SiteId, Envelope]) -> dict[SiteId, bytes]:
    """The encoded envelope of every site; envelopes with equal content are encoded once."""
    known: dict[Any, bytes] = {}
    posts = {}
    for site, post in envelopes.items():
        parts = tuple((part.verb, id(part.question), id(part.view), part.index) for part in post.parts)
        key = (post.turn, parts, post.countersigned)
        if key not in known:
            known[key] = codec.wrap(post)
        posts[site] = known[key]
    return posts
