"""The steps of a relay's chain that ask its members: for their answers, and for their keys.

A relay passes up the exact sum over the sites below it (protocol/partial_sum.py), never a member's reply.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.algorithms.dual.relay_node import DualRelay
from unpooled.data.merged_schema import merged
from unpooled.data.schema import AskSchema
from unpooled.errors import QueryRefusedError, SchemaMismatchError, TooFewAnswersError, UnpooledError
from unpooled.federation.member_tree import AskMembers, Members, TreeError
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.optimality.questions import AskNode, NodeSolution
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Verb
from unpooled.protocol.declarations import Count
from unpooled.protocol.exchange import (
    STAGE,
    Federation,
    Part,
    Replies,
    RequestId,
    Response,
    format_silent_sites,
    parts_digest,
)
from unpooled.protocol.messages import MaskedElsewhere, Reply, SiteId, Summable
from unpooled.protocol.partial_sum import PartialSum
from unpooled.site.chain import Exchange, Next, Step
from unpooled.site.chain_steps import FailureStep
from unpooled.site.ledger import Ledger

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask

_MAX_PARTS = 10_000  # questions in one exchange
_OTHER_MEMBERS = "not all sites of this run's first sum answered"


class MemberFailureStep(FailureStep):
    """Record failures of members, and report them above without their names; a repeated request retries."""

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        try:
            return super().__call__(exchange, call_next)
        except TooFewMembersError as error:
            return self._log.failed(exchange, QueryRefusedError(str(error)))
        except UnpooledError as error:
            exchange.member_failures = str(error)
            reason = f"failed with {type(error).__name__}; its own log has the details"
            if isinstance(error, TreeError):
                reason = error.public_message
            return self._log.failed(exchange, QueryRefusedError(reason))


class MembersStep(Step):
    """Answer the question for the members of a relay: fingerprints of keys, without names."""

    name = "members"

    def __init__(self, relay: SiteId, key: str, downstream: Federation) -> None:
        self._relay, self._key, self._downstream = relay, key, downstream

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        questions = [part.question for part in exchange.request.parts]
        if not any(isinstance(question, AskMembers) for question in questions):
            return call_next(exchange)
        replies = []
        for question in questions:
            if not isinstance(question, AskMembers):
                raise QueryRefusedError("the question for its members must be the only one of a request")
            replies.append(self._members(exchange, question.ancestors))
        return Response(exchange.request.request_id, tuple(replies))

    def _members(self, exchange: Exchange, ancestors: tuple[str, ...]) -> Members:
        """Return the fingerprints of its members' keys and of its own, or the reason why it is not a tree."""
        here = version("unpooled")
        if self._key in ancestors:
            return Members((), here, f"the federation {self._relay} contains itself")
        try:
            keys = self._downstream.members(exchange.request.request_id, (*ancestors, self._key))
        except TreeError as error:
            exchange.member_failures = str(error)
            return Members((), here, error.public_message)
        return Members(tuple(sorted({*keys, self._key})), here)


