"""A study: the purpose of a run, the person responsible for it, and limits on its queries, for approval.

It is written and signed at the coordinator before the run, and is sent with the run's terms. A site's officer
approves its digest; every later query of the coordinator must be within it.
"""

import unicodedata
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from unpooled.data.summary_question import AskSummary
from unpooled.privacy.dp.gaussian import privacy_unit
from unpooled.protocol import codec
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.declarations import Centers, Work, declared, whole_numbers
from unpooled.protocol.limits import MAX_SITES
from unpooled.protocol.messages import Message, asks_for

UNSTATED = "not stated"
BY_AGREEMENT = (
    "After the transfer the purpose, the methods, the end and a withdrawal of the study hold by agreement: "
    "the site cannot enforce them. An erasure cannot recall the table."
)
_MAX_TEXT = 500  # characters of a text for an officer
_MAX_COLUMNS, _MAX_QUESTIONS = 10_000, 1000
_STAGES = ("to prepare", "to cluster", "for the report")  # in the order of a run


@dataclass(frozen=True, eq=False)
class Study(Message):
    """A run as a site's officer approves it."""

    federation: str  # its name; "" if another program's
    run: str  # the name of the run
    title: str
    purpose: str
    contact: str
    method: str
    ks: tuple[int, ...]
    columns: tuple[str, ...]  # (): all that the sites have in common
    outcomes: tuple[str, ...]  # columns that describe clusters and do not count in the distance
    protection: str  # expected of the sites: summary, raw or dp; their policies decide
    epsilon: float  # of dp: the most that the run spends, for one row at each site; otherwise 0
    secure: bool  # every total by secure sums
    restarts: int  # as planned; the limits are the numbers of rounds and of centres
    rounds: int  # the highest number of a round
    questions: tuple[tuple[str, int], ...]  # the allowed queries: (wire name, most centres at once)
    # the most steps, epochs or restarts at a site: (wire name of the question, its field, number)
    work: tuple[tuple[str, str, float], ...]
    created: str  # date and time, UTC
    expires: str
    authority: str  # the coordinator's public key, hexadecimal; "" if it has none
    sites_per_person: int = 1  # of dp: the most sites at which a person that epsilon protects has a row

    @property
    def digest(self) -> str:
        """The hash of the whole study, which the coordinator signs and the officer approves."""
        return sha256(codec.encode(self)).hexdigest()

    def fault(self) -> str:
        """Return why an officer could not judge this study; "" if it is valid."""
        texts = (self.federation, self.run, self.title, self.purpose, self.contact, self.method)
        fields = (text for name, field, _ in self.work for text in (name, field))
        named = (*self.columns, *self.outcomes, *(name for name, _ in self.questions), *fields)
        if any(len(text) > _MAX_TEXT or is_strange(text) for text in (*texts, *named, self.protection)):
            return "a text of the study is too long, or has invisible characters"
        if not all((self.run, self.title, self.purpose, self.contact, self.ks)):
            return "the study lacks a run, title, purpose, contact or k"
        if not 0 <= self.epsilon <= 100:
            return "the study's epsilon is not a number from 0 to 100"
        if not 1 <= self.sites_per_person <= MAX_SITES:
            return "the study's number of sites at which a person has rows is not possible"
        lists = (self.questions, self.work)
        if len(self.columns) + len(self.outcomes) > _MAX_COLUMNS or any(
            len(some) > _MAX_QUESTIONS for some in lists
        ):
            return "the study names too many columns or questions"
        try:
            if _time(self.created).tzinfo is None or _time(self.expires).tzinfo is None:
                raise ValueError
        except ValueError:
            return "a date of the study is not a date with a time zone"
        return ""

    @property
    def expired(self) -> bool:
        return datetime.now(UTC) >= _time(self.expires)

    @property
    def expiry(self) -> str:
        """Why an expired study is not answered; a clock that is wrong would be the cause."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        return f"the study expired at {self.expires}; the clock of this site says {now}"

    @property
    def transfers(self) -> bool:
        """True if the coordinator receives the summary table of a site, and not only answers to queries."""
        return codec.name_of(AskSummary) in dict(self.questions)

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns of a summary table that is transferred; (): all."""
        return (*self.columns, *self.outcomes) if self.columns else ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Study":
        return cls(**{name: _tuples(value) for name, value in values.items()})


def signable(digest: str) -> bytes:
    """Return the bytes that a coordinator signs to propose a study."""
    return Label.STUDY + digest.encode()


