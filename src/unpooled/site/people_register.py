"""The registry of people of a site: in which groups each person was disclosed, so that updates stay safe.

It holds keyed digests instead of ids and values; the key comes from the operating system's entropy and never
leaves the file. (The median of a column, of an odd number of people, is the value of one of them; the
registry does not tell of whom.) It is written in full sync before a summary table is answered from. Its chain
of writes (``chained_file``) names the head of the log, and every line of the log names its last link: a
registry that was lost or replaced by an older one is found, and the site does not answer.
"""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.errors import InputError, LedgerError
from unpooled.privacy.microaggregation.group_history import History, ReleasedGroup
from unpooled.privacy.microaggregation.renew import Renewal, person_digest
from unpooled.privacy.microaggregation.scales import Scales
from unpooled.site.chained_file import CHAIN, ChainedFile, opening_error
from unpooled.site.log_files import tail

FILE = "registry.sqlite"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
    number INTEGER PRIMARY KEY, disclosed TEXT NOT NULL, cells TEXT, classes TEXT, added INTEGER NOT NULL,
    retired INTEGER, withheld TEXT
);
CREATE TABLE IF NOT EXISTS members (
    number INTEGER NOT NULL, person TEXT NOT NULL, has TEXT NOT NULL, vals TEXT NOT NULL,
    PRIMARY KEY (number, person)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS members_person ON members (person);
CREATE TABLE IF NOT EXISTS erased (person TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS summaries (
    number INTEGER PRIMARY KEY, digest TEXT NOT NULL, since TEXT NOT NULL, approved_by TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS proposal (digest TEXT PRIMARY KEY, base TEXT NOT NULL, plan TEXT NOT NULL);
{CHAIN}
"""


class ReleasedSummary(NamedTuple):
    """A summary table that the site answered from."""

    number: int
    digest: str
    since: str
    approved_by: str
    added: int  # groups that it was the first to disclose
    retired: int  # groups of the table before it that it no longer has


class Registry(ChainedFile):
    """The registry in a site's folder; ``new`` creates one, with a new key, if there is none yet."""

    def __init__(self, folder: Path, *, new: bool = False) -> None:
        self.path = folder / FILE
        if not new and not self.path.exists():
            raise LedgerError(f"{self.path}: the registry of people is lost. Nothing is answered or updated.")
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            super().__init__(sqlite3.connect(self.path, timeout=30, isolation_level=None), "registry")
            self._db.execute("PRAGMA synchronous = EXTRA")
            self._db.execute("PRAGMA secure_delete = ON")  # deleted cells do not stay in the file
            self.create(_SCHEMA, self.path)
            if not self._get("key"):
                self._db.execute("INSERT OR IGNORE INTO about VALUES ('key', ?)", (os.urandom(32).hex(),))
            self._key = bytes.fromhex(self._get("key"))
        except (OSError, sqlite3.DatabaseError) as error:
            raise opening_error(self.path, "registry", error) from error
        self.log_head = lambda: _last_line(folder / "log.jsonl")

    @classmethod
    @contextmanager
    def open(cls, folder: Path, *, new: bool = False) -> Iterator["Registry"]:
        """The registry of a folder, closed at the end."""
        registry = cls(folder, new=new)
        try:
            yield registry
        finally:
            registry.close()

    def digest(self, data: bytes) -> str:
        """A keyed digest of an id or of values."""
        return blake2b(data, key=self._key, digest_size=16).hexdigest()

    def _get(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return "" if row is None else str(row[0])

    def _set(self, **values: str) -> None:
        self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", values.items())

    @property
    def current(self) -> str:
        """The digest of the summary table that may be answered from; "" if there is none yet."""
        return self._get("current")

    @property
    def scales(self) -> Scales:
        return Scales.from_json(json.loads(self._get("scales")))

    @property
    def reading(self) -> dict[str, Any]:
        """How the table was read for the first summary table; {} if that is not known."""
        reading: dict[str, Any] = json.loads(self._get("reading") or "{}")
        return reading

    @property
    def number(self) -> int:
        """The number of summary tables so far."""
        (number,) = self._db.execute("SELECT COALESCE(MAX(number), 0) FROM summaries").fetchone()
        return int(number)

    def summaries(self) -> tuple[ReleasedSummary, ...]:
        """All summary tables that the site answered from, the first one first, with their groups here."""
        counted = ", ".join(
            f"(SELECT COUNT(*) FROM groups WHERE groups.{when} = summaries.number)"  # noqa: S608  two words
            for when in ("added", "retired")
        )
        rows = self._db.execute(
            f"SELECT number, digest, since, approved_by, {counted} FROM summaries ORDER BY number"  # noqa: S608
        )
        return tuple(ReleasedSummary(*row) for row in rows)

    @property
    def states(self) -> dict[str, int]:
        """The number of people of the file in each state at the last update; {} if there was none."""
        states: dict[str, int] = json.loads(self._get("states") or "{}")
        return states

    def proposal(self) -> tuple[int, int] | None:
        """The numbers of groups that a pending update withdraws and adds; None if there is no update."""
        row = self._db.execute("SELECT plan FROM proposal").fetchone()
        if row is None:
            return None
        plan = json.loads(row[0])
        return len(plan.get("retired", ())), len(plan["added"])

    def history(self) -> History:
        """All groups that were ever disclosed; LedgerError if another program changed them."""
        if self._contents() != self._get("contents"):
            raise LedgerError(f"{self.path}: another program changed the registry. Nothing is updated.")
        history = History(self.scales.min_group_size)
        members: dict[int, list[tuple[str, str, str]]] = {}
        for number, *one in self._db.execute("SELECT number, person, has, vals FROM members ORDER BY number"):
            members.setdefault(number, []).append((one[0], one[1], one[2]))
        for number, disclosed, cells, classes, retired, withheld in self._db.execute(
            "SELECT number, disclosed, cells, classes, retired, withheld FROM groups ORDER BY number"
        ):
            own = members.get(number, [])
            group = ReleasedGroup(
                {person: int(has, 16) for person, has, _ in own},
                int(disclosed, 16),
                {person: values for person, _, values in own},
                None if cells is None else json.loads(cells),
                None if classes is None else json.loads(classes),
            )
            history.restore(number, group, live=retired is None)
            if withheld is not None:
                history.withheld[number] = frozenset(json.loads(withheld))
        history.erased = self.erased()
        return history

    def erased(self) -> set[str]:
        """The digests of all people who were erased, even under earlier registries in this file."""
        return {str(person) for (person,) in self._db.execute("SELECT person FROM erased")}

    def _contents(self) -> str:
        """A digest of everything that the rules depend on."""
        digest = sha256()
        for table, order in (("groups", "number"), ("members", "number, person"), ("erased", "person")):
            for row in self._db.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608
                digest.update(repr(row).encode())
        return digest.hexdigest()

    # ------------------------------------------------------------ proposals and their adoption

    def propose_first(
        self, digest: str, scales: Scales, groups: Iterable[ReleasedGroup], reading: dict[str, Any]
    ) -> None:
        """Keep the groups of a first summary table until its approval; they then replace all known groups."""
        plan = {
            "first": True,
            "scales": scales.as_json(),
            "reading": reading,
            "added": [_packed(group) for group in groups],
        }
        self._propose(digest, plan)

    def propose(self, digest: str, renewal: Renewal) -> None:
        """Keep a planned update until its approval."""
        plan = {
            "first": False,
            "scales": renewal.scales.as_json(),
            "retired": list(renewal.retired),
            "withheld": {str(number): sorted(who) for number, who in renewal.withheld.items()},
            "added": [_packed(group) for group in renewal.added],
            "states": Counter(renewal.states.values()),
        }
        self._propose(digest, plan)

    def _propose(self, digest: str, plan: dict[str, Any]) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM proposal")
            self._db.execute("INSERT INTO proposal VALUES (?, ?, ?)", (digest, self.mark, json.dumps(plan)))

    def proposed(self, digest: str) -> bool:
        """True if the summary table of this digest is pending."""
        return self._db.execute("SELECT 1 FROM proposal WHERE digest = ?", (digest,)).fetchone() is not None

    def adopt(self, digest: str, by: str) -> None:
        """Take over what was proposed for a summary table: from now on the site answers from it."""
        if self.current == digest:
            return
        with self.transaction():
            row = self._db.execute("SELECT base, plan FROM proposal WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                raise LedgerError(
                    f"{self.path}: the registry does not know this summary table. Nothing is answered."
                )
            base, plan = row[0], json.loads(row[1])
            if base != self.mark:
                raise InputError(
                    "the registry has changed since this summary table was proposed. Run unpooled site "
                    "summarize again."
                )
            with self._writing("summary", digest, sha256(row[1].encode()).hexdigest()):
                if plan["first"]:
                    self._db.execute("DELETE FROM groups")
                    self._db.execute("DELETE FROM members")
                    self._set(reading=json.dumps(plan["reading"]))
                self._apply(plan, digest, by)

    def _apply(self, plan: dict[str, Any], digest: str, by: str) -> None:
        number = self.number + 1
        for retired in plan.get("retired", ()):
            self._retire(retired, number)
        for group, withheld in plan.get("withheld", {}).items():
            self._db.execute(
                "UPDATE groups SET withheld = ? WHERE number = ?", (json.dumps(withheld), int(group))
            )
        (last,) = self._db.execute("SELECT COALESCE(MAX(number), 0) FROM groups").fetchone()
        for place, one in enumerate(plan["added"], last + 1):
            row = (place, one["disclosed"], json.dumps(one["cells"]), json.dumps(one["classes"]), number)
            self._db.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?, NULL, NULL)", row)
            self._db.executemany(
                "INSERT INTO members VALUES (?, ?, ?, ?)", [(place, *m) for m in one["members"]]
            )
        self._set(scales=json.dumps(plan["scales"]), states=json.dumps(plan.get("states", {})))
        self._record_summary(number, digest, by)

    def _record_summary(self, number: int, digest: str, by: str) -> None:
        """Record the summary table that the site answers from, from now on."""
        self._db.execute("DELETE FROM proposal")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._db.execute("INSERT INTO summaries VALUES (?, ?, ?, ?)", (number, digest, now, by))
        self._set(current=digest, contents=self._contents())

    def _retire(self, group: int, number: int) -> None:
        self._db.execute(
            "UPDATE groups SET retired = ? WHERE number = ? AND retired IS NULL", (number, group)
        )

    # ------------------------------------------------------------ erasure

    def erase(self, people: Iterable[str], digest: str, by: str, entry: str = "") -> None:
        """Withdraw the groups of these people for ever, and delete their cells; a proposal is dropped.

        ``digest`` is that of the summary table without them, "" if none of them is in a disclosed group. The
        digests of the people stay, so that they are never disclosed again. ``entry`` names the erasure in
        erasures.json.
        """
        who = sorted(people)
        with self._writing("erased", who, digest, entry):
            number = self.number + 1
            for person in who:
                self._db.execute("INSERT OR IGNORE INTO erased VALUES (?)", (person,))
                for group in self.groups_of(person):
                    self._retire(group, number)
                    self._db.execute(
                        "UPDATE groups SET cells = NULL, classes = NULL WHERE number = ?", (group,)
                    )
            if digest:
                self._record_summary(number, digest, by)
            self._db.execute("DELETE FROM proposal")
            self._set(contents=self._contents())

    def erasures(self) -> set[str]:
        """The names of all erasures in the chain, as erasures.json has them."""
        rows = self._db.execute("""SELECT entry FROM chain WHERE entry LIKE '["erased"%'""").fetchall()
        return {str(name) for (text,) in rows for name in json.loads(text)[3:]}

    def groups_of(self, person: str) -> list[int]:
        """The numbers of all groups that the person of this digest was ever in."""
        rows = self._db.execute("SELECT number FROM members WHERE person = ? ORDER BY number", (person,))
        return [int(number) for (number,) in rows]

    def person(self, name: str) -> str:
        """The digest of a person, by their id in the table."""
        return person_digest(self.digest, name)

    def disclosed(self) -> set[str]:
        """The digests of all people who are in a group that is disclosed now."""
        rows = self._db.execute(
            "SELECT person FROM members JOIN groups USING (number) WHERE retired IS NULL"
        ).fetchall()
        return {str(person) for (person,) in rows}

    def without_erased(self) -> set[str]:
        """The digests of all summary tables that contain nobody who was erased, as far as this is known.

        The people of tables from before the present registry are not known.
        """
        (first,) = self._db.execute("SELECT COALESCE(MIN(added), 1 << 60) FROM groups").fetchone()
        rows = self._db.execute("SELECT digest FROM summaries WHERE number >= ?", (first,)).fetchall()
        disclosing = self._disclosing({n for person in self.erased() for n in self.groups_of(person)})
        return {str(digest) for (digest,) in rows} - disclosing

    def _disclosing(self, groups: Iterable[int]) -> set[str]:
        """The digests of all summary tables that disclosed one of these groups."""
        digests: set[str] = set()
        for group in groups:
            added, retired = self._db.execute(
                "SELECT added, COALESCE(retired, 1 << 60) FROM groups WHERE number = ?", (group,)
            ).fetchone()
            rows = self._db.execute(
                "SELECT digest FROM summaries WHERE number >= ? AND number < ?", (added, retired)
            )
            digests |= {str(digest) for (digest,) in rows}
        return digests


def _packed(group: ReleasedGroup) -> dict[str, Any]:
    return {
        "disclosed": f"{group.disclosed:x}",
        "cells": group.cells,
        "classes": group.classes,
        "members": [[p, f"{has:x}", group.values[p]] for p, has in sorted(group.members.items())],
    }


def _last_line(log: Path) -> str:
    """The head of a log that another process may be writing: "number:hash" of its last whole line."""
    return next((f"{entry['seq']}:{entry['hash']}" for entry in entries_back(log)), "")


def entries_back(log: Path, having: bytes = b"") -> Iterator[dict[str, Any]]:
    """The lines of a log from the last one back that contain these bytes, without an unfinished line."""
    for line in tail(log) if log.exists() else ():
        if having in line:
            with suppress(ValueError):
                yield json.loads(line)
