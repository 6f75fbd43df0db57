"""The line between a relay's process and the run of its federation, on one machine.

A frame is a head in JSON and some bytes. Only who can read the run's folder has the secret of its door.
"""

import contextlib
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from unpooled.protocol.site_id import SiteId
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_locks import is_locked

REQUEST, END, HELLO, WAITING, ANSWERS = "request", "end", "hello", "waiting", "answers"  # kinds of frames
_ENDPOINT_FILE = "endpoint.json"


class IpcConnection:
    """One end of the line. EOFError or OSError: the other end is gone."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection

    def send(self, kind: str, head: Mapping[str, Any] | None = None, parts: Sequence[bytes] = ()) -> None:
        words = {**(head or {}), "kind": kind, "parts": len(parts)}
        self._connection.send_bytes(json.dumps(words).encode())
        for part in parts:
            self._connection.send_bytes(part)

    def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """The next frame; waits for it."""
        head = dict(json.loads(self._connection.recv_bytes()))
        return head, [self._connection.recv_bytes() for _ in range(int(head["parts"]))]

    def poll(self, seconds: float) -> bool:
        """True once something has come, or the other end is gone."""
        return self._connection.poll(seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()


def open_listener(folder: Path) -> Listener:
    """The door of a run: its name and its secret are in the run's folder, which only its owner can read."""
    name, secret = f"unpooled-{secrets.token_hex(16)}", secrets.token_hex(32)
    listener = Listener(f"\0{name}", "AF_UNIX", backlog=8, authkey=secret.encode())
    write_atomically(folder / _ENDPOINT_FILE, json.dumps({"name": name, "secret": secret}).encode())
    return listener


def connect_to_run(folder: Path) -> IpcConnection | None:
    """A line to the run in a folder; None if no process has it open."""
    if not is_locked(folder):
        return None
    try:
        endpoint = json.loads((folder / _ENDPOINT_FILE).read_text(encoding="utf-8"))
        return IpcConnection(
            Client(f"\0{endpoint['name']}", "AF_UNIX", authkey=str(endpoint["secret"]).encode())
        )
    except (OSError, ValueError, KeyError, EOFError, AuthenticationError):
        return None


def request_key(requests: Mapping[SiteId, bytes]) -> str:
    """A name for these messages to these sites: the same ones have the same name."""
    digest = hashlib.sha256()
    for site, data in sorted(requests.items()):
        digest.update(json.dumps([site, hashlib.sha256(data).hexdigest()]).encode())
    return digest.hexdigest()


def pack_frame(requests: Mapping[SiteId, bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Messages to sites as a frame; those that are alike are sent once."""
    parts = list(dict.fromkeys(requests.values()))
    places = {data: place for place, data in enumerate(parts)}
    return {"sites": {site: places[data] for site, data in requests.items()}}, parts


def unpack_frame(head: Mapping[str, Any], parts: Sequence[bytes]) -> dict[SiteId, bytes]:
    return {str(site): parts[place] for site, place in head["sites"].items()}
