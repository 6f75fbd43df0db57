"""Sources of tables: each file, database or table in memory is a site, or one is split by a column.

All are read in blocks of rows, and every block takes the same way into a table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np

from unpooled.data.column_kinds import CATEGORY, CODE, DATE, EMPTY, ID, NUMBER, TEXT, Ordered
from unpooled.data.readers import cell_text as texts
from unpooled.data.readers.cell_text import LARGEST, Cells
from unpooled.data.readers.text_column import TextColumn
from unpooled.data.summary_table import PEOPLE
from unpooled.errors import InputError
from unpooled.options.reading import Reading
from unpooled.options.values import plain_name
from unpooled.typing import FloatArray

SUMMARY_FILE = ".unpooled"  # the ending of a signed summary file (site/summary_file.py)
MAX_CATEGORIES = 1000  # a text column with more is not kept


class Locate(Protocol):
    """The position of a row, for error messages: "line 12", or "row 11" in a file without lines."""

    def __call__(self, row: int) -> str: ...


@dataclass(frozen=True, eq=False)
class Source:
    """An open file or query, or a table in memory: its columns, and their cells in blocks of rows."""

    path: Path | str  # its name in messages
    every: tuple[str, ...]  # all its columns
    names: tuple[str, ...]  # the selected ones
    blocks: Callable[[], Iterator[list[Cells]]]
    locate: Locate
    usual: str | None = None  # the decimal mark of an ambiguous number; None: such a number is an error
    unnamed: tuple[str, ...] = ()  # columns without a name in the file
    header: str = "line 1"  # where the names are


class Column(TextColumn):
    """One column while it is read: the first values decide its kind, and later ones must fit it.

    With ``declared``, a column that must be numbers is one from the start, and no cell decides anything about
    another one: a cell that is not a number counts as missing.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        reading: Reading,
        marks: texts.DecimalMarks,
        *,
        declared: bool = False,
    ) -> None:
        self.name, self._source, self._marks = name, source, marks
        self._na = texts.missing_texts(reading.na, name)
        self._na_numbers = [float(t) for t in self._na - texts.NA if texts.is_plain_number(t)]
        self._recode = {
            texts.plain_category(old, reading.decimal or "."): texts.plain_category(new)
            for column, old, new in reading.recode
            if column == name
        }
        self._order = tuple(texts.plain_category(c) for c in dict(reading.ordinal).get(name, ()))
        self.kind = CATEGORY if name in reading.categorical or self._recode or self._order else EMPTY
        if reading.long is not None and name == reading.long[0] and self.kind == EMPTY:
            self.kind = ID  # not used for clustering
        self.sure = self.kind == CATEGORY or name in reading.numbers
        self._must = NUMBER if name in reading.numbers else None
        self._declared = declared and name in reading.numbers
        if self._declared:
            self.kind = NUMBER
        self.categories = {category: position for position, category in enumerate(self._order)}
        self.spellings: set[str] | None = set() if self._recode else None
        self._affix: str | None = None  # percent or a currency, the same in all cells
        self._truths: bool | None = None
        self._whole, self._counting, self._low, self._high = True, True, np.inf, -np.inf
        self._last = -np.inf
        self.seen = 0  # rows
        self.no_numbers = 0  # cells of a declared column that count as missing and were not empty

    def codes(self, cells: Cells) -> FloatArray:
        """Return the numbers, or codes of categories, of the next cells (m,)."""
        if self._declared:
            self.seen += len(cells)
            return self._declared_numbers(cells)
        values = self._coded(cells)
        if self.kind == NUMBER:
            self._check_size(values)
        self._watch(values)
        self.seen += len(cells)
        return values

    def lacks(self, cell: object) -> bool:
        """Return whether a cell is missing."""
        if cell is None or isinstance(cell, str):
            return self._lacks(cell)
        return bool(cell != cell or cell in self._na_numbers)

    def may_be_text(self, cells: Cells) -> bool:
        """Return whether the next cells are texts that may hold numbers."""
        return not (isinstance(cells, np.ndarray) or self.kind in (CATEGORY, CODE, DATE))

    def _coded(self, cells: Cells) -> FloatArray:
        if isinstance(cells, np.ndarray) and cells.dtype.kind == "f":
            return self._from_numbers(cells)
        if self.kind == EMPTY:
            self.kind = self._must or self._guess(cells)
        if self.kind == NUMBER:
            return self._numbers(cells)
        if self.kind == CATEGORY:
            return self._categories(cells)
        return np.full(len(cells), np.nan)

    def _from_numbers(self, cells: FloatArray) -> FloatArray:
        values = np.ascontiguousarray(cells)  # of a DataFrame a column may be scattered
        if self._na_numbers:
            values = np.where(np.isin(values, self._na_numbers), np.nan, values)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = np.isfinite(values.sum())  # nothing missing or infinite
        if whole:
            if self.kind == EMPTY and len(values):
                self.kind = NUMBER
            if self.kind != CATEGORY:
                return values
        elif np.isinf(values).any():
            row = self.seen + int(np.isinf(values).argmax())
            raise InputError(f"{self._where(row)}: infinity (inf) is not a value")
        if self.kind == CATEGORY:
            distinct, inverse = np.unique(values, return_inverse=True)
            codes = np.array(
                [
                    np.nan if np.isnan(v) else self._code(texts.plain_category(repr(float(v))))
                    for v in distinct
                ]
            )
            return codes[inverse]
        if self.kind == EMPTY and not np.isnan(values).all():
            self.kind = NUMBER
        return values

    def _declared_numbers(self, cells: Cells) -> FloatArray:
        if isinstance(cells, np.ndarray) and cells.dtype.kind == "f":
            lacks = np.isnan(cells)
            with np.errstate(invalid="ignore"):
                values = np.where(np.abs(cells) <= LARGEST, cells, np.nan)
        else:
            lacks = np.array([self.lacks(cell) for cell in cells], dtype=bool)
            mark = self._marks.for_column(self.name)
            values = np.array(
                [
                    np.nan if lack else texts.declared_number(str(cell), mark)
                    for cell, lack in zip(cells, lacks, strict=True)
                ]
            )
        self.no_numbers += int((np.isnan(values) & ~lacks).sum())
        if self._na_numbers:
            values[np.isin(values, self._na_numbers)] = np.nan
        return values

    def _check_size(self, values: FloatArray) -> None:
        """Raise InputError for a number so large that its square, or the sum of some, would be infinite."""
        low, high = (float(end(values, initial=0.0)) for end in (np.fmin.reduce, np.fmax.reduce))
        if low >= -LARGEST and high <= LARGEST:
            return
        row = int((np.abs(values) > LARGEST).argmax())
        text = repr(float(values[row]))
        raise InputError(
            f"{self._where(self.seen + row)}: {text} is too large a number to be clustered, more than "
            f"{LARGEST:g}; --na {self.name}={text} takes it as missing, --exclude {self.name} leaves the "
            "column out"
        )

    def done(self, arrays: Mapping[str, FloatArray], at: int) -> tuple[str, tuple[str, ...]]:
        """Return the column's kind and categories after its last row; ``at`` is its index in the arrays."""
        if self._order:
            there = any((~np.isnan(X[:, at])).any() for X in arrays.values())
            return Ordered.SIGN.join(self._order) if there else EMPTY, ()
        if self.kind == CATEGORY and len(self.categories) > MAX_CATEGORIES:
            return TEXT, tuple(self.categories) if self.sure else ()  # ids of people are compared as text
        if self.kind == CATEGORY and not self.categories:
            return EMPTY, ()
        if self.kind == NUMBER and not self.sure and self._odd:
            return self._measured(np.concatenate([X[:, at] for X in arrays.values()])), ()
        return self.kind, tuple(self.categories)

    def _watch(self, values: FloatArray) -> None:
        """Remember whether the numbers so far could be ids, dates or codes for missing values."""
        if self.kind != NUMBER or self.sure:
            return
        there = values if np.isfinite(values.sum()) else values[~np.isnan(values)]
        if not len(there):
            return
        self._whole = (
            self._whole and there[0] == np.floor(there[0]) and bool((there == np.floor(there)).all())
        )
        self._low, self._high = min(self._low, float(there.min())), max(self._high, float(there.max()))
        rises = self._whole and self._counting and there[0] > self._last
        self._counting = bool(rises and len(there) == len(values) and (np.diff(values) > 0).all())
        self._last = float(there[-1])

    @property
    def _odd(self) -> bool:
        extreme = self._low in texts.STAND_INS or self._high in texts.STAND_INS
        return extreme or (
            self._whole and (self._counting or texts.may_be_odd(self.name, self._low, self._high))
        )

    def _measured(self, values: FloatArray) -> str:
        """NUMBER, unless the numbers look like ids or dates; InputError for one that may mean missing."""
        found = texts.stand_in(values)
        if found is not None:
            raise InputError(
                f"{self._source.path}, column {self.name}: {found:g} lies far from all other values; "
                f"--na {self.name}={found:g} takes it as missing, --na {found:g} does in all columns, "
                f"--numbers {self.name} takes it as a number"
            )
        odd = texts.odd_numbers(self.name, values, self._counting) if self._whole else ""
        return odd or NUMBER


