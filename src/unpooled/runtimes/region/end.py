"""The relay's process in a run between machines: a site's process that answers from the members below."""

import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import unpooled.algorithms
import unpooled.analysis  # noqa: F401  importing them registers what may be asked
from unpooled.core.messages import SiteId
from unpooled.errors import CodecError, SiteFailed
from unpooled.privacy.secure_sum import SecureSums
from unpooled.runtimes.provisioning.federation_folder import FederationFolder
from unpooled.runtimes.region.below import FederationBelow, NotOpened, NotYet, RunBelow
from unpooled.runtimes.region.settings import RegionSettings, is_region, passed_on, task_below
from unpooled.runtimes.relay import Relay
from unpooled.site import Site
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.site_process import ANSWERING, RunTerms, SiteEnd, SiteSettings, Waiting
from unpooled.site.studied import Studied
from unpooled.site.study import Study

log = logging.getLogger(__name__)


@dataclass
class OpenRegion:
    """A region in one run: its settings, and its federation below, which outlives a closed log."""

    settings: RegionSettings
    study: Study
    _opened: list[RunBelow] = field(default_factory=list)

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
    def watched(self) -> tuple[Path, ...]:
        return (Path(self.settings.policy),) if self.settings.policy else ()

    def approver(self, purpose: str) -> str:
        return self.settings.approver(purpose)

    @cached_property
    def _below(self) -> FederationBelow:
        own, rules = FederationFolder.read(Path(self.settings.federation)), self.settings.rules()
        identity_in(self.folder)
        terms = passed_on(self.study, own, self.site, rules.below)
        task = task_below(self.study, own, rules)
        run = RunBelow(own, task, terms, fingerprint_in(self.folder), rules.below.wait)
        self._opened.append(run)
        rules.check_members(len(own.sites))
        return FederationBelow(own, run, SecureSums() if rules.below.secure else None)

    def open(self, study: Study) -> Site:
        """The relay, for an approved study."""
        home = Path(self.folder)
        authority = bytes.fromhex(self.authority) if self.authority else None
        return Relay(
            self.site,
            self._below,
            self.settings.rules().relay,
            folder=home,
            authority=authority,
            study=Studied(study, home),
            what=ANSWERING,
        )

    def close(self) -> None:
        for run in self._opened:
            run.close()


class RelayEnd(SiteEnd):
    """Answers envelopes for one run, as SiteEnd does, from a federation below that is open as long."""

    def __init__(self, settings: RegionSettings, terms: RunTerms) -> None:
        self._region = OpenRegion(settings, terms.study)
        super().__init__(self._region, terms)

    def _answered(self, site: Site, data: bytes) -> bytes | str:
        """NotYet is said as a site says that a person is to decide: the run above waits, and asks again."""
        try:
            return site.receive(data)
        except CodecError as error:
            return f"not a message for this federation: {error}"
        except Exception as error:
            cause = error.__cause__ if isinstance(error, SiteFailed) else error
            if isinstance(cause, NotYet):
                return Waiting(str(cause))
            if isinstance(cause, NotOpened):
                return str(cause)
            log.error("a question failed: %s", error)
            return site.failure(data, error)

    def close(self) -> None:
        """The run above is over: so is the run below."""
        self._region.close()
        super().close()


def end_of(path: Path, terms: RunTerms) -> SiteEnd:
    """The end of a member for one run: of a site, or of a federation in its place, as its settings say."""
    if is_region(path):
        return RelayEnd(RegionSettings.read(path), terms)
    return SiteEnd(SiteSettings.read(path), terms)
