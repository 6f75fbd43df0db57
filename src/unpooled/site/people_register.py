"""The registry of persons of a site: who was ever shown in which group, so that a copy can be renewed safely.

It holds no id and no value of anybody, only keyed digests of them; the key comes from the operating system's
entropy and never leaves the file. (The median of a column, of an odd number of persons, is one person's; not
said whose.) It is written in full sync before a copy is answered from. Its chain of writes names the head of
the log, and every line of the log names its last link: a registry that was lost or replaced by an older one
is found, and the site does not answer.
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
from unpooled.site.chained_file import CHAIN, ChainedFile
from unpooled.site.erasures import Erasures
from unpooled.site.log_files import tail

FILE = "registry.sqlite"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
    number INTEGER PRIMARY KEY, disclosed TEXT NOT NULL, cells TEXT, added INTEGER NOT NULL, retired INTEGER,
    withheld TEXT
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
    """A copy that was answered from."""

    number: int
    digest: str
    since: str
    approved_by: str
    added: int  # groups that it was the first to show
    retired: int  # groups that it no longer has


class Registry(ChainedFile):
    """The registry in a site's folder; ``new`` makes one, with a new key, if there is none yet."""

    def __init__(self, folder: Path, *, new: bool = False) -> None:
        self.path = folder / FILE
        if not new and not self.path.exists():
            raise LedgerError(f"{self.path}: the registry of persons is lost; nothing is answered or renewed")
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            super().__init__(sqlite3.connect(self.path, timeout=30, isolation_level=None), "registry")
            self._db.execute("PRAGMA synchronous = EXTRA")
            self._db.execute("PRAGMA secure_delete = ON")  # cells that are deleted are not left in the file
            self.create(_SCHEMA, self.path)
            if not self._get("key"):
                self._db.execute("INSERT OR IGNORE INTO about VALUES ('key', ?)", (os.urandom(32).hex(),))
            self._key = bytes.fromhex(self._get("key"))
        except (OSError, sqlite3.DatabaseError) as error:
            raise LedgerError(f"{self.path}: not a registry of unpooled, or damaged: {error}") from error
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
        found = self._db.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return "" if found is None else str(found[0])

    def _set(self, **values: str) -> None:
        self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", values.items())

    @property
    def current(self) -> str:
        """The digest of the copy that may be answered from; "" if there is none yet."""
        return self._get("current")

    @property
    def scales(self) -> Scales:
        return Scales.from_json(json.loads(self._get("scales")))

    @property
    def reading(self) -> dict[str, Any]:
        """How the table was read when the first copy was made, if the registry was told."""
        found: dict[str, Any] = json.loads(self._get("reading") or "{}")
        return found

    @property
    def number(self) -> int:
        """How many copies there were."""
        (number,) = self._db.execute("SELECT COALESCE(MAX(number), 0) FROM summaries").fetchone()
        return int(number)

    def summaries(self) -> tuple[ReleasedSummary, ...]:
        """All copies that were answered from, the first one first; groups are those of this registry."""
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
        """How many persons of the file were in which state when the copy was last renewed; none: never."""
        found: dict[str, int] = json.loads(self._get("states") or "{}")
        return found

    def proposal(self) -> tuple[int, int] | None:
        """Groups that a renewal takes out and adds that nobody approved yet; None if there is none."""
        found = self._db.execute("SELECT plan FROM proposal").fetchone()
        if found is None:
            return None
        plan = json.loads(found[0])
        return len(plan.get("retired", ())), len(plan["added"])

    def history(self) -> History:
        """All groups that were ever shown; LedgerError if somebody changed them."""
        if self._contents() != self._get("contents"):
            raise LedgerError(f"{self.path}: the registry was changed by another program; nothing is renewed")
        history = History(self.scales.min_group_size)
        members: dict[int, list[tuple[str, str, str]]] = {}
        for number, *one in self._db.execute("SELECT number, person, has, vals FROM members ORDER BY number"):
            members.setdefault(number, []).append((one[0], one[1], one[2]))
        for number, shown, cells, retired, withheld in self._db.execute(
            "SELECT number, disclosed, cells, retired, withheld FROM groups ORDER BY number"
        ):
            own = members.get(number, [])
            group = ReleasedGroup(
                {person: int(has, 16) for person, has, _ in own},
                int(shown, 16),
                {person: values for person, _, values in own},
                None if cells is None else json.loads(cells),
            )
            history.restore(number, group, live=retired is None)
            if withheld is not None:
                history.withheld[number] = frozenset(json.loads(withheld))
        history.erased = self.erased()
        return history

    def erased(self) -> set[str]:
        """The digests of all persons who were erased, also under earlier registries in this file."""
        return {str(person) for (person,) in self._db.execute("SELECT person FROM erased")}

    def _contents(self) -> str:
        """A digest of everything that the rules depend on."""
        found = sha256()
        for table, order in (("groups", "number"), ("members", "number, person"), ("erased", "person")):
            for row in self._db.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608
                found.update(repr(row).encode())
        return found.hexdigest()

    # ------------------------------------------------------------ proposals and what becomes of them

    def propose_first(
        self, digest: str, scales: Scales, groups: Iterable[ReleasedGroup], reading: dict[str, Any]
    ) -> None:
        """Keep the groups of a first copy until it is approved; they then replace all that are known."""
        plan = {
            "first": True,
            "scales": scales.as_json(),
            "reading": reading,
            "added": [_packed(group) for group in groups],
        }
        self._propose(digest, plan)

    def propose(self, digest: str, renewal: Renewal) -> None:
        """Keep a planned renewal until it is approved."""
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
        """True if a copy waits for its approval."""
        return self._db.execute("SELECT 1 FROM proposal WHERE digest = ?", (digest,)).fetchone() is not None

    def adopt(self, digest: str, by: str) -> None:
        """Take over what was proposed for a copy: from now on it is the one to answer from."""
        if self.current == digest:
            return
        with self.transaction():
            found = self._db.execute("SELECT base, plan FROM proposal WHERE digest = ?", (digest,)).fetchone()
            if found is None:
                raise LedgerError(
                    f"{self.path}: the registry does not know of this copy; nothing is answered"
                )
            base, plan = found[0], json.loads(found[1])
            if base != self.mark:
                raise InputError("the registry has changed since this copy was proposed: renew it again")
            with self._writing("summary", digest, sha256(found[1].encode()).hexdigest()):
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
            row = (place, one["disclosed"], json.dumps(one["cells"]), number)
            self._db.execute("INSERT INTO groups VALUES (?, ?, ?, ?, NULL, NULL)", row)
            self._db.executemany(
                "INSERT INTO members VALUES (?, ?, ?, ?)", [(place, *m) for m in one["members"]]
            )
        self._set(scales=json.dumps(plan["scales"]), states=json.dumps(plan.get("states", {})))
        self._record_summary(number, digest, by)

    def _record_summary(self, number: int, digest: str, by: str) -> None:
        """Note the copy that is answered from now on."""
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
        """Take the groups of these persons out for ever, and their cells; what was proposed is dropped.

        ``digest`` is that of the copy without them, "" if they are in no group that is shown. The digests of
        the persons stay, so that they are never shown again. ``entry`` names the erasure in erasures.json.
        """
        who = sorted(people)
        with self._writing("erased", who, digest, entry):
            number = self.number + 1
            for person in who:
                self._db.execute("INSERT OR IGNORE INTO erased VALUES (?)", (person,))
                for group in self.groups_of(person):
                    self._retire(group, number)
                    self._db.execute("UPDATE groups SET cells = NULL WHERE number = ?", (group,))
            if digest:
                self._record_summary(number, digest, by)
            self._db.execute("DELETE FROM proposal")
            self._set(contents=self._contents())

    def erasures(self) -> set[str]:
        """The names of all erasures in the chain, as erasures.json has them."""
        rows = self._db.execute("""SELECT what FROM chain WHERE what LIKE '["erased"%'""").fetchall()
        return {str(name) for (text,) in rows for name in json.loads(text)[3:]}

    def groups_of(self, person: str) -> list[int]:
        """The numbers of all groups that a person, given by his digest, was ever in."""
        found = self._db.execute("SELECT number FROM members WHERE person = ? ORDER BY number", (person,))
        return [int(number) for (number,) in found]

    def person(self, name: str) -> str:
        """The digest of a person, by the id that the table has."""
        return person_digest(self.digest, name)

    def disclosed(self) -> set[str]:
        """The digests of all persons who are in a group that is shown now."""
        rows = self._db.execute(
            "SELECT person FROM members JOIN groups USING (number) WHERE retired IS NULL"
        ).fetchall()
        return {str(person) for (person,) in rows}

    def without_erased(self) -> set[str]:
        """The digests of all copies of which it is known that nobody who was erased is in them.

        Of copies of before the present registry it is not known who is in them.
        """
        (first,) = self._db.execute("SELECT COALESCE(MIN(added), 1 << 60) FROM groups").fetchone()
        rows = self._db.execute("SELECT digest FROM summaries WHERE number >= ?", (first,)).fetchall()
        showing = self._disclosing({n for person in self.erased() for n in self.groups_of(person)})
        return {str(digest) for (digest,) in rows} - showing

    def _disclosing(self, groups: Iterable[int]) -> set[str]:
        """The digests of all copies that showed one of these groups."""
        found: set[str] = set()
        for group in groups:
            added, retired = self._db.execute(
                "SELECT added, COALESCE(retired, 1 << 60) FROM groups WHERE number = ?", (group,)
            ).fetchone()
            rows = self._db.execute(
                "SELECT digest FROM summaries WHERE number >= ? AND number < ?", (added, retired)
            )
            found |= {str(digest) for (digest,) in rows}
        return found


