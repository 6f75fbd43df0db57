"""Cells of Arrow's batches, from a Parquet file, a database or a table in memory; by pyarrow."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.readers.cell_text import Cells
from unpooled.data.readers.single_precision import shortest_float32
from unpooled.data.readers.source import Source
from unpooled.errors import InputError, install_hint
from unpooled.options.reading import Reading

_CELLS = 1 << 20  # read at a time


def pyarrow_for(what: str) -> Any:
    """Return the module pyarrow; InputError if it is not installed."""
    try:
        import pyarrow
    except ModuleNotFoundError as missing:
        raise InputError(f"{what} needs pyarrow. {install_hint('parquet')}") from missing
    return pyarrow


def rows_at_a_time(columns: int) -> int:
    return max(64, _CELLS // max(1, columns))


def batch_source(
    where: Path | str, every: Iterable[str], batches: Any, reading: Reading, usual: str | None = "."
) -> Source:
    """Return a source of record batches: ``batches(names)`` yields them, with at least these columns."""
    every = tuple(every)
    names = tuple(name for name in every if reading.selects(name))

    def blocks() -> Iterator[list[Cells]]:
        rows = rows_at_a_time(len(names))
        with closing(batches(names)) as record_batches:
            for batch in record_batches:
                for a in range(0, batch.num_rows, rows):
                    part = batch.slice(a, rows)
                    yield [cells_of(part.column(name), where, name) for name in names]

    return Source(where, every, names, blocks, lambda row: f"row {row + 1}", usual)


def cells_of(column: Any, where: Path | str, name: str) -> Cells:
    """Return the numbers, or texts, of a column of Arrow; InputError names a type that is neither."""
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if getattr(kind, "type_name", "") == "numeric":  # of PostgreSQL: digits of any length, as text
        column, kind = column.storage, kind.storage_type
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or _is_string_view(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    if arrow.types.is_boolean(kind) or arrow.types.is_time(kind):  # as a CSV file has them
        return [None if v is None else str(v) for v in column.to_pylist()]
    if arrow.types.is_date(kind) or arrow.types.is_timestamp(kind):
        days = column.cast(arrow.date32(), safe=False).cast(arrow.string())  # recognised as dates
        return days.to_pylist()  # type: ignore[no-any-return]
    if getattr(kind, "extension_name", "") == "arrow.uuid":
        return [None if v is None else str(v) for v in column.to_pylist()]
    if arrow.types.is_null(kind):
        return np.full(len(column), np.nan)
    if arrow.types.is_decimal(kind):
        column = column.cast(arrow.float64())
    elif not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind)):
        type_name = getattr(kind, "type_name", "") or str(kind)
        raise InputError(
            f"{where}, column {name}: {type_name} is neither number nor text; --exclude {name} leaves it out"
        )
    values = column.to_numpy(zero_copy_only=False)
    if arrow.types.is_float32(kind) or arrow.types.is_float16(kind):
        return shortest_float32(values)
    return np.asarray(values, dtype=np.float64)


def _is_string_view(kind: Any) -> bool:
    import pyarrow as arrow

    return hasattr(arrow.types, "is_string_view") and bool(arrow.types.is_string_view(kind))
