"""The files of a site's log: the present one, and those before it that were rotated and are still here."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError

_STEP = 1 << 16  # bytes read at a time from the end


def segments(path: Path) -> list[Path]:
    """The files of a log in their order: those that were rotated and are still here, and the present one."""
    found = sorted(path.parent.glob(f"{path.stem}-{'[0-9]' * 9}-{'[0-9]' * 9}.jsonl"))
    if path.exists():  # a rotation that was cut off leaves a second name of the present file
        found = [file for file in found if not file.samefile(path)]
    return [*found, path]


def tail(path: Path) -> Iterator[bytes]:
    """The lines of a log from the last to the first, read from its end."""
    for file in reversed(segments(path)):
        yield from tail_of(file)


def tail_of(path: Path) -> Iterator[bytes]:
    """The lines of a file from the last to the first, read from its end."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0:
            step = min(_STEP, position)
            position -= step
            file.seek(position)
            rest = file.read(step) + rest
            first, *whole = rest.split(b"\n")
            yield from (line for line in reversed(whole) if line)
            rest = first
        if rest:
            yield rest


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a log from the first to the last."""
    for segment in segments(path):
        with segment.open("rb") as file:
            yield from file


def parsed(line: bytes, path: Path) -> dict[str, Any]:
    """The entry of a line; LedgerError if it is damaged."""
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        raise LedgerError(
            f"{path}: holds a line that is not what was written there: nothing is answered; unpooled site "
            f"log {path} --verify says more"
        )
    return entry


def protections(entries: Iterable[dict[str, Any]]) -> set[str]:
    """The protections under which something was released: "summary", "dp", "raw" or "sums"."""
    found: set[str] = set()
    now = ""
    for entry in entries:
        if entry["kind"] in ("opening", "continued"):
            now = str(entry.get("protection", ""))
            found.update(entry.get("protections", ()))
        elif entry["kind"] == "release":
            found.add(now)
    return found
