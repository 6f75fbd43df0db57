"""A relay: a federation below, a site above. Federations whose members are federations are made of relays.

An envelope comes in, the members are asked, and what goes up is the exact sum over their sites
(protocol/partial_sum.py), never a member's reply. The schema of all members goes up as that of one site. A question
for single replies (``each``) is refused by name, unless the relay's rules name it: then the sum is the reply
of the relay, as if it were one site. Above, a relay is asked as any site is; so there may be relays below it.

Where its members sum securely, the relay reads only their sum. In the secure sums of the federation above it
is a member, and adds the sum over its own sites, unrounded.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.merged_schema import merged
from unpooled.data.schema import AskSchema
from unpooled.errors import (
    InputError,
    QueryRefusedError,
    SchemaMismatchError,
    TooFewAnswersError,
    UnpooledError,
)
from unpooled.federation.local_transport import LocalTransport
from unpooled.federation.membership import AskMembers, Members, TreeError
from unpooled.federation.relay.dual_node import DualRelay
from unpooled.federation.relay.relay_rules import DUAL_QUESTIONS as DUAL_QUESTIONS
from unpooled.federation.relay.relay_rules import RelayRules as RelayRules
from unpooled.federation.relay.relay_rules import open_audit_trail
from unpooled.federation.remote import RemoteFederation
from unpooled.optimality.questions import AskNode, NodeSolution
from unpooled.privacy.secure_sum import SecureSums
from unpooled.privacy.secure_sum.stage_messages import asked
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.declarations import Count
from unpooled.protocol.exchange import (
    STAGE,
    Federation,
    Part,
    Replies,
    Request,
    RequestId,
    Response,
    format_silent_sites,
)
from unpooled.protocol.messages import MaskedElsewhere, Reply, SiteId, Summable
from unpooled.protocol.partial_sum import PartialSum
from unpooled.site.site import Site, refused
from unpooled.site.study_guard import StudyGuard

_MAX_PARTS = 10_000  # questions in one exchange
MAX_SECURE_MEMBERS = 30  # members that sum securely with each other


class Relay(Site):
    """A federation as a member of another one.

    ``members`` are sites and relays, asked through their doors, or a Federation with ``exact_sums`` or secure
    sums. With ``secure`` the members sum securely: a cell, of at most 30. In ``folder`` are its log, from
    which a relay that was killed gives the same bytes again, its state in secure sums, and its key; without a
    folder nothing is written. With ``study`` it answers within what was approved there.

    >>> import numpy as np
    >>> from unpooled import Simulation
    >>> north = Relay("north", Simulation.from_rows({s: np.ones((2, 1)) for s in "abc"}, exact_sums=True))
    >>> Simulation([north]).sites
    ('north',)
    """

    is_federation = True

    def __init__(
        self,
        name: SiteId,
        members: Federation | Sequence[Site],
        rules: RelayRules | None = None,
        *,
        folder: str | Path | None = None,
        authority: bytes | None = None,
        secure: SecureSums | None = None,
        study: StudyGuard | None = None,
        what: str = "a relay",
    ) -> None:
        self.rules = RelayRules() if rules is None else rules
        downstream: Any = members if hasattr(members, "ask") else local_federation(members, secure)
        self.sums_securely = bool(
            getattr(downstream, "secure", False)
        )  # it reads only the sum over its members
        if not (self.sums_securely or getattr(downstream, "exact_sums", False)):
            raise InputError(
                f"{name}: a relay passes up exact sums; its federation needs exact_sums=True, or secure sums"
            )
        if self.sums_securely and len(downstream.sites) > MAX_SECURE_MEMBERS:
            raise InputError(
                f"{name}: {len(downstream.sites)} members in one cell of secure sums, {MAX_SECURE_MEMBERS} are possible: make "
                "several regions of them, below another relay"
            )
        if self.sums_securely and self.rules.min_contributors > 1:
            raise InputError(
                f"{name}: min_contributors of {self.rules.min_contributors}, and in secure sums nobody sees which sites "
                "have rows of a cluster"
            )
        self._downstream: Federation = downstream
        if hasattr(downstream, "suppress_cells"):  # sites that are answered for in one call
            downstream.suppress_cells(self.rules.min_contributors)
        audit_trail = open_audit_trail(name, self.rules, folder, authority, study, what)
        super().__init__(
            name,
            None,
            mask=audit_trail.mask,
            audit=audit_trail.audit,
            answered=None if audit_trail.audit is None else audit_trail.audit.answered(),
            key=audit_trail.key,
            guards=audit_trail.guards,
        )
        self._audit_trail, self._ledger, self._member_above = (
            audit_trail.audit,
            audit_trail.ledger,
            audit_trail.mask,
        )
        self._first: dict[str, tuple[tuple[SiteId, ...], int]] = {}  # of the run that was asked about last
        self._dual = DualRelay(downstream, self.rules.min_contributors)
        self._sums: dict[tuple[RequestId, str], list[Reply]] = {}  # of the latest round, by what was asked

    @property
    def plain(self) -> bool:
        return False

    @property
    def members(self) -> tuple[SiteId, ...]:
        """The names of its members, which it tells nobody."""
        return tuple(self._downstream.sites)

    def answer(self, request: Request) -> Response:
        """Answer an envelope; what failed below is said without names, and tried again when asked again."""
        try:
            return super().answer(request)
        except UnpooledError as error:
            reason = f"failed with {type(error).__name__}; its own log says more"
            if isinstance(error, _TooFewMembersError):
                reason = str(error)
            else:
                reason = error.public_message if isinstance(error, TreeError) else reason
                self._note(str(error))
            return self._failed(request, refused(request, QueryRefusedError(reason)))

    def _note(self, detail: str) -> None:
        """Say in the next line of the log what only the relay may know."""
        if self._audit_trail is not None:
            self._audit_trail.downstream = detail

    def _computed(self, request: Request) -> Response:
        self._note("")
        try:
            if any(isinstance(part.question, AskMembers) for part in request.parts):
                return Response(
                    request.request_id, tuple(self._members(request, part) for part in request.parts)
                )
            parts = tuple(part for part in request.parts if part.verb != STAGE)
            if self._mask is not None:
                self._mask.check_request(request)
            elif len(parts) < len(request.parts):
                raise QueryRefusedError("this federation takes no part in secure sums")
            for guard in self._guards if parts else ():
                guard.check_questions(replace(request, parts=parts), ())
            totals = iter(self._totals(request, parts) if parts else ())
            replies = tuple(
                MaskedElsewhere() if part.verb == STAGE else next(totals) for part in request.parts
            )
            return self._kept(request, replies, bool(parts))
        except QueryRefusedError as refusal:
            return refused(request, refusal)

    def _totals(self, request: Request, parts: Sequence[Part]) -> list[Reply]:
        """The sums of the members' answers; to questions of the same exchange, the same sum.

        In a secure sum that is begun anew, with other keys, another sum would show who is missing in it.
        """
        request_id, about = request.request_id, asked(parts)
        if (request_id, about) in self._sums:
            return self._sums[request_id, about]
        if (
            len(parts) < len(request.parts)
            and not self.sums_securely
            and self._member_above.was_unmasked(request)
        ):
            raise QueryRefusedError("this exchange was summed before this federation was opened again")
        replies_by_ask = self._downstream.ask(request_id, self._asks(request_id, parts))
        nodes = {
            part.index: self._node(request_id, part) for part in parts if isinstance(part.question, AskNode)
        }
        answers = [
            nodes[part.index][0] if part.index in nodes else replies_by_ask[part.index] for part in parts
        ]
        silent = {site: why for gathered in answers for site, why in _silent(self.members, gathered).items()}
        self._note(format_silent_sites(silent) if silent else "")
        totals = [
            self._summed(part, gathered, nodes.get(part.index))
            for part, gathered in zip(parts, answers, strict=True)
        ]
        self._check_membership(request_id, parts, answers, totals)
        now = (request_id.run, request_id.round)
        self._sums = {k: v for k, v in self._sums.items() if (k[0].run, k[0].round) == now}
        self._sums[request_id, about] = totals
        return totals

    def _check_membership(
        self,
        request_id: RequestId,
        parts: Sequence[Part],
        answers: Sequence[Replies[Any]],
        totals: Sequence[Reply],
    ) -> None:
        """With the rule of one set: keep the members of the first sum of a run, refuse sums over others."""
        if not self.rules.fixed_membership:
            return
        for part, gathered, total in zip(parts, answers, totals, strict=True):
            if part.verb != "total" or not isinstance(total, PartialSum):
                continue
            now = (gathered.sites, total.sites)
            first = self._first_membership(request_id.run)
            if first is None:
                self._ledger.keep_sum_members(request_id.run, json.dumps(now))
            elif first != now:
                raise _TooFewMembersError(
                    "not all of the sites answered that the first sum of this run is over"
                )
            if self._audit_trail is not None:
                self._audit_trail.sum_members = gathered.sites

    def _first_membership(self, run: str) -> tuple[tuple[SiteId, ...], int] | None:
        """The members, and the number of sites below, of the first sum of a run; None if there is none."""
        if run not in self._first:
            kept = self._ledger.sum_members(run)
            if kept is None:
                return None
            members, count = json.loads(kept)
            self._first = {run: (tuple(members), int(count))}
        return self._first[run]

    def _current_members(self, run: str) -> tuple[SiteId, ...]:
        """The members that are asked: with the rule of one set those of the run's first sum."""
        first = self._first_membership(run) if self.rules.fixed_membership else None
        return self.members if first is None else first[0]

    def _asks(self, request_id: RequestId, parts: Sequence[Part]) -> tuple[Ask[Any], ...]:
        """The asks to the members, each at the place that it has above: draws of sites depend on it."""
        places = [part.index for part in parts]
        if len(set(places)) < len(places) or not all(0 <= i < _MAX_PARTS for i in places):
            raise QueryRefusedError("the places of its questions are not those of an exchange")
        asks: list[Ask[Any]] = [Ask("each", (), AskMembers()) for _ in range(max(places, default=-1) + 1)]
        for part in parts:
            self._check_part(part)
            if isinstance(part.question, AskNode):
                continue  # each member has prices of its own
            verb: Any = "each" if isinstance(part.question, AskSchema) else "total"
            members = self.members if self.sums_securely else self._current_members(request_id.run)
            asks[part.index] = Ask(verb, members, part.question, part.transform)
        return tuple(asks)

    def _check_part(self, part: Part) -> None:
        """Refuse, by name, what is not passed on."""
        name = codec.name_of(type(part.question))
        if isinstance(part.question, AskSchema) or (part.verb == "each" and name in self.rules.forwarded):
            if self.sums_securely and isinstance(part.question, AskNode):
                raise QueryRefusedError(f"{name} is answered site by site, and here sites sum securely")
            return
        if part.verb == "each" or isinstance(part.question, AskNode):
            raise QueryRefusedError(
                f"{name} asks for replies of single sites, and a relay passes up only their sum"
            )
        if not issubclass(part.question.reply_type(), Summable):
            raise QueryRefusedError(f"replies to {name} have no sum")

    def _node(self, request_id: RequestId, part: Part) -> tuple[Replies[Any], NodeSolution | None]:
        """The replies of the members at their shares of the region's prices, and that of the region."""
        assert isinstance(part.question, AskNode)
        members = self._current_members(request_id.run)
        return self._dual.ask(request_id, members, part.index, part.question, part.transform)

    def _summed(
        self, part: Part, gathered: Replies[Any], node: tuple[Replies[Any], NodeSolution | None] | None
    ) -> Reply:
        needed = max(1, int(np.ceil(self.rules.quorum * len(self.members))))
        if len(gathered.sites) < needed:
            raise _TooFewMembersError(
                f"{len(gathered.sites)} of {len(self.members)} members answered, {needed} needed"
            )
        if isinstance(part.question, AskSchema):
            return self._schema(gathered)
        if node is not None and node[1] is not None:
            if not set(gathered.sites) & set(getattr(self._downstream, "federations", ())):
                self._check_sites(len(gathered.sites))
            return node[1]
        total = self._subtotal(gathered)
        if self.rules.min_people == 1:
            return total
        figures = part.question.figures()
        self._check_people(_people(total.reply(), figures))
        return total.suppress_below(figures, self.rules.min_people)

    def _subtotal(self, gathered: Replies[Any]) -> PartialSum:
        """The sum over enough sites; of cells that too few of them have rows of, nothing is in it."""
        min_contributors = self.rules.min_contributors
        try:
            total = gathered.partial_sum(min_contributors)
        except TooFewAnswersError as few:  # have rows, of those that answered
            raise _TooFewMembersError(
                f"{few}, and {self.name} answers for {min_contributors} or more"
            ) from few
        self._check_sites(total.sites)
        if total.min_contributors < min_contributors and not self.sums_securely:
            raise QueryRefusedError(f"how many sites have rows of a cluster is not known below {self.name}")
        return total

    def _schema(self, gathered: Replies[Any]) -> Reply:
        """The schema of all members as that of one site; a member that is a relay has checked its own."""
        if not set(gathered.sites) & set(getattr(self._downstream, "federations", ())):
            self._check_sites(len(gathered.sites))
        try:
            schema = merged(gathered.each(), self.rules.columns)
        except SchemaMismatchError as error:
            self._note(f"{error}; {error.table}")
            raise QueryRefusedError(str(error)) from error
        self._check_people(float(schema.rows[0]))
        return schema

    def _members(self, request: Request, part: Part) -> Reply:
        """The fingerprints of its members' keys, and of its own; what is wrong with the tree, if anything."""
        if not isinstance(part.question, AskMembers):
            raise QueryRefusedError("who its members are is asked alone")
        here, ancestors = version("unpooled"), part.question.ancestors
        if self.key in ancestors:
            return Members((), here, f"the federation {self.name} contains itself")
        ask_members = getattr(self._downstream, "members", None)
        try:
            keys = () if ask_members is None else ask_members(request.request_id, (*ancestors, self.key))
        except TreeError as error:
            self._note(str(error))
            return Members((), here, error.public_message)
        return Members(tuple(sorted({*keys, self.key})), here)

    def _check_sites(self, sites: int) -> None:
        if sites < self.rules.min_sites:
            raise _TooFewMembersError(
                f"{sites} of its sites answered, and {self.name} answers for {self.rules.min_sites} or more"
            )

    def _check_people(self, people: float) -> None:
        if people < self.rules.min_people:
            raise QueryRefusedError(
                f"{self.name} answers for {self.rules.min_people} persons or more, and has fewer"
            )


