"""Bytes of a text file, which can be read several times: plain, compressed (.gz, .zst), or from stdin."""

import gzip
import io
import os
import sys
import tempfile
import threading
import zlib
from pathlib import Path
from typing import IO, Any

from unpooled.data.readers.source import STDIN
from unpooled.errors import InputError

_piped: list[tuple[Any, IO[bytes]]] = []  # stdin, and its bytes in a file without a name
_TURN = threading.Lock()  # where a read at a place is two calls


class _Again(io.RawIOBase):
    """A file that several readers read from its start at the same time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._number, self._at = file.fileno(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = _read_at(self._number, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _read_at(number: int, size: int, at: int) -> bytes:
    if sys.platform != "win32":
        return os.pread(number, size, at)
    with _TURN:
        os.lseek(number, at, os.SEEK_SET)
        return os.read(number, size)


def opened(path: Path) -> IO[bytes]:
    """Return the bytes of a file, unpacked."""
    if str(path) == STDIN:
        return io.BufferedReader(_Again(_stdin()))
    if path.suffix.lower() == ".gz":
        return gzip.open(path)  # type: ignore[return-value]
    if path.suffix.lower() == ".zst":
        from unpooled.data.readers.arrow_cells import pyarrow_for

        arrow = pyarrow_for(f"{path}: zst")
        return io.BufferedReader(arrow.CompressedInputStream(arrow.OSFile(str(path)), "zstd"))
    return path.open("rb")


def _stdin() -> IO[bytes]:
    """All of stdin; it is read once, and may be read again."""
    if not _piped or _piped[0][0] is not sys.stdin:
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("-: stdin has no rows. Pass them through a pipe or a redirection")
        file = tempfile.TemporaryFile(prefix="unpooled-")  # noqa: SIM115
        while block := sys.stdin.buffer.read(1 << 20):
            file.write(block)
        file.flush()
        for _, earlier in _piped:
            earlier.close()
        _piped[:] = [(sys.stdin, file)]
    return _piped[0][1]


def check(path: Path) -> None:
    """Raise InputError if there is nothing in a file, or it cannot be unpacked to its end."""
    try:
        with opened(path) as file:
            empty = not file.read(1)
            while path.suffix.lower() in (".gz", ".zst") and file.read(1 << 20):
                pass
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be unpacked: {error}") from error
    if empty:
        raise InputError(f"{'stdin' if str(path) == STDIN else path}: the file is empty")
