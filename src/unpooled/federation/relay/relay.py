"""A relay: a federation that answers as one site in another federation.

It receives a request, asks its members, and passes up the exact sum over their sites
(protocol/partial_sum.py), never a member's reply. The schema of all members goes up as that of one site. A
relay refuses a question for single replies (``each``), unless its rules name the question: then the sum is
the relay's reply, as if it were one site. The federation above asks a relay as it asks any site, so a relay's
members may be relays too.

If its members sum securely, the relay reads only their sum. In the secure sums of the federation above the
relay is a member, and adds the sum over its own sites, unrounded.
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
from unpooled.federation.local_federation import LocalFederation
from unpooled.federation.membership import AskMembers, Members, TreeError
from unpooled.federation.relay.dual_node import DualRelay
from unpooled.federation.relay.relay_rules import DUAL_QUESTIONS as DUAL_QUESTIONS
from unpooled.federation.relay.relay_rules import RelayRules as RelayRules
from unpooled.federation.relay.relay_rules import open_audit_trail
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

    Parameters
    ----------
    name
        Its name in the federation above.
    members
        Sites and relays of this process, or a Federation with ``exact_sums`` or secure sums.
    rules
        What it passes up, and from how many sites and people on.
    folder
        The folder of its log, its state in secure sums and its key. A relay that was killed reads the log and
        gives the same bytes again. Without a folder nothing is written.
    authority
        The public key of the coordinator above.
    secure
        Settings of secure sums among its members, of which there may then be 30 at most.
    study
        The approved study; questions outside it are refused.
    what
        What the process does, for the message of a lock.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import LocalFederation, Simulation
    >>> north = Relay("north", Simulation.from_rows({s: np.ones((2, 1)) for s in "abc"}, exact_sums=True))
    >>> LocalFederation([north]).sites
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
        downstream = members if isinstance(members, Federation) else local_federation(members, secure)
        self.sums_securely = downstream.secure  # it reads only its members' sum
        if not (self.sums_securely or downstream.exact_sums):
            raise InputError(
                f"{name}: a relay passes up exact sums. Its federation needs exact_sums=True, or secure sums."
            )
        if self.sums_securely and len(downstream.sites) > MAX_SECURE_MEMBERS:
            raise InputError(
                f"{name}: {len(downstream.sites)} members are too many for secure sums, {MAX_SECURE_MEMBERS} "
                "are possible. Divide them among several relays below another relay."
            )
        if self.sums_securely and self.rules.min_contributors > 1:
            raise InputError(
                f"{name}: min_contributors is {self.rules.min_contributors}, and in secure sums nobody can "
                "count the sites that have rows of a cluster. Set min_contributors to 1, or do not sum "
                "securely."
            )
        self._downstream = downstream
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
        """The names of its members, which it discloses to nobody."""
        return tuple(self._downstream.sites)

    def answer(self, request: Request) -> Response:
        """Answer a request. Failures of members are reported without names; a repeated request retries."""
        try:
            return super().answer(request)
        except UnpooledError as error:
            reason = f"failed with {type(error).__name__}; its own log has the details"
            if isinstance(error, _TooFewMembersError):
                reason = str(error)
            else:
                reason = error.public_message if isinstance(error, TreeError) else reason
                self._note(str(error))
            return self._failed(request, refused(request, QueryRefusedError(reason)))

    def _note(self, detail: str) -> None:
        """Add a detail to the next line of the log: only the relay may read it."""
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
                raise QueryRefusedError("this federation does not take part in secure sums")
            for guard in self._guards if parts else ():
                guard.check_questions(replace(request, parts=parts), ())
            totals = iter(self._totals(request, parts) if parts else ())
            replies = tuple(
                MaskedElsewhere() if part.verb == STAGE else next(totals) for part in request.parts
            )
            return self._released(request, replies, bool(parts))
        except QueryRefusedError as refusal:
            return refused(request, refusal)

    def _totals(self, request: Request, parts: Sequence[Part]) -> list[Reply]:
        """Return the sums of the members' answers; for the questions of the same exchange, the same sums.

        A secure sum may start again with other keys. A different sum would then disclose who is missing in
        it.
        """
        request_id, about = request.request_id, asked(parts)
        if (request_id, about) in self._sums:
            return self._sums[request_id, about]
        if (
            len(parts) < len(request.parts)
            and not self.sums_securely
            and self._member_above.was_unmasked(request)
        ):
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
            silent |= _silent(self.members, gathered)
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
        """With fixed membership: record the members of a run's first sum, refuse sums over others."""
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
                raise _TooFewMembersError("not all sites of this run's first sum answered")
            if self._audit_trail is not None:
                self._audit_trail.sum_members = gathered.sites

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
        first = self._first_membership(run) if self.rules.fixed_membership else None
        return self.members if first is None else first[0]

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
            verb: Any = "each" if isinstance(part.question, AskSchema) else "total"
            members = self.members if self.sums_securely else self._current_members(request_id.run)
            asks[part.index] = Ask(verb, members, part.question, part.transform)
        return tuple(asks)

    def _check_part(self, part: Part) -> None:
        """Refuse, by name, a question that is not passed on to the members."""
        name = codec.name_of(type(part.question))
        if isinstance(part.question, AskSchema) or (part.verb == "each" and name in self.rules.forwarded):
            if self.sums_securely and isinstance(part.question, AskNode):
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
            if not set(gathered.sites) & set(self._downstream.federations):
                self._check_sites(len(gathered.sites))
            return node[1]
        total = self._subtotal(gathered)
        if self.rules.min_people == 1:
            return total
        figures = part.question.figures()
        self._check_people(_people(total.reply(), figures))
        return total.suppress_below(figures, self.rules.min_people)

    def _subtotal(self, gathered: Replies[Any]) -> PartialSum:
        """Return the sum over enough sites; cells that too few of them have rows in are suppressed."""
        min_contributors = self.rules.min_contributors
        try:
            total = gathered.partial_sum(min_contributors)
        except TooFewAnswersError as few:  # too few sites with rows, of those that answered
            raise _TooFewMembersError(
                f"{few}, and {self.name} answers for {min_contributors} or more"
            ) from few
        self._check_sites(total.sites)
        if total.min_contributors < min_contributors and not self.sums_securely:
            raise QueryRefusedError(f"{self.name} does not know how many sites have rows of a cluster")
        return total

    def _schema(self, gathered: Replies[Any]) -> Reply:
        """Return the schema of all members as that of one site; members that are relays checked their own."""
        if not set(gathered.sites) & set(self._downstream.federations):
            self._check_sites(len(gathered.sites))
        try:
            schema = merged(gathered.each(), self.rules.columns)
        except SchemaMismatchError as error:
            self._note(f"{error}; {error.table}")
            raise QueryRefusedError(str(error)) from error
        self._check_people(float(schema.rows[0]))
        return schema

    def _members(self, request: Request, part: Part) -> Reply:
        """Return the fingerprints of its members' keys and of its own, or the reason why it is not a tree."""
        if not isinstance(part.question, AskMembers):
            raise QueryRefusedError("the question for its members must be the only one of a request")
        here, ancestors = version("unpooled"), part.question.ancestors
        if self.key in ancestors:
            return Members((), here, f"the federation {self.name} contains itself")
        try:
            keys = self._downstream.members(request.request_id, (*ancestors, self.key))
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
                f"{self.name} answers for {self.rules.min_people} people or more, and has fewer"
            )


class _TooFewMembersError(TooFewAnswersError):
    """Too few members answered; the message does not name them."""


def _silent(members: Sequence[SiteId], gathered: Replies[Any]) -> dict[SiteId, str]:
    answered = set(gathered.sites)
    return {site: gathered.refusals.get(site, "no answer") for site in members if site not in answered}


def _people(reply: Any, figures: Mapping[str, Any]) -> float:
    """Return the number of people in a sum: its largest count, or the total of cells that partition them."""
    largest = [np.inf]
    for name, figure in figures.items():
        if isinstance(figure, Count):
            count = getattr(reply, name)
            together = name == reply.cells and reply.divided
            largest.append(float((count.sum(axis=-1) if together else count).max(initial=0.0)))
    return max(largest[1:], default=np.inf)


def local_federation(members: Sequence[Site], secure: SecureSums | None = None) -> LocalFederation:
    """Return a federation of sites and relays of this process. A member that fails does not end the run."""
    names = [member.name for member in members]
    if not names or len(set(names)) < len(names):
        raise InputError(
            "a relay needs at least one member, and members need different names, got "
            f"{', '.join(names) or 'none'}"
        )
    return LocalFederation(members, secure=secure, exact_sums=secure is None, tolerate_failures=True)
