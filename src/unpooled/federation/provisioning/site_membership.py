"""A site's membership in one federation: the pinned authority, the key, the engine's files and the studies.

A site has a subfolder for each federation that it joined: ``federations/NAME`` in its folder.
"""

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from unpooled.errors import InputError
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
from unpooled.site.identity import identity_in
from unpooled.site.session import MembershipFile
from unpooled.storage.atomic_files import write_atomically

INVITATION = "invitation.json"


@dataclass(frozen=True)
class SiteMembership:
    """The subfolder of a site's folder for one federation. ``site`` is the site's folder."""

    path: Path
    site: Path

    @property
    def name(self) -> str:
        """The name of the federation."""
        return self.path.name

    @property
    def invitation(self) -> Invitation:
        """The last invitation that the site accepted."""
        return Invitation.read(self.path / INVITATION)

    @property
    def engine(self) -> Engine:
        return engine(self.invitation.engine)

    @property
    def engine_folder(self) -> Path:
        return self.path / "engine"

    @property
    def membership_file(self) -> Path:
        """The file that the engine's processes at the site read first: it names the site's folder."""
        return self.engine.membership_file(self.engine_folder)

    @property
    def key(self) -> Path:
        """The site's private key for this federation, where the engine reads it: it has no second copy."""
        return self.engine.identity(self.engine_folder)[1]

    def accept(self, invitation: Invitation) -> None:
        """Keep an invitation, and make the site's key for this federation if there is none."""
        _, key, _ = engine(invitation.engine).identity(self.engine_folder)
        for folder in (self.path.parent, self.path):
            folder.mkdir(exist_ok=True, mode=0o700)
        if not key.exists():
            key.parent.mkdir(parents=True, exist_ok=True)
            write_key(key, new_key())
        invitation.write(self.path / INVITATION)
        self.membership_file.parent.mkdir(parents=True, exist_ok=True)
        MembershipFile(invitation.site, invitation.authority, str(self.site), str(self.path)).write(
            self.membership_file
        )

    @property
    def was_enrolled(self) -> bool:
        """True if the coordinator has ever admitted the site, with this invitation or an earlier one."""
        return (self.path / "enrolled.json").exists()

    @property
    def enrolled(self) -> bool:
        """True if the coordinator has admitted the site with the invitation that it has."""
        try:
            used = json.loads((self.path / "enrolled.json").read_text(encoding="utf-8"))["invitation"]
        except FileNotFoundError:
            return False
        return bool(used == _used(self.invitation))

    def enrol(self, *, is_federation: bool = False) -> str:
        """Ask the server once to be admitted. Return "" if the site is admitted, else why it is not yet.

        ``is_federation``: a relay takes part, in the place of a site. Raises InputError if the server refuses
        the site.
        """
        invitation = self.invitation
        claim = member_claim(identity_in(self.site), self.fingerprint(), is_federation)
        try:
            reply = ask(invitation, certificate_request(invitation.site, read_key(self.key)), claim)
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
            mine = certified_key(certificate) == read_key(self.key).public_key()
        except ValueError:
            mine = False
        if not mine:
            raise InputError(f"{invitation.federation} sent a certificate for another key than this site's")
        self._write_engine_files(
            invitation, EngineIdentity(private_pem(read_key(self.key)), certificate, invitation.root)
        )
        marked = {"invitation": _used(invitation), "at": datetime.now(UTC).isoformat(timespec="seconds")}
        write_atomically(self.path / "enrolled.json", (json.dumps(marked) + "\n").encode())
        return ""

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

    def fingerprint(self) -> str:
        """Return the fingerprint that the site reads to the coordinator."""
        invitation = self.invitation
        return enrolment_fingerprint(invitation.root, invitation.site, read_key(self.key).public_key())

    def authority(self) -> str:
        """Return the fingerprint of the authority that the site has pinned."""
        return authority_fingerprint(self.invitation.root)


def _used(invitation: Invitation) -> str:
    """Return a digest that marks an invitation as used without disclosing its secret."""
    return hashlib.sha256(invitation.secret.encode()).hexdigest()