class MemberTotals(Step):
    """Ask the members, and answer with the sums over them."""

    name = "answer"

    def __init__(
        self,
        relay: SiteId,
        rules: RelayRules,
        downstream: Federation,
        ledger: Ledger,
        mask: "SiteMask | None",
    ) -> None:
        self._name, self._rules, self._downstream = relay, rules, downstream
        self._ledger, self._mask = ledger, mask
        self._first: dict[str, tuple[tuple[SiteId, ...], int]] = {}  # of the run that was asked about last
        self._dual = DualRelay(downstream, rules.min_contributors)
        # of the latest round, by what was asked: the sums, and the members that they are over
        self._sums: dict[tuple[RequestId, str], tuple[list[Reply], tuple[SiteId, ...], int]] = {}

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        totals = iter(self._totals(exchange) if exchange.parts else ())
        exchange.replies = tuple(
            MaskedElsewhere() if part.verb == STAGE else next(totals) for part in exchange.request.parts
        )
        return call_next(exchange)

    def _totals(self, exchange: Exchange) -> list[Reply]:
        """Return the sums of the members' answers; for the questions of the same exchange, the same sums.

        A secure sum may start again with other keys. A different sum would then disclose who is missing in
        it.
        """
        request, parts = exchange.request, [asked.part for asked in exchange.parts]
        request_id, about = request.request_id, parts_digest(parts)
        if (request_id, about) in self._sums:
            totals, exchange.sum_members, exchange.sum_sites = self._sums[request_id, about]
            return totals
        staged = len(parts) < len(request.parts) and not self._downstream.secure
        if staged and self._mask is not None and self._mask.was_unmasked(request):
            raise QueryRefusedError("this exchange was summed before this federation was restarted")
        replies_by_ask = self._downstream.ask(request_id, self._asks(request_id, parts))
        nodes = {
            part.index: self._node(request_id, part) for part in parts if isinstance(part.question, AskNode)
        }
        answers = [
            nodes[part.index][0] if part.index in nodes else replies_by_ask[part.index] for part in parts
        ]
        silent: dict[SiteId, str] = {}
        for gathered in answers:
            silent |= silent_members(self._downstream.sites, gathered)
        exchange.member_failures = format_silent_sites(silent) if silent else ""
        totals = [
            self._summed(exchange, part, gathered, nodes.get(part.index))
            for part, gathered in zip(parts, answers, strict=True)
        ]
        self._check_membership(exchange, answers, totals)
        now = (request_id.run, request_id.round)
        self._sums = {k: v for k, v in self._sums.items() if (k[0].run, k[0].round) == now}
        self._sums[request_id, about] = totals, exchange.sum_members, exchange.sum_sites
        return totals

    def _check_membership(
        self, exchange: Exchange, answers: Sequence[Replies[Reply]], totals: Sequence[Reply]
    ) -> None:
        """With fixed membership: refuse a sum over others than the members of the run's first sum."""
        if not self._rules.fixed_membership:
            return
        first = self._first_membership(exchange.request.request_id.run)
        for asked, gathered, total in zip(exchange.parts, answers, totals, strict=True):
            if asked.part.verb != "total" or not isinstance(total, PartialSum):
                continue
            now = (gathered.sites, total.sites)
            first = first or now
            if first != now:
                raise TooFewMembersError(_OTHER_MEMBERS)
            exchange.sum_members, exchange.sum_sites = now

    def _first_membership(self, run: str) -> tuple[tuple[SiteId, ...], int] | None:
        """Return the members, and the number of their sites, of a run's first sum; None if there is none."""
        if run not in self._first:
            record = self._ledger.sum_members(run)
            if record is None:
                return None
            members, count = json.loads(record)
            self._first = {run: (tuple(members), int(count))}
        return self._first[run]

    def _current_members(self, run: str) -> tuple[SiteId, ...]:
        """Return the members that are asked: with fixed membership those of the run's first sum."""
        first = self._first_membership(run) if self._rules.fixed_membership else None
        return self._downstream.sites if first is None else first[0]

    def _asks(self, request_id: RequestId, parts: Sequence[Part]) -> tuple[Ask[Any], ...]:
        """Return the asks to the members, each at the index that it has above: sites' draws depend on it."""
        places = [part.index for part in parts]
        if len(set(places)) < len(places) or not all(0 <= i < _MAX_PARTS for i in places):
            raise QueryRefusedError("the indices of its questions are not those of an exchange")
        asks: list[Ask[Any]] = [Ask("each", (), AskMembers()) for _ in range(max(places, default=-1) + 1)]
        for part in parts:
            self._check_part(part)
            if isinstance(part.question, AskNode):
                continue  # each member has prices of its own
            verb: Verb = "each" if isinstance(part.question, AskSchema) else "total"
            members = (
                self._downstream.sites if self._downstream.secure else self._current_members(request_id.run)
            )
            asks[part.index] = Ask(verb, members, part.question, part.transform)
        return tuple(asks)

    def _check_part(self, part: Part) -> None:
        """Refuse, by name, a question that is not passed on to the members."""
        name = codec.name_of(type(part.question))
        if isinstance(part.question, AskSchema) or (part.verb == "each" and name in self._rules.forwarded):
            if self._downstream.secure and isinstance(part.question, AskNode):
                raise QueryRefusedError(
                    f"{name} needs the answers of single sites, and here sites sum securely"
                )
            return
        if part.verb == "each" or isinstance(part.question, AskNode):
            raise QueryRefusedError(
                f"{name} asks for replies of single sites, and a relay passes up only their sum"
            )
        if not issubclass(part.question.reply_type(), Summable):
            raise QueryRefusedError(f"replies to {name} have no sum")

    def _node(self, request_id: RequestId, part: Part) -> tuple[Replies[Any], NodeSolution | None]:
        """Return the replies of the members at their shares of the relay's prices, and the relay's own."""
        assert isinstance(part.question, AskNode)
        members = self._current_members(request_id.run)
        return self._dual.ask(request_id, members, part.index, part.question, part.transform)

    def _summed(
        self,
        exchange: Exchange,
        part: Part,
        gathered: Replies[Any],
        node: tuple[Replies[Any], NodeSolution | None] | None,
    ) -> Reply:
        needed = max(1, int(np.ceil(self._rules.quorum * len(self._downstream.sites))))
        if len(gathered.sites) < needed:
            raise TooFewMembersError(
                f"{len(gathered.sites)} of {len(self._downstream.sites)} members answered, {needed} needed"
            )
        if isinstance(part.question, AskSchema):
            return self._schema(exchange, gathered)
        if node is not None and node[1] is not None:
            if not set(gathered.sites) & set(self._downstream.federations):
                self._check_sites(len(gathered.sites))
            return node[1]
        total = self._subtotal(gathered)
        if self._rules.min_people == 1:
            return total
        figures = part.question.figures()
        self._check_people(_people(total.reply(), figures))
        return total.suppress_below(figures, self._rules.min_people)

    def _subtotal(self, gathered: Replies[Any]) -> PartialSum:
        """Return the sum over enough sites; cells that too few of them have rows in are suppressed."""
        min_contributors = self._rules.min_contributors
        try:
            total = gathered.partial_sum(min_contributors)
        except TooFewAnswersError as few:  # too few sites with rows, of those that answered
            raise TooFewMembersError(
                f"{few}, and {self._name} answers for {min_contributors} or more"
            ) from few
        self._check_sites(total.sites)
        if total.min_contributors < min_contributors and not self._downstream.secure:
            raise QueryRefusedError(f"{self._name} does not know how many sites have rows of a cluster")
        return total

    def _schema(self, exchange: Exchange, gathered: Replies[Any]) -> Reply:
        """Return the schema of all members as that of one site; members that are relays checked their own."""
        if not set(gathered.sites) & set(self._downstream.federations):
            self._check_sites(len(gathered.sites))
        try:
            schema = merged(gathered.each(), self._rules.columns)
        except SchemaMismatchError as error:
            exchange.member_failures = f"{error}; {error.table}"
            raise QueryRefusedError(str(error)) from error
        self._check_people(float(schema.rows[0]))
        return schema

    def _check_sites(self, sites: int) -> None:
        if sites < self._rules.min_sites:
            raise TooFewMembersError(
                f"{sites} of its sites answered, and {self._name} answers for {self._rules.min_sites} or more"
            )

    def _check_people(self, people: float) -> None:
        if people < self._rules.min_people:
            raise QueryRefusedError(
                f"{self._name} answers for {self._rules.min_people} people or more, and has fewer"
            )


