"""Workbooks (.xlsx), by openpyxl (``pip install '.[xlsx]'``): row by row."""

import datetime
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.readers.arrow_cells import rows_at_a_time
from unpooled.data.readers.cell_text import Cells
from unpooled.data.readers.source import Source
from unpooled.errors import InputError, install_hint
from unpooled.options.reading import Reading


def open_workbook(path: Path, reading: Reading) -> Source:
    """Open a sheet whose first row names the columns; formulas count by their last value."""
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException
    except ModuleNotFoundError as missing:
        raise InputError(f"{path}: .xlsx needs openpyxl. {install_hint('xlsx')}") from missing
    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, InvalidFileException, KeyError, OSError, ValueError) as error:
        raise InputError(f"{path}: not a workbook ({error})") from error
    sheet = _sheet(path, book, reading)
    names, unnamed = _header(path, *islice(sheet.iter_rows(max_row=2, values_only=True), 2))
    take = [j for j, name in enumerate(names) if reading.selects(name)]

    def blocks() -> Iterator[list[Cells]]:
        below = enumerate(sheet.iter_rows(min_row=2, values_only=True), start=2)
        rows = (_cut(row, len(names), path, i) for i, row in below)
        while block := list(islice(rows, rows_at_a_time(len(names)))):
            columns = list(zip(*block, strict=True))
            yield [_cells(columns[j], path, names[j]) for j in take]
        book.close()

    selected = tuple(names[j] for j in take)
    return Source(
        path,
        names,
        selected,
        blocks,
        lambda row: f"row {row + 2}",
        usual=".",
        unnamed=unnamed,
        header="row 1",
    )


def _sheet(path: Path, book: Any, reading: Reading) -> Any:
    if reading.sheet is not None:
        if reading.sheet not in book.sheetnames:
            raise InputError(f"{path}: no sheet {reading.sheet}; sheets are {', '.join(book.sheetnames)}")
        return book[reading.sheet]
    if len(book.sheetnames) != 1:
        raise InputError(f"{path}: which sheet? --sheet names one of {', '.join(book.sheetnames)}")
    return book.worksheets[0]


def _header(
    path: Path, cells: tuple[Any, ...] = (), below: tuple[Any, ...] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the columns, and those that were given to unnamed ones, such as pandas' row numbers.

    Empty cells behind the last name are not columns. InputError if the names seem to be in the row ``below``.
    """
    names = ["" if cell is None else " ".join(str(cell).split()) for cell in cells]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise InputError(f"{path}, row 1: no header")
    if "" in names[1:] and below and all(isinstance(cell, str) for cell in below[: len(names)]):
        raise InputError(
            f"{path}, row 1: column {names.index('', 1) + 1} has no name, and row 2 has text only; if cells "
            "of row 1 are merged, leave one row with a name in every cell"
        )
    unnamed = tuple(f"column {j + 1}" for j, name in enumerate(names) if not name)
    return tuple(name or f"column {j + 1}" for j, name in enumerate(names)), unnamed


def _cut(row: tuple[Any, ...], width: int, path: Path, i: int) -> tuple[Any, ...]:
    """The cells of a row below the names; InputError for a value in a column that has none."""
    beyond = next((j for j in range(width, len(row)) if row[j] not in (None, "")), None)
    if beyond is not None:
        raise InputError(
            f"{path}, row {i}: {str(row[beyond])[:30]!r} in column {beyond + 1}, which has no name in row 1; "
            "name it there, or delete it"
        )
    return (*row[:width], *(None,) * (width - len(row)))


def _cells(column: tuple[Any, ...], path: Path, name: str) -> Cells:
    """The cells of a column of a sheet, whose values have types of their own."""
    kinds = {type(cell) for cell in column} - {type(None)}
    if kinds <= {int, float}:
        return np.array([np.nan if cell is None else cell for cell in column], dtype=np.float64)
    return [None if cell is None else _as_text(cell, path, name) for cell in column]


def _as_text(cell: object, path: Path, name: str) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, datetime.date | datetime.time):  # a date with a time is a date, too
        return cell.isoformat()[:10] if isinstance(cell, datetime.date) else cell.isoformat()[:8]
    if isinstance(cell, int | float):
        return repr(cell)
    raise InputError(
        f"{path}, column {name}: {type(cell).__name__} is neither number nor text; --exclude {name} leaves "
        "it out"
    )
