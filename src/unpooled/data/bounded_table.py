"""A table that is known to others only by its declared columns: for a site with differential privacy."""

from dataclasses import dataclass

import numpy as np

from unpooled.data.column_kinds import NUMBER
from unpooled.data.table import Table
from unpooled.errors import InputError
from unpooled.typing import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class BoundedTable(Table):
    """Rows of numbers; the columns and the largest number of rows were declared, not read from the file."""

    rows: int  # declared

    @classmethod
    def from_table(
        cls, table: Table, columns: tuple[str, ...], rows: int, person: str = "", rows_per_person: int = 1
    ) -> "BoundedTable":
        """Return the declared columns of a table, with at most ``rows_per_person`` rows of each person.

        InputError names what differs from the declaration.

        >>> table = Table.from_columns({"id": ["a", "a", "b"], "age": [40.0, 41.0, 70.0]})
        >>> BoundedTable.from_table(table, ("age",), 100, person="id").values.ravel().tolist()
        [40.0, 70.0]
        """
        for name in columns:
            kind = table.kinds[table.index(name)]
            if kind not in (NUMBER, "empty"):
                raise InputError(f"column {name} is declared as a number, but holds {kind}")
        take = [table.index(name) for name in columns]
        values = np.asarray(table.values)[:, take]
        if person:
            values = values[_first_rows(np.asarray(table.values)[:, table.index(person)], rows_per_person)]
        if len(values) > rows:
            raise InputError(f"the table has {len(values)} rows, more than the declared {rows}")
        return cls(columns, (NUMBER,) * len(columns), {}, values, rows)


def _first_rows(people: FloatArray, max_rows: int) -> BoolArray:
    """A mask of the first rows of each person; a row that names no person is left out."""
    order = np.argsort(people, kind="stable")
    ranked = people[order]
    start = np.concatenate([[True], ranked[1:] != ranked[:-1]])
    first = np.maximum.accumulate(np.where(start, np.arange(len(ranked)), 0))
    kept = ~np.isnan(people)
    kept[order] &= np.arange(len(ranked)) - first < max_rows
    return kept
