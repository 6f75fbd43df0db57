"""The folder of a federation, at the coordinator."""

import json
import os
import re
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unpooled.core.disk import write_atomically
from unpooled.core.messages import SiteId
from unpooled.errors import BadInput
from unpooled.runtimes.engine import Address, Engine, EngineIdentity, engine
from unpooled.runtimes.provisioning.invitations import Invitation, Request
from unpooled.runtimes.provisioning.keys import Authority, fingerprint, new_key, private_pem, requested
from unpooled.site.identity import identity_in

PORT = 8002
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_TAKEN = {"server", "all", "admin", "console"}  # names that engines reserve


def check_name(name: str, of: str) -> str:
    if not _NAME.fullmatch(name) or name.lower() in _TAKEN:
        raise BadInput(f"{name!r} cannot be the name of a {of}: letters, digits, - and _, up to 63")
    return name


def check_path(path: Path) -> Path:
    """An absolute path without blanks: engines put paths into command lines."""
    path = path.absolute()
    if re.search(r"\s", str(path)):
        raise BadInput(f"{path}: the folder's path must not have blanks")
    return path


def parse_address(text: str) -> tuple[str, int]:
    """
    >>> parse_address("coordinator.example.org"), parse_address("10.0.0.5:9000")
    (('coordinator.example.org', 8002), ('10.0.0.5', 9000))
    """
    host, _, port = text.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host) or (port and not port.isdigit()):
        raise BadInput(f"an address is said as host or host:port, got {text!r}")
    number = int(port) if port else PORT
    if not 0 < number < 65536:
        raise BadInput(f"a port is between 1 and 65535, got {number}")
    return host, number


@dataclass(frozen=True)
class FederationFolder:
    """A federation's sites, the address of its server, and the paths of its files."""

    path: Path
    address: Address
    engine_name: str
    sites: tuple[SiteId, ...]

    @property
    def engine(self) -> Engine:
        return engine(self.engine_name)

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def console(self) -> Path:
        return self.path / "console"

    @property
    def runs(self) -> Path:
        """The parent of the folders of runs in progress."""
        return self.path / "runs"

    @property
    def results(self) -> Path:
        return self.path / "results"

    def invitation(self, site: SiteId) -> Path:
        return self.path / "invitations" / f"{site}.json"

    @classmethod
    def read(cls, path: Path) -> "FederationFolder":
        try:
            values = json.loads((path / "federation.json").read_text(encoding="utf-8"))
            version = values["version"]
        except (OSError, ValueError, KeyError):
            raise BadInput(f"{path}: not the folder of a federation") from None
        if version != 1:
            raise BadInput(f"{path}: a federation of version {version}, this program reads version 1")
        address = Address(values["name"], values["host"], values["port"])
        return cls(path.absolute(), address, values["engine"], tuple(values["sites"]))

    def write(self) -> None:
        values = {
            "version": 1,
            "name": self.address.federation,
            "host": self.address.host,
            "port": self.address.port,
            "engine": self.engine_name,
            "sites": list(self.sites),
        }
        write_atomically(self.path / "federation.json", (json.dumps(values, indent=1) + "\n").encode())

    def authority(self) -> Authority:
        return Authority.read(self.path / "authority")


def files_of(path: Path) -> list[Path]:
    """The files of the federation in a folder, without its runs and results."""
    parts = ("authority", "console", "invitations", "server")
    return [path / "federation.json", *(file for part in parts for file in (path / part).rglob("*"))]


def new_name() -> str:
    """A unique name for a run."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def create(
    path: Path, name: str, address: str, sites: tuple[SiteId, ...], *, engine_name: str, with_keys: bool
) -> FederationFolder:
    """Create the folder of a federation, atomically."""
    path = check_path(path)
    check_name(name, "federation")
    for site in sites:
        check_name(site, "site")
    if not sites or len(set(map(str.lower, sites))) < len(sites):
        raise BadInput(f"a federation needs sites of different names, got {len(sites)}: {', '.join(sites)}")
    if path.exists():
        raise BadInput(f"{path} exists; a federation is never replaced, since it holds keys")
    engine(engine_name)
    where = Address(name, *parse_address(address))
    path.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        draft = FederationFolder(building, where, engine_name, tuple(sorted(sites)))
        _fill(draft, path, with_keys)
        os.rename(building, path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return FederationFolder.read(path)


def _fill(draft: FederationFolder, path: Path, with_keys: bool) -> None:
    """Write all files of a federation; ``path`` is its final place, to which it is renamed when complete."""
    for folder in ("authority", "invitations", "runs", "results"):
        (draft.path / folder).mkdir()
    authority = Authority.new(draft.address.federation)
    authority.write(draft.path / "authority")
    engine = draft.engine
    host = draft.address.host
    server = _identity(authority, host, draft, hosts=(host,))
    engine.write_server(draft.server, draft.address, server, path / "runs")
    console = _identity(authority, engine.CONSOLE_NAME, draft, role=engine.CONSOLE_ROLE)
    engine.write_console(draft.console, draft.address, console)
    for site in draft.sites:
        invite(draft, authority, site, with_keys)
    draft.write()


def _identity(authority: Authority, name: str, federation: FederationFolder, **how: Any) -> EngineIdentity:
    key = new_key()
    certificate = authority.certify(name, key.public_key(), group=federation.address.federation, **how)
    return EngineIdentity(private_pem(key), certificate, authority.pem)


def invite(federation: FederationFolder, authority: Authority, site: SiteId, with_key: bool) -> None:
    """Write a site's invitation."""
    where = federation.address
    invitation = Invitation(
        where.federation,
        where.host,
        where.port,
        federation.engine_name,
        site,
        authority.pem,
        identity_in(federation.path).public.hex(),
    )
    if with_key:
        identity = _identity(authority, site, federation)
        invitation = invitation.approved(identity.certificate, identity.key)
    path = federation.invitation(site)
    invitation.write(path)
    path.chmod(0o600)


def add(path: Path, site: SiteId, with_key: bool) -> FederationFolder:
    """Add a site to a federation and write its invitation."""
    federation = FederationFolder.read(path)
    check_name(site, "site")
    if site.lower() in map(str.lower, federation.sites):
        raise BadInput(f"{site} is in the federation already")
    larger = FederationFolder(
        federation.path, federation.address, federation.engine_name, tuple(sorted((*federation.sites, site)))
    )
    invite(larger, federation.authority(), site, with_key)
    larger.write()
    return larger


def approve(path: Path, file: Path) -> tuple[SiteId, str, Path]:
    """Grant a site's request: its name, its key's fingerprint, and the invitation to send back."""
    federation, asked = FederationFolder.read(path), Request.read(file)
    if asked.federation != federation.address.federation:
        raise BadInput(f"{file}: a request to {asked.federation}, this is {federation.address.federation}")
    if asked.site not in federation.sites:
        raise BadInput(f"{file}: {asked.site} is not invited; sites are {', '.join(federation.sites)}")
    key = requested(asked.request, asked.site)
    certificate = federation.authority().certify(asked.site, key, group=federation.address.federation)
    granted = federation.invitation(asked.site)
    Invitation.read(granted).approved(certificate).write(granted)
    return asked.site, fingerprint(key), granted
