"""Sources to tables: all blocks of rows of a source, one table, or one per value of a site column."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from unpooled.data.column_kinds import CATEGORY, EMPTY, ID
from unpooled.data.readers import cell_text as texts
from unpooled.data.readers.cell_text import Cells
from unpooled.data.readers.source import Column, Source, open_source, site_name, some
from unpooled.data.table import Spool, Table, memory_limit
from unpooled.errors import InputError
from unpooled.options.reading import Reading
from unpooled.typing import FloatArray

_BUFFER_BYTES = 64 << 20


def _buffer_size(reading: Reading) -> int:
    return min(_BUFFER_BYTES, memory_limit()) if reading.buffer_bytes is None else reading.buffer_bytes


def tables_of(
    source: Source,
    reading: Reading,
    buffer_bytes: int,
    on_blank_rows: Callable[[int], None] | None = None,
    spellings: dict[str, set[str]] | None = None,
    on_no_numbers: Callable[[str, int], None] | None = None,
) -> dict[str, Table]:
    """Return the table in a file, under the name ""; or one per value of the site column.

    Rows at its end without any value, which some spreadsheets leave, are left out, and ``on_blank_rows`` is
    called with their number; without it they stay. The categories of recoded columns, as they are in the
    file, are added to ``spellings``. With ``on_no_numbers``, columns that must be numbers are declared
    (``read_declared``).
    """
    marks = texts.DecimalMarks(reading.decimal, source.path, source.usual)
    declared = on_no_numbers is not None
    columns = [Column(name, source, reading, marks, declared=declared) for name in source.names]
    split = source.names.index(reading.site_column) if reading.site_column is not None else None
    keep = [j for j in range(len(columns)) if j != split]
    spools: dict[str, Spool] = {}
    names: list[str] = []
    if split is not None:
        columns[split].kind, columns[split].sure = CATEGORY, True
    with closing(cast(Any, source.blocks())) as blocks:  # a database is left at once where reading fails
        for cells in blocks if on_blank_rows is None else _without_blank_end(blocks, columns, on_blank_rows):
            unknown = [(columns[j].name, cells[j]) for j in keep if columns[j].may_be_text(cells[j])]
            if unknown:
                marks.learn(unknown)
            block = _side_by_side([columns[j].codes(cells[j]) for j in keep], len(cells[0]))
            if split is None:
                spools.setdefault("", Spool(len(keep), buffer_bytes)).append(block)
                continue
            codes = columns[split].codes(cells[split])
            if np.isnan(codes).any():
                row = columns[split].seen - len(codes) + int(np.isnan(codes).argmax())
                raise InputError(
                    f"{source.path}, {source.locate(row)}: no site in column {reading.site_column}"
                )
            names = list(columns[split].categories)
            for code in np.unique(codes):
                name = names[int(code)]
                spools.setdefault(name, Spool(len(keep), buffer_bytes // 16)).append(block[codes == code])
    for column in columns:
        if spellings is not None and column.spellings is not None:
            spellings.setdefault(column.name, set()).update(column.spellings)
        if on_no_numbers is not None and column.no_numbers:
            on_no_numbers(column.name, column.no_numbers)
    arrays = {name: spool.array() for name, spool in sorted(spools.items())}
    if not arrays and split is None:
        arrays[""] = np.zeros((0, len(keep)))
    kinds = [columns[j].done(arrays, at) for at, j in enumerate(keep)]
    used = [at for at, j in enumerate(keep) if _is_usable(source, columns[j].name, kinds[at][0])]
    if len(used) < len(keep):
        arrays = {name: np.ascontiguousarray(X[:, used]) for name, X in arrays.items()}
    return {
        name: _table(tuple(source.names[keep[at]] for at in used), [kinds[at] for at in used], X)
        for name, X in arrays.items()
    }


def _side_by_side(columns: Sequence[FloatArray], rows: int) -> FloatArray:
    """(rows, c) the columns as one block; some rows at a time, so that they stay in the processor's cache."""
    block = np.empty((rows, len(columns)))
    size = max(64, (1 << 15) // max(1, len(columns)))
    for a in range(0, rows, size):
        part = block[a : a + size]
        for at, column in enumerate(columns):
            part[:, at] = column[a : a + size]
    return block


def _without_blank_end(
    blocks: Iterator[list[Cells]], columns: Sequence[Column], on_blank_rows: Callable[[int], None]
) -> Iterator[list[Cells]]:
    """The blocks without the rows at the very end that have no value; in between such rows count."""
    blank = 0
    for cells in blocks:
        n = end = len(cells[0])
        while end and all(column.lacks(c[end - 1]) for column, c in zip(columns, cells, strict=True)):
            end -= 1
        if end:
            if blank:
                yield [np.full(blank, np.nan)] * len(cells)
            yield [c[:end] for c in cells] if end < n else cells
        blank = n - end + (0 if end else blank)
    if blank:
        on_blank_rows(blank)


def _is_usable(source: Source, name: str, kind: str) -> bool:
    """False for a column without a name and values; InputError if it has values that are not row numbers."""
    if name not in source.unnamed or kind == ID:
        return True
    if kind != EMPTY:
        raise InputError(f"{source.path}, {source.header}: {name} has no name; write one there, or delete it")
    return False


def _table(names: tuple[str, ...], kinds: list[tuple[str, tuple[str, ...]]], values: FloatArray) -> Table:
    categories = {
        name: categories
        for name, (kind, categories) in zip(names, kinds, strict=True)
        if kind == CATEGORY or categories
    }
    return Table(names, tuple(kind for kind, _ in kinds), categories, values)


def read_sites(
    given: Sequence[Path | str] | Mapping[str, Any],
    reading: Reading,
    on_left_out: Callable[[str, str], None] = lambda site, reason: None,
    on_blank_rows: Callable[[str, int], None] = lambda source, rows: None,
) -> dict[str, Table]:
    """Return a table per site: named after its file or in a mapping, or after the values of the site column.

    A site without rows is left out, and ``on_left_out`` is called with the reason; ``on_blank_rows`` is
    called with the source and the number of rows at its end that were left out because they have no value.
    """
    if not isinstance(given, Mapping):
        short = len({site_name(one) for one in given}) == len(given)
        given = {site_name(one) if short else str(one): one for one in given}
    tables: dict[str, Table] = {}
    origin: dict[str, Path | str] = {}
    sources = [open_source(one, reading, site) for site, one in given.items()]
    check_names(sources, reading)
    spellings: dict[str, set[str]] = {}
    for site, source in zip(given, sources, strict=True):
        split = tables_of(
            source, reading, _buffer_size(reading) // len(given), partial(on_blank_rows, site), spellings
        )
        for name, table in split.items():
            name = name or site
            if name in tables:
                raise InputError(
                    f"site {name} is both in {origin[name]} and in {source.path}: one file per site"
                )
            if len(table):
                tables[name], origin[name] = table, source.path
            else:
                on_left_out(name, "no rows under the header of its file")
    if not tables:
        raise InputError(f"{', '.join(str(source.path) for source in sources)}: no rows under its header")
    _check_recode(spellings, reading)
    return tables


def read_table(
    given: object,
    reading: Reading,
    name: str = "",
    on_blank_rows: Callable[[int], None] | None = None,
    *,
    whole: bool = False,
) -> Table:
    """Return all rows of one file, database or table in memory; ``on_blank_rows`` as in ``tables_of``.

    A ``whole`` table has every spelling that the reading recodes; new rows need not.
    """
    reading = replace(reading, site_column=None)
    source = open_source(given, reading, name)
    if whole:
        check_names([source], Reading(recode=reading.recode))
    spellings: dict[str, set[str]] = {}
    (table,) = tables_of(source, reading, _buffer_size(reading), on_blank_rows, spellings).values()
    if not len(table):
        raise InputError(f"{source.path}: no rows under its header")
    if whole:
        _check_recode(spellings, reading)
    return table


def read_declared(given: object, reading: Reading, on_no_numbers: Callable[[str, int], None]) -> Table:
    """Return the rows of one file, database or table in memory, of which others know only the declaration.

    No value of a row decides how another one is read, or whether the table is read: in the columns
    ``reading.numbers`` a cell that is not a number counts as missing, the decimal mark is the declared one,
    or a point, and there may be no rows. ``on_no_numbers`` is called with a column and the number of such
    cells.
    """
    reading = replace(reading, site_column=None, decimal=reading.decimal or ".")
    source = open_source(given, reading)
    (table,) = tables_of(source, reading, _buffer_size(reading), on_no_numbers=on_no_numbers).values()
    return table


def check_names(sources: Sequence[Source], reading: Reading) -> None:
    """Raise InputError for named columns that are in no file: the names are probably misspelt."""
    every = list(dict.fromkeys(name for source in sources for name in source.every))
    named = [*(reading.columns or ()), *reading.exclude, *reading.categorical, *reading.numbers]
    named += [text.partition("=")[0] for text in reading.na if "=" in text]
    named += [name for name, _, _ in reading.recode]
    lacking = list(dict.fromkeys(name for name in named if name not in every))
    if lacking:
        raise InputError(f"no file has a column {' or '.join(lacking)}; columns are {some(every)}")


def _check_recode(spellings: Mapping[str, set[str]], reading: Reading) -> None:
    """Raise InputError if a spelling is to be recoded that no row has, of the columns that are read."""
    for column, categories in spellings.items():
        lacking = [
            (old, new)
            for name, old, new in reading.recode
            if name == column and texts.plain_category(old, reading.decimal or ".") not in categories
        ]
        if lacking:
            pairs = ",".join(f"{old}={new}" for old, new in lacking)
            there = f"its categories are {some(sorted(categories))}" if categories else "it has no value"
            raise InputError(
                f"--recode {column}:{pairs}: no row has {' or '.join(old for old, _ in lacking)} in column "
                f"{column}; {there}"
            )
