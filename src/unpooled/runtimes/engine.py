"""What an engine must offer, and which there are. A second engine is one more room beside this file."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from unpooled.core.messages import SiteId
from unpooled.errors import BadInput
from unpooled.runtimes.remote_run import RunTask
from unpooled.site.process import RunTerms

ENGINES = {"nvflare": "unpooled.runtimes.nvflare"}


@dataclass(frozen=True)
class EngineIdentity:
    """A party's private key, its certificate, and that of the authority that signed it; PEM."""

    key: str
    certificate: str
    root: str


@dataclass(frozen=True)
class Address:
    """Where a federation's server is reached, and what the federation is called."""

    federation: str
    host: str
    port: int


class Engine(Protocol):
    """A module of these functions. Folders are the engine's own; what is in them is its business."""

    CONSOLE_NAME: str  # whose certificate the console's is
    CONSOLE_ROLE: str
    JOB_FILES: tuple[str, ...]  # what write_job writes

    def write_server(self, folder: Path, address: Address, identity: EngineIdentity, runs: Path) -> None: ...
    def write_console(self, folder: Path, address: Address, identity: EngineIdentity) -> None: ...
    def write_site(self, folder: Path, address: Address, identity: EngineIdentity, site: SiteId) -> None: ...
    def settings_file(self, folder: Path) -> Path: ...  # where a site's end looks for its SiteSettings
    def server_command(self, folder: Path, address: Address) -> list[str]: ...
    def site_command(self, folder: Path, address: Address, site: SiteId) -> list[str]: ...
    def connected(self, server: Path) -> Mapping[SiteId, float] | None: ...  # seconds since last heard of
    def refused(self, server: Path) -> tuple[str, ...]: ...  # who wanted in and is no site of the federation
    def identity(self, site: Path) -> tuple[Path, Path, Path]: ...  # its certificate, key, and the root's
    def heard(self, site: Path) -> float | None: ...  # seconds since the site heard of its server
    def write_job(self, folder: Path, task: RunTask, terms: RunTerms) -> None: ...
    def submitted(
        self, console: Path, job: Path, timeout: float
    ) -> AbstractContextManager[
        Callable[[], str | None]
    ]: ...  # yields: how the job ended, None while it runs


def engine(name: str) -> Engine:
    """An engine by its name."""
    if name not in ENGINES:
        raise BadInput(f"engines are {', '.join(ENGINES)}, got {name!r}")
    if find_spec(name) is None:
        raise BadInput(f"the engine {name} is not installed: pip install 'unpooled[{name}]'")
    return cast(Engine, import_module(ENGINES[name]))
