"""One part of a site's rows, where they are: measures of its persons, which add up to those of the whole.

A measure is asked of every part. It answers with values by name that have a sum: counts, exact sums, tuples
that are joined. A part keeps nothing between two measures but its rows: one that was lost, and is read again,
answers the same.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpooled.core.arrays import FloatArray
from unpooled.core.exact_sum import exact_sum
from unpooled.data.table import Table
from unpooled.privacy.copy.make import unnamed
from unpooled.privacy.copy.order_statistics import Keys, digit_counts, keys_of
from unpooled.privacy.copy.persons import Persons, released_names
from unpooled.privacy.copy.scales import level_holders, persons_beside
from unpooled.privacy.copy.settings import CopySettings

Measured = dict[Any, Any]  # by name: values that have a sum
_DIGEST = 16  # bytes of the digest of an id


class CopyPart:
    """The persons of one part; all rows of a person are in one part."""

    def __init__(self, number: int, rows: Table | FloatArray, settings: CopySettings) -> None:
        self.number, self.settings = number, settings
        self.named = isinstance(rows, Table)
        self.table = rows if isinstance(rows, Table) else unnamed(rows)
        self.persons = Persons(self.table, settings)
        self._digests: npt.NDArray[Any] | None = None

    def digests(self) -> npt.NDArray[Any]:
        """Digests of the ids of all persons."""
        if self._digests is None:
            found = [blake2b(one.encode(), digest_size=_DIGEST).digest() for one in self.persons.ids]
            self._digests = np.frombuffer(b"".join(found), dtype=np.uint64).reshape(-1, 2)
        return self._digests

    def levels_of(self, name: str) -> tuple[str, ...]:
        return self.table.levels.get(name, ())


class PartFacts(NamedTuple):
    """The table of a part."""

    number: int
    rows: int
    persons: int
    named: bool
    columns: tuple[tuple[str, str, str], ...]  # (column, its name in the copy, its kind)
    holes: tuple[str, ...]  # columns with a cell that has no value


@dataclass(frozen=True)
class AskFacts:
    """The table of every part."""

    def of(self, part: CopyPart) -> Measured:
        table = part.table
        holes = tuple(name for j, name in enumerate(table.names) if bool(np.isnan(table.values[:, j]).any()))
        columns = tuple(released_names(table, part.settings))
        facts = PartFacts(part.number, len(table), part.persons.count, part.named, columns, holes)
        return {"parts": (facts,)}


@dataclass(frozen=True)
class AskIds:
    """Digests of the ids of persons, of a share of them: number ``share`` of ``shares``."""

    share: int
    shares: int

    def of(self, part: CopyPart) -> Measured:
        digests = part.digests()
        mine = digests[:, 0] % np.uint64(self.shares) == self.share
        return {"ids": (digests[mine].tobytes(),)}


@dataclass(frozen=True)
class AskSample:
    """Every ``step``-th row of the whole, of some columns; ``starts`` has the place of each part's first."""

    step: int
    starts: tuple[int, ...]
    columns: tuple[str, ...]

    def of(self, part: CopyPart) -> Measured:
        table, first = part.table, -self.starts[part.number] % self.step
        taken = Table(
            self.columns,
            tuple(table.kinds[table.index(name)] for name in self.columns),
            {name: part.levels_of(name) for name in self.columns if name in table.levels},
            np.array(table.values[first :: self.step, [table.index(name) for name in self.columns]]),
        )
        return {"sample": ((part.number, taken),)}


@dataclass(frozen=True)
class AskKnown:
    """Persons who have a value in a column; of a category the persons, and the rows, of every level."""

    twins: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]
    categories: tuple[str, ...]

    def of(self, part: CopyPart) -> Measured:
        part.persons.treat_alike(self.twins)
        found: Measured = {}
        for name in self.numbers:
            found["known", name] = int((~np.isnan(part.persons.number(name))).sum())
        for name in self.categories:
            has, levels = part.persons.category(name), part.levels_of(name)
            rows = np.bincount(has.level, minlength=len(levels))
            found["known", name] = len(np.unique(has.who))
            found["holders", name] = level_holders(levels, has)
            found["rows", name] = Counter(dict(zip(levels, rows.tolist(), strict=True)))
        return found


@dataclass(frozen=True)
class AskBeside:
    """Persons who have a level of a category that is not common."""

    twins: tuple[tuple[str, ...], ...]
    common: Mapping[str, tuple[str, ...]]

    def of(self, part: CopyPart) -> Measured:
        part.persons.treat_alike(self.twins)
        return {
            name: persons_beside(part.levels_of(name), part.persons.category(name), frozenset(common))
            for name, common in self.common.items()
        }


@dataclass(frozen=True)
class AskDigits:
    """A step of the search for numbers at ranks: of columns, or of their distances to an origin."""

    twins: tuple[tuple[str, ...], ...]
    step: int
    prefixes: Mapping[str, tuple[int, ...]]  # by column
    origin: Mapping[str, float]  # by column; none: the numbers themselves

    def of(self, part: CopyPart) -> Measured:
        part.persons.treat_alike(self.twins)
        found: Measured = {}
        for name, prefixes in self.prefixes.items():
            keys: Keys = keys_of(_numbers(part, name, self.origin.get(name)))
            found |= {(name, p): n for p, n in digit_counts(keys, self.step, prefixes).items()}
        return found


class Stretch(NamedTuple):
    """The numbers of a column, or their distances to an origin, that lie strictly between two."""

    low: float
    high: float
    origin: float | None = None
    center: float | None = None  # the squares about it are summed, in place of the numbers


@dataclass(frozen=True)
class AskSums:
    """Exact sums over numbers of columns, and how many persons have a certain number."""

    twins: tuple[tuple[str, ...], ...]
    between: Mapping[str, Stretch]  # by column
    equal: Mapping[str, float]  # by column

    def of(self, part: CopyPart) -> Measured:
        part.persons.treat_alike(self.twins)
        found: Measured = {}
        for name, (low, high, origin, center) in self.between.items():
            x = _numbers(part, name, origin)
            found["sum", name] = exact_sum(summed(x[(x > low) & (x < high)], center))
        for name, value in self.equal.items():
            found["equal", name] = int((_numbers(part, name, None) == value).sum())
        return found


def summed(x: FloatArray, center: float | None) -> FloatArray:
    """The numbers that are summed."""
    return x if center is None else (x - center) ** 2


def _numbers(part: CopyPart, name: str, origin: float | None) -> FloatArray:
    x = part.persons.number(name)
    there: FloatArray = x[~np.isnan(x)] + 0.0
    return there if origin is None else np.abs(there - origin)
