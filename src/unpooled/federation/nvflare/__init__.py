"""The engine NVFLARE (https://nvflare.readthedocs.io), version 2.9: mutual TLS, sites only dial out.

This package is the only one that imports the engine. Its functions are those of ``runtimes.engine.Engine``.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.federation.engine import Address
from unpooled.federation.nvflare import engine_main
from unpooled.federation.nvflare.startup_kit import (
    CONSOLE_NAME,
    CONSOLE_ROLE,
    JOB_FILES,
    PRESENCE_FILE,
    SITE_FILE,
    listen_at,
    presence_folder,
    read_presence,
    write_console,
    write_server,
    write_site,
)
from unpooled.protocol.site_id import SiteId
from unpooled.storage.file_locks import is_locked

if TYPE_CHECKING:
    from unpooled.federation.coordinator_run import AnyTask
    from unpooled.site.session import RunTerms

__all__ = [
    "CONSOLE_NAME",
    "CONSOLE_ROLE",
    "JOB_FILES",
    "connected",
    "identity",
    "listen_at",
    "refused_names",
    "seconds_since_contact",
    "server_command",
    "server_identity",
    "server_problem",
    "settings_file",
    "site_command",
    "submitted_job",
    "write_console",
    "write_job",
    "write_server",
    "write_site",
]

_APP = "nvflare.private.fed.app"
_HEARTBEAT = 3.0  # seconds between a site's heartbeats
_SILENT = 5.0  # seconds after which a server that records nothing is asked why
_ROOM = 1 << 16  # bytes that a disk has free which is not full
_OUTCOME = 20.0  # seconds that a finished job counts as running while a site has not said how it ended there


def server_command(folder: Path, address: Address) -> list[str]:
    """The command that starts the server."""
    words = ["-m", str(folder), "-s", "fed_server.json", "--set", "secure_train=true"]
    settings = [f"org={address.federation}", "config_folder=config"]
    settings += [f"client_outcome_wait_timeout={_OUTCOME}"]
    return engine_main.command(f"{_APP}.server.server_train", *words, *settings)


def site_command(folder: Path, address: Address, site: SiteId) -> list[str]:
    """The command that starts a site."""
    words = ["-m", str(folder), "-s", "fed_client.json", "--set", "secure_train=true", f"uid={site}"]
    settings = [f"org={address.federation}", "config_folder=config", f"heart_beat_interval={_HEARTBEAT}"]
    return engine_main.command(f"{_APP}.client.client_train", *words, *settings)


def settings_file(folder: Path) -> Path:
    """The file of a site's own settings, which the engine never sends."""
    return folder / "local" / SITE_FILE


def identity(site: Path) -> tuple[Path, Path, Path]:
    """The paths of a site's certificate, its key and the authority's certificate."""
    startup = site / "startup"
    return startup / "client.crt", startup / "client.key", startup / "rootCA.pem"


def server_identity(server: Path) -> tuple[Path, Path]:
    """The paths of the server's certificate and its key."""
    return server / "startup" / "server.crt", server / "startup" / "server.key"


def connected(server: Path) -> Mapping[SiteId, float] | None:
    """Seconds since each site's last contact; None if the server is not up."""
    if not is_locked(presence_folder(server)) or not (record := read_presence(server)):
        return None
    return {site: time.time() - seen for site, seen in record["sites"].items()}


def server_problem(server: Path) -> str:
    """Why the server records nothing, though its process lives; "" if it does."""
    home = presence_folder(server)
    with contextlib.suppress(FileNotFoundError):
        if time.time() - (home / PRESENCE_FILE).stat().st_mtime < _SILENT:
            return ""
    if not is_locked(home):
        return ""
    disk = os.statvfs(home)
    full = disk.f_bavail * disk.f_frsize < _ROOM or (disk.f_files and not disk.f_favail)
    why = "No space left on device" if full else "its disk or its process hangs"
    return f"the server records nothing in {home}: {why}; once it can, it goes on by itself"


def refused_names(server: Path) -> tuple[str, ...]:
    """Names that tried to join with a valid certificate and are no sites of the federation."""
    return tuple(read_presence(server).get("refused", ()))


def seconds_since_contact(site: Path) -> float | None:
    """Seconds since the site last reached its server; None if it never did."""
    try:
        return time.time() - float(json.loads((site / PRESENCE_FILE).read_text())["time"])
    except FileNotFoundError:
        return None


def write_job(folder: Path, task: "AnyTask", terms: "RunTerms") -> None:
    """Write a job folder."""
    from unpooled.federation.nvflare import console

    console.write_job(folder, task, terms)


def submitted_job(
    console: Path, job: Path, timeout: float
) -> AbstractContextManager[Callable[[], str | None]]:
    """Submit a job folder to the server."""
    from unpooled.federation.nvflare.console import submitted_job as submit

    return submit(console, job, timeout)
