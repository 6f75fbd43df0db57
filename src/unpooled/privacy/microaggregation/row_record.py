"""The record of a relay's rows: which groups of its members each row is made of.

Two tables of a relay, of other members, of other columns or of another time, must not differ by a single
group. A group is therefore in one row for ever: a later table has a row with the same groups, or does not
have it. Groups that were never in a row may form new rows. Any combination of the rows of all tables is then
a combination of disjoint sets of at least three groups.

A group is known by its contents in the columns of the table. A later table may have some of these columns, or
none of them; with some of them and others it would need another division of the groups.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.summary_table import SummaryTable
from unpooled.errors import LedgerError, QueryRefusedError
from unpooled.storage.atomic_files import write_atomically
from unpooled.typing import IntArray

FORMAT = 1
FREE, BROKEN = -1, -2  # labels of a group that was never in a row, and of one whose row lacks another group


@dataclass(frozen=True)
class GroupKey:
    """A group of a member: its number of people, and a digest of its contents by column."""

    member: str
    people: float
    contents: dict[str, str]

    def within(self, columns: Sequence[str]) -> tuple[Any, ...]:
        """Return the key as far as these columns tell."""
        return (self.member, self.people, *(self.contents[name] for name in columns))


def group_keys(member: str, table: SummaryTable, columns: Sequence[str]) -> list[GroupKey]:
    """Return the keys of the groups of a member's table, in its order.

    >>> from unpooled.privacy.microaggregation import SummarySettings, microaggregate
    >>> table = microaggregate(np.array([[0.0]] * 3 + [[9.0]] * 3), SummarySettings(min_group_size=3))
    >>> [key.people for key in group_keys("north", table, ("0",))]
    [3.0, 3.0]
    """
    keys = []
    for i, people in enumerate(table.people):
        contents = {}
        for name in columns:
            known = float(table.people_with_value(name)[i]) if name in table.names else 0.0
            value: Any = ""
            if name in table.means and known:
                value = repr(float(table.means[name][i]))
            elif name in table.counts:
                pairs = zip(table.categories[name], table.counts[name][i].tolist(), strict=True)
                value = sorted((category, count) for category, count in pairs if count)
            contents[name] = sha256(json.dumps([known, value]).encode()).hexdigest()[:32]
        keys.append(GroupKey(member, float(people), contents))
    return keys


@dataclass
class RowRecord:
    """The rows of a relay's tables so far, in the order in which they were made."""

    rows: list[tuple[tuple[str, ...], tuple[GroupKey, ...]]] = field(default_factory=list)  # columns, groups

    def labels(self, columns: tuple[str, ...], keys: Sequence[GroupKey]) -> tuple[IntArray, bool]:
        """Return the row of every group (G,), FREE or BROKEN, and whether free groups may form new rows.

        QueryRefusedError if the columns need another division of groups that were disclosed.
        """
        labels = np.full(len(keys), FREE, dtype=np.int64)
        for known in dict.fromkeys(names for names, _ in self.rows):
            if not set(known) & set(columns):
                continue
            if not set(columns) <= set(known):
                raise QueryRefusedError(
                    f"its table has the columns {', '.join(known)}, and this study is about some of them "
                    "together with others. Another division of its members' groups would disclose single "
                    "groups. Ask only about these columns, or about none of them."
                )
            self._match(columns, keys, labels)
            return labels, set(columns) == set(known)
        return labels, True

    def _match(self, columns: tuple[str, ...], keys: Sequence[GroupKey], labels: IntArray) -> None:
        by_key: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for i, key in reversed(list(enumerate(keys))):
            by_key[key.within(columns)].append(i)
        number = 0
        for known, groups in self.rows:
            if not set(columns) <= set(known):
                continue
            there = [by_key[key.within(columns)].pop() for key in groups if by_key[key.within(columns)]]
            whole = len(there) == len(groups)
            labels[there] = number if whole else BROKEN
            number += whole

    def add(self, columns: tuple[str, ...], keys: Sequence[GroupKey], labels: IntArray) -> None:
        """Record new rows: of the groups with equal labels."""
        for label in np.unique(labels):
            groups = tuple(keys[i] for i in np.flatnonzero(labels == label).tolist())
            self.rows.append((columns, groups))

    # ------------------------------------------------------------ the file

    def mark(self, count: int | None = None) -> tuple[int, str]:
        """Return the number of rows and a digest of them; of the first ``count`` rows if it is given."""
        number = len(self.rows) if count is None else count
        return number, sha256(json.dumps(_plain(self.rows[:number])).encode()).hexdigest()

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps({"format": FORMAT, "rows": _plain(self.rows)}).encode())

    @classmethod
    def read(cls, path: Path) -> "RowRecord":
        """Read the record; an empty one if there is no file."""
        if not path.exists():
            return cls()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}")
            rows = [
                (tuple(columns), tuple(GroupKey(*group) for group in groups))
                for columns, groups in content["rows"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"{path}: not the record of a relay's rows, or damaged: {error}") from error
        return cls(rows)


def _plain(rows: Sequence[tuple[tuple[str, ...], tuple[GroupKey, ...]]]) -> list[Any]:
    return [
        [list(columns), [[key.member, key.people, key.contents] for key in groups]]
        for columns, groups in rows
    ]