# ---------------------------------------------------------------- from a name or a table to a source

_READERS = {  # extension: module, function that opens the file
    ".csv": ("csv_file", "open_csv"),
    ".tsv": ("csv_file", "open_csv"),
    ".txt": ("csv_file", "open_csv"),
    ".parquet": ("parquet_file", "open_parquet"),
    ".pq": ("parquet_file", "open_parquet"),
    ".npy": ("numpy_file", "open_array"),
    ".npz": ("numpy_file", "open_array"),
    ".xlsx": ("excel_file", "open_workbook"),
    ".sqlite": ("database", "open_database"),
    ".sqlite3": ("database", "open_database"),
    ".duckdb": ("database", "open_database"),
    ".db": ("database", "open_database"),
}
PACKED = (".gz", ".zst")  # of CSV
_OTHERS = {
    ".xls": "an old workbook; save it as .xlsx, or the sheet as CSV",
    ".ods": "a workbook of another kind; save it as .xlsx, or the sheet as CSV",
    ".zip": "compressed; unpack it first (unzip)",
}
STDIN = "-"


def is_address(given: object) -> bool:
    """Return whether this is the address of a database server, and not a path."""
    return isinstance(given, str) and "://" in given


def is_file(given: object) -> bool:
    """Return whether this is the name of a file, which can be read again; not a server, a pipe or a table."""
    return isinstance(given, str | Path) and not is_address(given) and str(given) != STDIN


