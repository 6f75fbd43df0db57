"""The ledger of a site in one SQLite file: releases, budgets spent, answers paid for, state of secure sums.

It is written before anything is released, in full sync, so a kill at any moment can only make it count too
much, never too little. Every write is a link of a chain (``chained_file``), and a link keeps what was
written. When a site is opened, and by ``unpooled site log --verify``, the chain is computed again, and the
tables must hold what it says and nothing else.

A site has one ledger for all its federations. Runs, answers, secure sums and pinned keys belong to one
federation, so a run has nothing in common with a run of the same name in another one. The privacy spent, the
equations opened and the number of runs are counted over all of them.
"""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError, QueryRefusedError
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.messages import SiteId
from unpooled.site.chained_file import ChainedFile, check_file_format, opening_error
from unpooled.site.ledger_contents import RUNS, SCHEMA, Contents

_RUN = "federation = ? AND run = ?"
_KEY = f"{_RUN} AND round = ? AND exchange = ? AND request = ?"


@dataclass(frozen=True)
class RunLimits:
    """The limits on everything that a site releases."""

    runs: int
    rounds: int  # of one run
    spent: float  # mu^2 of all releases together (Gaussian differential privacy); inf: not limited


class Ledger(ChainedFile):
    """The ledger of one site, for its requests from one federation.

    Parameters
    ----------
    path
        The file; None keeps it in memory, for simulation.
    site
        The name of the site in the federation.
    federation
        The public key of the federation's coordinator, hexadecimal; "" without one.
    """

    def __init__(self, path: Path | None, site: str, federation: str = "") -> None:
        where = ":memory:" if path is None else str(path)
        try:
            db = sqlite3.connect(where, timeout=30, isolation_level=None, check_same_thread=False)
            super().__init__(db, "ledger")
            self.create(SCHEMA, where)  # before anything is changed: the file may have another format
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("INSERT OR IGNORE INTO names VALUES (?, ?)", (federation, site))
            (owner,) = self._db.execute(
                "SELECT site FROM names WHERE federation = ?", (federation,)
            ).fetchone()
        except sqlite3.DatabaseError as error:
            raise opening_error(where, "ledger", error) from error
        if owner != site:
            raise LedgerError(f"{where}: the ledger of site {owner}, opened as {site}")
        self.federation = federation
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
        ledger.federation = ""
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
            raise opening_error(path, "ledger", error) from error
        return ledger

    @classmethod
    def open_existing(cls, path: Path, federation: str | None = None) -> "Ledger":
        """Open a ledger for one of the federations that it has; for the first one by default."""
        names = cls.names(path)
        chosen = next(iter(names), "") if federation is None else federation
        return cls(path, names.get(chosen, ""), chosen)

    @staticmethod
    def names(path: Path) -> dict[str, str]:
        """Return the name of the site in every federation for which the ledger was opened."""
        check_file_format(path, "ledger")
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                return dict(db.execute("SELECT federation, site FROM names ORDER BY rowid"))
        except sqlite3.DatabaseError as error:
            raise opening_error(path, "ledger", error) from error

    # ------------------------------------------------------------ the chain and the tables

    def _contents(self) -> Contents:
        """The contents of the tables; answers and states by their digests."""
        db = self._db
        return Contents(
            [tuple(row) for row in db.execute("SELECT * FROM releases ORDER BY rowid")],
            {tuple(key): _sha(answer) for *key, answer in db.execute("SELECT * FROM responses")},
            {(f, run): _sha(state) for f, run, state, _ in db.execute("SELECT * FROM sums ORDER BY used")},
            {(f, site): bytes(key).hex() for f, site, key in db.execute("SELECT * FROM pinned")},
            {(f, run): source for f, run, source in db.execute("SELECT * FROM run_sources")},
            {(f, run): sites for f, run, sites in db.execute("SELECT * FROM sum_members")},
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
        key = self._key(request_id, request)
        if not price and self._has(key):
            return
        with self._writing("release", *key, price) as db:
            if self._admitted.get(request_id.run) != limits.runs:  # counted again if run or limit changed
                runs = self.runs(apart_from=request_id.run)
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
            db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?)", (*key, price))
        self._admitted = {request_id.run: limits.runs}

    def _key(self, request_id: RequestId, request: str) -> tuple[str, str, int, int, str]:
        return (self.federation, request_id.run, request_id.round, request_id.exchange, request)

    def _has(self, key: tuple[str, str, int, int, str]) -> bool:
        return self._db.execute(f"SELECT 1 FROM releases WHERE {_KEY}", key).fetchone() is not None  # noqa: S608

    def keep(self, request_id: RequestId, request: str, answer: bytes) -> None:
        """Keep an answer that was charged, before it leaves."""
        key = self._key(request_id, request)
        with self._writing("responses", *key, _sha(answer)) as db:
            db.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)", (*key, answer))

    def cached_response(self, request_id: RequestId, request: str) -> bytes | None:
        """The answer that was charged and kept, if there is one."""
        row = self._db.execute(
            f"SELECT answer FROM responses WHERE {_KEY}",  # noqa: S608
            self._key(request_id, request),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def equations(self) -> int:
        """The number of equations about rows that secure sums opened, in all federations."""
        return sum(int(entry[-1]) for entry in self._entries("equations"))

    def open_equations(self, request_id: RequestId, queries: str, number: int, max_number: float) -> None:
        """Record that a secure sum over rows opens equations; the same sum again opens none.

        ``queries`` is the digest of the queries that are summed. A coordinator that was killed may ask for
        the same sum under new keys, and gets the same numbers.

        Raises
        ------
        QueryRefusedError
            If more than ``max_number`` would be open, with the one of the sum over all rows.
        """
        key = [*self._key(request_id, queries)]
        with self.transaction():  # no other sum between the check and this one
            if any(entry[1:-1] == key for entry in self._entries("equations")):
                return
            before, sums = self.equations(), self._sums_of_all_rows()
            if sums + before + number > max_number:
                raise QueryRefusedError(
                    f"the equation budget does not allow it: secure sums over rows of this site may open "
                    f"{int(max_number)} equations in all, the sum over all rows included. They opened "
                    f"{sums + before if before else 0} so far, and this query would open "
                    f"{number if before else number + sums} more. Use summary tables with secure sums, or "
                    "ask for fewer clusters in fewer rounds."
                )
            with self._writing("equations", *key, number):
                pass

    def allows_equations(self, request_id: RequestId, queries: str, number: int, max_number: float) -> bool:
        """Return whether ``open_equations`` would record a secure sum, or has recorded it."""
        key = [*self._key(request_id, queries)]
        known = any(entry[1:-1] == key for entry in self._entries("equations"))
        return known or self._sums_of_all_rows() + self.equations() + number <= max_number

    def bind_rows(self, digest: str, *, alone: bool) -> None:
        """Record the rows that secure sums are over, before the first of them leaves.

        Every other version of the rows adds one equation: the sum over all of them.

        Raises
        ------
        QueryRefusedError
            If secure sums were answered from other rows, and these or those must be ``alone``.
        """
        with self.transaction():
            known = self._entries("rows")
            if any(entry[1:] == [digest, alone] for entry in known):
                return
            if known and (alone or known[0][2]):
                raise QueryRefusedError(
                    "this site's rows, or the rules for grouping them, are not those of its earlier secure "
                    "sums, and the differences would disclose people. A site with a summary table (mode = "
                    '"summary") can update it.'
                )
            with self._writing("rows", digest, alone):
                pass

    def _sums_of_all_rows(self) -> int:
        """The equations that are open besides: the sum over all rows, of every version of them."""
        return max(len(self._entries("rows")), 1)

    def _entries(self, kind: str) -> list[list[Any]]:
        """The links of one kind that only the chain has, in their order."""
        where = f"WHERE entry LIKE '[\"{kind}\",%' ORDER BY seq"
        return [json.loads(text) for (text,) in self._db.execute(f"SELECT entry FROM chain {where}")]  # noqa: S608

    # ------------------------------------------------------------ runs

    def source(self, run: str) -> str | None:
        """The digest of what the run was first answered from; None if nothing of it was answered."""
        row = self._db.execute(
            f"SELECT source FROM run_sources WHERE {_RUN}",  # noqa: S608
            (self.federation, run),
        ).fetchone()
        return None if row is None else str(row[0])

    def begin(self, run: str, source: str) -> None:
        """Note what the run is answered from, before its first answer leaves."""
        with self._writing("run_sources", self.federation, run, source) as db:
            db.execute("INSERT INTO run_sources VALUES (?, ?, ?)", (self.federation, run, source))

    def sum_members(self, run: str) -> str | None:
        """The members that a relay's first sum of the run was over; None if there is no sum yet."""
        row = self._db.execute(
            f"SELECT sites FROM sum_members WHERE {_RUN}",  # noqa: S608
            (self.federation, run),
        ).fetchone()
        return None if row is None else str(row[0])

    def keep_sum_members(self, run: str, sites: str) -> None:
        """Note the members of the first sum of a run, before it leaves."""
        with self._writing("sum_members", self.federation, run, sites) as db:
            db.execute("INSERT INTO sum_members VALUES (?, ?, ?)", (self.federation, run, sites))

    def relay_rows(self) -> tuple[int, str]:
        """The number of rows that a relay's tables have, and the digest of its record of them."""
        known = self._entries("relay rows")
        return (int(known[-1][1]), str(known[-1][2])) if known else (0, "")

    def keep_relay_rows(self, number: int, digest: str) -> None:
        """Note the rows of a relay's tables, before the first answer from new ones leaves."""
        if self.relay_rows() != (number, digest):
            with self._writing("relay rows", number, digest):
                pass

    def latest(self, run: str) -> int:
        """The latest answered round of a run; -1 if there is none."""
        where = (self.federation, run)
        (latest,) = self._db.execute(f"SELECT MAX(round) FROM releases WHERE {_RUN}", where).fetchone()  # noqa: S608
        return -1 if latest is None else int(latest)

    def runs(self, apart_from: str | None = None) -> int:
        """The number of answered runs in all federations, without one of this federation if it is named."""
        runs = set(self._db.execute("SELECT DISTINCT federation, run FROM releases"))
        return len(runs - {(self.federation, apart_from)})

    def bind_unit(self, rows: int, sites: int = 1) -> None:
        """Record the privacy unit of the charges: a person of up to ``rows`` rows, or a row (0), at each of
        up to ``sites`` sites.

        Raises
        ------
        LedgerError
            If something was charged for another unit: the cost of a person's rows would not be known.
        """
        recorded = [tuple(map(int, entry[1:])) for entry in self.written() if entry[0] == "unit"]
        now = recorded[-1] if recorded else (0, 1)  # before it was recorded, a charge was for a row
        if now != (rows, sites) and self.spent():
            raise LedgerError(
                f"the ledger's charges are for {_unit(*now)}, and the policy's [dp] privacy_unit is "
                f"{_unit(rows, sites)}. The privacy that was spent cannot be converted. Set the unit back."
            )
        if not recorded or now != (rows, sites):
            with self._writing("unit", rows, sites):
                pass

    def spent(self, run: str | None = None) -> float:
        """mu^2 of all releases to all federations so far, or of those in one run of this federation."""
        where, values = ("1", ()) if run is None else (_RUN, (self.federation, run))
        (spent,) = self._db.execute(
            f"SELECT COALESCE(SUM(spent), 0) FROM releases WHERE {where}",  # noqa: S608
            values,
        ).fetchone()
        return float(spent)


def _unit(rows: int, sites: int) -> str:
    unit = f"a person with up to {rows} rows" if rows else "a row"
    return unit if sites == 1 else f"{unit} at each of up to {sites} sites"


def _sha(data: bytes) -> str:
    return sha256(data).hexdigest()


class SumLedger:
    """The state of secure sums in a ledger: a ``MemberStore`` that outlives the process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._db, self._federation = ledger, ledger._db, ledger.federation

    def run(self, run: str) -> bytes | None:
        where = (self._federation, run)
        row = self._db.execute(f"SELECT state FROM sums WHERE {_RUN}", where).fetchone()  # noqa: S608
        return None if row is None else bytes(row[0])

    def keep(self, run: str, state: bytes) -> None:
        own = self._federation
        with self._ledger._writing("sums", own, run, _sha(state)) as db:
            (used,) = db.execute("SELECT COALESCE(MAX(used), 0) + 1 FROM sums").fetchone()
            db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?)", (own, run, state, used))
            db.execute(
                "DELETE FROM sums WHERE federation = ? AND run NOT IN"
                " (SELECT run FROM sums WHERE federation = ? ORDER BY used DESC LIMIT ?)",
                (own, own, RUNS),
            )

    def latest(self) -> bytes | None:
        """The state of the federation's latest run with secure sums."""
        row = self._db.execute(
            "SELECT state FROM sums WHERE federation = ? ORDER BY used DESC LIMIT 1", (self._federation,)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def pinned(self) -> dict[SiteId, bytes]:
        keys = self._db.execute("SELECT site, key FROM pinned WHERE federation = ?", (self._federation,))
        return {site: bytes(key) for site, key in keys}

    def pin(self, keys: Mapping[SiteId, bytes]) -> None:
        new, own = sorted(keys.items()), self._federation
        with self._ledger._writing("pinned", own, [(site, key.hex()) for site, key in new]) as db:
            db.executemany(
                "INSERT OR IGNORE INTO pinned VALUES (?, ?, ?)", [(own, site, key) for site, key in new]
            )

    def forget(self, site: SiteId) -> bool:
        """Forget the key of a site, so that the next one is pinned; False if none was pinned."""
        own = (self._federation, site)
        if site not in self.pinned():
            return False
        with self._ledger._writing("forgotten", *own) as db:
            return db.execute("DELETE FROM pinned WHERE federation = ? AND site = ?", own).rowcount > 0
