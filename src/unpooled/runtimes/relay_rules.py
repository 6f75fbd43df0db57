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
from unpooled.optimum.questions import AskNode
from unpooled.questions.clusters import AskClusterSums
from unpooled.runtimes.membership import AskMembers
from unpooled.site.allow_list import only_totals
from unpooled.site.audit_log import SUMS, AuditLog, check_books
from unpooled.site.guards import OneSource, source
from unpooled.site.ledger import Ledger, SumLedger
from unpooled.site.log import Log
from unpooled.site.site import Guard
from unpooled.site.studied import Studied

DUAL = (codec.name_of(AskNode), codec.name_of(AskClusterSums))  # passed on, the dual runs over a tree


@dataclass(frozen=True)
class RelayRules:
    """The rules of a relay: what it passes up, and from how many sites and persons on."""

    min_sites: int = 3  # that a sum is over; of relays below, their sites count
    cell_sites: int = 1  # that have rows of a cluster, or of another cell of a sum; of fewer it is not shown
    min_persons: int = 1  # behind a count, or the sums that belong to it; fewer are not shown
    quorum: float = 0.5  # share of the members that must answer
    columns: str = "same"  # of the members: as in Wishes, "same", "common" or "any"
    one_set: bool = False  # every sum of a run is over the sites of its first one, or is not given
    passes: tuple[str, ...] = ()  # questions for single replies that it answers, with the sum, as one site
    secure: bool = False  # it answers in secure sums of the federation above only, but for the schema

    def __post_init__(self) -> None:
        for least in ("min_sites", "cell_sites", "min_persons"):
            if getattr(self, least) < 1:
                raise BadInput(f"{least} must be 1 or more, got {getattr(self, least)}")
        if self.cell_sites > self.min_sites:
            raise BadInput(
                f"cell_sites of {self.cell_sites} is above min_sites of {self.min_sites}: a cell has no more "
                "sites than its sum"
            )
        if not 0 <= self.quorum <= 1:
            raise BadInput(f"quorum must be a share between 0 and 1, got {self.quorum}")
        if self.columns not in COLUMNS:
            raise BadInput(f"columns must be one of {', '.join(COLUMNS)}, got {self.columns!r}")
        for name in self.passes:
            question: Any = codec.class_named(name)
            if question is None or not issubclass(question, Question):
                raise BadInput(f"passes: no question is called {name!r}")
            if not issubclass(question.reply_type(), Summable) and question is not AskNode:
                raise BadInput(f"passes: replies to {name} have no sum, so they would go up one by one")

    @property
    def digest(self) -> str:
        return sha256(repr(self).encode()).hexdigest()


class RelayBooks(NamedTuple):
    """The books of a relay: its log, its part in secure sums of the federation above, its key."""

    audit: AuditLog | None
    mask: Any  # a Masking; None without the package cryptography
    key: str
    ledger: Ledger
    guards: tuple[Guard, ...]


def open_books(
    name: SiteId,
    rules: RelayRules,
    folder: str | Path | None,
    authority: bytes | None,
    study: Studied | None,
    what: str,
) -> RelayBooks:
    """The books in a folder; without one nothing is written, and its key is drawn anew."""
    required = rules.secure or (study is not None and study.secure)
    bound = "" if study is None else study.digest
    if folder is None:
        mask, held = _mask(name, required, None, None, authority), () if study is None else (study,)
        return RelayBooks(None, mask, secrets.token_hex(20), Ledger(None, name), held)
    from unpooled.site.identity import fingerprint_in, identity_in

    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    identity = identity_in(home)
    ledger = Ledger(home / "ledger.sqlite", name)
    log: Log | None = None
    try:
        log = Log(home / "log.jsonl", what)
        if study is not None:
            study.check(log)
        check_books(log, ledger)
        audit = AuditLog(name, rules, ledger, log, authority=authority, study=bound)
    except BaseException:
        ledger.close()
        if log is not None:
            log.close()
        raise
    mask = _mask(name, required, identity, ledger, authority)
    one = OneSource(ledger, source(SUMS, "", rules.digest, bound))
    guards = (one,) if study is None else (study, one)
    return RelayBooks(audit, mask, fingerprint_in(home), ledger, guards)


def _mask(name: SiteId, required: bool, identity: Any, ledger: Ledger | None, authority: bytes | None) -> Any:
    """The relay as a member of the secure sums of the federation above; ``required``: in nothing else."""
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
    return Masking(member, required=required, shown=shown, instead=only_totals())
