"""NVFLARE as an engine: the functions of ``federation.engine.Engine``.

Importing this module does not import the engine, so a supervisor stays small.

A process of the engine needs 1.6 seconds of processor time to start (measured on a Xeon with 2 cores). The
engine imports the drivers of all protocols, HTTP among them, and tests the primes of its own RSA key twice;
both together are 0.5 of the 1.6 seconds, and no setting of the engine avoids them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.federation import die_with_parent
from unpooled.federation.engine import Address
from unpooled.federation.nvflare import heartbeat
from unpooled.federation.nvflare.presence_file import (
    connected,
    refused_names,
    seconds_since_contact,
    server_problem,
)
from unpooled.federation.nvflare.startup_kit import (
    CONSOLE_NAME,
    CONSOLE_ROLE,
    JOB_FILES,
    SITE_FILE,
    listen_at,
    write_console,
    write_server,
    write_site,
)
from unpooled.protocol.site_id import SiteId

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
    "membership_file",
    "refused_names",
    "seconds_since_contact",
    "server_command",
    "server_identity",
    "server_problem",
    "site_command",
    "submitted_job",
    "write_console",
    "write_job",
    "write_server",
    "write_site",
]

_APP = "nvflare.private.fed.app"
_OUTCOME_TIMEOUT = 20.0  # seconds that the server waits for the sites' outcomes of a finished job


def server_command(folder: Path, address: Address) -> list[str]:
    """Return the command that starts the server."""
    options = ["-m", str(folder), "-s", "fed_server.json", "--set", "secure_train=true"]
    settings = [f"org={address.federation}", "config_folder=config"]
    settings += [f"client_outcome_wait_timeout={_OUTCOME_TIMEOUT}"]
    return die_with_parent.command(f"{_APP}.server.server_train", *options, *settings)


def site_command(folder: Path, address: Address, site: SiteId) -> list[str]:
    """Return the command that starts a site."""
    options = ["-m", str(folder), "-s", "fed_client.json", "--set", "secure_train=true", f"uid={site}"]
    settings = [f"org={address.federation}", "config_folder=config"]
    settings += [f"heart_beat_interval={heartbeat.SITE_INTERVAL}"]
    return die_with_parent.command(f"{_APP}.client.client_train", *options, *settings)


def membership_file(folder: Path) -> Path:
    """Return the path of a site's own settings, which the engine never sends."""
    return folder / "local" / SITE_FILE


def identity(site: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a site's certificate, its key and the authority's certificate."""
    startup = site / "startup"
    return startup / "client.crt", startup / "client.key", startup / "rootCA.pem"


def server_identity(server: Path) -> tuple[Path, Path]:
    """Return the paths of the server's certificate and its key."""
    return server / "startup" / "server.crt", server / "startup" / "server.key"


def write_job(folder: Path, task: "AnyTask", terms: "RunTerms") -> None:
    """Write a job folder."""
    from unpooled.federation.nvflare import console

    console.write_job(folder, task, terms)


def submitted_job(
    console: Path, server: Path, job: Path, timeout: float
) -> AbstractContextManager[Callable[[], str | None]]:
    """Submit a job folder to the server. Yields a function: the job's end state, None while it runs."""
    from unpooled.federation.nvflare.console import submitted_job as submit

    return submit(console, server, job, timeout)
