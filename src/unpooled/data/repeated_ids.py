"""Columns that seem to identify people, and name some of them more than once."""

import re
from typing import NamedTuple

import numpy as np

from unpooled.data.column_kinds import CATEGORY, CODE, DATE, EMPTY, ID, NUMBER, TEXT
from unpooled.data.readers.cell_text import named_as_id
from unpooled.data.table import Table
from unpooled.typing import FloatArray

_PEOPLE = {"patient", "patienten", "pat", "person", "persons", "subject", "proband", "participant", "member"}
_PEOPLE |= {"client", "customer", "insured", "user", "case", "fall"}
_OWN = {"pid", "mrn", "ssn", "svnr", "kvnr", "patnr", "fallnr", "ahv", "uid", "uuid", "guid", "identifier"}
_OWN |= {"fallnummer", "patientennummer", "versichertennummer"}
_FEWEST = 20  # rows, below which a column that is not named as an id is not judged


class RepeatedId(NamedTuple):
    """A column that seems to identify people, some of them in several rows."""

    column: str
    values: int  # different ones
    rows: int  # that have one
    sure: bool  # its name says that it identifies people

    def __str__(self) -> str:
        return f"{self.column} ({self.values} different values in {self.rows} rows)"


def repeated_ids(table: Table) -> list[RepeatedId]:
    """Return the columns that seem to identify people, and have a value in several rows; the surest first.

    >>> repeated_ids(Table.from_columns({"patient_id": ["a", "a", "b"], "age": [40.0, 41.0, 70.0]}))
    [RepeatedId(column='patient_id', values=2, rows=3, sure=True)]
    """
    found = []
    for name, kind in zip(table.names, table.kinds, strict=True):
        if kind in (DATE, EMPTY, CODE) or (kind == NUMBER and not named_as_id(name)):
            continue
        if kind == CATEGORY and not named_as_id(name) and 2 * len(table.categories[name]) < len(table):
            continue
        one = repeated_in(name, kind, np.asarray(table.values[:, table.index(name)]))
        found += [] if one is None else [one]
    return sorted(found, key=lambda one: not one.sure)


def repeated_in(name: str, kind: str, values: FloatArray) -> RepeatedId | None:
    """Return a column that seems to identify people, some of them twice; None for any other."""
    there = values[~np.isnan(values)]
    rows, different = len(there), len(np.unique(there))
    if different < 2 or different == rows:
        return None
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    named = named_as_id(name)
    people = bool(words & (_PEOPLE | _OWN)) or words == {"id"}
    if named == "id" and people:
        return RepeatedId(name, different, rows, sure=True)
    if named == "perhaps" and people and different >= max(10, rows / 20):  # a subject may be taught
        return RepeatedId(name, different, rows, sure=True)
    if named and rows >= _FEWEST and 10 * different >= rows:
        return RepeatedId(name, different, rows, sure=False)
    if kind in (TEXT, CATEGORY, ID) and rows >= _FEWEST and 2 * different >= rows:
        return RepeatedId(name, different, rows, sure=False)
    return None


def code_id_columns(table: Table) -> tuple[str, ...]:
    """Return the columns of codes that are named as ids; their values are not kept and must be read again."""
    codes = [name for name, kind in zip(table.names, table.kinds, strict=True) if kind == CODE]
    return tuple(name for name in codes if named_as_id(name) == "id")
