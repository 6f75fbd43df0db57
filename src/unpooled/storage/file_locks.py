"""Locks between processes, the process that owns a lock, and the check for Linux.

Simulations, files, estimators, and a site's summary table with its log run everywhere. The machines of a
federation need Linux: their processes are watched through ``/proc`` and end with their parent.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from unpooled.errors import InputError

if sys.platform == "win32":
    import msvcrt

    _BYTE = 1 << 30  # the byte that is locked, far behind what a file holds, so that others may read it

    def lock(file: int, *, shared: bool = False, wait: bool = False) -> None:
        """Lock an open file until it is closed; BlockingIOError if another has it and ``wait`` is False.

        Windows has no shared locks here: a shared lock keeps others out, too.
        """
        before = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, error.strerror) from error
        finally:
            os.lseek(file, before, os.SEEK_SET)
else:
    import fcntl

    def lock(file: int, *, shared: bool = False, wait: bool = False) -> None:
        """Lock an open file until it is closed; BlockingIOError if another has it and ``wait`` is False."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)


@dataclass(frozen=True)
class LockOwner:
    """The process that holds a lock, as it describes itself in the lock's file."""

    pid: int
    started: str  # by the kernel's clock: a process id that is used again does not pass for this process
    what: str  # the activity, in words for people

    @classmethod
    def me(cls, what: str) -> "LockOwner":
        """Return this process as an owner; ``what`` is its activity."""
        return cls(os.getpid(), process_start(os.getpid()), what)

    @classmethod
    def read(cls, file: Path) -> "LockOwner | None":
        """Return the owner that a file names, or None if it names none."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(int(values["pid"]), str(values["started"]), str(values["what"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, file: int) -> None:
        """Replace the content of an open file by this owner."""
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, (json.dumps(asdict(self)) + "\n").encode())

    @property
    def is_alive(self) -> bool:
        """True if the process still runs."""
        return bool(self.started) and process_start(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} ({self.what})"


def process_start(pid: int) -> str:
    """Return when a process started, in ticks of the kernel's clock, or "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


@contextlib.contextmanager
def locked(folder: Path, patience: float = 20.0, what: str = "a run") -> Iterator[None]:
    """Lock a folder for this process.

    The operating system releases the lock when the process ends or crashes. The file of the lock names its
    owner. ``patience`` is the number of seconds to wait for the lock.

    Raises
    ------
    InputError
        If another process still has the lock after that time.
    """
    path = folder / "lock"
    with path.open("ab") as file:
        until = time.monotonic() + patience
        while True:
            try:
                lock(file.fileno())
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    owner = LockOwner.read(path) or "another process"
                    raise InputError(f"{folder}: {owner} is working on it") from None
                time.sleep(0.1)
        LockOwner.me(what).write(file.fileno())
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a process has the lock of a folder."""
    try:
        with (folder / "lock").open("rb") as file:
            lock(file.fileno(), shared=True)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def lock_owner(folder: Path) -> LockOwner | None:
    """Return the process that has the lock of a folder.

    None if there is none, or if it has not written its name yet.
    """
    return LockOwner.read(folder / "lock") if is_locked(folder) else None


def require_linux(what: str) -> None:
    """Raise InputError on a system other than Linux; ``what`` is the subject of the message."""
    if not sys.platform.startswith("linux"):
        raise InputError(
            f"{what} needs Linux, and this is {sys.platform}. Files (unpooled fit), summary files "
            "(unpooled site export), unpooled.cluster and the estimators run here."
        )
