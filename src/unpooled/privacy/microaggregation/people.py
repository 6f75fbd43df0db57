"""Rows as people: a person is the mean of their rows, and counts once whatever the number of rows."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpooled.data.column_kinds import EMPTY, TEXT, has_cells, has_mean
from unpooled.data.table import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.typing import FloatArray, IntArray

_LARGEST = 1e100  # products of such numbers are finite


class CategoryMembership(NamedTuple):
    """The categories that people have in a column, one entry per person and row."""

    who: IntArray  # (m,)
    category: IntArray  # (m,)
    share: FloatArray  # (m,) of the person; all of a person's add up to 1


class People:
    """The people of a table.

    >>> table = Table.from_columns({"id": [1.0, 1.0, 2.0], "age": [40.0, 42.0, 70.0]})
    >>> People(table, SummarySettings(person="id")).number("age").tolist()
    [41.0, 70.0]
    """

    def __init__(self, table: Table, settings: SummarySettings) -> None:
        self._table, self._log = table, settings.log_transform
        for name in (
            *settings.study_columns,
            *settings.ungrouped,
            *settings.log_transform,
            *settings.consumption,
        ):
            table.index(name)
        for name in settings.log_transform:
            if not has_mean(table.kinds[table.index(name)]) and table.kinds[table.index(name)] != EMPTY:
                raise InputError(f"column {name} has no numbers, so it has no logarithm")
        for name in settings.consumption:
            if not has_mean(table.kinds[table.index(name)]) and table.kinds[table.index(name)] != EMPTY:
                raise InputError(f"column {name} has no numbers, so it cannot be consumption")
        for name, kind in zip(table.names, table.kinds, strict=True):
            if has_mean(kind) and (np.abs(table.values[:, table.index(name)]) > _LARGEST).any():
                raise InputError(f"column {name} has a value that is infinite or above {_LARGEST:g}")
        self._collinear: dict[str, tuple[str, ...]] = {}
        self._row_of: IntArray | None = None
        self.count = len(table)
        self._ids: tuple[str, ...] | None = ()
        self._named_by = settings.person
        if settings.person:
            ids = np.asarray(table.values[:, table.index(settings.person)])
            if np.isnan(ids).any():
                row = int(np.isnan(ids).argmax())
                raise InputError(
                    f"row {row + 1} has no value in column {settings.person}, which identifies people"
                )
            known, self._row_of = np.unique(ids, return_inverse=True)
            self.count = len(known)
            categories = table.categories.get(settings.person)
            lost = table.kinds[table.index(settings.person)] == TEXT and categories is None
            self._ids = None if lost else _texts(known, categories)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the people, as in the column that identifies them; (): every row is a person."""
        if self._ids is None:
            raise InputError(
                f"column {self._named_by} has many different texts, which were not kept. Read it as a "
                "category, so that people can be recognised later."
            )
        return self._ids

    @property
    def row_of(self) -> IntArray:
        """(n,) the person of every row."""
        return np.arange(self.count) if self._row_of is None else self._row_of

    def link_missing(self, collinear: tuple[tuple[str, ...], ...]) -> None:
        """Treat a row with a missing value in one of several collinear columns as if it had none of them.

        The difference between the cells of two collinear columns would reveal the people who lack one.
        """
        self._collinear = {name: same for same in collinear for name in same}

    def _missing_of(self, name: str) -> npt.NDArray[np.bool_]:
        columns = [self._table.index(same) for same in self._collinear[name]]
        missing: npt.NDArray[np.bool_] = np.isnan(self._table.values[:, columns]).any(axis=1)
        return missing

    def number(self, name: str) -> FloatArray:
        """Return (people,) the mean of each person's values; nan if they have none."""
        x = np.array(self._table.values[:, self._table.index(name)], dtype=np.float64)
        if name in self._log:
            if (x <= 0).any():
                raise InputError(f"column {name} has a value that is not above 0, so it has no logarithm")
            x = np.log(x)
        if name in self._collinear:
            x[self._missing_of(name)] = np.nan
        if self._row_of is None:
            return x
        there = ~np.isnan(x)
        who = self._row_of[there]
        rows = np.bincount(who, minlength=self.count)
        sums = np.bincount(who, x[there], self.count)
        means: FloatArray = np.divide(sums, rows, out=np.full(self.count, np.nan), where=rows > 0)
        return means

    def category(self, name: str) -> CategoryMembership:
        codes = np.array(self._table.values[:, self._table.index(name)])
        if name in self._collinear:
            codes[self._missing_of(name)] = np.nan
        there = np.flatnonzero(~np.isnan(codes))
        category = codes[there].astype(np.int64)
        if self._row_of is None:
            return CategoryMembership(there, category, np.ones(len(there)))
        who = self._row_of[there]
        rows = np.bincount(who, minlength=self.count)
        return CategoryMembership(who, category, 1.0 / rows[who])


def _texts(codes: FloatArray, categories: tuple[str, ...] | None) -> tuple[str, ...]:
    """Ids as text: categories as they are written, whole numbers without a point."""
    if categories is not None:
        return tuple(categories[int(code)] for code in codes.tolist())
    return tuple(str(int(v)) if v.is_integer() else repr(v) for v in codes.tolist())


def released_names(table: Table, settings: SummarySettings) -> list[tuple[str, str, str]]:
    """Return (column, its name in the summary table, its kind) of every column of the summary table."""
    columns = [
        (name, f"log({name})" if name in settings.log_transform else name, kind)
        for name, kind in zip(table.names, table.kinds, strict=True)
        if not (settings.person and name == settings.person)
    ]
    released = [name for _, name, _ in columns]
    twice = sorted({name for name in released if released.count(name) > 1})
    if twice:
        raise InputError(f"two columns would be called {twice[0]} in the summary table. Rename one of them.")
    return columns


def count_disclosed(columns: Iterable[tuple[str, str, str]]) -> int:
    """Return the number of columns that can have cells in a summary table: numbers and categories."""
    return sum(has_cells(kind) for _, _, kind in columns)
