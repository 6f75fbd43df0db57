"""The engine NVFLARE (https://nvflare.readthedocs.io), version 2.9: mutual TLS, sites only dial out.

This package is the only room that knows the engine. Its functions are those of ``runtimes.engines.Engine``.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unpooled.core.disk import is_held
from unpooled.core.messages import SiteId
from unpooled.runtimes.engine import Address
from unpooled.runtimes.nvflare.console import JOB_FILES, submitted, write_job
from unpooled.runtimes.nvflare.kit import (
    CONSOLE_NAME,
    CONSOLE_ROLE,
    FILE,
    SITE_FILE,
    presence_folder,
    write_console,
    write_server,
    write_site,
)

__all__ = [
    "CONSOLE_NAME",
    "CONSOLE_ROLE",
    "JOB_FILES",
    "connected",
    "heard",
    "identity",
    "refused",
    "server_command",
    "settings_file",
    "site_command",
    "submitted",
    "write_console",
    "write_job",
    "write_server",
    "write_site",
]

_APP = "nvflare.private.fed.app"
_HEARTBEAT = 3.0  # seconds between signs of life of a site


def server_command(folder: Path, address: Address) -> list[str]:
    """What starts the server."""
    words = [sys.executable, "-m", f"{_APP}.server.server_train", "-m", str(folder), "-s", "fed_server.json"]
    return [*words, "--set", "secure_train=true", f"org={address.federation}", "config_folder=config"]


def site_command(folder: Path, address: Address, site: SiteId) -> list[str]:
    """What starts a site."""
    words = [sys.executable, "-m", f"{_APP}.client.client_train", "-m", str(folder), "-s", "fed_client.json"]
    settings = ["secure_train=true", f"uid={site}", f"org={address.federation}", "config_folder=config"]
    return [*words, "--set", *settings, f"heart_beat_interval={_HEARTBEAT}"]


def settings_file(folder: Path) -> Path:
    """Where a site's own settings are, which the engine sends nowhere."""
    return folder / "local" / SITE_FILE


def identity(site: Path) -> tuple[Path, Path, Path]:
    """Where a site's certificate, its key and the authority's certificate are."""
    startup = site / "startup"
    return startup / "client.crt", startup / "client.key", startup / "rootCA.pem"


def connected(server: Path) -> Mapping[SiteId, float] | None:
    """Seconds since each site was heard of; None if the server is not up."""
    home = presence_folder(server)
    if not is_held(home) or (said := _read(home / FILE)) is None:
        return None
    return {site: time.time() - seen for site, seen in said["sites"].items()}


def refused(server: Path) -> tuple[str, ...]:
    """Who wanted to join with a valid certificate and is no site of the federation."""
    return tuple((_read(presence_folder(server) / FILE) or {}).get("refused", ()))


def heard(site: Path) -> float | None:
    """Seconds since the site heard of its server; None if it never did."""
    said = _read(site / FILE)
    return None if said is None else time.time() - float(said["time"])


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