def is_summary_file(given: object) -> bool:
    """Return whether this is the name of a signed summary file, by its ending.

    >>> is_summary_file("north.unpooled"), is_summary_file("NORTH.UNPOOLED"), is_summary_file("north.csv")
    (True, True, False)
    """
    return isinstance(given, str | Path) and str(given).lower().endswith(SUMMARY_FILE)


def site_name(given: str | Path) -> str:
    """Return the name of the site for a file, a server or stdin.

    >>> site_name("data/north.csv.gz"), site_name("postgresql://host/clinic?sslmode=require"), site_name("-")
    ('north', 'clinic', 'stdin')
    """
    text = str(given)
    if is_address(text):
        text = text.partition("?")[0].rstrip("/")
    elif text == STDIN:
        return "stdin"
    path = Path(text)
    return Path(path.stem).stem if path.suffix.lower() in PACKED else path.stem


def open_source(given: object, reading: Reading, name: str = "") -> Source:
    """Open a file, a database or a table in memory, of site ``name``; InputError if it cannot be read."""
    module, opener = ("long_format", "open_long") if reading.long is not None else _reader(given)
    if reading.query is not None and module in ("csv_file", "parquet_file", "numpy_file", "excel_file"):
        raise InputError(f"{given}: --query is for databases; a file has none")
    if reading.sheet is not None and module not in ("excel_file", "long_format"):
        where = given if isinstance(given, str | Path) else f"site {name}"
        raise InputError(f"{where}: --sheet is for workbooks (.xlsx), and this is not a workbook")
    site = (name,) if module in ("memory", "long_format") else ()  # tables in memory have no other name
    opened = getattr(import_module(f"unpooled.data.readers.{module}"), opener)
    if isinstance(given, str) and module != "long_format" and not is_address(given):
        given = Path(given)
    return _checked(opened(given, reading, *site), reading)


def _reader(given: object) -> tuple[str, str]:
    """The module and the function that open a source; of a file, by its extension."""
    if is_address(given):
        return "database", "open_server"
    if not isinstance(given, str | Path):
        return "memory", "open_memory"
    if str(given) == STDIN:
        return _READERS[".csv"]
    path = Path(given)
    ending = path.suffix.lower()
    if ending in PACKED:
        ending = Path(path.stem).suffix.lower() or ".csv"
        if _READERS.get(ending, ("",))[0] != "csv_file":
            raise InputError(f"{path}: of compressed files only CSV is read; unpack it first")
    reader = _READERS.get(ending)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the files in it, e.g. {path / '*.csv'}")
    if reader is None:
        known = f"unknown kind of file; save it as CSV (known are {', '.join(_READERS)})"
        raise InputError(f"{path}: {_OTHERS.get(path.suffix.lower(), known)}")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: not a file")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    return reader


def _checked(source: Source, reading: Reading) -> Source:
    """The source under plain names; InputError unless it has the selected columns."""
    every, names = (tuple(map(plain_name, each)) for each in (source.every, source.names))
    source = replace(source, every=every, names=names)
    if "" in every:
        raise InputError(f"{source.path}: column {every.index('') + 1} has no name")
    if every and every[0] == PEOPLE:
        raise InputError(
            f"{source.path}: a summary table as CSV: its rows are groups of people, and would count as "
            "single rows. Ask the site for a signed summary file (unpooled site export), which unpooled fit "
            "reads."
        )
    twice = next((name for i, name in enumerate(source.every) if name in source.every[:i]), None)
    if twice is not None:
        raise InputError(f"{source.path}: two columns are named {twice}")
    if reading.site_column is not None and reading.site_column not in source.every:
        raise InputError(f"{source.path}: no column {reading.site_column}; columns are {some(source.every)}")
    if not [name for name in source.names if name != reading.site_column]:
        absent = f"none of {some(reading.columns)}" if reading.columns else "no other column"
        raise InputError(f"{source.path}: {absent} is in it; columns are {some(source.every)}")
    return source


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
