"""CSV: read once, some thousand lines at a time, with errors that name file, line and column."""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.data.readers.source import Cells, Reading, Source
from unpooled.errors import BadInput

_CELLS = 1 << 18  # read at a time
_DELIMITERS = (",", ";", "\t", "|")
_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


def open_csv(path: Path, reading: Reading) -> Source:
    """A CSV file with a header."""
    try:
        with path.open("rb") as file:
            first = file.readline().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(_not_text(path)) from error
    if not first.strip():
        raise BadInput(f"{path}: the file is empty" if not first else f"{path}, line 1: no header")
    delimiter = reading.delimiter or max(_DELIMITERS, key=first.count)
    names = tuple(name.strip() for name in next(csv.reader([first], delimiter=delimiter)))
    if len(names) == 1 and reading.delimiter is not None:
        others = [d for d in _DELIMITERS if d != delimiter and first.count(d)]
        if others:
            raise BadInput(
                f"{path}, line 1: one column when split at {delimiter!r}; "
                f"the header looks split at {_NAMES[others[0]]} (--delimiter {others[0]!r})"
            )
    for j, name in enumerate(names):
        if not name:
            raise BadInput(f"{path}, line 1: column {j + 1} has no name")
        if name in names[:j]:
            raise BadInput(f"{path}, line 1: two columns are named {name}")
    take = [j for j, name in enumerate(names) if reading.wanted(name)]
    return Source(
        path,
        names,
        tuple(names[j] for j in take),
        lambda: _blocks(path, delimiter, len(names), take, reading.decimal == "."),
        lambda row: f"line {_line_of(path, delimiter, row)}",
    )


def _opened(path: Path) -> IO[str]:
    return path.open(encoding="utf-8-sig", newline="")


def _rows(file: IO[str], path: Path, delimiter: str) -> Iterator[list[str]]:
    """The rows below the header; blank lines are skipped."""
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        next(reader)
        for row in reader:
            if row:
                yield row
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        raise BadInput(_not_text(path)) from error


def _not_text(path: Path) -> str:
    """The error text that names the first line that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f"{path}, line {number}: not UTF-8 text; save the file as UTF-8"
    return f"{path}: not UTF-8 text; save the file as UTF-8"


def _blocks(path: Path, delimiter: str, width: int, take: list[int], plain: bool) -> Iterator[list[Cells]]:
    """The wanted columns in blocks of lines: as numbers while all cells are numbers, then as text."""
    seen, lines = 0, lines_at_a_time(width)
    with _opened(path) as file:
        if plain:
            for numbers in _numbers(path, delimiter, width, lines):
                yield [numbers[:, j] for j in take]
                seen += len(numbers)
        rows = islice(_rows(file, path, delimiter), seen, None)
        while block := list(islice(rows, lines)):
            if set(map(len, block)) != {width}:
                i = next(i for i, row in enumerate(block) if len(row) != width)
                line = _line_of(path, delimiter, seen + i)
                raise BadInput(f"{path}, line {line}: {len(block[i])} fields where the header has {width}")
            columns = list(zip(*block, strict=True))
            yield [columns[j] for j in take]
            seen += len(block)


def _numbers(path: Path, delimiter: str, width: int, lines: int) -> Iterator[FloatArray]:
    """Blocks of numbers by numpy's fast reader; ends at the first block with any other cell."""
    with _opened(path) as file:
        below = islice(file, 1, None)
        while True:
            try:
                block = list(islice(below, lines))
                if not block or any('"' in line for line in block):
                    return
                values = np.loadtxt(block, delimiter=delimiter, comments=None, ndmin=2)
            except (ValueError, UserWarning):  # not numbers, not UTF-8, or nothing but blank lines
                return
            if values.shape[1] != width or not np.isfinite(values).all():
                return
            yield values


def lines_at_a_time(width: int) -> int:
    return max(64, _CELLS // width)


def _line_of(path: Path, delimiter: str, row: int) -> int:
    """The line number of a row, counted from the start of the file, since only error messages need it."""
    with _opened(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        next(reader)
        for fields in reader:
            row -= bool(fields)
            if row < 0:
                break
        return reader.line_num
