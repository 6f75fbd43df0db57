"""Partitions of Parquet files: some row groups each, or all rows of some people."""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data import Table
from unpooled.data.readers import Reading
from unpooled.data.readers.arrow_cells import batch_source, pyarrow_for, rows_at_a_time
from unpooled.data.readers.cell_text import plain_category
from unpooled.data.readers.read_tables import tables_of
from unpooled.errors import InputError
from unpooled.federation.workers.partition import RowPartition

_CELLS = 1 << 24  # of a partition, about: 128 MB of numbers


def parquet_partitions(
    path: str | Path, reading: Reading | None = None, *, person: str = "", cells: int = _CELLS
) -> list[RowPartition]:
    """Return the partitions of a file: neighbouring row groups, with about ``cells`` cells together.

    Parameters
    ----------
    path
        A Parquet file.
    reading
        How the cells are read.
    person
        The column that identifies the person of a row. With it all rows of a person are in one partition:
        people are divided by a hash, and every partition reads the whole file for its own rows.
    cells
        Approximate number of cells in a partition.
    """
    arrow = pyarrow_for(f"{path}: Parquet")
    import pyarrow.parquet as parquet

    reading = Reading() if reading is None else reading
    try:
        about = parquet.read_metadata(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from error
    where = str(Path(path).absolute())
    max_rows = max(1, cells // max(1, about.num_columns))
    if person:
        parts = max(1, -(-about.num_rows // max_rows))
        return [RowPartition(read_people, (where, reading, person, i, parts)) for i in range(parts)]
    ends, rows = [0], 0
    for i in range(about.num_row_groups):
        more = about.row_group(i).num_rows
        if rows and rows + more > max_rows:
            ends.append(i)
            rows = 0
        rows += more
    ends.append(about.num_row_groups)
    return [RowPartition(read_row_groups, (where, reading, a, b)) for a, b in pairwise(ends)]


def read_row_groups(path: str, reading: Reading, first: int, end: int) -> Table:
    """Return the rows of some row groups."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path, pre_buffer=False) as file:

        def batches(names: tuple[str, ...]) -> Iterator[Any]:
            yield from file.iter_batches(
                rows_at_a_time(len(names)), list(range(first, end)), list(names), use_threads=False
            )

        source = batch_source(path, file.schema_arrow.names, batches, reading)
        (table,) = tables_of(source, reading, 1 << 62).values()
    return table


def read_people(path: str, reading: Reading, person: str, part: int, parts: int) -> Table:
    """Return the rows of the people whom the hash assigns to this partition."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path, pre_buffer=False) as file:
        every = file.schema_arrow.names
        if person not in every:
            raise InputError(f"there is no column {person!r}. Columns are {', '.join(every)}.")

        def batches(names: tuple[str, ...]) -> Iterator[Any]:
            columns = list(dict.fromkeys((*names, person)))
            for batch in file.iter_batches(rows_at_a_time(len(columns)), columns=columns, use_threads=False):
                mine = _shares(batch.column(person).to_pylist(), parts) == part
                if mine.any():
                    yield batch.filter(arrow.array(mine))

        source = batch_source(path, every, batches, reading)
        (table,) = tables_of(source, reading, 1 << 62).values()
    return table


def _shares(people: list[Any], parts: int) -> Any:
    """Return the partition of every person: a hash of the id as it is read, the same on every machine."""
    texts = {one: plain_category(str(one).strip()) for one in set(people)}
    known = {one: blake2b(text.encode(), digest_size=8).digest() for one, text in texts.items()}
    return np.array([int.from_bytes(known[one], "little") % parts for one in people])
