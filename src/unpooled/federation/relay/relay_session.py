"""The relay's session in a run between machines: as a site's session, but it answers from its members."""

import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import unpooled.algorithms
import unpooled.evaluation  # noqa: F401  importing them registers what may be asked
from unpooled.errors import CodecError, SiteFailedError
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.relay.downstream import (
    DownstreamFederation,
    DownstreamRun,
    DownstreamUnavailableError,
    NotYet,
)
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_settings import RelaySettings, downstream_task, forwarded_terms, is_relay
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol.messages import SiteId
from unpooled.site import Site
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.session import ANSWERING, PendingDecision, RunTerms, SiteSession, SiteSettings
from unpooled.site.study import Study
from unpooled.site.study_guard import StudyGuard

log = logging.getLogger(__name__)


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

    def open(self, study: Study) -> Site:
        """Open the relay for an approved study."""
        home = Path(self.folder)
        authority = bytes.fromhex(self.authority) if self.authority else None
        return Relay(
            self.site,
            self._downstream,
            self.settings.rules().relay,
            folder=home,
            authority=authority,
            study=StudyGuard(study, home),
            what=ANSWERING,
        )

    def close(self) -> None:
        for run in self._opened:
            run.close()


class RelaySession(SiteSession):
    """Answers requests of one run, as SiteSession does, through a downstream run that is open as long."""

    def __init__(self, settings: RelaySettings, terms: RunTerms) -> None:
        self._relay = OpenRelay(settings, terms.study)
        super().__init__(self._relay, terms)

    def _answered(self, site: Site, data: bytes) -> bytes | str:
        """Answer a request. NotYet becomes a PendingDecision: the run above waits, and asks again."""
        try:
            return site.receive(data)
        except CodecError as error:
            return f"not a message for this federation: {error}"
        except Exception as error:
            cause = error.__cause__ if isinstance(error, SiteFailedError) else error
            if isinstance(cause, NotYet):
                return PendingDecision(str(cause))
            if isinstance(cause, DownstreamUnavailableError):
                return str(cause)
            log.error("a question failed: %s", error)
            return site.failure(data, error)

    def close(self) -> None:
        """End the downstream run with the run above."""
        self._relay.close()
        super().close()


def open_session(path: Path, terms: RunTerms) -> SiteSession:
    """Open the session of a member for one run: of a site, or of a relay, as its settings say."""
    if is_relay(path):
        return RelaySession(RelaySettings.read(path), terms)
    return SiteSession(SiteSettings.read(path), terms)
