"""The register of site folders: which folder of this user holds which data, so that no second one is made.

Guarantees hold per folder: two folders over the same people have two summary tables that can be compared, or
two privacy budgets. The register prevents this mistake. It is not a guarantee: another user, another machine
or a deleted register does not know of the first folder.

The register is the file ``site-folders.sqlite`` in ``$XDG_DATA_HOME/unpooled`` (by default
``~/.local/share/unpooled``), or in the folder that the environment variable ``UNPOOLED_REGISTER`` names. It
holds paths of site folders, and keyed digests of data files, of their places and of ids of people. The key
comes from the operating system's entropy. A site folder is known by the id in its file ``place.json``, so it
may move.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b, file_digest
from pathlib import Path

from unpooled.errors import InputError, LedgerError
from unpooled.site.folder_place import folder_id, record_place

VARIABLE, FILE = "UNPOOLED_REGISTER", "site-folders.sqlite"
_SAMPLE = 64  # ids of people that are compared: those with the smallest digests
_SAME_PEOPLE = 0.2  # share of the people of two folders who are in both, from which they are the same data
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS folders (id TEXT PRIMARY KEY, path TEXT NOT NULL, since TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS data (folder TEXT, digest TEXT, PRIMARY KEY (folder, digest));
CREATE TABLE IF NOT EXISTS people (folder TEXT, digest TEXT, PRIMARY KEY (folder, digest));
"""


@dataclass(frozen=True)
class DataSource:
    """The data of a site: a file or a database, the part of it that is read, and the ids of its people."""

    name: str  # of the file, or the address of the database
    part: str = ""  # the query or the sheet
    people: tuple[str, ...] = ()  # ids, if a column identifies people


@contextmanager
def one_folder(folder: Path, source: DataSource, *, allow_second: bool = False) -> Iterator[None]:
    """Register the data of a site folder when the block ends without an error.

    Raises
    ------
    InputError
        Before the block, if another folder holds the same data and ``allow_second`` is False, or if the
        folder is a copy of another.
    LedgerError
        If the register cannot be written, or is damaged.
    """
    with _opened() as db:
        digests = _digests(db, source)
        _check(db, folder, source, *digests, allow_second=allow_second)
    yield
    with _opened() as db:
        _record(db, folder, *digests)


def register_path() -> Path:
    """Return the path of this user's register."""
    if named := os.environ.get(VARIABLE):
        return Path(named) / FILE
    data = os.environ.get("XDG_DATA_HOME", "")
    try:
        base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise LedgerError(
            f"this user has no home folder for the register of site folders. Set {VARIABLE} to a folder."
        ) from error
    return base / "unpooled" / FILE


@contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    """Open the register for writing, as one transaction."""
    path = register_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise LedgerError(
            f"{path}: the register of site folders cannot be written: {error.strerror}. Set {VARIABLE} to a "
            "folder that can."
        ) from error
    try:
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute("INSERT OR IGNORE INTO about VALUES ('key', ?)", (os.urandom(32).hex(),))
            yield db
            db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise LedgerError(f"{path}: the register of site folders cannot be written: {error}") from error
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise LedgerError(
            f"{path}: not a register of site folders, or damaged. Restore it from a backup. If you delete "
            "it, unpooled no longer notices a second folder over the same data."
        ) from error


def _digests(db: sqlite3.Connection, source: DataSource) -> tuple[set[str], list[str]]:
    """Return keyed digests of the data and of its place, and the smallest digests of ids of people."""
    (key,) = db.execute("SELECT value FROM about WHERE key = 'key'").fetchone()

    def digest(*texts: str) -> str:
        framed = "".join(f"{len(text)}:{text}" for text in texts)
        return blake2b(framed.encode(), key=bytes.fromhex(key), digest_size=16).hexdigest()

    data = set()
    path = Path(source.name)
    if path.is_file():
        with path.open("rb") as file:
            data.add(digest("content", file_digest(file, "sha256").hexdigest(), source.part))
        data.add(digest("place", str(path.resolve()), source.part))
    elif "://" in source.name:
        data.add(digest("place", source.name, source.part))
    return data, sorted(digest("person", one) for one in set(source.people))[:_SAMPLE]


def _check(
    db: sqlite3.Connection,
    folder: Path,
    source: DataSource,
    data: set[str],
    people: list[str],
    *,
    allow_second: bool,
) -> None:
    own = folder_id(folder)
    for id_, path, since in db.execute("SELECT id, path, since FROM folders ORDER BY since, id").fetchall():
        if id_ == own:
            if not _same(Path(path), folder) and folder_id(Path(path)) == own:
                raise InputError(
                    f"{folder} is a copy of the site folder {path}. A site has one folder. Delete the copy."
                )
            continue
        if allow_second:
            continue
        theirs = {one for (one,) in db.execute("SELECT digest FROM data WHERE folder = ?", (id_,))}
        found = {one for (one,) in db.execute("SELECT digest FROM people WHERE folder = ?", (id_,))}
        why = "the same data" if theirs & data else "the same people" if _overlap(found, people) else ""
        if why:
            gone = "" if Path(path).exists() else ", which was moved or removed since,"
            raise InputError(
                f"{source.name}: the site folder {path} of {since[:10]}{gone} holds {why}. Someone who sees "
                "the answers of both folders can compare them, and two budgets add up. Use that folder, "
                "which can join several federations. To make a second one nevertheless, add "
                "--allow-second-folder."
            )


def _overlap(theirs: set[str], people: Iterable[str]) -> bool:
    """Return whether many people are in both: the smallest digests of all are a random sample."""
    ours = set(people)
    if not theirs or not ours:
        return False
    sample = set(sorted(theirs | ours)[: min(len(theirs), len(ours))])
    return len(sample & theirs & ours) >= _SAME_PEOPLE * len(sample)


def _record(db: sqlite3.Connection, folder: Path, data: set[str], people: list[str]) -> None:
    record_place(folder)
    own, now = folder_id(folder), datetime.now(UTC).isoformat(timespec="seconds")
    db.execute("INSERT OR IGNORE INTO folders VALUES (?, ?, ?)", (own, "", now))
    db.execute("UPDATE folders SET path = ? WHERE id = ?", (str(folder.resolve()), own))
    db.executemany("INSERT OR IGNORE INTO data VALUES (?, ?)", [(own, one) for one in data])
    if people:
        db.execute("DELETE FROM people WHERE folder = ?", (own,))
        db.executemany("INSERT INTO people VALUES (?, ?)", [(own, one) for one in people])


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
