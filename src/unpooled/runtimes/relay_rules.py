"""The rules of a relay, and its books: what it passes up, and what of it is kept in its folder."""

import secrets
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.core import codec
from unpooled.core.messages import Question, SiteId, Summable
from unpooled.data.merged_schema import COLUMNS
from unpooled.data.schema import AskSchema
from unpooled.errors import BadInput
from unpooled.runtimes.membership import AskMembers
from unpooled.site.allow_list import only_totals
from unpooled.site.audit_log import AuditLog, check_books
from unpooled.site.ledger import Ledger, SumLedger
from unpooled.site.log import Log


@dataclass(frozen=True)
class RelayRules:
    """The rules of a relay: what it passes up, and from how many sites and persons on."""

    min_sites: int = 3  # that a sum is over; of relays below, their sites count
    min_persons: int = 1  # behind a count, or the sums that belong to it; fewer are not shown
    quorum: float = 0.5  # share of the members that must answer
    columns: str = "same"  # of the members: as in Wishes, "same", "common" or "any"
    passes: tuple[str, ...] = ()  # questions for single replies that it answers, with the sum, as one site
    secure: bool = False  # it answers in secure sums of the federation above only, but for the schema

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


class RelayBooks(NamedTuple):
    """What a relay keeps: its log, its part in secure sums of the federation above, its key."""

    audit: AuditLog | None
    mask: Any  # a Masking; None without the package cryptography
    key: str


def open_books(
    name: SiteId, rules: RelayRules, folder: str | Path | None, authority: bytes | None
) -> RelayBooks:
    """The books in a folder; without one nothing is written, and its key is drawn anew."""
    if folder is None:
        return RelayBooks(None, _mask(name, rules, None, None, authority), secrets.token_hex(20))
    from unpooled.site.identity import fingerprint_in, identity_in

    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    identity = identity_in(home)
    ledger = Ledger(home / "ledger.sqlite", name)
    log: Log | None = None
    try:
        log = Log(home / "log.jsonl", "a relay")
        check_books(log, ledger)
        audit = AuditLog(name, rules, ledger, log, authority=authority)
    except BaseException:
        ledger.close()
        if log is not None:
            log.close()
        raise
    return RelayBooks(audit, _mask(name, rules, identity, ledger, authority), fingerprint_in(home))


def _mask(
    name: SiteId, rules: RelayRules, identity: Any, ledger: Ledger | None, authority: bytes | None
) -> Any:
    """The relay as a member of the secure sums of the federation above."""
    if not find_spec("cryptography"):
        return None
    from unpooled.privacy.secure_sum.crypto import Identity
    from unpooled.privacy.secure_sum.site import Member
    from unpooled.privacy.secure_sum.site_mask import Masking

    member = Member(
        name,
        Identity.new() if identity is None else identity,
        authority=authority,
        store=None if ledger is None else SumLedger(ledger),
    )
    shown = (codec.name_of(AskSchema), codec.name_of(AskMembers))
    return Masking(member, required=rules.secure, shown=shown, instead=only_totals())
