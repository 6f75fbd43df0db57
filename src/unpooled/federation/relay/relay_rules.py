"""The rules of a relay, and its books: what it passes up, and what of it is kept in its folder."""

import secrets
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.data.merged_schema import COLUMNS
from unpooled.data.schema import AskSchema
from unpooled.errors import InputError
from unpooled.federation.membership import AskMembers
from unpooled.optimality.questions import AskNode
from unpooled.protocol import codec
from unpooled.protocol.messages import Question, SiteId, Summable
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site.allow_list import aggregate_only
from unpooled.site.audit_log import SUMS, AuditLog, check_audit_trail
from unpooled.site.ledger import Ledger, SumLedger
from unpooled.site.log import Log
from unpooled.site.single_source_guard import SingleSourceGuard, source_digest
from unpooled.site.site import Guard
from unpooled.site.study_guard import StudyGuard

DUAL_QUESTIONS = (
    codec.name_of(AskNode),
    codec.name_of(AskClusterSums),
)  # passed on, the dual runs over a tree


@dataclass(frozen=True)
class RelayRules:
    """The rules of a relay: what it passes up, and from how many sites and persons on."""

    min_sites: int = 3  # that a sum is over; of relays below, their sites count
    min_contributors: int = (
        1  # that have rows of a cluster, or of another cell of a sum; of fewer it is not shown
    )
    min_people: int = 1  # behind a count, or the sums that belong to it; fewer are not shown
    quorum: float = 0.5  # share of the members that must answer
    columns: str = "same"  # of the members: as in Wishes, "same", "common" or "any"
    fixed_membership: bool = False  # every sum of a run is over the sites of its first one, or is not given
    forwarded: tuple[str, ...] = ()  # questions for single replies that it answers, with the sum, as one site
    secure: bool = False  # it answers in secure sums of the federation above only, but for the schema

    def __post_init__(self) -> None:
        for key in ("min_sites", "min_contributors", "min_people"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} must be 1 or more, got {getattr(self, key)}")
        if self.min_contributors > self.min_sites:
            raise InputError(
                f"min_contributors of {self.min_contributors} is above min_sites of {self.min_sites}: a cell has no more "
                "sites than its sum"
            )
        if not 0 <= self.quorum <= 1:
            raise InputError(f"quorum must be a share between 0 and 1, got {self.quorum}")
        if self.columns not in COLUMNS:
            raise InputError(f"columns must be one of {', '.join(COLUMNS)}, got {self.columns!r}")
        for name in self.forwarded:
            question: Any = codec.class_named(name)
            if question is None or not issubclass(question, Question):
                raise InputError(f"forwarded: no question is called {name!r}")
            if not issubclass(question.reply_type(), Summable) and question is not AskNode:
                raise InputError(f"forwarded: replies to {name} have no sum, so they would go up one by one")

    @property
    def digest(self) -> str:
        return sha256(repr(self).encode()).hexdigest()


class RelayAuditTrail(NamedTuple):
    """The books of a relay: its log, its part in secure sums of the federation above, its key."""

    audit: AuditLog | None
    mask: Any  # a Masking; None without the package cryptography
    key: str
    ledger: Ledger
    guards: tuple[Guard, ...]


def open_audit_trail(
    name: SiteId,
    rules: RelayRules,
    folder: str | Path | None,
    authority: bytes | None,
    study: StudyGuard | None,
    what: str,
) -> RelayAuditTrail:
    """The books in a folder; without one nothing is written, and its key is drawn anew."""
    required = rules.secure or (study is not None and study.secure)
    bound = "" if study is None else study.digest
    if folder is None:
        mask, held = _mask(name, required, None, None, authority), () if study is None else (study,)
        return RelayAuditTrail(None, mask, secrets.token_hex(20), Ledger(None, name), held)
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
        check_audit_trail(log, ledger)
        audit = AuditLog(name, rules, ledger, log, authority=authority, study=bound)
    except BaseException:
        ledger.close()
        if log is not None:
            log.close()
        raise
    mask = _mask(name, required, identity, ledger, authority)
    one = SingleSourceGuard(ledger, source_digest(SUMS, "", rules.digest, bound))
    guards = (one,) if study is None else (study, one)
    return RelayAuditTrail(audit, mask, fingerprint_in(home), ledger, guards)


def _mask(name: SiteId, required: bool, identity: Any, ledger: Ledger | None, authority: bytes | None) -> Any:
    """The relay as a member of the secure sums of the federation above; ``required``: in nothing else."""
    if not find_spec("cryptography"):
        return None
    from unpooled.privacy.secure_sum.crypto import Identity
    from unpooled.privacy.secure_sum.site_mask import SiteMask
    from unpooled.privacy.secure_sum.sum_member import Member

    member = Member(
        name,
        Identity.new() if identity is None else identity,
        authority=authority,
        store=None if ledger is None else SumLedger(ledger),
    )
    allowed_in_clear = (codec.name_of(AskSchema), codec.name_of(AskMembers))
    return SiteMask(
        member, required=required, allowed_in_clear=allowed_in_clear, suggested_methods=aggregate_only()
    )
