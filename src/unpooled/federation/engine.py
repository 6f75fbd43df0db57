"""The functions that an engine must offer, and the list of engines.

There is one engine today; this boundary keeps NVFLARE out of every file outside ``federation/nvflare``. An
engine has the name of the package that it needs: a command whose engine is not installed names that package.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from unpooled.errors import InputError, install_hint
from unpooled.protocol.site_id import SiteId

if TYPE_CHECKING:  # a server's supervisor needs neither, nor all that they import
    from unpooled.federation.coordinator_run import AnyTask
    from unpooled.site.session import RunTerms

ENGINES = {"nvflare": "unpooled.federation.nvflare.nvflare_engine"}


@dataclass(frozen=True)
class EngineIdentity:
    """A party's private key, its certificate, and the certificate of the authority that signed it; PEM."""

    key: str
    certificate: str
    root: str


@dataclass(frozen=True)
class Address:
    """The name of a federation, and the host and port of its server."""

    federation: str
    host: str
    port: int


class Engine(Protocol):
    """A module with these functions. The content of the folders is up to the engine."""

    CONSOLE_NAME: str  # the name in the console's certificate
    CONSOLE_ROLE: str
    JOB_FILES: tuple[str, ...]  # the files that write_job writes

    def write_server(self, folder: Path, address: Address, identity: EngineIdentity) -> None: ...
    def write_console(self, folder: Path, address: Address, identity: EngineIdentity) -> None: ...
    def write_site(self, folder: Path, address: Address, identity: EngineIdentity, site: SiteId) -> None: ...
    def listen_at(self, server: Path, console: Path, address: Address, port: int) -> None: ...  # on loopback
    def server_identity(self, server: Path) -> tuple[Path, Path]: ...  # paths: certificate, key
    def membership_file(self, folder: Path) -> Path: ...  # the MembershipFile of a site
    def server_command(self, folder: Path, address: Address) -> list[str]: ...
    def site_command(self, folder: Path, address: Address, site: SiteId) -> list[str]: ...
    def connected(self, server: Path) -> Mapping[SiteId, float] | None: ...  # seconds since last contact

    # the reason why a server whose process is alive records nothing; "" if it records
    def server_problem(self, server: Path) -> str: ...

    # names that tried to connect with a valid certificate and are not sites of the federation
    def refused_names(self, server: Path) -> tuple[str, ...]: ...
    def identity(self, site: Path) -> tuple[Path, Path, Path]: ...  # paths: certificate, key, root
    def seconds_since_contact(
        self, site: Path
    ) -> float | None: ...  # None: the site never reached its server
    def write_job(self, folder: Path, task: "AnyTask", terms: "RunTerms") -> None: ...

    # from a console to the server of the same federation; yields a function: the job's end state, None while
    # the job runs
    def submitted_job(
        self, console: Path, server: Path, job: Path, timeout: float
    ) -> AbstractContextManager[Callable[[], str | None]]: ...


def engine(name: str) -> Engine:
    """Return the engine of a name; raise InputError if it is unknown or not installed."""
    if name not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    if find_spec(name) is None:
        raise InputError(f"the engine {name} is not installed. {install_hint(name)}")
    return cast(Engine, import_module(ENGINES[name]))
