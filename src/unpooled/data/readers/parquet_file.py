"""Parquet, by pyarrow (``pip install '.[parquet]'``): batch by batch, never a whole file at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unpooled.data.readers.arrow_cells import batch_source, pyarrow_for, rows_at_a_time
from unpooled.data.readers.source import Source
from unpooled.errors import InputError
from unpooled.options.reading import Reading


def open_parquet(path: Path, reading: Reading) -> Source:
    """Open a Parquet file."""
    arrow = pyarrow_for(f"{path}: Parquet")
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path, pre_buffer=False)
    except (arrow.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from error

    def batches(names: tuple[str, ...]) -> Iterator[Any]:
        try:
            yield from file.iter_batches(rows_at_a_time(len(names)), columns=list(names), use_threads=False)
        except (arrow.ArrowInvalid, OSError) as error:
            raise InputError(f"{path}: damaged ({str(error).splitlines()[0]})") from error
        file.close()
        arrow.default_memory_pool().release_unused()

    return batch_source(path, file.schema_arrow.names, batches, reading)
