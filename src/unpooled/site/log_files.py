"""The files of a site's log: the present one, and earlier ones after rotations, if they are still there."""

import json
import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError
from unpooled.storage.file_format import format_error

_STEP = 1 << 16  # bytes read at a time from the end
_HASH_BYTES = len(',"hash":""}\n') + 64  # the end of every line


def segments(path: Path) -> list[Path]:
    """The files of a log in their order: the rotated ones that are still there, and the present one."""
    rotated = sorted(path.parent.glob(f"{path.stem}-{'[0-9]' * 9}-{'[0-9]' * 9}.jsonl"))
    if path.exists():  # a rotation that was cut off leaves a second name of the present file
        rotated = [file for file in rotated if not file.samefile(path)]
    return [*rotated, path]


def check_log_format(file: Path) -> None:
    """Raise LedgerError if a file of a log has another format, by its first line.

    A first line that another program changed, and one before which lines are missing, are not judged here:
    the check of the chain names them.
    """
    with file.open("rb") as opened:
        line = opened.readline()
    content, ending = line[:-_HASH_BYTES] + b"}", line[-_HASH_BYTES:]
    if ending != f',"hash":"{sha256(content).hexdigest()}"}}\n'.encode():
        return
    first = json.loads(line)
    if first.get("seq") != 0 and first.get("kind") != "continued":
        return
    if wrong := format_error(first.get("format")):
        raise LedgerError(f"{file}: the log has {wrong}")


def tail(path: Path) -> Iterator[bytes]:
    """The lines of a log from the last to the first, read from its end."""
    for file in reversed(segments(path)):
        yield from tail_of(file)


def tail_of(path: Path) -> Iterator[bytes]:
    """The lines of a file from the last to the first, read from its end."""
    check_log_format(path)
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
        check_log_format(segment)
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
            f"{path}: another program changed a line. Nothing is answered. unpooled site log {path} "
            "--verify names the line."
        )
    return entry


def protections(entries: Iterable[dict[str, Any]]) -> set[str]:
    """The protections under which something was released: "summary", "dp", "raw" or "sums"."""
    used: set[str] = set()
    now = ""
    for entry in entries:
        if entry["kind"] in ("opening", "continued"):
            now = str(entry.get("protection", ""))
            used.update(entry.get("protections", ()))
        elif entry["kind"] in ("release", "export"):
            used.add(now)
    return used
