"""Atomic writes of files: a reader sees the old content or the new one, even after a crash."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, shared: bool = False) -> None:
    """Write ``data`` to ``path`` in one step, so that nobody ever reads a half-written file.

    Only the owner may read the file. A ``shared`` file may be read by everybody who may read the user's other
    new files.
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
    """Write ``data`` to ``path`` in one step unless the file exists; return whether it was written.

    An existing file stays as it is. Only the owner may read the new file. If several processes call this at
    the same time, exactly one of them writes.
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
    """Write ``data`` to a new file in the same folder, which only its owner may read, and return its name.

    An error of the file system, such as a full disk, names ``path``.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        error.filename = str(path)
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
