"""A study: what a run is for, who answers for it, and the most that it will ask. A site approves it, or not.

It is written and signed at the coordinator before the run, and travels with the run's terms. Its digest is
what a site's officer approves; whatever the coordinator then asks must be within it.
"""

import unicodedata
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from unpooled.protocol import codec
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.declarations import Centers, Work, declared, whole_numbers
from unpooled.protocol.messages import Message

UNSTATED = "not stated"
_LONGEST = 500  # characters of a text that an officer is to read
_MAX_COLUMNS, _MAX_QUESTIONS = 10_000, 1000


@dataclass(frozen=True, eq=False)
class Study(Message):
    """A run as a site is asked to approve it."""

    federation: str  # its name; "" if another program's
    run: str  # the name of the run
    title: str
    purpose: str
    contact: str
    method: str
    ks: tuple[int, ...]
    columns: tuple[str, ...]  # (): all that the sites have in common
    protection: str  # expected of the sites: copy, trusted or noise; their policies decide
    epsilon: float  # with noise: the most that the run spends, for one row; else 0, and nothing is spent
    secure: bool  # every total by secure sums
    restarts: int  # as it is planned; what limits it is the number of rounds and of centres
    rounds: int  # the highest number of a round
    questions: tuple[tuple[str, int], ...]  # all that may be asked: (wire name, most centres at once)
    # the most steps, epochs or restarts of a site: (wire name of the question, its field, number)
    work: tuple[tuple[str, str, float], ...]
    created: str  # date and time, UTC
    expires: str
    authority: str  # the coordinator's public key, hexadecimal; "" if it has none

    @property
    def digest(self) -> str:
        """The hash of the whole study, which is signed and approved."""
        return sha256(codec.encode(self)).hexdigest()

    def fault(self) -> str:
        """Why nobody could read or judge this study; "" if it is in order. Whoever wrote it."""
        texts = (self.federation, self.run, self.title, self.purpose, self.contact, self.method)
        fields = (text for name, field, _ in self.work for text in (name, field))
        named = (*self.columns, *(name for name, _ in self.questions), *fields)
        if any(len(text) > _LONGEST or _strange(text) for text in (*texts, *named, self.protection)):
            return "a text of the study is too long, or holds characters that are not shown"
        if not all((self.run, self.title, self.purpose, self.contact, self.ks)):
            return "the study lacks its run, title, purpose, contact or k"
        if not 0 <= self.epsilon <= 100:
            return "the study's epsilon is not a number from 0 to 100"
        lists = (self.questions, self.work)
        if len(self.columns) > _MAX_COLUMNS or any(len(some) > _MAX_QUESTIONS for some in lists):
            return "the study names too many columns or questions"
        try:
            if _time(self.created).tzinfo is None or _time(self.expires).tzinfo is None:
                raise ValueError
        except ValueError:
            return "the study's dates are not dates"
        return ""

    @property
    def expired(self) -> bool:
        return datetime.now(UTC) >= _time(self.expires)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Study":
        return cls(**{name: _tuples(value) for name, value in values.items()})


def signable(digest: str) -> bytes:
    """The bytes that a coordinator signs to propose a study."""
    return Label.STUDY + digest.encode()


def is_proposed_by(study: Study, signature: str, authority: str) -> bool:
    """True if the holder of this key, hexadecimal, signed the study, and the study names it."""
    from unpooled.privacy.secure_sum.crypto import is_signed
    from unpooled.privacy.secure_sum.stage_messages import from_hex

    key = from_hex(authority)
    return study.authority == authority and is_signed(key, signable(study.digest), from_hex(signature))


def sentences(study: Study) -> list[tuple[str, str]]:
    """A study for people: names and values, in the order in which an officer asks."""
    ks = sorted(study.ks)
    steady = len(ks) > 2 and ks == list(range(ks[0], ks[-1] + 1))
    privacy_cost = f"spending at most epsilon {study.epsilon:g} for each row"
    expected = {
        "summary": "answers from the site's copy",
        "raw": "answers from the site's rows, among partners bound by contract",
        "dp": f"answers from the site's rows with noise, {privacy_cost}",
    }.get(study.protection, study.protection)
    return [
        ("title", study.title),
        ("purpose", study.purpose),
        ("contact", study.contact),
        ("federation", study.federation or "another program's"),
        ("run", study.run),
        ("method", study.method),
        ("clusters", f"{ks[0]} to {ks[-1]}" if steady else ", ".join(map(str, ks))),
        ("columns", ", ".join(study.columns) or "all that the sites have in common"),
        ("expects", f"{expected}; the site's own policy decides"),
        ("seen", "sums over all sites alone" if study.secure else "the replies that the method asks for"),
        ("restarts", str(study.restarts)),
        ("at most", f"{study.rounds} rounds, and the questions, centres and steps listed for it"),
        ("proposed", study.created),
        ("expires", study.expires),
        ("key", study.authority or "not signed"),
    ]


def allowed_questions(study: Study) -> list[tuple[str, str, str, str]]:
    """All that may be asked: in plain words, by wire name, centres at once and work at the site at most.

    The third is "" for a question that is about no centres, the last for one that looks at every row once.
    """
    import unpooled.site.allow_list  # noqa: F401  importing it registers what may be asked

    return [
        (_meaning(name), name, str(most) if _about_centers(name) else "", _work(study, name))
        for name, most in study.questions
    ]


def _work(study: Study, name: str) -> str:
    """The most work that a question may ask of a site, e.g. "5 restarts, 300 steps"."""
    kind = codec.class_named(name)
    declarations = {} if kind is None else declared(kind)
    said = []
    for question, field, most in study.work:
        if question == name:
            declaration = declarations.get(field)
            label = declaration.label if isinstance(declaration, Work) else ""
            said.append(f"{most:,g} {label or field}" if most < 1e6 else f"{int(most):,} {label or field}")
    return ", ".join(said)


def _meaning(name: str) -> str:
    known = codec.class_named(name) is not None
    return codec.meaning_of(name).replace("``", "") if known else "a question that is not known here"


def _about_centers(name: str) -> bool:
    """True if a question sends centres, or asks for clusters; also of one that is not known here."""
    kind = codec.class_named(name)
    if kind is None or "k" in whole_numbers(kind):
        return True
    return any(isinstance(field, Centers) or "k" in field.axes for field in declared(kind).values())


def _strange(text: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") for c in text)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
