"""An SQLite file whose every write is a link of a chain of hashes: the ledger, the registry of persons."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from unpooled.errors import LedgerError

CHAIN = """
CREATE TABLE IF NOT EXISTS chain (
    seq INTEGER PRIMARY KEY, digest TEXT NOT NULL, head TEXT NOT NULL, what TEXT NOT NULL DEFAULT ''
);
"""


class ChainedFile:
    """An SQLite file whose every write is a link of a chain of hashes.

    ``log_head`` gives the head of the site's log, "number:hash", where there is one.
    """

    def __init__(self, db: sqlite3.Connection, called: str) -> None:
        self._db, self._called = db, called
        self.log_head: Callable[[], str] = lambda: ""

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _writing(self, *what: Any) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its start, and adds a link for ``what`` it writes."""
        with self.whole():
            yield self._db
            self._link(what)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Several writes as one: all of them are kept, or none."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except sqlite3.OperationalError as error:  # e.g. a full disk
            self._rollback()
            raise LedgerError(f"the {self._called} cannot be written, so nothing is sent: {error}") from error
        except BaseException:
            self._rollback()
            raise
        try:
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._rollback()
            raise LedgerError(f"the {self._called} cannot be written, so nothing is sent: {error}") from error

    def _link(self, what: tuple[Any, ...]) -> None:
        seq, digest, _ = self._last()
        head, text = self.log_head(), json.dumps(what)
        self._db.execute(
            "INSERT INTO chain VALUES (?, ?, ?, ?)", (seq + 1, _link_digest(digest, head, text), head, text)
        )

    def _add_what(self) -> None:
        """Bring a chain of a version whose links did not keep what was written up to this one."""
        names = [name for _, name, *_ in self._db.execute("PRAGMA table_info(chain)")]
        if names and "what" not in names:
            self._db.execute("ALTER TABLE chain ADD COLUMN what TEXT NOT NULL DEFAULT ''")

    @property
    def kept_from(self) -> int:
        """The number of the link from which on links keep what was written; 0: all of them do.

        That link, of the kind "before", holds all that an earlier version wrote.
        """
        found = self._db.execute("""SELECT MAX(seq) FROM chain WHERE what LIKE '["before"%'""").fetchone()
        return int(found[0] or 0)

    def written(self) -> Iterator[list[Any]]:
        """What every link wrote, in order; LedgerError where a link does not follow from the one before."""
        since, expected, digest = self.kept_from, 1, ""
        for seq, found, head, text in self._db.execute("SELECT * FROM chain ORDER BY seq"):
            if seq != expected or (seq >= since and found != _link_digest(digest, head, text)):
                raise LedgerError(f"the {self._called} was changed by another program: entry {seq}")
            expected, digest = seq + 1, found
            if seq >= since:
                yield json.loads(text)

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _last(self) -> tuple[int, str, str]:
        found = self._db.execute("SELECT seq, digest, head FROM chain ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, "", "") if found is None else found

    @property
    def mark(self) -> str:
        """The last link, "number:hash"; "" if nothing was ever written."""
        seq, digest, _ = self._last()
        return f"{seq}:{digest}" if seq else ""

    def has(self, mark: str) -> bool:
        """True if this link is in the chain."""
        number, _, digest = mark.partition(":")
        found = self._db.execute("SELECT digest FROM chain WHERE seq = ?", (int(number or 0),)).fetchone()
        return not mark or (found is not None and found[0] == digest)

    @property
    def seen_head(self) -> str:
        """The head of the log at the last write; "" if there was none."""
        return self._last()[2]


def _link_digest(before: str, head: str, what: str) -> str:
    return sha256(json.dumps([before, head, what]).encode()).hexdigest()