class SumMembersStep(Step):
    """With fixed membership: record the members of a run's first sum with its release; refuse other sums."""

    name = "ledger"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        if exchange.sum_members:
            run, now = exchange.request.request_id.run, json.dumps((exchange.sum_members, exchange.sum_sites))
            first = self._ledger.sum_members(run)
            if first is None:
                self._ledger.keep_sum_members(run, now)
            elif first != now:
                raise TooFewMembersError(_OTHER_MEMBERS)
        return call_next(exchange)


class TooFewMembersError(TooFewAnswersError):
    """Too few members answered; the message does not name them."""


def silent_members(members: Sequence[SiteId], gathered: Replies[Any]) -> dict[SiteId, str]:
    """Return the members that did not answer, and why."""
    answered = set(gathered.sites)
    return {site: gathered.refusals.get(site, "no answer") for site in members if site not in answered}


def _people(reply: Summable, figures: Mapping[str, Any]) -> float:
    """Return the number of people in a sum: its largest count, or the total of cells that partition them."""
    largest = [np.inf]
    for name, figure in figures.items():
        if isinstance(figure, Count):
            count = getattr(reply, name)
            together = name == reply.cells and reply.divided
            largest.append(float((count.sum(axis=-1) if together else count).max(initial=0.0)))
    return max(largest[1:], default=np.inf)
