"""One part of a site's rows: measures of its people, which add up to those of the whole.

Every part answers a measure, with values by name that have a sum: counts, exact sums, tuples that are joined.
A part keeps only its rows between two measures: one that was lost, and is read again, gives the same answers.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpooled.data.table import Table
from unpooled.privacy.microaggregation.distributed.order_statistics import Keys, digit_counts, keys_of
from unpooled.privacy.microaggregation.people import People, released_names
from unpooled.privacy.microaggregation.scales import category_counts, people_with_rare
from unpooled.privacy.microaggregation.summarize import table_from_array
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.protocol.exact_sum import exact_sum
from unpooled.typing import FloatArray

Measured = dict[Any, Any]  # by name: values that have a sum
_DIGEST = 16  # bytes of the digest of an id


class SummaryPart:
    """The people of one part; all rows of a person are in one part."""

    def __init__(self, number: int, rows: Table | FloatArray, settings: SummarySettings) -> None:
        self.number, self.settings = number, settings
        self.named = isinstance(rows, Table)
        self.table = rows if isinstance(rows, Table) else table_from_array(rows)
        self.people = People(self.table, settings)
        self._digests: npt.NDArray[Any] | None = None

    def digests(self) -> npt.NDArray[Any]:
        """Return digests of the ids of all people."""
        if self._digests is None:
            digests = [blake2b(one.encode(), digest_size=_DIGEST).digest() for one in self.people.ids]
            self._digests = np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2)
        return self._digests

    def categories_of(self, name: str) -> tuple[str, ...]:
        return self.table.categories.get(name, ())


class PartFacts(NamedTuple):
    """The table of a part."""

    number: int
    rows: int
    people: int
    named: bool
    columns: tuple[tuple[str, str, str], ...]  # (column, its name in the summary table, its kind)
    missing: tuple[str, ...]  # columns with a missing value


@dataclass(frozen=True)
class AskFacts:
    """The table of every part."""

    def answer(self, part: SummaryPart) -> Measured:
        table = part.table
        missing = tuple(
            name for j, name in enumerate(table.names) if bool(np.isnan(table.values[:, j]).any())
        )
        columns = tuple(released_names(table, part.settings))
        facts = PartFacts(part.number, len(table), part.people.count, part.named, columns, missing)
        return {"parts": (facts,)}


@dataclass(frozen=True)
class AskIds:
    """Digests of the ids of a share of the people: number ``share`` of ``shares``."""

    share: int
    shares: int

    def answer(self, part: SummaryPart) -> Measured:
        digests = part.digests()
        mine = digests[:, 0] % np.uint64(self.shares) == self.share
        return {"ids": (digests[mine].tobytes(),)}


@dataclass(frozen=True)
class AskSample:
    """Every ``step``-th row of the whole, of some columns; ``starts`` has each part's first position."""

    step: int
    starts: tuple[int, ...]
    columns: tuple[str, ...]

    def answer(self, part: SummaryPart) -> Measured:
        table, first = part.table, -self.starts[part.number] % self.step
        taken = Table(
            self.columns,
            tuple(table.kinds[table.index(name)] for name in self.columns),
            {name: part.categories_of(name) for name in self.columns if name in table.categories},
            np.array(table.values[first :: self.step, [table.index(name) for name in self.columns]]),
        )
        return {"sample": ((part.number, taken),)}


@dataclass(frozen=True)
class AskNonMissing:
    """People with a value in a column; for a categorical column also people and rows by category."""

    collinear: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]
    categorical: tuple[str, ...]

    def answer(self, part: SummaryPart) -> Measured:
        part.people.link_missing(self.collinear)
        measured: Measured = {}
        for name in self.numbers:
            measured["known", name] = int((~np.isnan(part.people.number(name))).sum())
        for name in self.categorical:
            has, categories = part.people.category(name), part.categories_of(name)
            rows = np.bincount(has.category, minlength=len(categories))
            measured["known", name] = len(np.unique(has.who))
            measured["holders", name] = category_counts(categories, has)
            measured["rows", name] = Counter(dict(zip(categories, rows.tolist(), strict=True)))
        return measured


@dataclass(frozen=True)
class AskRareCategories:
    """People who have a category that is not common."""

    collinear: tuple[tuple[str, ...], ...]
    common: Mapping[str, tuple[str, ...]]

    def answer(self, part: SummaryPart) -> Measured:
        part.people.link_missing(self.collinear)
        return {
            name: people_with_rare(part.categories_of(name), part.people.category(name), frozenset(common))
            for name, common in self.common.items()
        }


@dataclass(frozen=True)
class AskDigitCounts:
    """A step of the search for numbers at ranks: of columns, or of their distances to an origin."""

    collinear: tuple[tuple[str, ...], ...]
    step: int
    prefixes: Mapping[str, tuple[int, ...]]  # by column
    origin: Mapping[str, float]  # by column; none: the numbers themselves

    def answer(self, part: SummaryPart) -> Measured:
        part.people.link_missing(self.collinear)
        measured: Measured = {}
        for name, prefixes in self.prefixes.items():
            keys: Keys = keys_of(_numbers(part, name, self.origin.get(name)))
            measured |= {(name, p): n for p, n in digit_counts(keys, self.step, prefixes).items()}
        return measured


class ValueRange(NamedTuple):
    """The numbers of a column, or their distances to an origin, that lie strictly between two."""

    low: float
    high: float
    origin: float | None = None
    center: float | None = None  # the squares about it are summed, in place of the numbers


@dataclass(frozen=True)
class AskSums:
    """Exact sums over numbers of columns, and the number of people who have a certain number."""

    collinear: tuple[tuple[str, ...], ...]
    between: Mapping[str, ValueRange]  # by column
    equal: Mapping[str, float]  # by column

    def answer(self, part: SummaryPart) -> Measured:
        part.people.link_missing(self.collinear)
        measured: Measured = {}
        for name, (low, high, origin, center) in self.between.items():
            x = _numbers(part, name, origin)
            measured["sum", name] = exact_sum(summed(x[(x > low) & (x < high)], center))
        for name, value in self.equal.items():
            measured["equal", name] = int((_numbers(part, name, None) == value).sum())
        return measured


def summed(x: FloatArray, center: float | None) -> FloatArray:
    """Return the numbers that are summed."""
    return x if center is None else (x - center) ** 2


def _numbers(part: SummaryPart, name: str, origin: float | None) -> FloatArray:
    x = part.people.number(name)
    there: FloatArray = x[~np.isnan(x)] + 0.0
    return there if origin is None else np.abs(there - origin)
