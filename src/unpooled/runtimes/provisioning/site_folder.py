"""The folder of a site: its key, its settings, the engine's files, its log."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from unpooled.errors import BadInput
from unpooled.runtimes.engine import Engine, EngineIdentity, engine
from unpooled.runtimes.provisioning.federation_folder import check_path
from unpooled.runtimes.provisioning.invitations import Invitation, Request
from unpooled.runtimes.provisioning.keys import (
    certified,
    fingerprint,
    new_key,
    private_pem,
    read_key,
    request,
    write_key,
)
from unpooled.site.site_process import SiteSettings


@dataclass(frozen=True)
class SiteFolder:
    """A site's folder for one federation, by default beside its invitation."""

    path: Path

    @classmethod
    def of(cls, path: Path) -> "SiteFolder":
        """The folder at its own path, or beside the invitation at ``path``."""
        if path.is_file():
            return cls(check_path(path.parent / Invitation.read(path).site))
        return cls(check_path(path))

    @property
    def invitation(self) -> Invitation:
        file = self.path / "invitation.json"
        if not file.exists():
            raise BadInput(f"{self.path}: not the folder of a site; unpooled join INVITATION makes one")
        return Invitation.read(file)

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
            raise BadInput(f"{self.path}: the site has no data yet; unpooled join {self.path} --data FILE")
        return SiteSettings.read(file)

    def own(self) -> bool:
        """True if accepting an invitation would replace only files that a site made."""
        made = (self.path / "invitation.json").exists() or (self.path / "private.key").exists()
        return made or not self.engine_folder.exists()

    def letters(self, invitation: Path) -> tuple[Path, ...]:
        """The files that accepting an invitation writes, besides the engine's files."""
        names = ("invitation.json", "private.key")
        asking = self._asking(Invitation.read(invitation).site)
        return (*(self.path / name for name in names), asking)

    def _asking(self, site: str) -> Path:
        return self.path.parent / f"{site}.request.json"

    def accept(self, file: Path) -> Path | None:
        """Accept an invitation. If it has no certificate yet, make a key and return the request to send."""
        invitation = Invitation.read(file)
        engine(invitation.engine)
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        key = self.path / "private.key"
        if not invitation.certificate:
            if not key.exists():
                write_key(key, new_key())
            asking = self._asking(invitation.site)
            pem = request(invitation.site, read_key(key))
            Request(invitation.federation, invitation.site, pem).write(asking)
            return asking
        own = invitation.key or (private_pem(read_key(key)) if key.exists() else "")
        if not own:
            raise BadInput(f"{file} is made for a key that is not in {self.path}; join with that folder")
        if not invitation.key and certified(invitation.certificate) != read_key(key).public_key():
            raise BadInput(f"{file} is made for another key than {key}")
        self._settle(invitation, EngineIdentity(own, invitation.certificate, invitation.root))
        return None

    def _settle(self, invitation: Invitation, identity: EngineIdentity) -> None:
        """Write the engine's files; earlier settings are kept."""
        chosen_engine = engine(invitation.engine)
        settings = chosen_engine.settings_file(self.engine_folder)
        kept = SiteSettings.read(settings) if settings.exists() else None
        for old in ("startup", "local"):
            shutil.rmtree(self.engine_folder / old, ignore_errors=True)
        chosen_engine.write_site(self.engine_folder, invitation.address, identity, invitation.site)
        if kept is not None:
            kept.write(settings)
        invitation.write(self.path / "invitation.json")
        (self.path / "invitation.json").chmod(0o600)

    def fingerprint(self) -> str:
        return fingerprint(read_key(self.path / "private.key").public_key())
