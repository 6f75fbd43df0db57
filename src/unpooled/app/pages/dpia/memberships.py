"""The section of a DPIA report on the federations that a site joined, and on their studies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unpooled.errors import UnpooledError
from unpooled.federation.provisioning.file_membership import FileMembership
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.site.study_store import ReceivedStudy, StudyFolder


@dataclass(frozen=True)
class JoinedFederation:
    """One federation that the site joined."""

    federation: str
    site: str  # the site's name in it
    coordinator: str  # where its server is, or that runs go over files
    fingerprint: str  # of the pinned keys


@dataclass(frozen=True)
class Memberships:
    """All federations of a site, and their studies."""

    joined: tuple[JoinedFederation, ...] = ()
    studies: tuple[ReceivedStudy, ...] = ()
    damage: tuple[str, ...] = ()  # why some could not be read


def read(folder: Path) -> Memberships:
    """Return the federations and the studies of the site in a folder; nothing is changed."""
    damage: list[str] = []
    joined: list[JoinedFederation] = []
    for membership in SiteFolder(folder).memberships():
        try:
            at = membership.invitation
            where = f"{at.host}:{at.port}"
            joined.append(JoinedFederation(at.federation, at.site, where, membership.authority()))
        except (UnpooledError, OSError) as error:
            damage.append(str(error))
    try:
        by_files = FileMembership.every(folder)
    except UnpooledError as error:
        by_files = []
        damage.append(str(error))
    joined += [
        JoinedFederation(one.coordinator.name, one.site, "runs over files", one.coordinator.fingerprint)
        for one in by_files
    ]
    store, studies = StudyFolder(folder), []
    for path in store.files():
        try:
            studies.append(store.read(path.stem))
        except UnpooledError as error:
            damage.append(str(error))
    studies.sort(key=lambda received: (received.received, received.study.digest))
    return Memberships(tuple(joined), tuple(studies), tuple(damage))


def memberships(found: Memberships) -> dict[str, Any]:
    """Return the values of the section."""
    return {
        "damage": found.damage,
        "joined": [(one.federation, one.site, one.coordinator, one.fingerprint) for one in found.joined],
        "studies": [_study(received) for received in found.studies],
    }


def _study(received: ReceivedStudy) -> dict[str, str]:
    study, last = received.study, received.decisions[-1] if received.decisions else None
    return {
        "title": study.title,
        "purpose": study.purpose,
        "contact": study.contact,
        "federation": study.federation or "of another program",
        "state": received.display_state,
        "decided": f"{last.by}, {last.at[:16].replace('T', ' ')}" if last else "",
        "expires": study.expires[:16].replace("T", " "),
    }
