"""Atomic writes of files, and locks between processes."""

import contextlib
import getpass
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from unpooled.errors import InputError
from unpooled.storage.file_locks import lock


def write_atomically(path: Path, data: bytes, *, shared: bool = False) -> None:
    """Write ``data`` to ``path`` in one step; a half-written file is never seen there.

    Only its owner may read the file, unless it is ``shared``: then whoever may read the user's new files.
    """
    name = _written_beside(path, data)
    try:
        if shared:
            usual = os.umask(0o077)
            os.umask(usual)
            os.chmod(name, 0o666 & ~usual)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # Ctrl-C may come after the file was renamed
            os.unlink(name)
        raise
    sync_folder(path.parent)


def create_atomically(path: Path, data: bytes) -> bool:
    """Write ``data`` to ``path`` in one step if nothing is there; False if something is, which then stays.

    Only its owner may read the file. Of processes that do this at once, one writes.
    """
    if path.exists():
        return False
    name = _written_beside(path, data)
    try:
        os.link(name, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    sync_folder(path.parent)
    return True


def _written_beside(path: Path, data: bytes) -> str:
    """The name of a new file in the same folder that has ``data``, on disk; only its owner may read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return name


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk."""
    if sys.platform == "win32":
        return  # a folder cannot be opened there
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True)
class LockOwner:
    """The process that holds a lock, as it writes itself into the lock's file."""

    pid: int
    started: str  # by the kernel's clock: a process id that is used again does not pass for this process
    what: str  # the activity, in words for people

    @classmethod
    def me(cls, what: str) -> "LockOwner":
        return cls(os.getpid(), process_start(os.getpid()), what)

    @classmethod
    def read(cls, file: Path) -> "LockOwner | None":
        """The holder that a file names; None if it names none."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(int(values["pid"]), str(values["started"]), str(values["what"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, file: int) -> None:
        """Replace the content of an open file by this holder."""
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, (json.dumps(asdict(self)) + "\n").encode())

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and process_start(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} ({self.what})"


def process_start(pid: int) -> str:
    """The time at which a process started, in ticks of the kernel's clock; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


@contextlib.contextmanager
def locked(folder: Path, patience: float = 20.0, what: str = "a run") -> Iterator[None]:
    """Lock a run for one process; the operating system releases the lock when the process ends or crashes.

    The file of the lock names its holder.
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
                    who = LockOwner.read(path) or "another process"
                    raise InputError(f"{folder}: {who} is working on it") from None
                time.sleep(0.1)
        LockOwner.me(what).write(file.fileno())
        yield


def is_locked(folder: Path) -> bool:
    """True if a process is working on the run."""
    try:
        with (folder / "lock").open("rb") as file:
            lock(file.fileno(), shared=True)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def lock_owner(folder: Path) -> LockOwner | None:
    """The process that works on the run; None if there is none, or it has not written its name yet."""
    return LockOwner.read(folder / "lock") if is_locked(folder) else None


def account() -> str:
    """The name of the account that runs this program; "" if it has none."""
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return ""
