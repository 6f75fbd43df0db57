"""A federation over any transport: encodes requests, sends them, decodes and checks the responses.

With every engine, messages pass the same guards at the site and the same checks here. A reply that no honest
site could send is dropped: the round goes on without it, and records the site and the reason.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unpooled.errors import CodecError, ReplyError
from unpooled.federation.member_tree import MemberTree
from unpooled.privacy.secure_sum import SecureSums
from unpooled.privacy.secure_sum.stage_messages import AskMasked
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Asks
from unpooled.protocol.consistency import ConsistencyCheck
from unpooled.protocol.exchange import (
    STAGE,
    Federation,
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

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.sum_coordinator import SecureSummation

MAX_RESPONSE_BYTES = 64 * 2**20
_HEAD = re.compile("[0-9]{1,18}:[0-9a-f]{64}")  # of a site's log: the number of its last line, and its hash


@dataclass(frozen=True, eq=False)
class AddressedRequest:
    """One site's request, and the indices of the asks that its parts belong to."""

    asks: tuple[int, ...]
    request: Request


def pack(request_id: RequestId, asks: Asks) -> dict[SiteId, AddressedRequest]:
    """Return one request for every asked site, in site order."""
    requests = {}
    for site in sorted({site for ask in asks for site in ask.sites}):
        indices = tuple(i for i, ask in enumerate(asks) if site in ask.sites)
        parts = tuple(Part(asks[i].verb, asks[i].question_for(site), asks[i].transform, i) for i in indices)
        requests[site] = AddressedRequest(indices, Request(request_id, parts))
    return requests


def check_response(request: Request, response: Response) -> None:
    """Raise ReplyError unless this can be the response to the request."""
    if response.request_id != request.request_id:
        raise ReplyError(
            f"it answers round {response.request_id.round}, exchange {response.request_id.exchange}"
        )
    if len(response.replies) != len(request.parts):
        raise ReplyError(f"{len(response.replies)} replies to {len(request.parts)} questions")
    stages = (part.question for part in request.parts if part.verb == STAGE)
    masked = {index for stage in stages if isinstance(stage, AskMasked) for index in stage.parts}
    for part, reply in zip(request.parts, response.replies, strict=True):
        if isinstance(reply, Refusal):
            continue
        if part.verb == "total" and part.index in masked:
            if not isinstance(reply, MaskedElsewhere):
                raise ReplyError("a reply that must be masked is in clear")
        elif isinstance(reply, PartialSum):
            reply.check_for(part.question)
        else:
            part.question.check_reply(reply)


