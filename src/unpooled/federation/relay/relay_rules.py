"""The rules of a relay, i.e. what it passes up, and its audit trail, i.e. what it records in its folder."""

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

DUAL_QUESTIONS = (codec.name_of(AskNode), codec.name_of(AskClusterSums))
"""Questions that ``RelayRules.forwarded`` must name for the dual methods to run over a tree."""


@dataclass(frozen=True)
class RelayRules:
    """The rules of a relay: what it passes up, and from how many sites and people on.

    Parameters
    ----------
    min_sites
        Fewest sites of a sum; of a member that is a relay, its sites count.
    min_contributors
        Fewest sites that have rows of a cluster, or of another cell of a sum; a cell with fewer is
        suppressed.
    min_people
        Fewest people of a count and of the sums that belong to it; below that they are suppressed.
    quorum
        Share of the members that must answer.
    columns
        How the members' columns must agree, as in PreparationOptions: "same", "common" or "any".
    fixed_membership
        Every sum of a run is over the same sites as its first sum, or is refused.
    forwarded
        Questions for single replies that the relay answers with the sum, as one site.
    secure
        Answer only in the secure sums of the federation above, except for the schema.
    """

    min_sites: int = 3
    min_contributors: int = 1
    min_people: int = 1
    quorum: float = 0.5
    columns: str = "same"
    fixed_membership: bool = False
    forwarded: tuple[str, ...] = ()
    secure: bool = False

    def __post_init__(self) -> None:
        for key in ("min_sites", "min_contributors", "min_people"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} must be 1 or more, got {getattr(self, key)}")
        if self.min_contributors > self.min_sites:
            raise InputError(
                f"min_contributors of {self.min_contributors} is above min_sites of {self.min_sites}: a cell "
                "cannot have more sites than its sum"
            )
        if not 0 <= self.quorum <= 1:
            raise InputError(f"quorum must be a share between 0 and 1, got {self.quorum}")
        if self.columns not in COLUMNS:
            raise InputError(f"columns must be one of {', '.join(COLUMNS)}, got {self.columns!r}")
        for name in self.forwarded:
            question: Any = codec.class_named(name)
            if question is None or not issubclass(question, Question):
                raise InputError(f"forwarded: there is no question {name!r}")
            if not issubclass(question.reply_type(), Summable) and question is not AskNode:
                raise InputError(f"forwarded: replies to {name} have no sum, so they would go up one by one")

    @property
    def digest(self) -> str:
        return sha256(repr(self).encode()).hexdigest()


class RelayAuditTrail(NamedTuple):
    """The audit trail of a relay: its log, its mask in secure sums of the federation above, its key."""

    audit: AuditLog | None
    mask: Any  # a SiteMask; None without the package cryptography
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
    """Open the audit trail in a folder; without a folder nothing is written, and the key is a new one."""
    required = rules.secure or (study is not None and study.secure)
    bound = "" if study is None else study.digest
    if folder is None:
        mask = _mask(name, required, None, None, authority)
        guards: tuple[Guard, ...] = () if study is None else (study,)
        return RelayAuditTrail(None, mask, secrets.token_hex(20), Ledger(None, name), guards)
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
    single_source = SingleSourceGuard(ledger, source_digest(SUMS, "", rules.digest, bound))
    guards = (single_source,) if study is None else (study, single_source)
    return RelayAuditTrail(audit, mask, fingerprint_in(home), ledger, guards)


def _mask(name: SiteId, required: bool, identity: Any, ledger: Ledger | None, authority: bytes | None) -> Any:
    """Return the relay's mask in secure sums of the federation above; ``required``: it answers only there."""
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
