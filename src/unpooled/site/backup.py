"""Backup and restore of a folder: that of a site, also while it answers, or that of a federation.

A site's log and its ledger name each other, so they must be of the same moment. The backup holds the ledger's
write lock while it reads both: what the site then adds to its log names only what the ledger has already.
"""

import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unpooled.core.disk import account
from unpooled.errors import BadInput

_ABOUT = "unpooled-backup.json"
_LEDGER = "ledger.sqlite"
_LEFT_OUT = ("lock", "pid", "log.txt", "engine.log", "join.log", "connected.json")  # of a running process


def backup(folder: Path, target: Path) -> int:
    """Write all that a folder needs into one tar file; the number of files."""
    folder = folder.absolute()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            digests = {}
            for path, data in _contents(folder):
                digests[path] = hashlib.sha256(data).hexdigest()
                _add(tar, path, data)
            about = {
                "folder": str(folder),
                "made": datetime.now(UTC).isoformat(timespec="seconds"),
                "by": account(),
                "version": version("unpooled"),
                "files": digests,
            }
            _add(tar, _ABOUT, (json.dumps(about, indent=1) + "\n").encode())
            tar.close()
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return len(digests)


def restore(archive: Path) -> dict[str, Any]:
    """Put a backup back at the path that it was made of, which must not exist; the backup's own account.

    Paths are written into the settings of the engine, so another place would not do.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            found = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
            data = {name: file.read() for name, file in found.items() if file is not None}
        about = json.loads(data.pop(_ABOUT))
        folder, digests = Path(about["folder"]), dict(about["files"])
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError, TypeError) as error:
        raise BadInput(f"{archive}: not a backup of unpooled, or damaged") from error
    if {name: hashlib.sha256(content).hexdigest() for name, content in data.items()} != digests:
        raise BadInput(f"{archive}: damaged: a file in it is not the one that was backed up")
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in data):
        raise BadInput(f"{archive}: a file in it would be written outside of {folder}")
    if folder.exists():
        raise BadInput(f"{folder} exists; move it away first: a newer log must not be lost")
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for name, content in data.items():
            path = building / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.write_bytes(content)
        if (building / "federation.json").exists():
            for name in ("runs", "results"):
                (building / name).mkdir(exist_ok=True)
        os.rename(building, folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return dict(about)


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(path, content) of every file to keep; a site's log and ledger as of one moment."""
    if (folder / _LEDGER).exists():
        with closing(sqlite3.connect(folder / _LEDGER, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")  # nobody writes until both are read
            yield _LEDGER, _snapshot(folder / _LEDGER)
            for path in sorted(folder.glob("log*.jsonl")):
                data = path.read_bytes()
                yield path.name, data[: data.rfind(b"\n") + 1]  # a line that is being written was not sent
            db.execute("ROLLBACK")
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not path.is_symlink() and not _left_out(relative):
            yield str(relative), path.read_bytes()


def _left_out(path: Path) -> bool:
    """True for files of the ledger and the log, which are read apart, and of running processes."""
    own = len(path.parts) == 1 and (path.name.startswith(_LEDGER) or path.match("log*.jsonl*"))
    return own or path.name.startswith((*_LEFT_OUT, ".")) or "presence" in path.parts


def _snapshot(path: Path) -> bytes:
    """The database with what is in its write-ahead log, as one file."""
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(":memory:")) as copy,
    ):
        source.backup(copy)
        return bytes(copy.serialize())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o600, int(datetime.now(UTC).timestamp())
    tar.addfile(info, io.BytesIO(data))
