"""Sources of tables: each file is a site, or one file is split by a column; read in chunks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.data.table import CATEGORY, EMPTY, NUMBER, TEXT, Spool, Table, memory_limit
from unpooled.errors import BadInput

NA = frozenset({"", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "null", "NULL", "None", "?", "."})
MOST_LEVELS = 1000  # a text column with more is not kept
_HELD = 64 << 20


@dataclass(frozen=True)
class Reading:
    """The options for reading files."""

    columns: tuple[str, ...] | None = None  # None: all of them
    exclude: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()  # columns whose numbers are codes
    numbers: tuple[str, ...] = ()  # columns that must be numbers, as for an existing model
    na: tuple[str, ...] = ()  # further texts that mean a missing value: "-9", or "chol=0" for one column
    delimiter: str | None = None  # None: inferred from the first line
    decimal: str = "."
    site_column: str | None = None
    held: int | None = None  # bytes of raw rows kept in memory; None: up to 64 MB, the rest on disk

    def wanted(self, name: str) -> bool:
        if name == self.site_column:
            return True
        return name not in self.exclude and (self.columns is None or name in self.columns)

    @property
    def room(self) -> int:
        return min(_HELD, memory_limit()) if self.held is None else self.held

    def missing(self, name: str) -> frozenset[str]:
        """The texts that mean a missing value in a column."""
        more = {text for text in self.na if "=" not in text}
        more |= {text.partition("=")[2] for text in self.na if text.partition("=")[0] == name and "=" in text}
        return NA | more


class Locate(Protocol):
    """The position of a row, for error messages: "line 12", or "row 11" in a file without lines."""

    def __call__(self, row: int) -> str: ...


Cells = FloatArray | Sequence[Any]  # numbers, or texts of which some may be missing


@dataclass(frozen=True, eq=False)
class Source:
    """An open file: its columns, and their cells in blocks of rows."""

    path: Path
    every: tuple[str, ...]  # all columns of the file
    names: tuple[str, ...]  # those that are wanted
    blocks: Callable[[], Iterator[list[Cells]]]
    locate: Locate


def plain_level(text: str) -> str:
    """The normal form of a level: "6.0" and "6" are the same.

    >>> plain_level("6.0"), plain_level("06b"), plain_level("1.5")
    ('6', '06b', '1.5')
    """
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)


class Column:
    """One column while it is read: the first values decide its kind, and later ones must fit it."""

    def __init__(self, name: str, source: Source, reading: Reading, decimal: str) -> None:
        self.name, self._source, self._decimal = name, source, decimal
        self._na = reading.missing(name)
        self._na_numbers = [float(t) for t in self._na if _number(t) is not None]
        self.kind = EMPTY
        if name in reading.categories:
            self.kind = CATEGORY
        self._must = NUMBER if name in reading.numbers else None
        self.levels: dict[str, int] = {}
        self.seen = 0  # rows

    def codes(self, cells: Cells) -> FloatArray:
        """The numbers, or codes of levels, of the next cells (m,)."""
        values = self._coded(cells)
        self.seen += len(cells)
        return values

    def _coded(self, cells: Cells) -> FloatArray:
        if isinstance(cells, np.ndarray) and cells.dtype.kind == "f":
            return self._from_numbers(cells)
        if self.kind == EMPTY:
            self.kind = self._must or self._guess(cells)
        if self.kind == NUMBER:
            return self._numbers(cells)
        if self.kind == CATEGORY:
            return self._levels(cells)
        return np.full(len(cells), np.nan)

    def _from_numbers(self, cells: FloatArray) -> FloatArray:
        values = cells
        if self._na_numbers:
            values = np.where(np.isin(values, self._na_numbers), np.nan, values)
        if np.isinf(values).any():
            row = self.seen + int(np.isinf(values).argmax())
            raise BadInput(f"{self._where(row)}: infinity is no value")
        if self.kind == CATEGORY:
            distinct, inverse = np.unique(values, return_inverse=True)
            codes = np.array(
                [np.nan if np.isnan(v) else self._code(plain_level(repr(float(v)))) for v in distinct]
            )
            return codes[inverse]
        if self.kind == EMPTY and not np.isnan(values).all():
            self.kind = NUMBER
        return values

    def _guess(self, cells: Cells) -> str:
        """NUMBER if at least half of the present cells are numbers: other text is then an error."""
        present = [c for c in cells if c is not None and c not in self._na]
        if not present:
            return EMPTY
        numbers = sum(_number(c, self._decimal) is not None for c in present)
        return NUMBER if 2 * numbers >= len(present) else CATEGORY

    def _numbers(self, cells: Cells) -> FloatArray:
        try:
            values = np.array(list(map(float, cells)))
            if np.isfinite(values).all() and not self._na_numbers:
                return values
        except (ValueError, TypeError):
            pass
        values = np.empty(len(cells))
        for i, cell in enumerate(cells):
            if cell is None or cell in self._na or cell.strip() in self._na:
                values[i] = np.nan
                continue
            number = _number(cell, self._decimal)
            if number is None:
                raise BadInput(self._stray(i, cell))
            values[i] = number
        if self._na_numbers:
            values[np.isin(values, self._na_numbers)] = np.nan
        return values

    def _levels(self, cells: Cells) -> FloatArray:
        known: dict[Any, float] = {}
        values = np.empty(len(cells))
        for i, cell in enumerate(cells):
            if cell not in known:
                missing = cell is None or cell in self._na or cell.strip() in self._na
                known[cell] = np.nan if missing else self._code(plain_level(cell.strip()))
            values[i] = known[cell]
        return values

    def _code(self, level: str) -> float:
        return float(self.levels.setdefault(level, len(self.levels)))

    def done(self) -> tuple[str, tuple[str, ...]]:
        """The column's kind and levels, once all of it is read."""
        if self.kind == CATEGORY and len(self.levels) > MOST_LEVELS:
            return TEXT, ()
        if self.kind == CATEGORY and not self.levels:
            return EMPTY, ()
        return self.kind, tuple(self.levels)

    def _stray(self, i: int, cell: str) -> str:
        hint = f"--categories {self.name} takes the column as a category, --na '{cell}' the text as missing"
        if self._must:
            hint = "the model has numbers there"
        elif self._decimal == "." and _number(cell, ",") is not None:
            hint = "--decimal , reads decimal commas"
        return f"{self._where(self.seen + i)}: text in a column of numbers: {cell[:30]!r}; {hint}"

    def _where(self, row: int) -> str:
        return f"{self._source.path}, {self._source.locate(row)}, column {self.name}"


