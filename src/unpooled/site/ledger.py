"""The ledger of a site in one SQLite file: releases, privacy spent, answers paid for, state of secure sums.

It is written before anything is released, in full sync, so a kill at any moment can only make it count too
much, never too little. Every write is a link of a chain of hashes that also names the head of the site's log
at that time, and every line of the log names the last link: a ledger or a log that was lost, cut or replaced
by an older one is found by the other (``check_books``).
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.core.exchange import Turn
from unpooled.core.messages import SiteId
from unpooled.errors import LedgerError, Refused

_RUNS = 64  # runs of secure sums whose state is kept

CHAIN = """
CREATE TABLE IF NOT EXISTS chain (seq INTEGER PRIMARY KEY, digest TEXT NOT NULL, head TEXT NOT NULL);
"""
_RELEASES = """
CREATE TABLE IF NOT EXISTS releases (
    run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, request TEXT NOT NULL,
    spent REAL NOT NULL
);
"""
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
{_RELEASES}
CREATE INDEX IF NOT EXISTS releases_run ON releases (run, round, exchange, request);
CREATE TABLE IF NOT EXISTS paid (
    run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, request TEXT NOT NULL,
    answer BLOB NOT NULL, PRIMARY KEY (run, round, exchange, request)
);
CREATE TABLE IF NOT EXISTS sums (run TEXT PRIMARY KEY, state BLOB NOT NULL, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS pinned (site TEXT PRIMARY KEY, key BLOB NOT NULL);
{CHAIN}
"""


@dataclass(frozen=True)
class RunLimits:
    """The most that a site may release in all."""

    runs: int
    rounds: int  # a run
    spent: float  # mu^2 of all releases together (Gaussian differential privacy); inf: not limited


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
        head = self.log_head()
        link = sha256(repr((digest, head, what)).encode()).hexdigest()
        self._db.execute("INSERT INTO chain VALUES (?, ?, ?)", (seq + 1, link, head))

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


class Ledger(ChainedFile):
    """The ledger of one site. ``path`` None keeps it in memory, for simulation."""

    def __init__(self, path: Path | None, site: str) -> None:
        where = ":memory:" if path is None else str(path)
        try:
            db = sqlite3.connect(where, timeout=30, isolation_level=None, check_same_thread=False)
            super().__init__(db, "ledger")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._upgrade()
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

    @staticmethod
    def owner(path: Path) -> str:
        """The site whose ledger this is."""
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                (site,) = db.execute("SELECT value FROM about WHERE key = 'site'").fetchone()
        except (sqlite3.DatabaseError, TypeError) as error:
            raise LedgerError(f"{path}: not a ledger of unpooled, or damaged: {error}") from error
        return str(site)

    def _upgrade(self) -> None:
        """Bring a ledger of a version without a chain up to this one: a charge is not unique any more."""
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        if "releases" in tables and "chain" not in tables:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("ALTER TABLE releases RENAME TO releases_before")
            self._db.execute(_RELEASES)
            self._db.execute("INSERT INTO releases SELECT * FROM releases_before")
            self._db.execute("DROP TABLE releases_before")
            self._db.execute("COMMIT")

    # ------------------------------------------------------------ releases and prices

    def charge(self, turn: Turn, request: str, price: float, limits: RunLimits) -> None:
        """Record that this request is about to be answered, at its price; Refused if a limit would be passed.

        Without a price a request counts once. With one it is paid each time: what was paid and kept is given
        again without asking here (``paid``).
        """
        key = (turn.run, turn.round, turn.exchange, request)
        if not price and self._has(key):
            return
        with self._writing("release", *key, price) as db:
            if self._admitted.get(turn.run) != limits.runs:  # counted again only if run or limit changed
                (runs,) = db.execute(
                    "SELECT COUNT(DISTINCT run) FROM releases WHERE run != ?", (turn.run,)
                ).fetchone()
                if runs >= limits.runs:
                    raise Refused(f"the policy allows {limits.runs} runs, and {runs} were made")
            if turn.round > limits.rounds:
                raise Refused(f"the policy allows {limits.rounds} rounds a run, this is round {turn.round}")
            if price:
                before = self.spent()
                if before + price > limits.spent * (1 + 1e-9):
                    raise Refused(
                        f"the privacy budget does not allow it: {before / limits.spent:.1%} is spent, "
                        f"this would cost another {price / limits.spent:.1%}"
                    )
            db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", (*key, price))
        self._admitted = {turn.run: limits.runs}

    def _has(self, key: tuple[str, int, int, str]) -> bool:
        where = "run = ? AND round = ? AND exchange = ? AND request = ?"
        return self._db.execute(f"SELECT 1 FROM releases WHERE {where}", key).fetchone() is not None

    def keep(self, turn: Turn, request: str, answer: bytes) -> None:
        """Keep an answer that was paid for, before it leaves."""
        key = (turn.run, turn.round, turn.exchange, request)
        with self._writing("paid", *key, sha256(answer).hexdigest()) as db:
            db.execute("INSERT INTO paid VALUES (?, ?, ?, ?, ?)", (*key, answer))

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


class SumLedger:
    """The state of secure sums in a ledger: a ``MemberStore`` that outlives the process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._db = ledger, ledger._db

    def run(self, run: str) -> bytes | None:
        found = self._db.execute("SELECT state FROM sums WHERE run = ?", (run,)).fetchone()
        return None if found is None else bytes(found[0])

    def keep(self, run: str, state: bytes) -> None:
        with self._ledger._writing("sums", run, sha256(state).hexdigest()) as db:
            (used,) = db.execute("SELECT COALESCE(MAX(used), 0) + 1 FROM sums").fetchone()
            db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?)", (run, state, used))
            db.execute(
                "DELETE FROM sums WHERE run NOT IN (SELECT run FROM sums ORDER BY used DESC LIMIT ?)",
                (_RUNS,),
            )

    def latest(self) -> bytes | None:
        """The state of the run of secure sums that was asked about last."""
        found = self._db.execute("SELECT state FROM sums ORDER BY used DESC LIMIT 1").fetchone()
        return None if found is None else bytes(found[0])

    def pinned(self) -> dict[SiteId, bytes]:
        return {site: bytes(key) for site, key in self._db.execute("SELECT site, key FROM pinned")}

    def pin(self, keys: Mapping[SiteId, bytes]) -> None:
        with self._ledger._writing("pinned", sorted(keys.items())) as db:
            db.executemany("INSERT OR IGNORE INTO pinned VALUES (?, ?)", sorted(keys.items()))

    def forget(self, site: SiteId) -> bool:
        """Forget the key of a site, so that the next one is pinned; False if none was pinned."""
        with self._ledger._writing("forgotten", site) as db:
            return db.execute("DELETE FROM pinned WHERE site = ?", (site,)).rowcount > 0
