"""The summary table of a site (microaggregation): one row per group of people, nothing about fewer people.

Every row is the average of at least g people, i.e. k-anonymity with k = g, which is not the k of k-means. A
site in summary mode answers every question from this table and from nothing else, so the table is the most
that anybody can learn. ``privacy/microaggregation`` makes it.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np

from unpooled.data.column_kinds import CATEGORY, has_cells, has_mean, is_kind
from unpooled.errors import InputError
from unpooled.storage.spreadsheet import csv_text
from unpooled.typing import FloatArray, IntArray

T = TypeVar("T")
OTHER = "other"  # the reserved name of all categories that too few people have
PEOPLE = "people in the group"  # the first heading, by which readers of rows recognise a summary table


@dataclass(frozen=True, eq=False)
class SummaryTable:
    """A table with one row per group of at least ``min_group_size`` people.

    A cell of a numeric column is the mean over the people of the group who have a value; a cell of a
    categorical column holds the number of people by category. ``known`` is the number of people who have a
    value: 0 where fewer than ``min_group_size`` do, and then the cell is suppressed.
    """

    names: tuple[str, ...]  # (c,)
    kinds: tuple[str, ...]  # (c,) as of a Table; only numbers and categories have cells
    categories: dict[str, tuple[str, ...]]  # by categorical column; "other" is the last, where it is needed
    people: FloatArray  # (G,) of every group
    known: FloatArray  # (G, c)
    means: dict[str, FloatArray]  # (G,) of every number; 0 where suppressed
    counts: dict[str, FloatArray]  # (G, categories) of every categorical column
    within: FloatArray  # (c,) variance within groups, to two digits; nan: suppressed
    # by numeric column of at most two values: those that at least ``min_group_size`` people have
    values: dict[str, tuple[float, ...]]
    min_group_size: int
    made: str = ""  # the date, as 2026-11-16
    named: bool = True  # False: the columns of an array, which have no names

    def __len__(self) -> int:
        return len(self.people)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.people), len(self.names)

    @property
    def digest(self) -> str:
        """A digest of everything in the table."""
        return sha256(f"{described(self)}\n{to_csv(self)}".encode()).hexdigest()

    def index(self, name: str) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise InputError(f"there is no column {name!r}; columns are {', '.join(self.names)}") from None

    def only(self, names: tuple[str, ...]) -> "SummaryTable":
        """Return the table with these columns, and with nothing about the others."""
        at = [self.index(name) for name in names]
        return SummaryTable(
            names,
            tuple(self.kinds[j] for j in at),
            _of(names, self.categories),
            self.people,
            np.ascontiguousarray(self.known[:, at]),
            _of(names, self.means),
            _of(names, self.counts),
            self.within[at],
            _of(names, self.values),
            self.min_group_size,
            self.made,
            self.named,
        )

    def people_with_value(self, name: str) -> FloatArray:
        """Return the number of people with a value in a column (G,); 0 where the table lacks the column."""
        if name not in self.names:
            return np.zeros(len(self))
        column: FloatArray = self.known[:, self.index(name)]
        return column

    def within_of(self, name: str) -> float:
        """Return the variance of a column within groups; 0 if it is suppressed or the column is absent."""
        if name not in self.names:
            return 0.0
        return float(np.nan_to_num(self.within[self.index(name)]))

    def complete(self, columns: tuple[str, ...]) -> FloatArray:
        """Return the largest possible number of people (G,) with a value in all columns; 0 if suppressed."""
        fewest: FloatArray = np.min(
            [self.people, *(self.people_with_value(name) for name in columns)], axis=0
        )
        return fewest

    def matrix(self) -> FloatArray:
        """Return the means (G, c) of a table of numbers only; a suppressed cell has its column's mean."""
        if not all(map(has_mean, self.kinds)):
            raise InputError("the summary table has categorical columns, which need a preparation")
        X = np.empty(self.shape)
        for j, name in enumerate(self.names):
            known, mean = self.known[:, j], self.means[name]
            X[:, j] = np.where(known > 0, mean, known @ mean / max(float(known.sum()), 1.0))
        return X

    def cells(self) -> list[tuple[str, FloatArray]]:
        """Return all columns of the table as they are written: a heading and a number per group."""
        out = [(PEOPLE, self.people)]
        for j, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True)):
            known = self.known[:, j]
            if has_mean(kind):
                out.append((name, np.where(known > 0, self.means[name], np.nan)))
            elif kind == CATEGORY:
                out += [
                    (f"{name} = {category}", np.where(known > 0, self.counts[name][:, i], np.nan))
                    for i, category in enumerate(self.categories[name])
                ]
            else:
                continue
            if not np.array_equal(known, self.people):
                out.append((f"{name} (people with a value)", known))
        return out


def _of(names: tuple[str, ...], values: dict[str, T]) -> dict[str, T]:
    return {name: values[name] for name in names if name in values}


def to_csv(summary: SummaryTable) -> str:
    """Return the table as CSV, each number as short as it can be and still exact; a suppressed cell is empty.

    The headings are for people; ``from_csv`` takes the names from the description.
    """
    cells = summary.cells()
    columns = [["" if v != v else plain_number(v) for v in values.tolist()] for _, values in cells]
    return csv_text([[" ".join(heading.split()) for heading, _ in cells], *zip(*columns, strict=True)])


