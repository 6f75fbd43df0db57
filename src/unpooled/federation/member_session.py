"""The session of a member of a federation in one run between machines: a site, or a relay."""

from pathlib import Path

import unpooled.algorithms
import unpooled.evaluation  # noqa: F401  importing them registers what may be asked
from unpooled.federation.relay.relay_folder import RelaySettings, is_relay
from unpooled.federation.relay.relay_session import OpenRelay
from unpooled.site.session import SETTINGS, MembershipFile, RunTerms, SiteSession, SiteSettings


def open_session(path: Path, terms: RunTerms) -> SiteSession:
    """Open the session of a member for one run: of a site, or of a relay, as its folder's settings say."""
    if is_relay(Path(MembershipFile.read(path).folder) / SETTINGS):
        return SiteSession(OpenRelay(RelaySettings.read(path), terms.study), terms)
    return SiteSession(SiteSettings.read(path), terms)
