"""An SQLite file whose every write is a link of a chain of hashes: the ledger and the registry of people.

A link also names the head of the site's log at that time, and every line of the log names the last link. A
file or a log that was lost, cut or replaced by an older one is therefore found by the other
(``folder_consistency.check_site_folder``).
"""

import json
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError
from unpooled.storage.file_format import FORMAT, format_error

_APPLICATION = int.from_bytes(b"unpl")  # SQLite's application_id; user_version is the format
_HEADER = 100  # bytes
_OF_THE_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_BUSY")
CHAIN = """
CREATE TABLE IF NOT EXISTS chain (
    seq INTEGER PRIMARY KEY, digest TEXT NOT NULL, head TEXT NOT NULL, entry TEXT NOT NULL
);
"""


def check_file_format(path: Path, name: str) -> None:
    """Raise LedgerError if a file has another format, without opening the database: no lock, no journal."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(b"SQLite format 3\0"):
        return  # empty, or damaged, which opening it reports
    _check_marks(path, name, int.from_bytes(header[68:72]), int.from_bytes(header[60:64]))


def _check_marks(where: object, name: str, application: int, number: int) -> None:
    if wrong := format_error((number or None) if application == _APPLICATION else None):
        raise LedgerError(f"{where}: the {name} has {wrong}")


def opening_error(where: object, name: str, error: Exception) -> LedgerError:
    """Return the error of a file that cannot be opened: because of its disk, or of its content."""
    if isinstance(error, OSError) or getattr(error, "sqlite_errorname", "").startswith(_OF_THE_DISK):
        return LedgerError(f"{where}: the {name} cannot be opened: {error}")
    return LedgerError(f"{where}: not a {name} of unpooled, or damaged: {error}")


def _close_quietly(db: sqlite3.Connection) -> None:
    with suppress(sqlite3.ProgrammingError):  # opened in another thread: it is closed with the last reference
        db.close()


class ChainedFile:
    """An SQLite file whose every write is a link of a chain of hashes.

    ``name`` is the file's name in messages. ``log_head`` gives the head of the site's log, "number:hash",
    where there is one.
    """

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db, self._name = db, name
        self.log_head: Callable[[], str] = lambda: ""
        self._finalizer = weakref.finalize(self, _close_quietly, db)  # if nobody closes it
        self._finalizer.atexit = False

    def create(self, schema: str, where: object) -> None:
        """Create the tables in an empty file; LedgerError if the file has tables of another format."""
        if self._db.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
            marks = f"PRAGMA application_id = {_APPLICATION};PRAGMA user_version = {FORMAT}"
            self._db.executescript(f"BEGIN IMMEDIATE;{schema};{marks};COMMIT;")
        self.check_format(where)

    def check_format(self, where: object) -> None:
        """Raise LedgerError if the file has another format."""
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (number,) = self._db.execute("PRAGMA user_version").fetchone()
        _check_marks(where, self._name, application, number)

    def close(self) -> None:
        self._finalizer.detach()
        self._db.close()

    @contextmanager
    def _writing(self, *entry: Any) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its start, and adds a link with this entry."""
        with self.transaction():
            yield self._db
            self._link(entry)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several writes as one: all of them are kept, or none."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:  # e.g. a full disk
            self._rollback()
            path = self._db.execute("PRAGMA database_list").fetchone()[2] or "in memory"
            raise LedgerError(
                f"the {self._name} cannot be written, so nothing is sent: {error} ({path})"
            ) from error
        except BaseException:
            self._rollback()
            raise

    def _link(self, entry: tuple[Any, ...]) -> None:
        seq, digest, _ = self._last()
        head, text = self.log_head(), json.dumps(entry)
        self._db.execute(
            "INSERT INTO chain VALUES (?, ?, ?, ?)", (seq + 1, _link_digest(digest, head, text), head, text)
        )

    def written(self) -> Iterator[list[Any]]:
        """The entry of every link, in order; LedgerError where a link does not follow from the one before."""
        expected, digest = 1, ""
        for seq, own, head, text in self._db.execute("SELECT * FROM chain ORDER BY seq"):
            if seq != expected or own != _link_digest(digest, head, text):
                raise LedgerError(f"another program changed the {self._name}: entry {seq}")
            expected, digest = seq + 1, own
            yield json.loads(text)

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _last(self) -> tuple[int, str, str]:
        row = self._db.execute("SELECT seq, digest, head FROM chain ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, "", "") if row is None else row

    @property
    def mark(self) -> str:
        """The last link, "number:hash"; "" if nothing was ever written."""
        seq, digest, _ = self._last()
        return f"{seq}:{digest}" if seq else ""

    def has(self, mark: str) -> bool:
        """True if this link is in the chain."""
        number, _, digest = mark.partition(":")
        row = self._db.execute("SELECT digest FROM chain WHERE seq = ?", (int(number or 0),)).fetchone()
        return not mark or (row is not None and row[0] == digest)

    @property
    def last_log_head(self) -> str:
        """The head of the log at the last write; "" if there was none."""
        return self._last()[2]


def _link_digest(before: str, head: str, entry: str) -> str:
    return sha256(json.dumps([before, head, entry]).encode()).hexdigest()
