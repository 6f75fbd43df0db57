"""A federation over any engine: packs envelopes, has them carried, opens and checks what comes back.

With every engine, messages pass the same guards at the site and the same checks here. A reply that no honest
site could send is dropped: the round goes on without it, and records the site and the reason.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unpooled.errors import CodecError, ReplyError
from unpooled.federation.membership import Membership
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Asks
from unpooled.protocol.consistency import ConsistencyCheck
from unpooled.protocol.exchange import (
    STAGE,
    Part,
    Replies,
    Request,
    RequestId,
    Response,
    Transport,
    countersignable,
    gather,
)
from unpooled.protocol.messages import MaskedElsewhere, Refusal, Reply, SiteId
from unpooled.protocol.partial_sum import PartialSum

MAX_RESPONSE_BYTES = 64 * 2**20
_HEAD = re.compile("[0-9]{1,18}:[0-9a-f]{64}")  # of a site's log: the number of its last line, and its hash


@dataclass(frozen=True, eq=False)
class AddressedRequest:
    """One site's envelope, and the indices of the asks that its parts belong to."""

    asks: tuple[int, ...]
    envelope: Request


def pack(request_id: RequestId, asks: Asks) -> dict[SiteId, AddressedRequest]:
    """One envelope for every asked site, in site order."""
    requests = {}
    for site in sorted({site for ask in asks for site in ask.sites}):
        indices = tuple(i for i, ask in enumerate(asks) if site in ask.sites)
        parts = tuple(Part(asks[i].verb, asks[i].question_for(site), asks[i].transform, i) for i in indices)
        requests[site] = AddressedRequest(indices, Request(request_id, parts))
    return requests


def check_response(envelope: Request, answer: Response) -> None:
    """Raise ReplyError unless this can be an answer to the envelope."""
    if answer.request_id != envelope.request_id:
        raise ReplyError(
            f"an answer to round {answer.request_id.round}, exchange {answer.request_id.exchange}"
        )
    if len(answer.replies) != len(envelope.parts):
        raise ReplyError(f"{len(answer.replies)} replies to {len(envelope.parts)} questions")
    stages = (part.question for part in envelope.parts if part.verb == STAGE)
    masked = {index for question in stages for index in getattr(question, "parts", ())}
    for part, reply in zip(envelope.parts, answer.replies, strict=True):
        if isinstance(reply, Refusal):
            continue
        if part.verb == "total" and part.index in masked:
            if not isinstance(reply, MaskedElsewhere):
                raise ReplyError("a reply that was to leave masked did not")
        elif isinstance(reply, PartialSum):
            reply.check_for(part.question)
        else:
            part.question.check_reply(reply)


