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

from unpooled.core.disk import is_held, write_atomically
from unpooled.core.site_id import SiteId

CARRY, END, HELLO, WAITING, ANSWERS = "carry", "end", "hello", "waiting", "answers"  # kinds of frames
_DOOR = "door.json"


class LocalLine:
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

    def comes(self, seconds: float) -> bool:
        """True once something has come, or the other end is gone."""
        return self._connection.poll(seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()


def opened_door(folder: Path) -> Listener:
    """The door of a run: its name and its secret are in the run's folder, which only its owner can read."""
    name, secret = f"unpooled-{secrets.token_hex(16)}", secrets.token_hex(32)
    door = Listener(f"\0{name}", "AF_UNIX", backlog=8, authkey=secret.encode())
    write_atomically(folder / _DOOR, json.dumps({"name": name, "secret": secret}).encode())
    return door


def dialled_door(folder: Path) -> LocalLine | None:
    """A line to the run in a folder; None if no process has it open."""
    if not is_held(folder):
        return None
    try:
        said = json.loads((folder / _DOOR).read_text(encoding="utf-8"))
        return LocalLine(Client(f"\0{said['name']}", "AF_UNIX", authkey=str(said["secret"]).encode()))
    except (OSError, ValueError, KeyError, EOFError, AuthenticationError):
        return None


def key_of(posts: Mapping[SiteId, bytes]) -> str:
    """A name for these messages to these sites: the same ones have the same name."""
    whole = hashlib.sha256()
    for site, data in sorted(posts.items()):
        whole.update(json.dumps([site, hashlib.sha256(data).hexdigest()]).encode())
    return whole.hexdigest()


def packed(posts: Mapping[SiteId, bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Messages to sites as a frame; those that are alike are sent once."""
    parts = list(dict.fromkeys(posts.values()))
    places = {data: place for place, data in enumerate(parts)}
    return {"sites": {site: places[data] for site, data in posts.items()}}, parts


def unpacked(head: Mapping[str, Any], parts: Sequence[bytes]) -> dict[SiteId, bytes]:
    return {str(site): parts[place] for site, place in head["sites"].items()}
