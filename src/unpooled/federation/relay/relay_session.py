"""A relay in a run between machines: a member whose answers come from a downstream run of its own."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.relay.downstream import DownstreamFederation, DownstreamRun
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_settings import RelaySettings, downstream_task, forwarded_terms
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol.messages import SiteId
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.session import ANSWERING, study_folder
from unpooled.site.study import Study
from unpooled.site.study_guard import StudyGuard


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
        terms = forwarded_terms(self.study, own, self.site, rules.downstream)
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