def _packed(group: ReleasedGroup) -> dict[str, Any]:
    return {
        "disclosed": f"{group.disclosed:x}",
        "cells": group.cells,
        "members": [[p, f"{has:x}", group.values[p]] for p, has in sorted(group.members.items())],
    }


def check_age(folder: Path, people: Registry | None) -> None:
    """Raise LedgerError if the log or erasures.json name an entry that the registry (None: lost) lacks.

    Another process may be writing the log. Who opens the site looks once more, with the log locked.
    """
    for entry in _entries_back(folder / "log.jsonl", b'"registry":'):
        if (mark := entry.get("registry")) is None:
            continue
        if people is None or not people.has(mark):
            raise LedgerError(
                f"{folder}: the registry of persons is lost, or older than the log: it does not have what "
                f"line {entry['seq'] + 1} of the log names; nothing is answered or renewed"
            )
        break
    Erasures(folder).check(() if people is None else people.erasures())


def _last_line(log: Path) -> str:
    """The head of a log that another process may be writing: "number:hash" of its last whole line."""
    return next((f"{entry['seq']}:{entry['hash']}" for entry in _entries_back(log)), "")


def _entries_back(log: Path, having: bytes = b"") -> Iterator[dict[str, Any]]:
    """The lines of a log from the last one back, those that have these bytes; no unfinished one."""
    for line in tail(log) if log.exists() else ():
        if having in line:
            with suppress(ValueError):
                yield json.loads(line)
