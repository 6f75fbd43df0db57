"""Atomic writes of files, and locks between processes."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from unpooled.errors import BadInput


def write_atomically(path: Path, data: bytes, *, shared: bool = False) -> None:
    """Write ``data`` to ``path`` in one step; a half-written file is never seen there.

    Only its owner may read the file, unless it is ``shared``: then whoever may read the user's new files.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if shared:
            usual = os.umask(0o077)
            os.umask(usual)
            os.chmod(name, 0o666 & ~usual)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def held(folder: Path, patience: float = 20.0) -> Iterator[None]:
    """Lock a run for one process; the operating system releases the lock when the process ends or crashes."""
    with (folder / "lock").open("w") as file:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise BadInput(f"{folder}: another process is working on this run") from None
                time.sleep(0.1)
        yield


def is_held(folder: Path) -> bool:
    """True if a process is working on the run."""
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
