"""The folder of a federation, at the coordinator."""

import json
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from unpooled.errors import InputError
from unpooled.federation.engine import Address, Engine, EngineIdentity, engine
from unpooled.federation.provisioning.keys import Authority, new_key, private_pem
from unpooled.federation.provisioning.names import check_name, check_path, parse_address
from unpooled.federation.run_places import RunPlaces
from unpooled.protocol.site_id import SiteId
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error

_DISCONNECTED_AFTER = 15.0  # seconds without contact after which a site counts as not connected


@dataclass(frozen=True)
class FederationFolder(RunPlaces):
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
    def enrolment(self) -> Path:
        """The folder of the sites' enrolments: one file per invitation."""
        return self.path / "enrolment"

    @property
    def name(self) -> str:
        return self.address.federation

    def invitation(self, site: SiteId) -> Path:
        return self.path / "invitations" / f"{site}.json"

    @classmethod
    def read(cls, path: Path) -> "FederationFolder":
        """Read a federation's folder; raise InputError if it is not one, or one of another format."""
        try:
            values = dict(json.loads((path / "federation.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise InputError(f"{path}: not the folder of a federation") from None
        if problem := format_error(values.get("format")):
            raise InputError(
                f"{path}: the folder of a federation of {problem}. Make a new federation with unpooled "
                "federation init; its sites then join again."
            )
        try:
            address = Address(values["name"], values["host"], values["port"])
            return cls(path.absolute(), address, values["engine"], tuple(values["sites"]))
        except (KeyError, TypeError):
            raise InputError(f"{path / 'federation.json'} is damaged. Restore it from a backup.") from None

    def write(self) -> None:
        values = {
            "format": FORMAT,
            "name": self.address.federation,
            "host": self.address.host,
            "port": self.address.port,
            "engine": self.engine_name,
            "sites": list(self.sites),
        }
        write_atomically(self.path / "federation.json", (json.dumps(values, indent=1) + "\n").encode())

    def root(self) -> str:
        """Return the certificate of the federation's authority, PEM."""
        return (self.path / "authority" / "root.crt").read_text(encoding="ascii")


def connected_sites(federation: FederationFolder) -> tuple[SiteId, ...] | None:
    """Return the sites that are connected; None if the server is not up."""
    seen = federation.engine.connected(federation.server)
    if seen is None:
        return None
    silence = {site: seen.get(site, _DISCONNECTED_AFTER) for site in federation.sites}
    return tuple(site for site, seconds in silence.items() if seconds < _DISCONNECTED_AFTER)


def federation_folder_files(path: Path) -> list[Path]:
    """Return the files of the federation in a folder, without its runs and results."""
    parts = ("authority", "console", "enrolment", "invitations", "server")
    own = (path / name for name in ("federation.json", "recipient.json", "identity.key"))
    return [*own, *(file for part in parts for file in (path / part).rglob("*"))]


def new_run_name() -> str:
    """Return a unique name for a run."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def create(
    path: Path, name: str, address: str, sites: tuple[SiteId, ...], *, engine_name: str
) -> FederationFolder:
    """Create the folder of a federation, atomically."""
    path = check_path(path)
    check_name(name, "federation")
    where = Address(name, *parse_address(address))
    for site in sites:
        _check_site(site, where)
    if not sites or len(set(map(str.lower, sites))) < len(sites):
        raise InputError(f"a federation needs sites of different names, got {len(sites)}: {', '.join(sites)}")
    if path.exists():
        raise InputError(
            f"{path} already exists. A federation is never replaced, because it holds keys. Use another "
            "folder."
        )
    engine(engine_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        draft = FederationFolder(building, where, engine_name, tuple(sorted(sites)))
        _fill(draft)
        os.rename(building, path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return FederationFolder.read(path)


def _check_site(site: SiteId, where: Address) -> None:
    """Check a site's name. Its certificate holds the name, so it must not be the server's host name."""
    check_name(site, "site")
    if site.lower() == where.host.lower():
        raise InputError(f"{site!r} cannot be the name of a site, because it is the server's host name")


def _fill(draft: FederationFolder) -> None:
    """Write all files of a federation. They hold no absolute path, so the folder can be moved."""
    for folder in ("authority", "enrolment", "invitations", "runs", "results"):
        (draft.path / folder).mkdir()
    authority = Authority.new(draft.address.federation)
    authority.write(draft.path / "authority")
    engine = draft.engine
    host = draft.address.host
    server = _identity(authority, host, draft, hosts=tuple(dict.fromkeys((host, "localhost"))))
    engine.write_server(draft.server, draft.address, server)
    console = _identity(authority, engine.CONSOLE_NAME, draft, role=engine.CONSOLE_ROLE)
    engine.write_console(draft.console, draft.address, console)
    draft.write()


def _identity(
    authority: Authority,
    name: str,
    federation: FederationFolder,
    *,
    role: str | None = None,
    hosts: tuple[str, ...] = (),
) -> EngineIdentity:
    key = new_key()
    certificate = authority.certify(
        name, key.public_key(), group=federation.address.federation, role=role, hosts=hosts
    )
    return EngineIdentity(private_pem(key), certificate, authority.pem)


def add(path: Path, site: SiteId, again: bool) -> FederationFolder:
    """Add a site to a federation; ``again``: the site is a member already."""
    federation = FederationFolder.read(path)
    if again:
        if site not in federation.sites:
            raise InputError(f"{site} is not in the federation; sites are {', '.join(federation.sites)}")
        return federation
    _check_site(site, federation.address)
    if site.lower() in map(str.lower, federation.sites):
        raise InputError(f"{site} is in the federation already. Use --again to make a new invitation.")
    larger = FederationFolder(
        federation.path, federation.address, federation.engine_name, tuple(sorted((*federation.sites, site)))
    )
    larger.write()
    return larger


def remove(path: Path, site: SiteId) -> FederationFolder:
    """Remove a site from a federation: the server refuses it from now on, and its invitation is void."""
    federation = FederationFolder.read(path)
    if site not in federation.sites:
        raise InputError(f"{site} is not in the federation; sites are {', '.join(federation.sites)}")
    if federation.sites == (site,):
        raise InputError(f"{site} is the only site, and a federation needs at least one")
    smaller = replace(federation, sites=tuple(name for name in federation.sites if name != site))
    smaller.write()
    for file in (federation.invitation(site), federation.enrolment / f"{site}.json"):
        file.unlink(missing_ok=True)
    return smaller
