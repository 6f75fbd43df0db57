"""The ledger of a site in one SQLite file: releases, privacy spent, answers paid for, state of secure sums.

It is written before anything is released, in full sync, so a kill at any moment can only make it count too
much, never too little. Every write is a link of a chain (``chained_file``), and a link keeps what was
written. When a site is opened, and by ``unpooled site log --verify``, the chain is computed again, and the
tables must hold what it says and nothing else.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from unpooled.errors import LedgerError, QueryRefusedError
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.messages import SiteId
from unpooled.site.chained_file import ChainedFile
from unpooled.site.ledger_contents import RUNS, SCHEMA, Contents


@dataclass(frozen=True)
class RunLimits:
    """The limits on everything that a site releases."""

    runs: int
    rounds: int  # of one run
    spent: float  # mu^2 of all releases together (Gaussian differential privacy); inf: not limited


class Ledger(ChainedFile):
    """The ledger of one site. ``path`` None keeps it in memory, for simulation."""

    def __init__(self, path: Path | None, site: str) -> None:
        where = ":memory:" if path is None else str(path)
        try:
            db = sqlite3.connect(where, timeout=30, isolation_level=None, check_same_thread=False)
            super().__init__(db, "ledger")
            self.create(SCHEMA, where)  # before anything is changed: the file may have another format
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("INSERT OR IGNORE INTO about VALUES ('site', ?)", (site,))
            (owner,) = self._db.execute("SELECT value FROM about WHERE key = 'site'").fetchone()
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{where}: not a ledger of unpooled, or damaged: {error}") from error
        if owner != site:
            raise LedgerError(f"{where}: the ledger of site {owner}, opened as {site}")
        self._admitted: dict[str, int] = {}  # the run counted last, and the limit at that time
        if path is not None:
            path.chmod(0o600)

    @classmethod
    def open_read_only(cls, path: Path) -> "Ledger":
        """Open the ledger for reading: nothing is written or locked."""
        apart = (
            "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
        )  # no process has it open
        ledger = cls.__new__(cls)
        try:
            db = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro{apart}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            ChainedFile.__init__(ledger, db, "ledger")
            ledger.check_format(path)
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path}: not a ledger of unpooled, or damaged: {error}") from error
        return ledger

    @staticmethod
    def owner(path: Path) -> str:
        """The site whose ledger this is."""
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                (site,) = db.execute("SELECT value FROM about WHERE key = 'site'").fetchone()
        except (sqlite3.DatabaseError, TypeError) as error:
            raise LedgerError(f"{path}: not a ledger of unpooled, or damaged: {error}") from error
        return str(site)

    # ------------------------------------------------------------ the chain and the tables

    def _contents(self) -> Contents:
        """The contents of the tables; answers and states by their digests."""
        db = self._db
        return Contents(
            [tuple(row) for row in db.execute("SELECT * FROM releases ORDER BY rowid")],
            {tuple(key): _sha(answer) for *key, answer in db.execute("SELECT * FROM responses")},
            {run: _sha(state) for run, state in db.execute("SELECT run, state FROM sums ORDER BY used")},
            {site: bytes(key).hex() for site, key in db.execute("SELECT site, key FROM pinned")},
            dict(db.execute("SELECT run, source FROM run_sources")),
            dict(db.execute("SELECT run, sites FROM sum_members")),
        )

    def check(self) -> None:
        """Raise LedgerError unless the tables hold what the chain says, and nothing else."""
        by_chain = Contents([], {}, {}, {}, {}, {})
        for entry in self.written():
            by_chain.add(entry)
        in_tables = self._contents()
        by_chain.releases.sort()
        in_tables.releases.sort()
        for name in Contents._fields:
            if getattr(by_chain, name) != getattr(in_tables, name):
                raise LedgerError(
                    f"another program changed the ledger: its {name} are not those that were written"
                )

    # ------------------------------------------------------------ releases and prices

    def charge(self, request_id: RequestId, request: str, price: float, limits: RunLimits) -> None:
        """Record that this request is about to be answered, at its price.

        Without a price a request counts once. With one it is charged each time; an answer that was charged
        and kept is returned again without a charge (``cached_response``).

        Raises
        ------
        QueryRefusedError
            If a limit would be exceeded.
        """
        key = (request_id.run, request_id.round, request_id.exchange, request)
        if not price and self._has(key):
            return
        with self._writing("release", *key, price) as db:
            if self._admitted.get(request_id.run) != limits.runs:  # counted again if run or limit changed
                (runs,) = db.execute(
                    "SELECT COUNT(DISTINCT run) FROM releases WHERE run != ?", (request_id.run,)
                ).fetchone()
                if runs >= limits.runs:
                    raise QueryRefusedError(
                        f"the policy allows {limits.runs} runs, and the site answered {runs}"
                    )
            if request_id.round > limits.rounds:
                raise QueryRefusedError(
                    f"the policy allows {limits.rounds} rounds a run, this is round {request_id.round}"
                )
            if price:
                before = self.spent()
                if before + price > limits.spent * (1 + 1e-9):
                    raise QueryRefusedError(
                        f"the privacy budget does not allow it: {before / limits.spent:.1%} is spent, "
                        f"this would cost another {price / limits.spent:.1%}"
                    )
            db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", (*key, price))
        self._admitted = {request_id.run: limits.runs}

    def _has(self, key: tuple[str, int, int, str]) -> bool:
        where = "run = ? AND round = ? AND exchange = ? AND request = ?"
        return self._db.execute(f"SELECT 1 FROM releases WHERE {where}", key).fetchone() is not None  # noqa: S608

    def keep(self, request_id: RequestId, request: str, answer: bytes) -> None:
        """Keep an answer that was charged, before it leaves."""
        key = (request_id.run, request_id.round, request_id.exchange, request)
        with self._writing("responses", *key, _sha(answer)) as db:
            db.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?)", (*key, answer))

    def cached_response(self, request_id: RequestId, request: str) -> bytes | None:
        """The answer that was charged and kept, if there is one."""
        row = self._db.execute(
            "SELECT answer FROM responses WHERE run = ? AND round = ? AND exchange = ? AND request = ?",
            (request_id.run, request_id.round, request_id.exchange, request),
        ).fetchone()
        return None if row is None else bytes(row[0])

    # ------------------------------------------------------------ runs

    def source(self, run: str) -> str | None:
        """The digest of what the run was first answered from; None if nothing of it was answered."""
        row = self._db.execute("SELECT source FROM run_sources WHERE run = ?", (run,)).fetchone()
        return None if row is None else str(row[0])

    def begin(self, run: str, source: str) -> None:
        """Note what the run is answered from, before its first answer leaves."""
        with self._writing("run_sources", run, source) as db:
            db.execute("INSERT INTO run_sources VALUES (?, ?)", (run, source))

    def sum_members(self, run: str) -> str | None:
        """The members that a relay's first sum of the run was over; None if there is no sum yet."""
        row = self._db.execute("SELECT sites FROM sum_members WHERE run = ?", (run,)).fetchone()
        return None if row is None else str(row[0])

    def keep_sum_members(self, run: str, sites: str) -> None:
        """Note the members of the first sum of a run, before it leaves."""
        with self._writing("sum_members", run, sites) as db:
            db.execute("INSERT INTO sum_members VALUES (?, ?)", (run, sites))

    def latest(self, run: str) -> int:
        """The latest answered round of a run; -1 if there is none."""
        (latest,) = self._db.execute("SELECT MAX(round) FROM releases WHERE run = ?", (run,)).fetchone()
        return -1 if latest is None else int(latest)

    def runs(self) -> int:
        (runs,) = self._db.execute("SELECT COUNT(DISTINCT run) FROM releases").fetchone()
        return int(runs)

    def bind_unit(self, rows: int) -> None:
        """Record the privacy unit of the charges: a person of up to ``rows`` rows, or a row (0).

        Raises
        ------
        LedgerError
            If something was charged for another unit: the cost of a person's rows would not be known.
        """
        recorded = [int(entry[1]) for entry in self.written() if entry[0] == "unit"]
        now = recorded[-1] if recorded else 0  # before it was recorded, a charge was for a row
        if now != rows and self.spent():
            raise LedgerError(
                f"the ledger's charges are for {_unit(now)}, and the policy's [dp] privacy_unit is "
                f"{_unit(rows)}. The privacy that was spent cannot be converted. Use a folder of its own."
            )
        if not recorded or now != rows:
            with self._writing("unit", rows):
                pass

    def spent(self, run: str | None = None) -> float:
        """mu^2 of all releases so far, or of those of one run."""
        where, values = ("", ()) if run is None else (" WHERE run = ?", (run,))
        (spent,) = self._db.execute(
            f"SELECT COALESCE(SUM(spent), 0) FROM releases{where}",  # noqa: S608
            values,
        ).fetchone()
        return float(spent)


def _unit(rows: int) -> str:
    return f"a person with up to {rows} rows" if rows else "a row"


def _sha(data: bytes) -> str:
    return sha256(data).hexdigest()


class SumLedger:
    """The state of secure sums in a ledger: a ``MemberStore`` that outlives the process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._db = ledger, ledger._db

    def run(self, run: str) -> bytes | None:
        row = self._db.execute("SELECT state FROM sums WHERE run = ?", (run,)).fetchone()
        return None if row is None else bytes(row[0])

    def keep(self, run: str, state: bytes) -> None:
        with self._ledger._writing("sums", run, _sha(state)) as db:
            (used,) = db.execute("SELECT COALESCE(MAX(used), 0) + 1 FROM sums").fetchone()
            db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?)", (run, state, used))
            db.execute(
                "DELETE FROM sums WHERE run NOT IN (SELECT run FROM sums ORDER BY used DESC LIMIT ?)",
                (RUNS,),
            )

    def latest(self) -> bytes | None:
        """The state of the latest run with secure sums."""
        row = self._db.execute("SELECT state FROM sums ORDER BY used DESC LIMIT 1").fetchone()
        return None if row is None else bytes(row[0])

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