def plain_number(value: float) -> str:
    """Return a number as short as it can be and still exact.

    >>> plain_number(1.0), plain_number(0.1)
    ('1', '0.1')
    """
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def from_csv(text: str, about: dict[str, Any]) -> SummaryTable:
    """Return the table in a CSV text; ``about`` comes from ``described``. InputError if they do not fit."""
    names, kinds = tuple(about["names"]), tuple(about["kinds"])
    categories = {name: tuple(given) for name, given in about["categories"].items()}
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise InputError(f"the summary table is not CSV: {error}") from error
    if not rows:
        raise InputError("the summary table is empty")
    cells = np.array([[float(v) if v else np.nan for v in row] for row in rows[1:]]).reshape(-1, len(rows[0]))
    columns = iter(cells.T)
    counted = set(about["incomplete"])
    try:
        people = np.ascontiguousarray(next(columns))
        known = np.zeros((len(people), len(names)))
        means, counts = {}, {}
        for j, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            if has_mean(kind):
                means[name] = _zero_if_missing(next(columns))
            elif kind == CATEGORY:
                counts[name] = _zero_if_missing(np.stack([next(columns) for _ in categories[name]], axis=1))
            else:
                continue
            known[:, j] = next(columns) if name in counted else people
    except StopIteration:
        raise InputError("the summary table lacks columns") from None
    if next(columns, None) is not None:
        raise InputError("the summary table has too many columns")
    within = np.array([np.nan if v is None else v for v in about["within"]])
    values = {name: tuple(map(float, held)) for name, held in about["values"].items()}
    size, made, named = int(about["min_group_size"]), str(about["made"]), bool(about["named"])
    return SummaryTable(
        names, kinds, categories, people, known, means, counts, within, values, size, made, named
    )


def _zero_if_missing(cells: FloatArray) -> FloatArray:
    return np.nan_to_num(cells, posinf=np.inf, neginf=-np.inf)


def described(summary: SummaryTable) -> dict[str, Any]:
    """Return the rest of the table, which the CSV does not hold, as values for JSON."""
    whole = [np.array_equal(summary.known[:, j], summary.people) for j in range(len(summary.names))]
    return {
        "names": list(summary.names),
        "kinds": list(summary.kinds),
        "categories": {name: list(categories) for name, categories in summary.categories.items()},
        "incomplete": [
            name
            for name, kind, full in zip(summary.names, summary.kinds, whole, strict=True)
            if has_cells(kind) and not full
        ],
        "within": [None if v != v else v for v in summary.within.tolist()],
        "values": {name: list(held) for name, held in summary.values.items()},
        "min_group_size": summary.min_group_size,
        "made": summary.made,
        "named": summary.named,
    }


def to_body(table: SummaryTable) -> tuple[dict[str, Any], list[str]]:
    """Return a table as it travels, in a message or a file: its description, and its lines as CSV."""
    return described(table), to_csv(table).rstrip("\n").split("\n")


def from_body(about: Any, lines: Sequence[str]) -> SummaryTable:
    """Return the table that ``to_body`` wrote; InputError if it is not one, or not plausible."""
    try:
        table = from_csv("\n".join(lines) + "\n", about)
        check_plausible(table)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, InputError) as error:
        raise InputError(f"the summary table cannot be used: {error}") from None
    return table


def restricted(table: SummaryTable, columns: tuple[str, ...]) -> tuple[SummaryTable, tuple[str, ...]]:
    """Return the table with some columns only, and the names that it lacks; all columns if none is named.

    A column of which the table has the logarithm is found by its own name.
    """
    if not columns:
        return table, ()
    taken = {name: next((n for n in (name, f"log({name})") if n in table.names), "") for name in columns}
    names = tuple(name for name in table.names if name in taken.values())
    if not names:
        raise InputError(
            f"the summary table has none of the study's columns: {', '.join(columns)}. It has "
            f"{', '.join(table.names)}."
        )
    return table.only(names), tuple(name for name, there in taken.items() if not there)


def check_plausible(table: SummaryTable) -> None:
    """Raise InputError unless the numbers of a table can be those of a summary table."""
    numbers = [table.people, table.known, *table.means.values(), *table.counts.values()]
    if not len({*table.names}) == len(table.names) == len(table.kinds) == len(table.within):
        raise InputError("its columns are not described once each")
    if not all(map(_is_text, (*table.names, table.made))) or not all(map(is_kind, table.kinds)):
        raise InputError("its description has something else than names and kinds of columns")
    if not len(table) or not all(np.isfinite(array).all() for array in numbers):
        raise InputError("it has no group, or numbers that are not finite")
    if (table.within < 0).any() or np.isinf(table.within).any():
        raise InputError("a variance within groups is not a number from 0")
    if table.min_group_size < 2 or (table.people < table.min_group_size).any():
        raise InputError(f"a group has fewer than {table.min_group_size} people")
    if (table.known < 0).any() or (table.known > table.people[:, None]).any():
        raise InputError("more people have a value than there are")
    for name, counts in table.counts.items():
        named = table.categories[name]
        if len({*named}) < len(named) or not all(map(_is_text, named)):
            raise InputError(f"the categories of {name} are not different texts")
        if (counts < 0).any() or not np.allclose(counts.sum(axis=1), table.people_with_value(name)):
            raise InputError(f"the people by category of {name} do not add up")
    for name, values in table.values.items():
        if len(values) > 2 or not np.isfinite(values).all():
            raise InputError(f"the values of {name} are not two numbers at most")
    if not any(has_cells(kind) for kind in table.kinds):
        raise InputError("no column has numbers or categories")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def category_indices(own: tuple[str, ...], named: tuple[str, ...], unknown: int) -> IntArray:
    """Return the index of each of the table's categories among ``named`` ones; ``unknown`` for all others."""
    place = {category: i for i, category in enumerate(named)}
    return np.array([place.get(category, unknown) for category in own], dtype=np.int64)
