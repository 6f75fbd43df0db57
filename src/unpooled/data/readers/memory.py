"""Tables in memory: DataFrames, Arrow tables and streams, arrays and sparse matrices."""

import numbers
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from unpooled.data.readers.arrow_cells import batch_source, pyarrow_for, rows_at_a_time
from unpooled.data.readers.database import Database, open_query
from unpooled.data.readers.numpy_file import array_source, columns_source, sparse_source
from unpooled.data.readers.source import Source
from unpooled.errors import InputError
from unpooled.options.reading import Reading


def open_memory(table: Any, reading: Reading, name: str) -> Source:
    """Open a table in memory: anything with Arrow's stream, a 2-D array, or a sparse matrix."""
    where = f"site {name}" if name else "the table"
    if isinstance(table, Database):
        return open_query(table, reading)
    if isinstance(table, np.ndarray):
        return array_source(where, table, reading)
    if _is_sparse(table):
        return sparse_source(where, table.tocsr(), reading)
    if _is_pandas(table):
        return _pandas(where, table, reading)
    if type(table).__name__ == "Series":
        raise InputError(f"{where}: a Series is one column, not a table. Use its method to_frame()")
    if not hasattr(table, "__arrow_c_stream__"):
        raise InputError(
            f"{where}: {type(table).__name__} is not a table. Pass a DataFrame, an Arrow table or stream, an "
            "array, a sparse matrix, the name of a file or a Database"
        )
    arrow = pyarrow_for(f"{where}: a table with Arrow's stream")
    names = _names(table, arrow)
    if not names:
        table = arrow.RecordBatchReader.from_stream(table)
        names = list(table.schema.names)

    def batches(selected: tuple[str, ...]) -> Iterator[Any]:
        try:
            yield from arrow.RecordBatchReader.from_stream(table)
        except Exception as error:  # of the library that the table is from
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{where}: its rows cannot be read ({reason})") from error

    return batch_source(where, names, batches, reading)


def _names(table: Any, arrow: Any) -> list[str]:
    """The names of the columns, without a stream: two streams of one database exclude each other."""
    names = list(getattr(table, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        return names
    schema = getattr(table, "schema", None)
    return list(schema.names) if isinstance(schema, arrow.Schema) else []


def _is_pandas(table: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def _is_sparse(table: object) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(table))


def _pandas(where: str, frame: Any, reading: Reading) -> Source:
    """A DataFrame of pandas, a block of rows at a time; its index is not a column."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) == len(names) and all(kind == np.float64 for kind in frame.dtypes):
        columns = {str(name): column.to_numpy() for name, column in frame.items()}
        return columns_source(where, columns, reading)  # numbers alone need no other library
    arrow = pyarrow_for(f"{where}: a DataFrame")

    def batches(names: tuple[str, ...]) -> Iterator[Any]:
        selected = frame.loc[:, [str(name) in names for name in frame.columns]]
        rows = rows_at_a_time(len(names))
        for a in range(0, len(selected), rows):
            block = selected.iloc[a : a + rows]
            sparse = [c for c in block.columns if str(block.dtypes[c]).startswith("Sparse")]
            block = block.assign(**{str(c): block[c].sparse.to_dense() for c in sparse}) if sparse else block
            try:
                part = arrow.Table.from_pandas(block, preserve_index=False, nthreads=1)
            except (arrow.ArrowException, TypeError):
                block = _with_texts(block, where, arrow)
                part = arrow.Table.from_pandas(block, preserve_index=False, nthreads=1)
            yield from part.combine_chunks().to_batches()

    return batch_source(where, map(str, frame.columns), batches, reading)


def _with_texts(block: Any, where: str, arrow: Any) -> Any:
    """The block with numbers as text in columns that have both, as in a file; InputError for other values."""
    block = block.copy(deep=False)
    for j, name in enumerate(block.columns):
        try:
            arrow.Array.from_pandas(block.iloc[:, j])
            continue
        except (arrow.ArrowException, TypeError):
            cells = block.iloc[:, j].tolist()
        empty = block.iloc[:, j].isna().tolist()
        cells = [None if gone else cell for cell, gone in zip(cells, empty, strict=True)]
        for i, cell in zip(block.index, cells, strict=True):
            if not isinstance(cell, str | numbers.Real | np.bool_ | None):
                raise InputError(
                    f"{where}, column {name}, index {i}: {type(cell).__name__} is neither number nor text; "
                    f"--exclude {name} leaves the column out"
                )
        block[name] = [None if cell is None else str(cell) for cell in cells]
    return block
