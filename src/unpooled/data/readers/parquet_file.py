"""Parquet, by pyarrow (``pip install 'unpooled[parquet]'``): batch by batch, never a whole file at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.readers.source import Cells, Reading, Source
from unpooled.errors import BadInput

_CELLS = 1 << 20  # read at a time


def open_parquet(path: Path, reading: Reading) -> Source:
    """A Parquet file."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as missing:
        raise BadInput(
            f"{path}: Parquet needs pyarrow; pip install 'unpooled[parquet]' brings it"
        ) from missing
    try:
        file = parquet.ParquetFile(path, pre_buffer=False)
    except (arrow.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from error
    names = tuple(name for name in file.schema_arrow.names if reading.wanted(name))

    def blocks() -> Iterator[list[Cells]]:
        for batch in file.iter_batches(
            max(64, _CELLS // max(1, len(names))), columns=list(names), use_threads=False
        ):
            if batch.num_rows:
                yield [_cells(batch.column(j), path, name) for j, name in enumerate(names)]
        file.close()
        arrow.default_memory_pool().release_unused()

    return Source(path, tuple(file.schema_arrow.names), names, blocks, lambda row: f"row {row + 1}")


def _cells(column: Any, path: Path, name: str) -> Cells:
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    if arrow.types.is_date(kind) or arrow.types.is_timestamp(kind):
        return [None if v is None else str(v)[:10] for v in column.to_pylist()]  # recognised as dates
    if arrow.types.is_null(kind):
        return np.full(len(column), np.nan)
    if arrow.types.is_boolean(kind) or arrow.types.is_decimal(kind):
        column = column.cast(arrow.int8() if arrow.types.is_boolean(kind) else arrow.float64())
    elif not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind)):
        raise BadInput(
            f"{path}, column {name}: {kind} is neither number nor text; --exclude {name} leaves it out"
        )
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
