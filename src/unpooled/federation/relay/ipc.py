"""The connection between a relay's process and the run of its federation, on one machine.

A frame is a head in JSON and some bytes. Connecting needs a secret, which is a file in the run's folder.
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
    """One end of a connection. Its methods raise EOFError or OSError when the other end is gone."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection

    def send(self, kind: str, head: Mapping[str, Any] | None = None, parts: Sequence[bytes] = ()) -> None:
        fields = {**(head or {}), "kind": kind, "parts": len(parts)}
        self._connection.send_bytes(json.dumps(fields).encode())
        for part in parts:
            self._connection.send_bytes(part)

    def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """Wait for the next frame and return it."""
        head = dict(json.loads(self._connection.recv_bytes()))
        return head, [self._connection.recv_bytes() for _ in range(int(head["parts"]))]

    def poll(self, seconds: float) -> bool:
        """Return True once something has come, or the other end is gone."""
        return self._connection.poll(seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()


def open_listener(folder: Path) -> Listener:
    """Listen for a relay; address and secret are in the run's folder, which only its owner can read."""
    name, secret = f"unpooled-{secrets.token_hex(16)}", secrets.token_hex(32)
    listener = Listener(f"\0{name}", "AF_UNIX", backlog=8, authkey=secret.encode())
    write_atomically(folder / _ENDPOINT_FILE, json.dumps({"name": name, "secret": secret}).encode())
    return listener


def connect_to_run(folder: Path) -> IpcConnection | None:
    """Return a connection to the run in a folder, or None if no process has it open."""
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
    """Return a digest of messages to sites: equal messages to the same sites have equal digests."""
    digest = hashlib.sha256()
    for site, data in sorted(requests.items()):
        digest.update(json.dumps([site, hashlib.sha256(data).hexdigest()]).encode())
    return digest.hexdigest()


def pack_frame(requests: Mapping[SiteId, bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Return messages to sites as a frame; equal messages are in it once."""
    parts = list(dict.fromkeys(requests.values()))
    indices = {data: index for index, data in enumerate(parts)}
    return {"sites": {site: indices[data] for site, data in requests.items()}}, parts


def unpack_frame(head: Mapping[str, Any], parts: Sequence[bytes]) -> dict[SiteId, bytes]:
    """Return the messages to sites in a frame."""
    return {str(site): parts[index] for site, index in head["sites"].items()}
