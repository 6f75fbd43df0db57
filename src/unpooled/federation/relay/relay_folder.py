"""The folder of a relay between machines: its settings, which name its own federation and its policy."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from unpooled.federation.relay.relay_policy import RelayPolicy, load_relay_policy
from unpooled.protocol.messages import SiteId
from unpooled.site.policy import POLICY
from unpooled.site.session import MembershipFile, read_settings, write_settings
from unpooled.storage.portable_paths import located, portable


@dataclass(frozen=True)
class RelaySettings:
    """The settings of a federation that takes part in another one. They stay on its machine.

    The folder of its federation and its rules are the same for all federations above (``settings.json``).
    The file names paths within the folder relative to itself, so the folder can be moved.
    """

    site: SiteId  # its name in the federation above
    downstream: str  # the folder of its own federation
    folder: str  # of its log and its keys as a member
    policy: str | None = None  # the file of its rules; None: the default rules
    authority: str = ""  # the public key of the coordinator above, hexadecimal
    membership: str = ""  # the subfolder of the federation above, with its studies

    @classmethod
    def read(cls, path: Path) -> "RelaySettings":
        """Return the settings in one federation above, by the file in ``path`` (``MembershipFile``)."""
        own = MembershipFile.read(path)
        settings = cls.of_folder(Path(own.folder))
        return replace(settings, site=own.site, authority=own.authority, membership=own.membership)

    @classmethod
    def of_folder(cls, folder: Path) -> "RelaySettings":
        """Return the settings of a relay, without those of one federation above."""
        downstream = located(read_settings(folder)["downstream"], folder)
        return cls("", downstream, str(folder), str(folder / POLICY))

    def write(self) -> None:
        """Write the settings that all federations above have in common into the relay's folder."""
        folder = Path(self.folder)
        write_settings(folder, {"downstream": portable(self.downstream, folder, folder)})

    def rules(self) -> RelayPolicy:
        return RelayPolicy() if self.policy is None else load_relay_policy(Path(self.policy))

    def approver(self, purpose: str) -> str:
        """Return a name of the rules if they approve studies of this purpose, or "" if a person must."""
        rules = self.rules()
        return f"the rules {rules.digest[:16]}" if rules.studies.covers(purpose) else ""


def is_relay(path: Path) -> bool:
    """Return True if the settings in a file (``settings.json``) are those of a relay, and not of a site."""
    try:
        return "downstream" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
