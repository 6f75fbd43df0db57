"""A relay: a federation below, a site above. Federations whose members are federations are made of relays.

An envelope comes in, the members are asked, and what goes up is the exact sum over their sites
(core/subtotal.py), never a member's reply. The schema of all members goes up as that of one site. A question
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

from unpooled.core import codec
from unpooled.core.declarations import Count
from unpooled.core.exchange import STAGE, Answer, Envelope, Federation, Gathered, Part, Turn, whys
from unpooled.core.messages import LeftMasked, Reply, SiteId, Summable
from unpooled.core.protocol import Ask
from unpooled.core.subtotal import Subtotal
from unpooled.data.merged_schema import merged
from unpooled.data.schema import AskSchema
from unpooled.errors import BadInput, Refused, SchemaMismatch, TooFewAnswers, UnpooledError
from unpooled.optimum.questions import AskNode, NodeSolution
from unpooled.privacy.secure_sum import SecureSums
from unpooled.privacy.secure_sum.messages import asked
from unpooled.runtimes.doors import LocalCarrier
from unpooled.runtimes.membership import AskMembers, BadTree, Members
from unpooled.runtimes.relay_dual import DualRegion
from unpooled.runtimes.relay_rules import DUAL as DUAL
from unpooled.runtimes.relay_rules import RelayRules as RelayRules
from unpooled.runtimes.relay_rules import open_books
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site.site import Site, refused
from unpooled.site.studied import Studied

_MOST_PARTS = 10_000  # questions in one exchange
CELL = 30  # members that sum securely with each other


class Relay(Site):
    """A federation as a member of another one.

    ``members`` are sites and relays, asked through their doors, or a Federation with ``exact_sums`` or secure
    sums. With ``secure`` the members sum securely: a cell, of at most 30. In ``folder`` are its log, from
    which a relay that was killed gives the same bytes again, its state in secure sums, and its key; without a
    folder nothing is written. With ``study`` it answers within what was approved there.

    >>> import numpy as np
    >>> from unpooled import InProcess
    >>> north = Relay("north", InProcess.of({s: np.ones((2, 1)) for s in "abc"}, exact_sums=True))
    >>> InProcess([north]).sites
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
        study: Studied | None = None,
        what: str = "a relay",
    ) -> None:
        self.rules = RelayRules() if rules is None else rules
        below: Any = members if hasattr(members, "ask") else federation_of(members, secure)
        self.cell = bool(getattr(below, "secure", False))  # it reads only the sum over its members
        if not (self.cell or getattr(below, "exact_sums", False)):
            raise BadInput(
                f"{name}: a relay passes up exact sums; its federation needs exact_sums=True, or secure sums"
            )
        if self.cell and len(below.sites) > CELL:
            raise BadInput(
                f"{name}: {len(below.sites)} members in one cell of secure sums, {CELL} are possible: make "
                "several regions of them, below another relay"
            )
        if self.cell and self.rules.cell_sites > 1:
            raise BadInput(
                f"{name}: cell_sites of {self.rules.cell_sites}, and in secure sums nobody sees which sites "
                "have rows of a cluster"
            )
        self._below: Federation = below
        if hasattr(below, "hide_cells"):  # sites that are answered for in one call
            below.hide_cells(self.rules.cell_sites)
        books = open_books(name, self.rules, folder, authority, study, what)
        super().__init__(
            name,
            None,
            mask=books.mask,
            audit=books.audit,
            answered=None if books.audit is None else books.audit.answered(),
            key=books.key,
            guards=books.guards,
        )
        self._books, self._ledger, self._member_above = books.audit, books.ledger, books.mask
        self._first: dict[str, tuple[tuple[SiteId, ...], int]] = {}  # of the run that was asked about last
        self._region = DualRegion(below, self.rules.cell_sites)
        self._sums: dict[tuple[Turn, str], list[Reply]] = {}  # of the latest round, by what was asked

    @property
    def plain(self) -> bool:
        return False

    @property
    def members(self) -> tuple[SiteId, ...]:
        """The names of its members, which it tells nobody."""
        return tuple(self._below.sites)

    def answer(self, post: Envelope) -> Answer:
        """Answer an envelope; what failed below is said without names, and tried again when asked again."""
        try:
            return super().answer(post)
        except UnpooledError as error:
            shown = f"failed with {type(error).__name__}; its own log says more"
            if isinstance(error, _TooFew):
                shown = str(error)
            else:
                shown = error.shown if isinstance(error, BadTree) else shown
                self._note(str(error))
            return self._failed(post, refused(post, Refused(shown)))

    def _note(self, said: str) -> None:
        """Say in the next line of the log what only the relay may know."""
        if self._books is not None:
            self._books.below = said

    def _computed(self, post: Envelope) -> Answer:
        self._note("")
        try:
            if any(isinstance(part.question, AskMembers) for part in post.parts):
                return Answer(post.turn, tuple(self._members(post, part) for part in post.parts))
            parts = tuple(part for part in post.parts if part.verb != STAGE)
            if self._mask is not None:
                self._mask.before(post)
            elif len(parts) < len(post.parts):
                raise Refused("this federation takes no part in secure sums")
            for guard in self._guards if parts else ():
                guard.before(replace(post, parts=parts), ())
            found = iter(self._found(post, parts) if parts else ())
            replies = tuple(LeftMasked() if part.verb == STAGE else next(found) for part in post.parts)
            return self._kept(post, replies, bool(parts))
        except Refused as refusal:
            return refused(post, refusal)

    def _found(self, post: Envelope, parts: Sequence[Part]) -> list[Reply]:
        """The sums of the members' answers; to questions of the same exchange, the same sum.

        In a secure sum that is begun anew, with other keys, another sum would show who is missing in it.
        """
        turn, about = post.turn, asked(parts)
        if (turn, about) in self._sums:
            return self._sums[turn, about]
        if len(parts) < len(post.parts) and not self.cell and self._member_above.was_opened(post):
            raise Refused("this exchange was summed before this federation was opened again")
        gathered = self._below.ask(turn, self._asks(turn, parts))
        nodes = {part.index: self._node(turn, part) for part in parts if isinstance(part.question, AskNode)}
        answers = [nodes[part.index][0] if part.index in nodes else gathered[part.index] for part in parts]
        silent = {site: why for got in answers for site, why in _silent(self.members, got).items()}
        self._note(whys(silent) if silent else "")
        found = [
            self._summed(part, got, nodes.get(part.index)) for part, got in zip(parts, answers, strict=True)
        ]
        self._check_set(turn, parts, answers, found)
        now = (turn.run, turn.round)
        self._sums = {k: v for k, v in self._sums.items() if (k[0].run, k[0].round) == now}
        self._sums[turn, about] = found
        return found

    def _check_set(
        self, turn: Turn, parts: Sequence[Part], answers: Sequence[Gathered[Any]], found: Sequence[Reply]
    ) -> None:
        """With the rule of one set: keep the members of the first sum of a run, refuse sums over others."""
        if not self.rules.one_set:
            return
        for part, got, total in zip(parts, answers, found, strict=True):
            if part.verb != "total" or not isinstance(total, Subtotal):
                continue
            now = (got.sites, total.sites)
            first = self._first_set(turn.run)
            if first is None:
                self._ledger.keep_among(turn.run, json.dumps(now))
            elif first != now:
                raise _TooFew("not all of the sites answered that the first sum of this run is over")
            if self._books is not None:
                self._books.among = got.sites

    def _first_set(self, run: str) -> tuple[tuple[SiteId, ...], int] | None:
        """The members, and the number of sites below, of the first sum of a run; None if there is none."""
        if run not in self._first:
            kept = self._ledger.among(run)
            if kept is None:
                return None
            members, count = json.loads(kept)
            self._first = {run: (tuple(members), int(count))}
        return self._first[run]

    def _asked_members(self, run: str) -> tuple[SiteId, ...]:
        """The members that are asked: with the rule of one set those of the run's first sum."""
        first = self._first_set(run) if self.rules.one_set else None
        return self.members if first is None else first[0]

    def _asks(self, turn: Turn, parts: Sequence[Part]) -> tuple[Ask[Any], ...]:
        """The asks to the members, each at the place that it has above: draws of sites depend on it."""
        places = [part.index for part in parts]
        if len(set(places)) < len(places) or not all(0 <= i < _MOST_PARTS for i in places):
            raise Refused("the places of its questions are not those of an exchange")
        asks: list[Ask[Any]] = [Ask("each", (), AskMembers()) for _ in range(max(places, default=-1) + 1)]
        for part in parts:
            self._check_part(part)
            if isinstance(part.question, AskNode):
                continue  # each member has prices of its own
            verb: Any = "each" if isinstance(part.question, AskSchema) else "total"
            members = self.members if self.cell else self._asked_members(turn.run)
            asks[part.index] = Ask(verb, members, part.question, part.view)
        return tuple(asks)

    def _check_part(self, part: Part) -> None:
        """Refuse, by name, what is not passed on."""
        name = codec.name_of(type(part.question))
        if isinstance(part.question, AskSchema) or (part.verb == "each" and name in self.rules.passes):
            if self.cell and isinstance(part.question, AskNode):
                raise Refused(f"{name} is answered site by site, and here sites sum securely")
            return
        if part.verb == "each" or isinstance(part.question, AskNode):
            raise Refused(f"{name} asks for replies of single sites, and a relay passes up only their sum")
        if not issubclass(part.question.reply_type(), Summable):
            raise Refused(f"replies to {name} have no sum")

    def _node(self, turn: Turn, part: Part) -> tuple[Gathered[Any], NodeSolution | None]:
        """The replies of the members at their shares of the region's prices, and that of the region."""
        assert isinstance(part.question, AskNode)
        members = self._asked_members(turn.run)
        return self._region.ask(turn, members, part.index, part.question, part.view)

    def _summed(
        self, part: Part, got: Gathered[Any], node: tuple[Gathered[Any], NodeSolution | None] | None
    ) -> Reply:
        needed = max(1, int(np.ceil(self.rules.quorum * len(self.members))))
        if len(got.sites) < needed:
            raise _TooFew(f"{len(got.sites)} of {len(self.members)} members answered, {needed} needed")
        if isinstance(part.question, AskSchema):
            return self._schema(got)
        if node is not None and node[1] is not None:
            if not set(got.sites) & set(getattr(self._below, "federations", ())):
                self._check_sites(len(got.sites))
            return node[1]
        total = self._subtotal(got)
        if self.rules.min_persons == 1:
            return total
        figures = part.question.figures()
        self._check_persons(_persons(total.reply(), figures))
        return total.of_at_least(figures, self.rules.min_persons)

    def _subtotal(self, got: Gathered[Any]) -> Subtotal:
        """The sum over enough sites; of cells that too few of them have rows of, nothing is in it."""
        least = self.rules.cell_sites
        try:
            total = got.subtotal(least)
        except TooFewAnswers as few:  # have rows, of those that answered
            raise _TooFew(f"{few}, and {self.name} answers for {least} or more") from few
        self._check_sites(total.sites)
        if total.least < least and not self.cell:
            raise Refused(f"how many sites have rows of a cluster is not known below {self.name}")
        return total

    def _schema(self, got: Gathered[Any]) -> Reply:
        """The schema of all members as that of one site; a member that is a relay has checked its own."""
        if not set(got.sites) & set(getattr(self._below, "federations", ())):
            self._check_sites(len(got.sites))
        try:
            schema = merged(got.each(), self.rules.columns)
        except SchemaMismatch as error:
            self._note(f"{error}; {error.table}")
            raise Refused(str(error)) from error
        self._check_persons(float(schema.rows[0]))
        return schema

    def _members(self, post: Envelope, part: Part) -> Reply:
        """The fingerprints of its members' keys, and of its own; what is wrong with the tree, if anything."""
        if not isinstance(part.question, AskMembers):
            raise Refused("who its members are is asked alone")
        here, above = version("unpooled"), part.question.above
        if self.key in above:
            return Members((), here, f"the federation {self.name} contains itself")
        tell = getattr(self._below, "members", None)
        try:
            keys = () if tell is None else tell(post.turn, (*above, self.key))
        except BadTree as error:
            self._note(str(error))
            return Members((), here, error.shown)
        return Members(tuple(sorted({*keys, self.key})), here)

    def _check_sites(self, sites: int) -> None:
        if sites < self.rules.min_sites:
            raise _TooFew(
                f"{sites} of its sites answered, and {self.name} answers for {self.rules.min_sites} or more"
            )

    def _check_persons(self, persons: float) -> None:
        if persons < self.rules.min_persons:
            raise Refused(f"{self.name} answers for {self.rules.min_persons} persons or more, and has fewer")


