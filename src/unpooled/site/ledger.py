"""The ledger of a site's releases so far, in one SQLite file: runs, turns, privacy spent.

It is written before anything is released, in full sync, so a kill at any moment can only make it count too
much, never too little. A turn and request is counted once, whichever process asks, so a retry is free.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unpooled.core.exchange import Turn
from unpooled.errors import LedgerError, Refused

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS releases (
    run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, request TEXT NOT NULL,
    spent REAL NOT NULL, PRIMARY KEY (run, round, exchange, request)
);
CREATE TABLE IF NOT EXISTS paid (
    run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, request TEXT NOT NULL,
    answer BLOB NOT NULL, PRIMARY KEY (run, round, exchange, request)
);
"""


@dataclass(frozen=True)
class RunLimits:
    """The most that a site may release in all."""

    runs: int
    rounds: int  # a run
    spent: float  # mu^2 of all releases together (Gaussian differential privacy); 0 where none is counted


class Ledger:
    """The ledger of one site. ``path`` None keeps it in memory, for simulation."""

    def __init__(self, path: Path | None, site: str) -> None:
        where = ":memory:" if path is None else str(path)
        try:
            self._db = sqlite3.connect(where, timeout=30, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO about VALUES ('site', ?)", (site,))
            (owner,) = self._db.execute("SELECT value FROM about WHERE key = 'site'").fetchone()
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{where}: not a ledger of unpooled, or damaged: {error}") from error
        if owner != site:
            raise LedgerError(f"{where}: the ledger of site {owner}, opened as {site}")
        self._admitted: dict[str, int] = {}  # the run counted last, and the limit at that time
        if path is not None:
            path.chmod(0o600)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its start, so no other process writes meanwhile."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def charge(
        self, turn: Turn, request: str, spends: float, limits: RunLimits, answer: bytes = b""
    ) -> bytes:
        """Record that this request is about to be answered; Refused if a limit would be passed.

        An answer that is paid for is kept in the same transaction. The same turn and request again costs
        nothing, and gives the answer that was kept: whatever was computed since does not leave.
        """
        key = (turn.run, turn.round, turn.exchange, request)
        with self._writing() as db:
            if db.execute(
                "SELECT 1 FROM releases WHERE run = ? AND round = ? AND exchange = ? AND request = ?", key
            ).fetchone():
                kept = self.paid(turn, request)
                if spends and kept is None:
                    raise Refused(
                        "this was paid for by a version that kept no answers: it is not given again"
                    )
                return kept or answer
            if self._admitted.get(turn.run) != limits.runs:  # counted again only if run or limit changed
                (runs,) = db.execute(
                    "SELECT COUNT(DISTINCT run) FROM releases WHERE run != ?", (turn.run,)
                ).fetchone()
                if runs >= limits.runs:
                    raise Refused(f"the policy allows {limits.runs} runs, and {runs} were made")
            if turn.round > limits.rounds:
                raise Refused(f"the policy allows {limits.rounds} rounds a run, this is round {turn.round}")
            if spends and limits.spent:
                before = self.spent()
                if before + spends > limits.spent * (1 + 1e-9):
                    raise Refused(
                        f"the privacy budget does not allow it: {before / limits.spent:.1%} is spent, "
                        f"this would cost another {spends / limits.spent:.1%}"
                    )
            db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", (*key, spends))
            if answer:
                db.execute("INSERT INTO paid VALUES (?, ?, ?, ?, ?)", (*key, answer))
        self._admitted = {turn.run: limits.runs}
        return answer

    def paid(self, turn: Turn, request: str) -> bytes | None:
        """The answer that was paid for and kept, if there is one."""
        found = self._db.execute(
            "SELECT answer FROM paid WHERE run = ? AND round = ? AND exchange = ? AND request = ?",
            (turn.run, turn.round, turn.exchange, request),
        ).fetchone()
        return None if found is None else bytes(found[0])

    def latest(self, run: str) -> int:
        """The latest answered round of a run; -1 if there is none."""
        (latest,) = self._db.execute("SELECT MAX(round) FROM releases WHERE run = ?", (run,)).fetchone()
        return -1 if latest is None else int(latest)

    def runs(self) -> int:
        (runs,) = self._db.execute("SELECT COUNT(DISTINCT run) FROM releases").fetchone()
        return int(runs)

    def spent(self) -> float:
        """mu^2 of all releases so far."""
        (spent,) = self._db.execute("SELECT COALESCE(SUM(spent), 0) FROM releases").fetchone()
        return float(spent)
