"""The folder of a site: one table, one policy, one ledger and one log for all federations that it joined."""

import os
from dataclasses import dataclass
from pathlib import Path

from unpooled.errors import InputError
from unpooled.federation.provisioning.file_membership import COORDINATOR
from unpooled.federation.provisioning.invitations import Invitation
from unpooled.federation.provisioning.keys import authority_fingerprint
from unpooled.federation.provisioning.names import check_path
from unpooled.federation.provisioning.site_membership import INVITATION, SiteMembership
from unpooled.federation.relay.relay_folder import RelaySettings, is_relay
from unpooled.site.folder_consistency import check_folder_format
from unpooled.site.folder_place import check_links, check_place, record_place
from unpooled.site.ledger import Ledger
from unpooled.site.log import Log
from unpooled.site.policy import POLICY
from unpooled.site.session import SETTINGS, SiteSettings
from unpooled.site.study_store import FEDERATIONS
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.file_locks import is_locked, lock_owner


@dataclass(frozen=True)
class SiteFolder:
    """A site's folder. It is initialised once, and joins any number of federations."""

    path: Path

    @classmethod
    def from_path(cls, path: Path) -> "SiteFolder":
        """Return the folder at ``path``; raise an error if its files have another format or are links."""
        if path.is_file():
            raise InputError(f"{path} is a file. Give the folder of the site.")
        folder = check_path(path)
        check_folder_format(folder)
        check_links(folder)
        return cls(folder)

    # ------------------------------------------------------------ federations

    def memberships(self) -> list[SiteMembership]:
        """Return the site's membership in each federation that it joined, by name."""
        found = sorted((self.path / FEDERATIONS).glob(f"*/{INVITATION}"))
        return [SiteMembership(file.parent, self.path) for file in found if _ENDED not in file.parent.name]

    def chosen(self, federation: str = "") -> list[SiteMembership]:
        """Return the memberships, or the one in a federation; raise InputError if there is none."""
        joined = self.memberships()
        if not self.path.exists():
            raise InputError(f"{self.path}: no such folder")
        if not joined:
            raise InputError(
                f"{self.path}: not the folder of a site that joined. Join with unpooled site join "
                f"{self.path} INVITATION."
            )
        named = [membership for membership in joined if federation in ("", membership.name)]
        if not named:
            names = ", ".join(membership.name for membership in joined)
            raise InputError(f"{self.path}: the site has not joined {federation}. It has joined {names}.")
        for membership in named:
            _ = membership.invitation  # it must have the format of this release
        return named

    def running(self) -> list[SiteMembership]:
        """Return the memberships that a process serves."""
        return [membership for membership in self.memberships() if is_locked(membership.path)]

    def accept(self, file: Path, *, set_up_anew: bool = False) -> SiteMembership:
        """Accept an invitation: pin its authority, and make the site's key for the federation.

        A later invitation of a federation must be of the same authority: another one could be anybody's.
        With ``set_up_anew`` the membership in the federation that had the name before ends; its studies
        stay on record.
        """
        invitation, membership = self.check_invitation(file, set_up_anew=set_up_anew)
        self.make()
        if not self.memberships():  # the place of a site that took part must not be lost
            record_place(self.path)
        if (membership.path / INVITATION).exists() and not _same(invitation, membership.invitation):
            os.rename(membership.path, _free_name(membership.path))
        membership.accept(invitation)
        return membership

    def make(self) -> None:
        """Make the folder, which only the site's own account can read."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def check_invitation(self, file: Path, *, set_up_anew: bool = False) -> tuple[Invitation, SiteMembership]:
        """Return an invitation and its membership; raise InputError if ``accept`` would refuse it."""
        invitation = Invitation.read(file)
        membership = SiteMembership(self.path / FEDERATIONS / invitation.federation, self.path)
        self._check_pinned(invitation, membership, set_up_anew)
        return invitation, membership

    def _check_pinned(self, invitation: Invitation, membership: SiteMembership, set_up_anew: bool) -> None:
        for other in self.memberships():
            known = other.invitation
            if invitation.authority == known.authority and (
                (invitation.site, invitation.federation) != (known.site, known.federation)
            ):
                raise InputError(
                    f"{self.path} is {known.site} in {known.federation}, and the invitation of the same "
                    f"coordinator is for {invitation.site} in {invitation.federation}. A site takes part in "
                    "a federation once."
                )
        if not (membership.path / INVITATION).exists() or _same(invitation, membership.invitation):
            return
        if not set_up_anew:
            raise InputError(
                f"the invitation is of another authority ({authority_fingerprint(invitation.root)}) than the "
                f"one that {self.path} has pinned for {invitation.federation} "
                f"({membership.authority()}). Call the coordinator at a number that you know. If the "
                "federation was set up anew, join with --set-up-anew."
            )
        if is_locked(membership.path):
            raise InputError(
                f"{membership.path} is in use ({lock_owner(membership.path)}). Stop it first with unpooled "
                f"site stop {self.path} --federation {membership.name}."
            )

    # ------------------------------------------------------------ settings

    @property
    def policy(self) -> Path:
        """The file of the site's rules, for all federations."""
        return self.path / POLICY

    @property
    def settings_file(self) -> Path:
        return self.path / SETTINGS

    @property
    def has_settings(self) -> bool:
        return self.settings_file.exists()

    @property
    def is_federation(self) -> bool:
        """True if this is the folder of a relay: a federation takes part with it, in the place of a site."""
        return is_relay(self.settings_file)

    @property
    def settings(self) -> SiteSettings:
        """The settings of the site, for all federations."""
        if not self.has_settings:
            raise InputError(
                f"{self.path}: the site has no data yet. Name it with unpooled site start {self.path} --data "
                "FILE."
            )
        if self.is_federation:
            raise InputError(f"{self.path}: this is the folder of a relay, which has no data of its own")
        return SiteSettings.of_folder(self.path)

    @property
    def relay_settings(self) -> RelaySettings:
        """The settings of the relay that takes part with this folder."""
        return RelaySettings.of_folder(self.path)

    # ------------------------------------------------------------ audit trail

    @property
    def was_enrolled(self) -> bool:
        """True if a coordinator has ever admitted the site, or the site has pinned one's key."""
        marks = ("*/enrolled.json", f"*/{COORDINATOR}")
        return any(any((self.path / FEDERATIONS).glob(mark)) for mark in marks)

    def check_place(self) -> None:
        """Raise FolderMovedError if the folder was moved, copied or restored and nobody confirmed it."""
        check_place(self.path)

    def check_audit_trail(self, from_summary: bool = False) -> None:
        """Raise InputError if a site that a coordinator has admitted lacks its files.

        New files would not contain what the site has answered and spent, and a second, unrelated summary
        table could be compared with the first one. ``from_summary``: the site answers from a summary table.
        """
        if not self.was_enrolled:
            return
        lost = [file for file in self._audit_trail if not file.exists()]
        if from_summary:
            lost += SummaryFolder(self.path).missing_files()
        if lost:
            names = ", ".join(str(file.relative_to(self.path)) for file in sorted(lost))
            raise InputError(
                f"{self.path}: the site was admitted before, and its files are missing: {names}. Restore the "
                "folder from a backup with unpooled site restore, or put these files back."
            )

    def open_audit_trail(self) -> None:
        """Make log and ledger of a site that no coordinator has admitted yet."""
        log, ledger = self._audit_trail
        if self.was_enrolled or (log.exists() and ledger.exists()):
            return
        Log(log, "unpooled site join").close()
        for membership in self.memberships():
            Ledger(ledger, membership.invitation.site, membership.invitation.authority).close()

    @property
    def _audit_trail(self) -> tuple[Path, Path]:
        return self.path / "log.jsonl", self.path / "ledger.sqlite"


_ENDED = ".ended-"  # in the name of a subfolder: the federation was set up anew


def _same(one: Invitation, other: Invitation) -> bool:
    """Return True if two invitations are of the same authority."""
    return (one.root, one.authority) == (other.root, other.authority)


def _free_name(path: Path) -> Path:
    """Return a free name for the membership in a federation that was set up anew."""
    number = 1
    while (ended := path.with_name(f"{path.name}{_ENDED}{number}")).exists():
        number += 1
    return ended
