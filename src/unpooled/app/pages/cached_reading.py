"""Reading of a folder again and again: files that did not change are read once, long readings in a thread."""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Signature = tuple[Any, ...]
_EAGER = 0.4  # seconds to wait for a long reading before a page goes out without it
_SHARE = 10.0  # a reading that took a second is repeated after ten at the earliest


def signature(files: Iterable[Path]) -> Signature:
    """What tells whether files changed: their names, sizes and times; of those that are there."""
    found = []
    for file in files:
        try:
            seen = file.stat()
        except OSError:
            continue
        found.append((str(file), seen.st_ino, seen.st_size, seen.st_mtime_ns))
    return tuple(found)


class CachedReading:
    """The result of a reading, kept while its files stay the same."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read, self._seen, self._value = read, (None,), None

    def get(self, seen: Signature) -> Any:
        if seen != self._seen:
            self._value = self._read()
            self._seen = seen
        return self._value


class BackgroundReading:
    """The result of a long reading, made in a thread of its own; the last one until a new one is made."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._seen: Signature = (None,)
        self._value: Any = None
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def get(self, seen: Signature) -> Any:
        """The latest result; None before the first."""
        busy = self._thread is not None and self._thread.is_alive()
        if seen != self._seen and not busy and time.monotonic() >= self._next:
            self._thread = threading.Thread(target=self._make, args=(seen,), daemon=True)
            self._thread.start()
            self._thread.join(_EAGER)
        return self._value

    def _make(self, seen: Signature) -> None:
        began = time.monotonic()
        self._value = self._read()
        self._seen = seen
        ended = time.monotonic()
        self._next = ended + _SHARE * (ended - began)