def is_proposed_by(study: Study, signature: str, authority: str) -> bool:
    """Return whether the owner of this key, hexadecimal, signed the study, and the study names the key."""
    from unpooled.privacy.secure_sum.crypto import is_signed
    from unpooled.protocol.crypto_labels import from_hex

    key = from_hex(authority)
    return study.authority == authority and is_signed(key, signable(study.digest), from_hex(signature))


def sentences(study: Study) -> list[tuple[str, str]]:
    """Return a study as names and values for people, in the order in which an officer asks."""
    ks = sorted(study.ks)
    steady = len(ks) > 2 and ks == list(range(ks[0], ks[-1] + 1))
    expected = {
        "summary": "answers from the site's summary table (microaggregation): every row is the average of at "
        "least g people, i.e. k-anonymity with k = g",
        "raw": "exact answers from the site's raw rows, among partners bound by contract",
        "dp": "answers from the site's rows with differential privacy; the study spends at most epsilon "
        f"{study.epsilon:g} for {privacy_unit(study.sites_per_person)}",
    }.get(study.protection, study.protection)
    received = (
        "the schema of each site; of all other answers only sums over all sites (secure sums)"
        if study.secure
        else "the answers of each site"
    )
    limits = f"at most {study.rounds} rounds, with the listed queries, centres and steps"
    if study.transfers:
        received = (
            "the summary table of each site once, with the columns above; a site that answers from rows "
            "answers queries instead"
        )
        limits = f"{BY_AGREEMENT} Queries to a site that answers from rows: {limits}"
    return [
        ("title", study.title),
        ("purpose", study.purpose),
        ("contact", study.contact),
        ("federation", study.federation or "of another program"),
        ("run", study.run),
        ("method", study.method),
        ("clusters", f"{ks[0]} to {ks[-1]}" if steady else ", ".join(map(str, ks))),
        ("columns", ", ".join(study.columns) or "all that the sites have in common"),
        ("outcomes", ", ".join(study.outcomes) or "none"),
        ("protection", f"{expected}; the site's own policy decides"),
        ("coordinator", f"receives {received}"),
        ("restarts", str(study.restarts)),
        ("limits", limits),
        ("proposed", study.created),
        ("expires", study.expires),
        ("key", study.authority or "not signed"),
    ]


class AllowedQuery(NamedTuple):
    """A query that a study allows, in words."""

    stage: str  # of the run
    asks_for: str  # the content of the answer
    name: str  # of the question, as the log names it
    limit: str  # the most centres at once and the most work at the site; "": it reads every row once


def allowed_queries(study: Study) -> list[AllowedQuery]:
    """Return the allowed queries in the order of a run."""
    from unpooled.algorithms import METHODS
    from unpooled.site.allow_list import DESCRIBE, PREPARE

    method = METHODS.get(study.method)
    of_method = {codec.name_of(kind) for kind in (method.questions() if method is not None else ())}
    stages = dict.fromkeys(map(codec.name_of, DESCRIBE), _STAGES[2]) | dict.fromkeys(of_method, _STAGES[1])
    stages |= dict.fromkeys(map(codec.name_of, (*PREPARE, AskSummary)), _STAGES[0])
    queries = [
        AllowedQuery(stages.get(name, _STAGES[1]), asks_for(name), name, _limit(study, name, most))
        for name, most in study.questions
    ]
    return sorted(queries, key=lambda query: _STAGES.index(query.stage))


def _limit(study: Study, name: str, most: int) -> str:
    """The most centres and the most work of a query, e.g. "at most 8 centres, 300 steps"."""
    limits = [f"{most} {'centre' if most == 1 else 'centres'}"] if _about_centers(name) else []
    kind = codec.class_named(name)
    declarations = {} if kind is None else declared(kind)
    for question, field, number in study.work:
        if question == name:
            declaration = declarations.get(field)
            label = declaration.label if isinstance(declaration, Work) else ""
            text = f"{number:,g}" if number < 1e6 else f"{int(number):,}"
            limits.append(f"{text} {label or field}")
    return f"at most {', '.join(limits)}" if limits else ""


def _about_centers(name: str) -> bool:
    """True if a query sends centres, or asks for clusters, or is not known here."""
    kind = codec.class_named(name)
    if kind is None or "k" in whole_numbers(kind):
        return True
    return any(isinstance(field, Centers) or "k" in field.axes for field in declared(kind).values())


def is_strange(text: str) -> bool:
    """Return whether a text has characters that an officer would not see."""
    return any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") for c in text)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _tuples(value: object) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
