"""A search for ids and values of people in all files of a folder, however they are written there."""

import base64
import re
import sqlite3
import struct
from collections.abc import Collection, Iterator
from contextlib import closing
from math import floor, log10
from pathlib import Path

LETTER = "0-9A-Za-z"


def leaks(folder: Path, ids: Collection[str], values: Collection[float]) -> list[tuple[str, str]]:
    """(file, how it is written there) of every kind of leak; an id is found only as a whole word."""
    patterns = {**_id_patterns(ids), **_value_patterns(values)}
    found = set()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        for data in (name.encode(), *(_contents(path) if path.is_file() else ())):
            found |= {(name, how) for how, pattern in patterns.items() if pattern.search(data)}
    return sorted(found)


def _contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, the cells of a database, and what is packed in either as base64 or hexadecimal."""
    data = path.read_bytes()
    whole = [data, *([_cells(path)] if data.startswith(b"SQLite format 3\0") else [])]
    for text in whole:
        yield text
        for run in re.findall(rb"[A-Za-z0-9+/]{12,}={0,2}", text):
            run = run.rstrip(b"=")
            for start in range(4):  # of a run that goes on from other letters
                part = run[start:]
                yield base64.b64decode(part[: len(part) - (len(part) % 4 == 1)] + b"=" * (-len(part) % 4 % 3))
        for run in re.findall(rb"(?:[0-9a-fA-F]{2}){4,}", text):
            yield bytes.fromhex(run.decode())


def _cells(path: Path) -> bytes:
    """All cells of all tables of a database, each as its text or bytes."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        cells = [
            cell if isinstance(cell, bytes) else str(cell).encode()
            for name in tables
            for row in db.execute(f'SELECT * FROM "{name}"')
            for cell in row
        ]
    return b"\0".join(cells)


def _id_patterns(ids: Collection[str]) -> dict[str, re.Pattern[bytes]]:
    found = {}
    for code in ("utf-8", "utf-16-le", "utf-16-be"):
        word = b"|".join(re.escape(one.encode(code)) for one in ids)
        letter = f"[{LETTER}]".encode()
        letter = {"utf-8": letter, "utf-16-le": letter + rb"\x00", "utf-16-be": rb"\x00" + letter}[code]
        found[f"id, {code}"] = re.compile(b"(?<!" + letter + b")(?:" + word + b")(?!" + letter + b")")
    return found


def _value_patterns(values: Collection[float]) -> dict[str, re.Pattern[bytes]]:
    """Six digits of each value, in which all longer spellings begin; and its bytes."""
    texts = set()
    for value in map(abs, values):
        places = max(5 - floor(log10(value)), 0)
        texts |= {f"{value:.{places + 6}f}"[:-6], f"{value:.11e}"[:7]}  # as cut off
        texts |= {f"{value:.{places}f}", f"{value:.5e}"[:7]}  # as rounded
    word = "|".join(map(re.escape, sorted(texts)))
    found = {"value, digits": re.compile(f"(?<![0-9.])(?:{word})".encode())}
    for form in ("<d", ">d", "<f", ">f"):
        word_of = [re.escape(struct.pack(form, value)) for value in values]
        found[f"value, {form}"] = re.compile(b"|".join(word_of), re.DOTALL)
    return found