class TransportFederation(Federation):
    """The Federation over a Transport.

    Parameters
    ----------
    transport
        Carries the requests to the sites and their responses back.
    max_response_bytes
        Largest size of a response; a larger one is not decoded.
    secure
        Settings of secure sums. With them every total is a secure sum.
    exact_sums
        Compute every total exactly, independently of the order of the sites.
    sign
        Signs a log head, e.g. with an Identity. Every head then goes back to its site countersigned, with the
        next request.
    log_heads
        The last heads of the sites' logs, from earlier runs.
    on_new_heads
        Called after every exchange with all new heads in the order in which they came, even with those of
        unusable responses: they are evidence.
    keys
        Fingerprints of the sites' keys.
    federations
        The members that are federations. They are asked first for their members.
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
        self.sites = tuple(sorted(transport.sites))
        self.federations = tuple(federations)
        tree = federations or any((keys or {}).values())
        self._tree = MemberTree(transport, keys or {}, federations) if tree else None
        self.exact_sums, self.secure = exact_sums, secure is not None
        self._sign, self._on_new_heads = sign, on_new_heads
        self.log_heads: dict[SiteId, str] = dict(log_heads or {})
        self.answered: frozenset[SiteId] = frozenset()  # in the last exchange, with replies or refusals
        self._limit = max_response_bytes
        self._consistency = ConsistencyCheck()
        self._unanswered: dict[SiteId, str] = {}  # why federations have not reported their members
        self._secure_sums: SecureSummation | None = None
        if secure is not None:
            from unpooled.privacy.secure_sum import sum_coordinator

            self._secure_sums = sum_coordinator.SecureSummation(
                tuple(transport.sites), self._exchange, secure, sign, self.federations
            )

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        if self._secure_sums is not None:
            request_id = self._secure_sums.with_run_id(request_id)
        before = 0
        if self._tree is not None:
            before = int(self._tree.needs_exchange(request_id.run))
            self._unanswered = self._tree.unanswered(request_id)
        if self._secure_sums is not None:
            self._secure_sums.begin(request_id)
            if any(ask.verb == "total" for ask in asks):
                gathered = self._secure_sums.ask(request_id, asks)
                return [replace(one, exchanges=one.exchanges + before) for one in gathered]
        requests = pack(request_id, asks)
        answers = self._exchange({site: addressed.request for site, addressed in requests.items()})
        replies: list[dict[SiteId, Reply]] = [{} for _ in asks]
        for site, addressed in requests.items():
            for i, reply in zip(addressed.asks, answers[site], strict=True):
                replies[i][site] = reply
        return [
            replace(gather(ask, by_site, self.exact_sums), exchanges=1 + before)
            for ask, by_site in zip(asks, replies, strict=True)
        ]

    def members(self, request_id: RequestId, ancestors: tuple[str, ...]) -> tuple[str, ...]:
        """Return the fingerprints of the keys of all members, for the federation above."""
        return () if self._tree is None else self._tree.keys(request_id, ancestors)

    def _exchange(self, requests: Mapping[SiteId, Request]) -> dict[SiteId, tuple[Reply, ...]]:
        requests = {
            site: replace(request, countersigned=self._countersigned(site))
            for site, request in requests.items()
        }
        encoded = _encoded({s: request for s, request in requests.items() if s not in self._unanswered})
        received = {**self._transport.send_and_receive(encoded), **self._unanswered}
        responses = {site: self._decoded(received.get(site)) for site in requests}
        self.answered = frozenset(s for s, response in responses.items() if isinstance(response, Response))
        self._record_log_heads(responses)
        return {site: self._replies(site, request, responses[site]) for site, request in requests.items()}

    def _decoded(self, data: bytes | str | None) -> Response | str:
        """Return the response of a site, or the reason why there is none that can be read."""
        if not isinstance(data, bytes):
            return data or "no answer"
        try:
            response: Response = codec.unwrap(data, expect=Response, limit=self._limit)
            return response
        except CodecError as error:
            return f"its answer was not usable: {error}"

    def _record_log_heads(self, responses: Mapping[SiteId, Response | str]) -> None:
        """Record the heads that came with responses, whatever else is in them."""
        new = []
        for site, response in responses.items():
            head = response.head if isinstance(response, Response) else ""
            if _HEAD.fullmatch(head) and self.log_heads.get(site) != head:
                self.log_heads[site] = head
                new.append((site, head))
        if new and self._on_new_heads is not None:
            self._on_new_heads(new)

    def _countersigned(self, site: SiteId) -> str:
        head = self.log_heads.get(site, "")
        if not head or self._sign is None:
            return ""
        return f"{head}:{self._sign(countersignable(site, head)).hex()}"

    def _replies(self, site: SiteId, request: Request, response: Response | str) -> tuple[Reply, ...]:
        """Return the replies of a site; refusals with the reason if its response cannot be used."""
        if isinstance(response, Response):
            try:
                check_response(request, response)
                self._consistency.check(site, request, response.replies)
                return response.replies
            except ReplyError as error:
                response = f"its answer was not usable: {error}"
        return tuple(Refusal(response) for _ in request.parts)


def _encoded(requests: Mapping[SiteId, Request]) -> dict[SiteId, bytes]:
    """Encode the request of every site; requests with equal content are encoded once."""
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
