"""numpy's own files: .npy holds one array (n, d); .npz one array, one a column, or a sparse matrix."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.readers.cell_text import Cells
from unpooled.data.readers.single_precision import shortest_float32
from unpooled.data.readers.source import Source
from unpooled.errors import InputError
from unpooled.options.reading import Reading

_CELLS = 1 << 20  # read at a time


def open_array(path: Path, reading: Reading) -> Source:
    """Open a .npy or .npz file; columns of a two-dimensional array are named x0, x1, ..."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            columns = _columns(loaded, path)
        else:
            with loaded:
                if _is_sparse(loaded):
                    return sparse_source(path, _sparse(path), reading)
                columns = _named(loaded, path)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a file of numpy arrays without objects ({error})") from error
    return columns_source(path, columns, reading)


def array_source(where: str, array: Any, reading: Reading) -> Source:
    """Open an array (n, d) in memory; its columns are named x0, x1, ..."""
    return columns_source(where, _columns(array, where), reading)


def columns_source(path: Path | str, columns: dict[str, Any], reading: Reading) -> Source:
    """Open columns of arrays (n,) by name."""
    names = tuple(name for name in columns if reading.selects(name))
    n = len(next(iter(columns.values()), ()))

    def blocks() -> Iterator[list[Cells]]:
        rows = max(64, _CELLS // max(1, len(names)))
        for a in range(0, n, rows):
            yield [_cells(columns[name][a : a + rows], path, name) for name in names]

    return Source(path, tuple(columns), names, blocks, lambda row: f"row {row + 1}", usual=".")


def sparse_source(where: Path | str, matrix: Any, reading: Reading) -> Source:
    """Open a sparse matrix (n, d) by rows, a block of them at a time; its columns are x0, x1, ..."""
    every = tuple(f"x{j}" for j in range(matrix.shape[1]))
    take = [j for j, name in enumerate(every) if reading.selects(name)]

    def blocks() -> Iterator[list[Cells]]:
        rows = max(64, _CELLS // max(1, len(take)))
        for a in range(0, matrix.shape[0], rows):
            block = matrix[a : a + rows].toarray()
            block = block.astype(np.float64) if block.dtype == bool else block
            yield [_cells(block[:, j], where, every[j]) for j in take]

    return Source(where, every, tuple(every[j] for j in take), blocks, lambda row: f"row {row + 1}")


def _is_sparse(loaded: np.lib.npyio.NpzFile) -> bool:
    """True for a file that scipy.sparse.save_npz wrote: one entry beside the arrays names the format."""
    return {"format", "shape", "data"} <= set(loaded.files) and loaded["format"].ndim == 0


def _sparse(path: Path) -> Any:
    from scipy import sparse

    matrix = sparse.load_npz(path)
    if len(matrix.shape) != 2:
        raise InputError(f"{path}: the sparse array has shape {matrix.shape}, rows by columns are needed")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{path}: {matrix.dtype} is not a type of numbers")
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)  # a damaged file must not be read beyond its end
    return matrix.tocsr()


def _named(loaded: Any, path: Path) -> dict[str, Any]:
    arrays = {name: loaded[name] for name in loaded.files}
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        columns |= _columns(array, path, "" if len(arrays) == 1 else name)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{path}: arrays of different lengths: {', '.join(map(str, sorted(lengths)))}")
    return columns


def _columns(array: Any, path: Path | str, name: str = "") -> dict[str, Any]:
    if array.ndim == 2:
        return {f"{name or 'x'}{j}": array[:, j] for j in range(array.shape[1])}
    if array.ndim == 1 and name:
        return {name: array}
    raise InputError(f"{path}: {name or 'the array'} has shape {array.shape}, rows by columns are needed")


def _cells(values: Any, path: Path | str, name: str) -> Cells:
    if values.dtype.kind in "US":
        return [str(v) for v in values.tolist()]
    if values.dtype.kind == "b":
        return [str(v) for v in values.tolist()]  # as a CSV file has them
    if values.dtype in (np.float32, np.float16):
        return shortest_float32(values)
    if values.dtype.kind not in "iuf":
        raise InputError(f"{path}, column {name}: {values.dtype} is neither number nor text")
    return np.asarray(values, dtype=np.float64)
