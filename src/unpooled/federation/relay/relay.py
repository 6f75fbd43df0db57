"""A relay: a federation that answers as one site in another federation.

By default it asks its members once for their summary tables, makes one summary of their groups, and answers
everything from it, as a site does (members_summary.py). The federation above asks a relay as it asks any
site, so a relay's members may be relays too.

With ``RelayRules(exact=True)`` it passes every request on, and passes up the exact sum over its sites
(protocol/partial_sum.py), never a member's reply. The schema of all members goes up as that of one site. It
refuses a question for single replies (``each``), unless its rules name the question: then the sum is the
relay's reply, as if it were one site. If its members sum securely, the relay reads only their sum. In the
secure sums of the federation above the relay is a member, and adds the sum over its own sites, unrounded.
"""

import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.data.schema import AskSchema
from unpooled.errors import InputError
from unpooled.federation.local_federation import LocalFederation
from unpooled.federation.member_tree import AskMembers
from unpooled.federation.relay.members_summary import (
    MembersAnswerStep,
    MembersSummary,
    MembersTableStep,
    MembersTransformStep,
)
from unpooled.federation.relay.relay_policy import MAX_SECURE_MEMBERS, RelayRules
from unpooled.federation.relay.relay_steps import MemberFailureStep, MembersStep, MemberTotals, SumMembersStep
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol import codec
from unpooled.protocol.exchange import Federation
from unpooled.protocol.messages import SiteId
from unpooled.site.allow_list import aggregate_only
from unpooled.site.audit_log import SUMS, AuditLog, LogHeadGuard
from unpooled.site.chain import Chain, Step
from unpooled.site.chain_steps import (
    LedgerStep,
    MaskStep,
    NoiseStep,
    ReplayCache,
    StagesStep,
    SuppressionStep,
    TransactionStep,
)
from unpooled.site.endpoint import Endpoint
from unpooled.site.folder_consistency import check_site_folder
from unpooled.site.folder_place import check_place
from unpooled.site.guards import InputGuard, RequestIdGuard, SingleSourceGuard, source_digest
from unpooled.site.ledger import Ledger, SumLedger
from unpooled.site.log import Log
from unpooled.site.message_limits import MessageLimitsGuard
from unpooled.site.study_guard import StudyGuard, StudyLimitsGuard

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask


class Relay(Endpoint):
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
    >>> from unpooled.federation import LocalFederation, Simulation
    >>> north = Relay("north", Simulation.from_rows({s: np.ones((2, 1)) for s in "abc"}, exact_sums=True))
    >>> LocalFederation([north]).sites
    ('north',)
    """

    is_federation = True

    def __init__(
        self,
        name: SiteId,
        members: Federation | Sequence[Endpoint],
        rules: RelayRules | None = None,
        *,
        folder: str | Path | None = None,
        authority: bytes | None = None,
        secure: SecureSums | None = None,
        study: StudyGuard | None = None,
        what: str = "a relay",
    ) -> None:
        self.rules = RelayRules() if rules is None else rules
        self.downstream = members if isinstance(members, Federation) else local_federation(members, secure)
        _check_downstream(name, self.downstream, self.rules)
        home = None if folder is None else Path(folder)
        if home is not None:
            check_place(home)
            home.mkdir(parents=True, exist_ok=True)
        bound = "" if study is None else study.digest
        own = "" if authority is None else authority.hex()
        ledger = Ledger(None if home is None else home / "ledger.sqlite", name, own)
        log: Log | None = None
        try:
            if home is not None:
                log = Log(home / "log.jsonl", what)
                check_site_folder(home, log, ledger, mode=SUMS, study=bound)
            above = "" if study is None else study.study.federation
            recorder = AuditLog(
                name, self.rules, ledger, log, authority=authority, study=bound, federation=above
            )
            mask = _mask(name, self.rules, home, ledger, authority, study)
            key = _fingerprint(home)
            single_source = SingleSourceGuard(ledger, source_digest(SUMS, "", self.rules.digest, bound))
            limits = None if study is None else StudyLimitsGuard(study.study)
            answering: tuple[Step | None, ...]
            recording: Step | None
            if self.rules.exact:
                self.downstream.suppress_cells(self.rules.min_contributors)
                answering = (limits, MemberTotals(name, self.rules, self.downstream, ledger, mask))
                recording = SumMembersStep(ledger) if self.rules.fixed_membership else None
            else:
                columns = () if study is None else study.study.table_columns
                summary = MembersSummary(name, self.rules, self.downstream, ledger, home, bound, columns)
                answering = (
                    MembersTransformStep(summary),
                    limits,
                    InputGuard(),
                    SuppressionStep(1.0),
                    NoiseStep(None, mask),
                    MembersAnswerStep(name, summary),
                )
                recording = MembersTableStep(ledger, summary)
            chain = Chain(
                LogHeadGuard(recorder),
                RequestIdGuard(),
                MemberFailureStep(recorder),
                study,
                single_source,
                ReplayCache(recorder.answered()),
                recorder,
                MessageLimitsGuard(None),
                MembersStep(name, key, self.downstream),
                StagesStep(mask, "federation"),
                *answering,
                TransactionStep(ledger, mask),
                None if mask is None else MaskStep(mask),
                study,
                recording,
                LedgerStep(ledger, single_source),
            )
            recorder.record_opening()
        except BaseException:
            ledger.close()
            if log is not None:
                log.close()
            raise
        super().__init__(name, chain, recorder, key=key)

    @property
    def members(self) -> tuple[SiteId, ...]:
        """The names of its members, which it discloses to nobody."""
        return tuple(self.downstream.sites)


def _check_downstream(name: SiteId, downstream: Federation, rules: RelayRules) -> None:
    """Raise InputError if a relay cannot pass up the sums of a federation by its rules."""
    if downstream.secure and not rules.exact:
        raise InputError(
            f"{name}: its members sum securely, so it cannot summarize their groups. Set exact to "
            "true, or do not sum securely."
        )
    if rules.exact and not (downstream.secure or downstream.exact_sums):
        raise InputError(
            f"{name}: a relay passes up exact sums. Its federation needs exact_sums=True, or secure sums."
        )
    if downstream.secure and len(downstream.sites) > MAX_SECURE_MEMBERS:
        raise InputError(
            f"{name}: {len(downstream.sites)} members are too many for secure sums, {MAX_SECURE_MEMBERS} "
            "are possible. Divide them among several relays below another relay."
        )
    if downstream.secure and rules.min_contributors > 1:
        raise InputError(
            f"{name}: min_contributors is {rules.min_contributors}, and in secure sums nobody can "
            "count the sites that have rows of a cluster. Set min_contributors to 1, or do not sum "
            "securely."
        )


def _fingerprint(home: Path | None) -> str:
    """The fingerprint of a relay's key; without a folder the key is a new one."""
    if home is None:
        return secrets.token_hex(20)
    from unpooled.site.identity import fingerprint_in

    return fingerprint_in(home)


def _mask(
    name: SiteId,
    rules: RelayRules,
    home: Path | None,
    ledger: Ledger,
    authority: bytes | None,
    study: StudyGuard | None,
) -> "SiteMask | None":
    """The relay's part in secure sums of the federation above; None without the package cryptography."""
    if not find_spec("cryptography"):
        return None
    from unpooled.privacy.secure_sum.crypto import Identity
    from unpooled.privacy.secure_sum.site_mask import SiteMask
    from unpooled.privacy.secure_sum.sum_member import Member
    from unpooled.site.identity import identity_in

    member = Member(
        name,
        Identity.new() if home is None else identity_in(home),
        authority=authority,
        store=None if home is None else SumLedger(ledger),
    )
    return SiteMask(
        member,
        required=rules.secure or (study is not None and study.secure),
        allowed_in_clear=(codec.name_of(AskSchema), codec.name_of(AskMembers)),
        suggested_methods=aggregate_only(),
    )


def local_federation(members: Sequence[Endpoint], secure: SecureSums | None = None) -> LocalFederation:
    """Return a federation of sites and relays of this process. A member that fails does not end the run."""
    names = [member.name for member in members]
    if not names or len(set(names)) < len(names):
        raise InputError(
            "a relay needs at least one member, and members need different names, got "
            f"{', '.join(names) or 'none'}"
        )
    return LocalFederation(members, secure=secure, exact_sums=secure is None, tolerate_failures=True)