def _number(text: str, decimal: str = ".") -> float | None:
    try:
        number = float(text if decimal == "." else text.replace(decimal, "."))
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def tables_of(source: Source, reading: Reading, held: int) -> dict[str, Table]:
    """The table in a file, under the name ""; or one per value of the site column."""
    columns = [Column(name, source, reading, reading.decimal) for name in source.names]
    split = source.names.index(reading.site_column) if reading.site_column is not None else None
    keep = [j for j in range(len(columns)) if j != split]
    spools: dict[str, Spool] = {}
    names: list[str] = []
    if split is not None:
        columns[split].kind = CATEGORY
    for cells in source.blocks():
        block = np.empty((len(cells[0]), len(keep)))
        for at, j in enumerate(keep):
            block[:, at] = columns[j].codes(cells[j])
        if split is None:
            spools.setdefault("", Spool(len(keep), held)).append(block)
            continue
        codes = columns[split].codes(cells[split])
        if np.isnan(codes).any():
            row = columns[split].seen - len(codes) + int(np.isnan(codes).argmax())
            raise BadInput(f"{source.path}, {source.locate(row)}: no site in column {reading.site_column}")
        names = list(columns[split].levels)
        for code in np.unique(codes):
            name = names[int(code)]
            spools.setdefault(name, Spool(len(keep), held // 16)).append(block[codes == code])
    if not spools:
        raise BadInput(f"{source.path}: no rows under its header")
    kinds = [columns[j].done() for j in keep]
    return {
        name: _table(tuple(source.names[j] for j in keep), kinds, spool.array())
        for name, spool in sorted(spools.items())
    }


def _table(names: tuple[str, ...], kinds: list[tuple[str, tuple[str, ...]]], values: FloatArray) -> Table:
    levels = {name: levels for name, (kind, levels) in zip(names, kinds, strict=True) if kind == CATEGORY}
    return Table(names, tuple(kind for kind, _ in kinds), levels, values)


# ---------------------------------------------------------------- readers by file extension

_READERS = {  # extension: module, function that opens the file
    ".csv": ("csv_file", "open_csv"),
    ".tsv": ("csv_file", "open_csv"),
    ".txt": ("csv_file", "open_csv"),
    ".parquet": ("parquet_file", "open_parquet"),
    ".pq": ("parquet_file", "open_parquet"),
    ".npy": ("numpy_file", "open_array"),
    ".npz": ("numpy_file", "open_array"),
}


def open_file(path: Path, reading: Reading) -> Source:
    """Open a file by its extension; BadInput if it cannot be read or lacks the wanted columns."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path}: unknown kind of file; known are {', '.join(_READERS)}")
    if not path.exists():
        raise BadInput(f"{path}: no such file")
    if not path.is_file():
        raise BadInput(f"{path}: not a file")
    if path.stat().st_size == 0:
        raise BadInput(f"{path}: the file is empty")
    module, opener = reader
    source: Source = getattr(import_module(f"unpooled.data.readers.{module}"), opener)(path, reading)
    if reading.site_column is not None and reading.site_column not in source.every:
        raise BadInput(f"{path}: no column {reading.site_column}; columns are {_some(source.every)}")
    if not [name for name in source.names if name != reading.site_column]:
        wanted = f"none of {_some(reading.columns)}" if reading.columns else "no other column"
        raise BadInput(f"{path}: {wanted} is in it; columns are {_some(source.every)}")
    return source


def read_sites(paths: Sequence[Path], reading: Reading) -> dict[str, Table]:
    """A table per site: named after its file, or after the values of ``reading.site_column``."""
    tables: dict[str, Table] = {}
    origin: dict[str, Path] = {}
    short = len({path.stem for path in paths}) == len(paths)
    sources = [open_file(path, reading) for path in paths]
    _check_names(sources, reading)
    for path, source in zip(paths, sources, strict=True):
        split = tables_of(source, reading, reading.room // len(paths))
        for name, table in split.items():
            name = name or (path.stem if short else str(path))
            if name in tables:
                raise BadInput(f"site {name} is both in {origin[name]} and in {path}: one file per site")
            tables[name], origin[name] = table, path
    return tables


def read_table(path: Path, reading: Reading) -> Table:
    """All rows of one file."""
    reading = replace(reading, site_column=None)
    (table,) = tables_of(open_file(path, reading), reading, reading.room).values()
    return table


def _check_names(sources: Sequence[Source], reading: Reading) -> None:
    """Raise BadInput for a named column that is in no file: the name is probably misspelt."""
    every = list(dict.fromkeys(name for source in sources for name in source.every))
    na_columns = [text.partition("=")[0] for text in reading.na if "=" in text]
    for name in (*(reading.columns or ()), *reading.exclude, *reading.categories, *na_columns):
        if name not in every:
            raise BadInput(f"no file has a column {name}; columns are {_some(every)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
