"""The folder of a site: its key, its settings, the engine's files, its log."""

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from unpooled.errors import InputError, UnpooledError
from unpooled.federation.engine import Engine, EngineIdentity, engine
from unpooled.federation.provisioning.dial import explain_connection_error
from unpooled.federation.provisioning.enrolment_wire import ADMITTED, WAITING, ask
from unpooled.federation.provisioning.invitations import Invitation
from unpooled.federation.provisioning.keys import (
    authority_fingerprint,
    certificate_request,
    certified_key,
    enrolment_fingerprint,
    new_key,
    private_pem,
    read_key,
    write_key,
)
from unpooled.federation.provisioning.member_keys import member_claim
from unpooled.federation.provisioning.names import check_path
from unpooled.federation.relay.relay_settings import RelaySettings, is_relay
from unpooled.site.folder_format import check_folder_format
from unpooled.site.identity import IDENTITY, identity_in
from unpooled.site.ledger import Ledger
from unpooled.site.log import Log
from unpooled.site.session import SiteSettings
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.atomic_files import create_atomically, write_atomically


@dataclass(frozen=True)
class SiteFolder:
    """A site's folder for one federation, by default beside its invitation."""

    path: Path

    @classmethod
    def from_path(cls, path: Path) -> "SiteFolder":
        """Return the folder at ``path``, or the folder beside the invitation at ``path``."""
        folder = check_path(path.parent / Invitation.read(path).site if path.is_file() else path)
        check_folder_format(folder)
        return cls(folder)

    @property
    def invitation(self) -> Invitation:
        file = self.path / "invitation.json"
        if not self.path.exists():
            raise InputError(f"{self.path}: no such file or folder")
        if not file.exists():
            raise InputError(
                f"{self.path}: not the folder of a site that joined. Join with unpooled site join INVITATION."
            )
        return Invitation.read(file)

    def checked(self) -> "SiteFolder":
        """Return this folder; raise InputError if it is not the folder of a site."""
        _ = self.invitation
        return self

    @property
    def engine(self) -> Engine:
        return engine(self.invitation.engine)

    @property
    def engine_folder(self) -> Path:
        return self.path / "engine"

    @property
    def has_settings(self) -> bool:
        return self.engine.settings_file(self.engine_folder).exists()

    @property
    def settings(self) -> SiteSettings:
        file = self.engine.settings_file(self.engine_folder)
        if not file.exists():
            raise InputError(
                f"{self.path}: the site has no data yet. Name it with unpooled site start {self.path} --data "
                "FILE."
            )
        if self.is_federation:
            raise InputError(f"{self.path}: this is the folder of a relay, which has no data of its own")
        return SiteSettings.read(file)

    def is_replaceable(self) -> bool:
        """True if accepting an invitation would replace only files that a site made."""
        made = (self.path / "invitation.json").exists() or (self.path / "private.key").exists()
        return made or not self.engine_folder.exists()

    @property
    def was_enrolled(self) -> bool:
        """True if the coordinator has ever admitted the site, with this invitation or an earlier one."""
        return (self.path / "enrolled.json").exists()

    def enrolment_files(self) -> tuple[Path, ...]:
        """Return the files that accepting an invitation writes, besides the engine's files."""
        return tuple(self.path / name for name in ("invitation.json", "private.key", "enrolled.json"))

    def accept(self, file: Path) -> None:
        """Accept an invitation: pin its authority, and make the site's key if there is none.

        A later invitation must be of the same authority: another authority could be anybody's.
        """
        invitation = Invitation.read(file)
        engine(invitation.engine)
        if (self.path / "invitation.json").exists():
            self._check_pinned(invitation)
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        if not self._key.exists():
            write_key(self._key, new_key())
        invitation.write(self.path / "invitation.json")

    def _check_pinned(self, invitation: Invitation) -> None:
        pinned = self.invitation
        if invitation.site != pinned.site or invitation.federation != pinned.federation:
            raise InputError(
                f"{self.path} is the folder of {pinned.site} in {pinned.federation}, and the invitation is "
                f"for {invitation.site} in {invitation.federation}. Name another folder with --folder."
            )
        if (invitation.root, invitation.authority) != (pinned.root, pinned.authority):
            raise InputError(
                f"the invitation is of another authority ({authority_fingerprint(invitation.root)}) than the "
                f"one that {self.path} has pinned ({authority_fingerprint(pinned.root)}). Call the "
                "coordinator. Join with --folder and a new folder only if the federation was made anew."
            )

    @property
    def _key(self) -> Path:
        return self.path / "private.key"

    @property
    def enrolled(self) -> bool:
        """True if the coordinator has admitted the site with the invitation that it has."""
        try:
            used = json.loads((self.path / "enrolled.json").read_text(encoding="utf-8"))["invitation"]
        except FileNotFoundError:
            return False
        return bool(used == _used(self.invitation))

    def enrol(self) -> str:
        """Ask the server once to be admitted. Return "" if the site is admitted, else why it is not yet.

        Raises InputError if the server refuses the site.
        """
        invitation = self.invitation
        try:
            reply = ask(invitation, certificate_request(invitation.site, read_key(self._key)), self._claim())
        except OSError as error:
            return explain_connection_error(error, invitation.address)
        state = reply.get("state")
        if state == WAITING:
            return "the coordinator has not admitted this site yet"
        if state != ADMITTED:
            reason = reply.get("reason", "no reason given")[:600]
            raise InputError(f"{invitation.federation} does not enrol this site: {reason}")
        certificate = reply.get("certificate", "")
        try:
            mine = certified_key(certificate) == read_key(self._key).public_key()
        except ValueError:
            mine = False
        if not mine:
            raise InputError(f"{invitation.federation} sent a certificate for another key than this site's")
        self._write_engine_files(
            invitation, EngineIdentity(private_pem(read_key(self._key)), certificate, invitation.root)
        )
        marked = {"invitation": _used(invitation), "at": datetime.now(UTC).isoformat(timespec="seconds")}
        write_atomically(self.path / "enrolled.json", (json.dumps(marked) + "\n").encode())
        return ""

    def _claim(self) -> dict[str, str]:
        """Return the site's claim when it enrols: the key that it has in every federation."""
        return member_claim(identity_in(self.path), self.fingerprint(), self.is_federation)

    @property
    def is_federation(self) -> bool:
        """True if this is the folder of a relay: a federation takes part with it, in the place of a site."""
        return self.has_settings and is_relay(self.engine.settings_file(self.engine_folder))

    @property
    def relay_settings(self) -> RelaySettings:
        """The settings of the relay that takes part with this folder."""
        return RelaySettings.read(self.engine.settings_file(self.engine_folder))

    def import_key(self, other: Path) -> None:
        """Use the key of another folder of the same site, so that a tree recognises both as the same site."""
        if not (other / IDENTITY).is_file():
            raise InputError(f"{other} has no {IDENTITY}: it is not the folder of a site that joined")
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        key = (other / IDENTITY).read_bytes()
        if not create_atomically(self.path / IDENTITY, key) and key != (self.path / IDENTITY).read_bytes():
            raise InputError(f"{self.path} already has a key, and it differs from the key of {other}")

    def _write_engine_files(self, invitation: Invitation, identity: EngineIdentity) -> None:
        """Write the engine's files, each atomically; the site's own settings among them are not changed."""
        chosen_engine = engine(invitation.engine)
        self.engine_folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.engine_folder, prefix=".new.") as made:
            draft = Path(made)
            chosen_engine.write_site(draft, invitation.address, identity, invitation.site)
            for name in sorted(path.relative_to(draft) for path in draft.rglob("*")):
                if (draft / name).is_dir():
                    (self.engine_folder / name).mkdir(exist_ok=True)
                else:
                    os.replace(draft / name, self.engine_folder / name)

    def write_settings(self, settings: SiteSettings | RelaySettings) -> None:
        """Write the settings; the engine's other files may not be there yet."""
        file = self.engine.settings_file(self.engine_folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        settings.write(file)

    def open_audit_trail(self, from_summary: bool = False) -> None:
        """Check that an admitted site has its files; make log and ledger of a site that is not admitted yet.

        New files would not contain what the site has answered and spent, and a second, unrelated summary
        table could be compared with the first one. ``from_summary``: the site answers from a summary table.
        """
        log, ledger = self.path / "log.jsonl", self.path / "ledger.sqlite"
        lost = [file for file in (log, ledger) if not file.exists()]
        if not self.was_enrolled:
            if lost:
                Log(log, "unpooled site join").close()
                Ledger(ledger, self.invitation.site).close()
            return
        if from_summary:
            lost += SummaryFolder(self.path).missing_files()
        if lost:
            names = ", ".join(str(file.relative_to(self.path)) for file in sorted(lost))
            raise InputError(
                f"{self.path}: the site was admitted before, and its files are missing: {names}. Restore the "
                "folder from a backup with unpooled site restore, or put these files back."
            )

    def fingerprint(self) -> str:
        """Return the fingerprint that the site reads to the coordinator."""
        invitation = self.invitation
        return enrolment_fingerprint(invitation.root, invitation.site, read_key(self._key).public_key())

    def authority(self) -> str:
        """Return the fingerprint of the authority that the site has pinned."""
        return authority_fingerprint(self.invitation.root)


def joined_policy(folder: Path) -> Path | None:
    """Return the policy with which the site last joined a federation, if there is none in its folder."""
    site = SiteFolder(folder)
    if (
        (folder / "policy.toml").exists()
        or not (folder / "invitation.json").exists()
        or not site.has_settings
        or site.is_federation
    ):
        return None
    policy = site.settings.policy
    return Path(policy) if policy is not None and Path(policy).exists() else None


def find_joined_policy(log: Path) -> Path | None:
    """Return ``joined_policy`` of the folder of a log, or None if it is damaged or not a site's folder."""
    with contextlib.suppress(UnpooledError, OSError, ValueError, KeyError, TypeError):
        return joined_policy(log if log.is_dir() else log.parent)
    return None


def _used(invitation: Invitation) -> str:
    """Return a digest that marks an invitation as used without disclosing its secret."""
    return hashlib.sha256(invitation.secret.encode()).hexdigest()