class _TooFew(TooFewAnswers):
    """Too few members answered; said without their names."""


def _silent(members: Sequence[SiteId], got: Gathered[Any]) -> dict[SiteId, str]:
    answered = set(got.sites)
    return {site: got.refusals.get(site, "no answer") for site in members if site not in answered}


def _persons(reply: Any, figures: Mapping[str, Any]) -> float:
    """The number of persons behind a sum: the largest of its counts, cells that divide them together."""
    most = [np.inf]
    for name, figure in figures.items():
        if isinstance(figure, Count):
            count = getattr(reply, name)
            together = name == reply.cells and reply.divided
            most.append(float((count.sum(axis=-1) if together else count).max(initial=0.0)))
    return max(most[1:], default=np.inf)


def federation_of(members: Sequence[Site], secure: SecureSums | None = None) -> RemoteFederation:
    """Sites and relays of this process, each asked through its door: none of them can end the others' run."""
    names = [member.name for member in members]
    if not names or len(set(names)) < len(names):
        raise BadInput(f"members must be at least one, with names that differ: {', '.join(names) or 'none'}")
    return RemoteFederation(
        LocalCarrier({member.name: member for member in members}, patient=True),
        exact_sums=secure is None,
        secure=secure,
        keys={member.name: member.key for member in members if not member.is_federation},
        federations=[member.name for member in members if member.is_federation],
    )