class _TooFewMembersError(TooFewAnswersError):
    """Too few members answered; said without their names."""


def _silent(members: Sequence[SiteId], gathered: Replies[Any]) -> dict[SiteId, str]:
    answered = set(gathered.sites)
    return {site: gathered.refusals.get(site, "no answer") for site in members if site not in answered}


def _people(reply: Any, figures: Mapping[str, Any]) -> float:
    """The number of persons behind a sum: the largest of its counts, cells that divide them together."""
    largest = [np.inf]
    for name, figure in figures.items():
        if isinstance(figure, Count):
            count = getattr(reply, name)
            together = name == reply.cells and reply.divided
            largest.append(float((count.sum(axis=-1) if together else count).max(initial=0.0)))
    return max(largest[1:], default=np.inf)


def local_federation(members: Sequence[Site], secure: SecureSums | None = None) -> RemoteFederation:
    """Sites and relays of this process, each asked through its door: none of them can end the others' run."""
    names = [member.name for member in members]
    if not names or len(set(names)) < len(names):
        raise InputError(
            f"members must be at least one, with names that differ: {', '.join(names) or 'none'}"
        )
    return RemoteFederation(
        LocalTransport({member.name: member for member in members}, tolerate_failures=True),
        exact_sums=secure is None,
        secure=secure,
        keys={member.name: member.key for member in members if not member.is_federation},
        federations=[member.name for member in members if member.is_federation],
    )
