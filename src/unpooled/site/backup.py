"""Backup and restore of a folder: that of a site, even while it answers, or that of a federation.

A site's log and its ledger name each other, so they must be from the same moment. The backup holds the
ledger's write lock while it reads both: what the site then adds to its log names only entries that the ledger
has already.

A backup has files of known names only (``_KNOWN``), and a restore writes no others. The digests in it show
damage. They do not show who made it: the operator must know where a backup comes from.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from unpooled.errors import InputError
from unpooled.site.folder_consistency import check_folder_format
from unpooled.site.folder_place import PLACE, only_id
from unpooled.site.study_store import FEDERATIONS
from unpooled.storage.account import account
from unpooled.storage.atomic_files import sync_folder
from unpooled.storage.file_format import FORMAT, format_error
from unpooled.storage.file_locks import is_locked, lock_owner

LIMIT = 10 * 10**9  # bytes of all files together that a restore writes by default
_ABOUT = "unpooled-backup.json"
_LEDGER = "ledger.sqlite"
_MARKS = (
    "federation.json",
    FEDERATIONS,
    "log.jsonl",
    "summary",
    "recipient.json",
)  # one is in the folder of a site or federation
_ENGINES = ("engine", "server", "console", "runs")  # folders in which engines keep files of their own
_PROCESSES = (
    "lock",
    "pid",
    "engine.log",
    "start.log",
    "log.jsonl.",
    f"{_LEDGER}-",
    "registry.sqlite-",
    ".",
)
_MAX_FILES = 100_000
_MAX_ABOUT = 32 << 20  # bytes
_BLOCK = 1 << 18  # bytes that are read at once
_MAX_READ = 1 << 20  # bytes that the format may ask for at once, e.g. for a long name

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_ENGINE = rf"({FEDERATIONS}/{_NAME}/engine|server|console)"
_KNOWN = re.compile(
    "|".join(
        (
            # a site, or a relay
            r"(settings|erasures|place)\.json",
            r"identity\.key",
            r"dpia\.html",
            r"log(-\d{9}-\d{9})?\.jsonl",
            r"(ledger|registry)\.sqlite",
            rf"{_NAME}\.(toml|sql)",  # its rules and its query, where they are kept in the folder
            r"(summary|renewal|summary-[0-9-]+)/(table\.csv|(about|approved|notes)\.json|page\.html)",
            r"studies/[0-9a-f]{64}\.json",
            rf"deletion-notice-{_NAME}\.unpooled",
            rf"members/(rows\.json|{_NAME}\.bin)",  # the tables of a relay
            # its membership in a federation
            rf"{FEDERATIONS}/{_NAME}/(invitation|enrolled|coordinator)\.json",
            rf"{FEDERATIONS}/{_NAME}/studies/[0-9a-f]{{64}}\.json",
            # a federation
            r"(federation|recipient)\.json",
            rf"{_NAME}-key\.json",
            r"(log_heads|runs)\.jsonl",
            r"authority/root\.(crt|key)",
            rf"(enrolment|invitations|results)/{_NAME}\.json",
            rf"runs/{_NAME}/(checkpoint|progress\.json)",
            r"results/releases\.jsonl",
            rf"results/{_NAME}/((job|preparation|result)\.json|history\.csv|report\.html)",
            rf"results/{_NAME}/(checkpoint|certificate|model\.unpooled)",
            # the engine's settings
            rf"{_ENGINE}/startup/((client|server)\.(crt|key)|rootCA\.pem)",
            rf"{_ENGINE}/startup/fed_(client|server|admin)\.json",
            rf"{_ENGINE}/local/(authorization|comm_config|log_config|resources|unpooled)\.json",
        )
    )
)


def is_backup_source(folder: Path) -> bool:
    """Return whether a folder is that of a site or federation; LedgerError if it has an earlier format."""
    check_folder_format(folder)
    return any((folder / name).exists() for name in _MARKS)


def backup(folder: Path, target: Path) -> int:
    """Write all files that a folder needs into one tar file; returns their number."""
    folder = folder.absolute()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            digests = {}
            for path, data in _contents(folder):
                digests[path] = hashlib.sha256(data).hexdigest()
                _add(tar, path, data)
            about = {
                "format": FORMAT,
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


def files_not_in_backup(folder: Path) -> list[str]:
    """Return the files in a folder that a backup does not have, besides those of processes and engines."""
    others = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        known = _KNOWN.fullmatch(name.as_posix()) or set(name.parts[:3:2]) & set(_ENGINES)
        if not known and not path.is_dir() and not name.name.startswith(_PROCESSES):
            others.append(name.as_posix())
    return others


class RestoreResult(NamedTuple):
    """The result of a restore: when the backup was made, and where the replaced folder is now."""

    made: str
    replaced: Path | None


def restore(archive: Path, folder: Path, *, replace: bool = False, limit: int = LIMIT) -> RestoreResult:
    """Write a backup into ``folder``, whole or not at all; all of it is checked before anything is written.

    An existing folder is replaced only with ``replace=True``. It is kept next to the new one, because its log
    may be newer.
    """
    folder = Path(os.path.realpath(folder))
    if not archive.is_file():
        raise InputError(f"{archive}: no such file")
    with archive.open("rb") as file:
        made, digests = _checked(file, archive, limit)
        exists = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if exists and not replace:
            raise InputError(f"{folder} already exists. Use --overwrite to replace it.")
        _check_not_used(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            _write(file, building, digests, limit)
            replaced = _free_name(folder) if exists else None
            if replaced is not None:
                os.rename(folder, replaced)
            try:
                os.rename(building, folder)
            except BaseException:
                if replaced is not None:
                    os.rename(replaced, folder)
                raise
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
    sync_folder(folder.parent)
    return RestoreResult(made, replaced)


def _checked(file: BinaryIO, archive: Path, limit: int) -> tuple[str, dict[str, str]]:
    """The time of a backup and the digests of its files; InputError unless all of it may be written."""
    digests: dict[str, str] = {}
    about = b""
    description: dict[str, Any] = {}
    try:
        for name, blocks in _members(file, limit):
            digest = hashlib.sha256()
            for block in blocks:
                digest.update(block)
                if name == _ABOUT:
                    about += block
                if len(about) > _MAX_ABOUT:
                    raise InputError(f"{_ABOUT} is too large")
            if name != _ABOUT:
                digests[name] = digest.hexdigest()
                continue
            description = json.loads(about)  # at once: files of another format may have other names
            if wrong := format_error(description.get("format")):
                raise InputError(f"the backup has {wrong}")
        made, recorded = datetime.fromisoformat(description["made"]).isoformat(), dict(description["files"])
    except InputError as error:
        raise InputError(f"{archive}: {error}. Nothing was written.") from error
    except (
        *(tarfile.TarError, OSError, EOFError, zlib.error, RecursionError),
        *(KeyError, ValueError, TypeError, AttributeError),
    ) as error:
        raise InputError(f"{archive}: not a backup of unpooled, or damaged") from error
    if digests != recorded:
        raise InputError(f"{archive}: damaged: a file in it is not the one that was backed up")
    return made, digests


def _write(file: BinaryIO, building: Path, digests: dict[str, str], limit: int) -> None:
    """Write the files of a backup that was checked; each must still have the digest of that check."""
    for name, blocks in _members(file, limit):
        if name == _ABOUT:
            continue
        path, digest = building / name, hashlib.sha256()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            for block in blocks:
                digest.update(block)
                target.write(block)
            target.flush()
            os.fsync(target.fileno())
        if digests.pop(name, "") != digest.hexdigest():
            raise InputError(f"{name}: the backup was changed while it was restored. Nothing was restored.")
    if digests:
        raise InputError("the backup was changed while it was restored. Nothing was restored.")
    if (building / "federation.json").exists():
        for name in ("runs", "results"):
            (building / name).mkdir(exist_ok=True)


def _members(file: BinaryIO, limit: int) -> Iterator[tuple[str, Iterator[bytes]]]:
    """(name, content in blocks) of every file in an archive; InputError for anything but known files."""
    file.seek(0)
    seen: set[str] = set()
    unknown = ""
    with (
        gzip.GzipFile(fileobj=file, mode="rb") as plain,
        tarfile.open(fileobj=_Bounded(plain, limit), mode="r:") as tar,  # type: ignore[call-overload]
    ):
        for member in tar:
            name = member.name[:200]
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
                raise InputError(f"{name!r} in it is not a plain file")
            if name in seen or len(seen) >= _MAX_FILES:
                raise InputError(f"{name!r} is in it twice" if name in seen else "too many files are in it")
            if member.size > limit - member.offset_data:
                raise _too_large(limit)
            seen.add(name)
            if name == _ABOUT or _KNOWN.fullmatch(name):
                yield name, _blocks(tar, member)
            else:
                unknown = unknown or name  # named at the end, after the description with the format
    if unknown:
        raise InputError(f"{unknown!r} in it is not a file that unpooled site backup writes")


def _blocks(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    with tar.extractfile(member) as content:  # type: ignore[union-attr]  # it is a plain file
        while block := content.read(_BLOCK):
            yield block


class _Bounded:
    """The unpacked bytes of an archive up to a limit, read in small blocks."""

    def __init__(self, file: gzip.GzipFile, limit: int) -> None:
        self._file, self._limit = file, limit

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_READ:
            raise tarfile.ReadError("a part of the archive's own format is too large")
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, position: int) -> int:
        self._check(position)
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise _too_large(self._limit)


def _too_large(limit: int) -> InputError:
    return InputError(f"its files have more than {limit / 1e9:g} GB together. Use --max-gb to allow more")


def _check_not_used(folder: Path) -> None:
    for home in (folder, folder / "server", *folder.glob(f"{FEDERATIONS}/*")):
        if home.is_dir() and is_locked(home):
            served = home == folder / "server"
            stop = f"federation serve {folder} --stop" if served else f"site stop {folder}"
            raise InputError(f"{home} is in use ({lock_owner(home)}). Stop it first with unpooled {stop}.")


def _free_name(folder: Path) -> Path:
    """A free name next to a folder, for the folder that is replaced."""
    number = 1
    while os.path.lexists(path := folder.with_name(f"{folder.name}.replaced-{number}")):
        number += 1
    return path


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(path, content) of every file to keep; a site's log and ledger are from one moment."""
    written = set()
    with _unchanged(folder / _LEDGER) as ledger:
        if ledger is not None:
            written.add(_LEDGER)
            yield _LEDGER, ledger
        for path in sorted(folder.glob("log*.jsonl")):
            if _KNOWN.fullmatch(path.name):
                written.add(path.name)
                data = path.read_bytes()
                yield (
                    path.name,
                    data[: data.rfind(b"\n") + 1],
                )  # the answer of an unfinished line was not sent
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and _KNOWN.fullmatch(name) and name not in written:
            data = path.read_bytes()
            yield name, only_id(data) if name == PLACE else data


@contextmanager
def _unchanged(ledger: Path) -> Iterator[bytes | None]:
    """The content of a ledger, to which no process writes meanwhile; None if there is none."""
    if not ledger.exists():
        yield None
        return
    with closing(sqlite3.connect(ledger, timeout=30, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield _snapshot(ledger)
        db.execute("ROLLBACK")


def _snapshot(path: Path) -> bytes:
    """The database with what is in its write-ahead log, as one file."""
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(":memory:")) as target,
    ):
        source.backup(target)
        return bytes(target.serialize())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o600, int(datetime.now(UTC).timestamp())
    tar.addfile(info, io.BytesIO(data))