class RemoteFederation:
    """The Federation over a Carrier.

    ``max_response_bytes`` bounds an answer before it is parsed. With ``secure`` every total is a secure sum,
    with ``exact_sums`` the exact sum, which does not depend on the order of the sites.
    ``log_heads`` are the last heads of the sites' logs, from earlier runs on. After every exchange ``on_new_heads`` gets
    all new ones in the order in which they came, also with answers that cannot be used, to be kept as
    evidence; with ``sign`` (e.g. an Identity's) every head goes back to its site countersigned, with the next
    envelope. ``keys`` are the fingerprints of the sites' keys, ``federations`` the members that are
    federations: these say first who their members are.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        secure: SecureSums | None = None,
        exact_sums: bool = False,
        sign: Callable[[bytes], bytes] | None = None,
        log_heads: Mapping[SiteId, str] | None = None,
        on_new_heads: Callable[[list[tuple[SiteId, str]]], None] | None = None,
        keys: Mapping[SiteId, str] | None = None,
        federations: Sequence[SiteId] = (),
    ) -> None:
        self._transport = transport
        self.federations = tuple(federations)
        tree = federations or any((keys or {}).values())
        self._membership = Membership(transport, keys or {}, federations) if tree else None
        self.exact_sums = exact_sums
        self._sign, self._on_new_heads = sign, on_new_heads
        self.log_heads: dict[SiteId, str] = dict(log_heads or {})
        self._limit = max_response_bytes
        self._consistency = ConsistencyCheck()
        self._unanswered: dict[
            SiteId, str
        ] = {}  # federations that have not said who their members are, and why
        self._secure_sums: Any = None
        if secure is not None:
            from unpooled.privacy.secure_sum.sum_coordinator import SecureSummation

            self._secure_sums = SecureSummation(
                tuple(transport.sites), self._exchange, secure, sign, self.federations
            )

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return tuple(sorted(self._transport.sites))

    @property
    def secure(self) -> bool:
        """True if every total is a secure sum."""
        return self._secure_sums is not None

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Any]]:
        if self._secure_sums is not None:
            request_id = self._secure_sums.with_run_id(request_id)
        before = 0
        if self._membership is not None:
            before, self._unanswered = (
                int(self._membership.needs_exchange(request_id.run)),
                self._membership.unanswered(request_id),
            )
        if self._secure_sums is not None:
            self._secure_sums.begin(request_id)
            if any(ask.verb == "total" for ask in asks):
                gathered = self._secure_sums.ask(request_id, asks)
                return [replace(one, exchanges=one.exchanges + before) for one in gathered]
        requests = pack(request_id, asks)
        answers = self._exchange({site: post.envelope for site, post in requests.items()})
        replies: list[dict[SiteId, Reply]] = [{} for _ in asks]
        for site, post in requests.items():
            for i, reply in zip(post.asks, answers[site], strict=True):
                replies[i][site] = reply
        return [
            replace(gather(ask, by_site, self.exact_sums), exchanges=1 + before)
            for ask, by_site in zip(asks, replies, strict=True)
        ]

    def members(self, request_id: RequestId, ancestors: tuple[str, ...]) -> tuple[str, ...]:
        """The fingerprints of the keys of all members, for the federation above that asked for them."""
        return () if self._membership is None else self._membership.keys(request_id, ancestors)

    def _exchange(self, requests: Mapping[SiteId, Request]) -> dict[SiteId, tuple[Reply, ...]]:
        requests = {
            site: replace(post, countersigned=self._countersigned(site)) for site, post in requests.items()
        }
        came = dict(
            self._transport.send_and_receive(
                _encoded({s: p for s, p in requests.items() if s not in self._unanswered})
            )
        )
        came |= self._unanswered
        answers = {site: self._decoded(came.get(site)) for site in requests}
        self._record_log_heads(answers)
        return {site: self._replies(site, post, answers[site]) for site, post in requests.items()}

    def _decoded(self, data: bytes | str | None) -> Response | str:
        """The answer of a site; the reason if there is none, or none that can be read."""
        if not isinstance(data, bytes):
            return data or "no answer"
        try:
            answer: Response = codec.unwrap(data, expect=Response, limit=self._limit)
            return answer
        except CodecError as error:
            return f"its answer was not usable: {error}"

    def _record_log_heads(self, answers: Mapping[SiteId, Response | str]) -> None:
        """Note and keep the heads that came with answers, whatever else is in them."""
        new = []
        for site, answer in answers.items():
            head = answer.head if isinstance(answer, Response) else ""
            if _HEAD.fullmatch(head) and self.log_heads.get(site) != head:
                self.log_heads[site] = head
                new.append((site, head))
        if new and self._on_new_heads is not None:
            self._on_new_heads(new)

    def _countersigned(self, site: SiteId) -> str:
        head = self.log_heads.get(site, "")
        return (
            f"{head}:{self._sign(countersignable(site, head)).hex()}"
            if head and self._sign is not None
            else ""
        )

    def _replies(self, site: SiteId, envelope: Request, answer: Response | str) -> tuple[Reply, ...]:
        """The replies of a site; refusals with the reason if its answer cannot be used."""
        if isinstance(answer, Response):
            try:
                check_response(envelope, answer)
                self._consistency.check(site, envelope, answer.replies)
                return answer.replies
            except ReplyError as error:
                answer = f"its answer was not usable: {error}"
        return tuple(Refusal(answer) for _ in envelope.parts)


def _encoded(requests: Mapping[SiteId, Request]) -> dict[SiteId, bytes]:
    """The encoded envelope of every site; envelopes with equal content are encoded once."""
    known: dict[Any, bytes] = {}
    encoded = {}
    for site, request in requests.items():
        parts = tuple(
            (part.verb, id(part.question), id(part.transform), part.index) for part in request.parts
        )
        key = (request.request_id, parts, request.countersigned)
        if key not in known:
            known[key] = codec.wrap(request)
        encoded[site] = known[key]
    return encoded
