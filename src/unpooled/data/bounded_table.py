"""A table that is known to others only by its declared columns: for a site with differential privacy."""

from dataclasses import dataclass

import numpy as np

from unpooled.data.column_kinds import NUMBER, TEXT
from unpooled.data.readers.cell_text import declared_number
from unpooled.data.table import Table
from unpooled.typing import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class BoundedTable(Table):
    """Rows of numbers; the columns and the largest number of rows were declared, not read from the file.

    A table may hold more rows than were declared, and all of them count. Noise is charged for one row more or
    less. If the table were cut to the declared number, one row more would push another one out, and shift a
    sum twice as far.
    """

    rows: int  # declared

    @classmethod
    def from_table(
        cls, table: Table, columns: tuple[str, ...], rows: int, person: str = "", rows_per_person: int = 1
    ) -> "BoundedTable":
        """Return the declared columns of a table, with at most ``rows_per_person`` rows of each person.

        Each row is taken or left out by itself, or with the other rows of its person: a cell that is not a
        number is missing, and a row without any number is left out. InputError names a declared column that
        the table lacks; nothing else is an error.

        >>> table = Table.from_columns({"id": ["a", "a", "b"], "age": ["40", "41", "old"]})
        >>> BoundedTable.from_table(table, ("age",), 100, person="id").values.ravel().tolist()
        [40.0]
        """
        values = np.empty((len(table), len(columns)))
        for j, name in enumerate(columns):
            values[:, j] = _numbers(table, name)
        kept = (~np.isnan(values)).any(axis=1)
        values = values[kept]
        if person:
            people = np.asarray(table.values)[kept, table.index(person)]
            values = values[_first_rows(people, rows_per_person)]
        return cls(columns, (NUMBER,) * len(columns), {}, values, rows)


def _numbers(table: Table, name: str) -> FloatArray:
    """The numbers of a column; NaN for any other cell."""
    at = table.index(name)
    values = np.asarray(table.values)[:, at]
    if name in table.categories:
        numbers = np.array([*(declared_number(text, ".") for text in table.categories[name]), np.nan])
        return numbers[np.where(np.isnan(values), -1, values).astype(np.int64)]
    return np.full(len(values), np.nan) if table.kinds[at] == TEXT else values


def _first_rows(people: FloatArray, max_rows: int) -> BoolArray:
    """A mask of the first rows of each person; a row that names no person is left out."""
    order = np.argsort(people, kind="stable")
    ranked = people[order]
    start = np.concatenate([[True], ranked[1:] != ranked[:-1]])
    first = np.maximum.accumulate(np.where(start, np.arange(len(ranked)), 0))
    kept = ~np.isnan(people)
    kept[order] &= np.arange(len(ranked)) - first < max_rows
    return kept
