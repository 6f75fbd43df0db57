"""The ledger of a site in one SQLite file: releases, privacy spent, answers paid for, state of secure sums.

It is written before anything is released, in full sync, so a kill at any moment can only make it count too
much, never too little. Every write is a link of a chain of hashes that also names the head of the site's log
at that time, and every line of the log names the last link: a ledger or a log that was lost, cut or replaced
by an older one is found by the other (``check_books``). A link keeps what was written: when a site is opened,
and by ``audit verify``, the chain is computed again, and the tables must hold what it says and nothing else.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.core.exchange import Turn
from unpooled.core.messages import SiteId
from unpooled.errors import LedgerError, Refused
from unpooled.site.chained_file import CHAIN, ChainedFile

_RUNS = 64  # runs of secure sums whose state is kept

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
            self._add_what()
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
        if "releases" not in tables or "chain" in tables:
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("ALTER TABLE releases RENAME TO releases_before")
        self._db.execute(_RELEASES)
        self._db.execute("INSERT INTO releases SELECT * FROM releases_before")
        self._db.execute("DROP TABLE releases_before")
        self._db.execute("COMMIT")

    # ------------------------------------------------------------ what the chain says

    @property
    def older(self) -> bool:
        """True if links do not keep what they wrote: an earlier version wrote them."""
        if self.kept_from:
            return False
        blank = self._db.execute("SELECT 1 FROM chain WHERE what = ''").fetchone() is not None
        return blank or (not self.mark and any(self._contents()))

    def take_over(self) -> None:
        """Add a link that holds what an earlier version wrote."""
        releases, paid, sums, pinned = self._contents()
        with self._writing("before", releases, list(paid.items()), list(sums.items()), list(pinned.items())):
            pass

    def _contents(self) -> "_Contents":
        """What the tables hold; answers and states by their digests."""
        db = self._db
        return _Contents(
            [tuple(row) for row in db.execute("SELECT * FROM releases ORDER BY rowid")],
            {tuple(key): _sha(answer) for *key, answer in db.execute("SELECT * FROM paid")},
            {run: _sha(state) for run, state in db.execute("SELECT run, state FROM sums ORDER BY used")},
            {site: bytes(key).hex() for site, key in db.execute("SELECT site, key FROM pinned")},
        )

    def check(self, kept_from: int | None = None) -> None:
        """Raise LedgerError unless the tables hold what the chain says, and nothing else.

        ``kept_from`` is what the log says of the chain, so that nobody can begin it anew.
        """
        if kept_from is not None and self.kept_from != kept_from:
            raise LedgerError("the ledger was changed by another program: it was begun anew")
        told = _Contents([], {}, {}, {})
        for what in self.written():
            told.add(what)
        found = self._contents()
        told.releases.sort()
        found.releases.sort()
        for name in _Contents._fields:
            if getattr(told, name) != getattr(found, name):
                raise LedgerError(
                    f"the ledger was changed by another program: its {name} are not those that were written"
                )

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
        with self._writing("paid", *key, _sha(answer)) as db:
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

    def bind_unit(self, rows: int) -> None:
        """Note that charges are for a person of up to so many rows, or for a row (0).

        LedgerError if something was charged for another: what a person's rows cost would not be known.
        """
        told = [int(what[1]) for what in self.written() if what[0] == "unit"]
        now = told[-1] if told else 0  # before it was noted, a charge was for a row
        if now != rows and self.spent():
            raise LedgerError(
                f"the ledger's charges are for {_unit(now)}, and the policy's [dp] unit is {_unit(rows)}: "
                "what was spent would be another; it needs a folder of its own"
            )
        if not told or now != rows:
            with self._writing("unit", rows):
                pass

    def spent(self) -> float:
        """mu^2 of all releases so far."""
        (spent,) = self._db.execute("SELECT COALESCE(SUM(spent), 0) FROM releases").fetchone()
        return float(spent)


class _Contents(NamedTuple):
    """What a ledger holds, apart from its chain."""

    releases: list[tuple[Any, ...]]
    paid: dict[tuple[Any, ...], str]  # the digest of every answer that was paid for
    sums: dict[str, str]  # the digest of the state of every run with secure sums, the latest last
    pinned: dict[str, str]

    def add(self, what: list[Any]) -> None:
        """Take in what a link wrote."""
        kind, *rest = what
        if kind == "before":
            releases, paid, sums, pinned = rest
            self.releases[:] = map(tuple, releases)
            for mine, theirs in (
                (self.paid, {tuple(key): digest for key, digest in paid}),
                (self.sums, dict(sums)),
                (self.pinned, dict(pinned)),
            ):
                mine.clear()
                mine.update(theirs)
        elif kind == "release":
            self.releases.append(tuple(rest))
        elif kind == "paid":
            self.paid[tuple(rest[:-1])] = rest[-1]
        elif kind == "sums":
            self.sums.pop(rest[0], None)
            self.sums[rest[0]] = rest[1]
            if len(self.sums) > _RUNS:
                del self.sums[next(iter(self.sums))]
        elif kind == "pinned":
            for site, key in rest[0]:
                self.pinned.setdefault(site, key)
        elif kind == "forgotten":
            self.pinned.pop(rest[0], None)


def _unit(rows: int) -> str:
    return f"a person with up to {rows} rows" if rows else "a row"


def _sha(data: bytes) -> str:
    return sha256(data).hexdigest()


class SumLedger:
    """The state of secure sums in a ledger: a ``MemberStore`` that outlives the process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._db = ledger, ledger._db

    def run(self, run: str) -> bytes | None:
        found = self._db.execute("SELECT state FROM sums WHERE run = ?", (run,)).fetchone()
        return None if found is None else bytes(found[0])

    def keep(self, run: str, state: bytes) -> None:
        with self._ledger._writing("sums", run, _sha(state)) as db:
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
        with self._ledger._writing("pinned", [(site, key.hex()) for site, key in sorted(keys.items())]) as db:
            db.executemany("INSERT OR IGNORE INTO pinned VALUES (?, ?)", sorted(keys.items()))

    def forget(self, site: SiteId) -> bool:
        """Forget the key of a site, so that the next one is pinned; False if none was pinned."""
        if site not in self.pinned():
            return False
        with self._ledger._writing("forgotten", site) as db:
            return db.execute("DELETE FROM pinned WHERE site = ?", (site,)).rowcount > 0
