"""A relay: a federation below, a site above. Federations whose members are federations are made of relays.

An envelope comes in, the members are asked, and what goes up is the exact sum over their sites
(core/subtotal.py), never a member's reply. The schema of all members goes up as that of one site. A question
for single replies (``each``) is refused by name, unless the relay's rules name it: then the sum is the reply
of the relay, as if it were one site. Above, a relay is asked as any site is; so there may be relays below it.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.declarations import Count
from unpooled.core.exchange import STAGE, Answer, Envelope, Federation, Gathered, Part, whys
from unpooled.core.messages import Question, Reply, SiteId, Summable
from unpooled.core.protocol import Ask
from unpooled.data.merged_schema import COLUMNS, merged
from unpooled.data.schema import AskSchema
from unpooled.errors import BadInput, Refused, SchemaMismatch, TooFewAnswers, UnpooledError
from unpooled.runtimes.doors import LocalCarrier
from unpooled.runtimes.membership import AskMembers, BadTree, Members
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site.audit_log import AuditLog
from unpooled.site.log import Log
from unpooled.site.site import Site, refused
from unpooled.site.studied import Studied

_MOST_PARTS = 10_000  # questions in one exchange


@dataclass(frozen=True)
class RelayRules:
    """The rules of a relay: what it passes up, and from how many sites and persons on."""

    min_sites: int = 3  # that a sum is over; of relays below, their sites count
    min_persons: int = 1  # behind a count, or the sums that belong to it; fewer are not shown
    quorum: float = 0.5  # share of the members that must answer
    columns: str = "same"  # of the members: as in Wishes, "same", "common" or "any"
    passes: tuple[str, ...] = ()  # questions for single replies that it answers, with the sum, as one site

    def __post_init__(self) -> None:
        if self.min_sites < 1 or self.min_persons < 1:
            raise BadInput(
                f"min_sites and min_persons must be 1 or more, got {self.min_sites} and {self.min_persons}"
            )
        if not 0 <= self.quorum <= 1:
            raise BadInput(f"quorum must be a share between 0 and 1, got {self.quorum}")
        if self.columns not in COLUMNS:
            raise BadInput(f"columns must be one of {', '.join(COLUMNS)}, got {self.columns!r}")
        for name in self.passes:
            question: Any = codec.class_named(name)
            if question is None or not issubclass(question, Question):
                raise BadInput(f"passes: no question is called {name!r}")
            if not issubclass(question.reply_type(), Summable):
                raise BadInput(f"passes: replies to {name} have no sum, so they would go up one by one")

    @property
    def digest(self) -> str:
        return sha256(repr(self).encode()).hexdigest()


class Relay(Site):
    """A federation as a member of another one.

    ``members`` are sites and relays, asked through their doors, or a Federation with ``exact_sums``. In
    ``folder`` are its log, from which a relay that was killed gives the same bytes again, and its key;
    without a folder nothing is written. With ``study`` it answers within what was approved there.

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
        study: Studied | None = None,
        what: str = "a relay",
    ) -> None:
        self.rules = RelayRules() if rules is None else rules
        below: Any = members if hasattr(members, "ask") else federation_of(members)
        if getattr(below, "secure", False) or not getattr(below, "exact_sums", False):
            raise BadInput(f"{name}: a relay passes up exact sums; its federation needs exact_sums=True")
        self._below: Federation = below
        home = None if folder is None else Path(folder)
        books = log = None
        key = secrets.token_hex(20)
        if home is not None:
            from unpooled.site.identity import fingerprint_in, identity_in

            home.mkdir(parents=True, exist_ok=True)
            identity_in(home)
            key = fingerprint_in(home)
            log = Log(home / "log.jsonl", what)
            try:
                if study is not None:
                    study.check(log)
                bound = "" if study is None else study.digest
                books = AuditLog(name, self.rules, None, log, authority=authority, study=bound)
            except BaseException:
                log.close()
                raise
        super().__init__(
            name,
            None,
            audit=books,
            answered=None if books is None else books.answered(),
            key=key,
            guards=() if study is None else (study,),
        )
        self._books = books

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
            for guard in self._guards:
                guard.before(post, ())
            gathered = self._below.ask(post.turn, self._asks(post))
            answers = [gathered[part.index] for part in post.parts]
            silent = {site: why for got in answers for site, why in _silent(self.members, got).items()}
            self._note(whys(silent) if silent else "")
            answer = Answer(post.turn, tuple(map(self._summed, post.parts, answers)))
            for guard in self._guards:
                guard.leaving(post, answer)
            return answer
        except Refused as refusal:
            return refused(post, refusal)

    def _asks(self, post: Envelope) -> tuple[Ask[Any], ...]:
        """The asks to the members, each at the place that it has above: draws of sites depend on it."""
        places = [part.index for part in post.parts]
        if len(set(places)) < len(places) or not all(0 <= i < _MOST_PARTS for i in places):
            raise Refused("the places of its questions are not those of an exchange")
        asks: list[Ask[Any]] = [Ask("each", (), AskMembers()) for _ in range(max(places, default=-1) + 1)]
        for part in post.parts:
            self._check_part(part)
            verb: Any = "each" if isinstance(part.question, AskSchema) else "total"
            asks[part.index] = Ask(verb, self.members, part.question, part.view)
        return tuple(asks)

    def _check_part(self, part: Part) -> None:
        """Refuse, by name, what is not passed on."""
        name = codec.name_of(type(part.question))
        if part.verb == STAGE:
            raise Refused("a federation takes no part in the secure sums of another one")
        if isinstance(part.question, AskSchema) or (part.verb == "each" and name in self.rules.passes):
            return
        if part.verb == "each":
            raise Refused(f"{name} asks for replies of single sites, and a relay passes up only their sum")
        if not issubclass(part.question.reply_type(), Summable):
            raise Refused(f"replies to {name} have no sum")

    def _summed(self, part: Part, got: Gathered[Any]) -> Reply:
        needed = max(1, int(np.ceil(self.rules.quorum * len(self.members))))
        if len(got.sites) < needed:
            raise _TooFew(f"{len(got.sites)} of {len(self.members)} members answered, {needed} needed")
        if isinstance(part.question, AskSchema):
            return self._schema(got)
        total = got.subtotal()
        self._check_sites(total.sites)
        if self.rules.min_persons == 1:
            return total
        figures = part.question.figures()
        self._check_persons(_persons(total.reply(), figures))
        return total.of_at_least(figures, self.rules.min_persons)

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


def federation_of(members: Sequence[Site]) -> RemoteFederation:
    """Sites and relays of this process, each asked through its door: none of them can end the others' run."""
    names = [member.name for member in members]
    if not names or len(set(names)) < len(names):
        raise BadInput(f"members must be at least one, with names that differ: {', '.join(names) or 'none'}")
    return RemoteFederation(
        LocalCarrier({member.name: member for member in members}, patient=True),
        exact_sums=True,
        keys={member.name: member.key for member in members if not member.is_federation},
        federations=[member.name for member in members if member.is_federation],
    )
