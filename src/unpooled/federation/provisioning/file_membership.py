"""A site's membership in a federation whose runs go over files: the coordinator's keys, which it has pinned.

The subfolder ``federations/NAME`` of the site's folder has ``coordinator.json``, and the studies as always.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from unpooled.errors import InputError
from unpooled.federation.relay.relay_folder import is_relay
from unpooled.site.folder_place import record_place, recorded_place
from unpooled.site.ledger import Ledger
from unpooled.site.session import SETTINGS, SiteSettings
from unpooled.site.signed_file import RecipientKey
from unpooled.site.study_store import FEDERATIONS
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error

COORDINATOR = "coordinator.json"


@dataclass(frozen=True)
class FileMembership:
    """A site in one federation: the name of the site, and the coordinator whose requests it answers."""

    folder: Path  # of the site
    site: str
    coordinator: RecipientKey

    @property
    def path(self) -> Path:
        """The subfolder of the federation."""
        return self.folder / FEDERATIONS / self.coordinator.name

    @property
    def settings(self) -> SiteSettings:
        """The settings of the site in this federation."""
        if is_relay(self.folder / SETTINGS):
            raise InputError(f"{self.folder}: the folder of a relay, whose runs do not go over files")
        own = SiteSettings.of_folder(self.folder)
        authority = self.coordinator.identity
        return replace(own, site=self.site, authority=authority, membership=str(self.path))

    @classmethod
    def every(cls, folder: Path) -> "list[FileMembership]":
        """Return all such memberships of a site."""
        return [_read(folder, path) for path in sorted(folder.glob(f"{FEDERATIONS}/*/{COORDINATOR}"))]

    @classmethod
    def find(cls, folder: Path, federation: str = "") -> "FileMembership":
        """Return the membership in a federation, or the only one; InputError if there is none."""
        joined = cls.every(folder)
        named = [one for one in joined if federation in ("", one.coordinator.name)]
        if len(named) > 1:
            names = ", ".join(one.coordinator.name for one in named)
            raise InputError(f"{folder}: the site has joined {names}. Name one with --federation.")
        if not named:
            other = f" {federation}" if federation else " a federation"
            raise InputError(
                f"{folder}: the site has not joined{other} by a coordinator's key. Join with unpooled site "
                f"join {folder} KEYFILE, where KEYFILE is the file that unpooled federation key wrote."
            )
        return named[0]

    def check_new(self) -> None:
        """Raise InputError if the site knows another coordinator under this name, or itself by another."""
        for known in self.every(self.folder):
            if known.coordinator.name == self.coordinator.name and known.coordinator != self.coordinator:
                raise InputError(
                    f"{self.folder} has pinned another key for {self.coordinator.name} (fingerprint "
                    f"{known.coordinator.fingerprint}). Call the coordinator at a number that you know. If "
                    f"it has a new key, move {known.path} away first."
                )
        ledger = self.folder / "ledger.sqlite"
        names = Ledger.names(ledger) if ledger.exists() else {}
        known_as = names.get(self.coordinator.identity, self.site)
        if known_as != self.site:
            raise InputError(f"{self.folder} is {known_as} in {self.coordinator.name}, not {self.site}.")

    def write(self) -> None:
        """Keep the membership: from now on the site answers this coordinator."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if recorded_place(self.folder) is None:
            record_place(self.folder)
        Ledger(self.folder / "ledger.sqlite", self.site, self.coordinator.identity).close()
        values = {"format": FORMAT, "site": self.site, **asdict(self.coordinator)}
        write_atomically(self.path / COORDINATOR, (json.dumps(values, indent=1) + "\n").encode())


def _read(folder: Path, path: Path) -> FileMembership:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if problem := format_error(values.get("format")):
            raise InputError(f"{path}: of {problem}. Join again with the coordinator's key.")
        key = RecipientKey(values["name"], values["public"], values["identity"])
        if not key.is_valid or key.name != path.parent.name:
            raise ValueError
        return FileMembership(folder, str(values["site"]), key)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: damaged. Put the file back from a backup.") from None
