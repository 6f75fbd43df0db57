"""A relay in a run between machines: a member whose answers come from a downstream run of its own.

The downstream run has a study of its own, which ``forwarded_terms`` derives from the study above.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from unpooled.data.summary_question import AskSummary
from unpooled.federation.coordinator_run import ForwardTask
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.relay.downstream import DownstreamFederation, DownstreamRun
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_folder import RelaySettings
from unpooled.federation.relay.relay_policy import RelayPolicy
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol import codec
from unpooled.protocol.messages import SiteId
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.session import ANSWERING, RunTerms, study_folder
from unpooled.site.study import Study, signable
from unpooled.site.study_guard import StudyGuard

_MAX_TEXT = 480  # characters of a text of a study


@dataclass
class OpenRelay:
    """A relay in one run: its settings, and its downstream run, which stays open when the log is closed."""

    settings: RelaySettings
    study: Study
    _opened: list[DownstreamRun] = field(default_factory=list)

    @property
    def site(self) -> SiteId:
        return self.settings.site

    @property
    def folder(self) -> str:
        return self.settings.folder

    @property
    def membership(self) -> str:
        return self.settings.membership

    @property
    def authority(self) -> str:
        return self.settings.authority

    @property
    def watched_files(self) -> tuple[Path, ...]:
        return (Path(self.settings.policy),) if self.settings.policy else ()

    def approver(self, purpose: str) -> str:
        return self.settings.approver(purpose)

    @cached_property
    def _downstream(self) -> DownstreamFederation:
        own, rules = FederationFolder.read(Path(self.settings.downstream)), self.settings.rules()
        identity_in(self.folder)
        terms = forwarded_terms(self.study, own, self.site, rules)
        task = downstream_task(self.study, own, rules)
        run = DownstreamRun(own, task, terms, fingerprint_in(self.folder), rules.downstream.wait)
        self._opened.append(run)
        rules.check_members(len(own.sites))
        return DownstreamFederation(own, run, SecureSums() if rules.downstream.secure else None)

    def open(self, study: Study) -> Relay:
        """Open the relay for an approved study."""
        home = Path(self.folder)
        authority = bytes.fromhex(self.authority) if self.authority else None
        return Relay(
            self.site,
            self._downstream,
            self.settings.rules().relay,
            folder=home,
            authority=authority,
            study=StudyGuard(study, study_folder(self)),
            what=ANSWERING,
        )

    def close(self) -> None:
        """End the downstream run, with the run above."""
        for run in self._opened:
            run.close()


def forwarded_terms(
    study: Study, downstream: FederationFolder, site: SiteId, policy: RelayPolicy
) -> RunTerms:
    """Return a study from above as the members are asked to approve it, signed by their coordinator.

    Run, purpose and method are the same. So are the questions of a relay with exact sums; any other relay
    asks only for the summary table. The title names the study above, who asks and through
    whom. Nothing else enters, so a study that is passed on again is the same study.
    """
    identity, name = identity_in(downstream.path), downstream.address.federation
    rules, table = policy.downstream, codec.name_of(AskSummary)
    sums = tuple((name, most) for name, most in study.questions if name != table)  # no table is passed up
    contact = rules.contact or "its coordinator"
    above = study.federation or "a federation above"
    through = f"passed on by {name}, which is {site} in {above}; its study {study.digest[:16]} there"
    own = replace(
        study,
        federation=name,
        title=f"{_cut(study.title, _MAX_TEXT - len(through) - 3)} ({through})",
        contact=_cut(f"{study.contact}; at {name}: {contact}", _MAX_TEXT),
        questions=sums if policy.relay.exact else ((table, 0),),
        work=study.work if policy.relay.exact else (),
        secure=rules.secure,
        authority=identity.public.hex(),
    )
    return RunTerms.from_study(own, identity.sign(signable(own.digest)).hex())


def _cut(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def downstream_task(study: Study, downstream: FederationFolder, rules: RelayPolicy) -> ForwardTask:
    """Return the task of the downstream run, which has the name of the run above."""
    remaining = (datetime.fromisoformat(study.expires) - datetime.now(UTC)).total_seconds()
    return ForwardTask(
        study.run, downstream.sites, rules.relay.quorum, rules.downstream.deadline, max(remaining, 1.0)
    )
