"""The records of connections that ``presence`` writes, as other processes read them, without the engine.

The server records when each site last reached it; a site records when it last reached its server.
"""

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unpooled.federation.nvflare import heartbeat
from unpooled.protocol.site_id import SiteId
from unpooled.storage.file_locks import is_locked
from unpooled.storage.full_disk import is_full

PRESENCE_FILE = "connected.json"


def presence_folder(server: Path) -> Path:
    """Return the folder in which a server records the connected sites."""
    return server / "presence"


def read_presence(server: Path) -> dict[str, Any]:
    """Return the last record of the server's process, empty if there is none."""
    try:
        return dict(json.loads((presence_folder(server) / PRESENCE_FILE).read_text()))
    except FileNotFoundError:
        return {}


def connected(server: Path) -> Mapping[SiteId, float] | None:
    """Return the seconds since each site's last contact; None if the server is not up."""
    if not is_locked(presence_folder(server)) or not (record := read_presence(server)):
        return None
    return {site: time.time() - seen for site, seen in record["sites"].items()}


def server_problem(server: Path) -> str:
    """Return the reason why a server whose process is alive records nothing, or "" if it records."""
    home = presence_folder(server)
    with contextlib.suppress(FileNotFoundError):
        if time.time() - (home / PRESENCE_FILE).stat().st_mtime < heartbeat.SERVER_SILENCE:
            return ""
    if not is_locked(home):
        return ""
    reason = "No space left on device" if is_full(home) else "its disk or its process hangs"
    return f"the server records nothing in {home}: {reason}. It continues by itself as soon as it can write."


def refused_names(server: Path) -> tuple[str, ...]:
    """Return the names that tried to connect with a valid certificate and are not sites of the federation."""
    return tuple(read_presence(server).get("refused", ()))


def seconds_since_contact(site: Path) -> float | None:
    """Return the seconds since the site last reached its server; None if it never did.

    A time in the future does not count: it was recorded before the clock was set back.
    """
    try:
        silence = time.time() - float(json.loads((site / PRESENCE_FILE).read_text())["time"])
    except FileNotFoundError:
        return None
    return silence if silence >= 0 else None
