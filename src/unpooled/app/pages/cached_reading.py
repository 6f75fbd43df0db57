"""Repeated reading of a folder: unchanged files are read once, and long readings run in a thread."""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Signature = tuple[Any, ...]
_EAGER = 0.4  # seconds to wait for a long reading before a page is sent without it
_SHARE = 10.0  # a reading that took one second is repeated after ten seconds at the earliest


def signature(files: Iterable[Path]) -> Signature:
    """Return names, inodes, sizes and times of the files that exist; it differs if a file changes."""
    parts = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue
        parts.append((str(file), stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(parts)


class CachedReading:
    """The result of a reading, repeated if its files change."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read, self._value = read, None
        self._signature: Signature = (None,)

    def get(self, signature: Signature) -> Any:
        """Return the result for files with this signature."""
        if signature != self._signature:
            self._value = self._read()
            self._signature = signature
        return self._value


class BackgroundReading:
    """The result of a long reading in a thread of its own; the previous result until the thread is done."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._signature: Signature = (None,)
        self._value: object = None
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def get(self, signature: Signature) -> Any:
        """Return the latest result; None before the first."""
        busy = self._thread is not None and self._thread.is_alive()
        if signature != self._signature and not busy and time.monotonic() >= self._next:
            self._thread = threading.Thread(target=self._run, args=(signature,), daemon=True)
            self._thread.start()
            self._thread.join(_EAGER)
        return self._value

    def _run(self, signature: Signature) -> None:
        began = time.monotonic()
        self._value = self._read()
        self._signature = signature
        ended = time.monotonic()
        self._next = ended + _SHARE * (ended - began)
