"""The raw rows of a site: columns by name, of numbers or of categories, with missing values."""

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from unpooled.data.column_kinds import CATEGORY, EMPTY, NUMBER
from unpooled.errors import InputError
from unpooled.typing import FloatArray

_SHARE = 0.5  # of the machine's memory that rows ready for clustering may take
_DEFAULT_LIMIT = 4 * 10**9  # bytes that they may take where Python does not know the memory


def memory_limit() -> int:
    """Return the bytes that one array may take in memory; UNPOOLED_MEMORY (in MB) overrides half of it."""
    megabytes = os.environ.get("UNPOOLED_MEMORY")
    if megabytes:
        return int(float(megabytes) * 1e6)
    if sys.platform == "win32":
        return _DEFAULT_LIMIT
    return int(_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def empty(n: int, d: int) -> FloatArray:
    """Return an array (n, d) to be filled: in memory, or on disk if it exceeds the memory limit."""
    if n * d * 8 <= memory_limit():
        return np.empty((n, d))
    with tempfile.TemporaryFile(prefix="unpooled-") as file:
        return np.memmap(file, np.float64, "w+", shape=(n, d))


def release(array: npt.NDArray[Any]) -> None:
    """Free the memory pages of an array on disk; they are read again when needed."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class Spool:
    """Blocks of rows, appended one after the other: in memory up to ``limit`` bytes, beyond that on disk."""

    def __init__(self, width: int, limit: int) -> None:
        self._width, self._limit = width, limit
        self._blocks: list[FloatArray] = []
        self._rows = 0
        self._file: IO[bytes] | None = None

    def append(self, block: FloatArray) -> None:
        self._rows += len(block)
        if self._file is None and self._rows * self._width * 8 > self._limit:
            self._file = tempfile.TemporaryFile(prefix="unpooled-")  # noqa: SIM115
            for held in self._blocks:
                self._write(held)
            self._blocks = []
        if self._file is not None:
            self._write(block)
        else:
            self._blocks.append(block)

    def _write(self, block: FloatArray) -> None:
        assert self._file is not None
        self._file.write(np.ascontiguousarray(block, dtype=np.float64).data)

    def array(self) -> npt.NDArray[np.float64]:
        """Return all appended rows (n, width)."""
        if self._file is None:
            blocks, self._blocks = self._blocks, []
            if len(blocks) == 1:
                return np.asarray(blocks[0], dtype=np.float64)
            return np.concatenate(blocks) if blocks else np.zeros((0, self._width))
        self._file.flush()
        with self._file as file:
            self._file = None
            return np.memmap(file, np.float64, "r", shape=(self._rows, self._width))


_CELLS = 1 << 18  # of a chunk, so that it stays in the processor's cache


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one site. A missing value is NaN; a categorical column holds codes into its categories.

    ``values`` may be a memory map of a file that is larger than memory: it is read only in chunks. A column
    is "empty" if it has no value at this site, and "text" if it has too many categories. A column of dates,
    ids (or row numbers) or codes (digits with leading zeros) has that kind and is not used for clustering.

    >>> table = Table.from_columns({"age": [61.0, np.nan], "sex": ["f", "m"]})
    >>> table.kinds, table.categories["sex"], table.shape
    (('number', 'category'), ('f', 'm'), (2, 2))
    """

    names: tuple[str, ...]  # (c,)
    kinds: tuple[str, ...]  # (c,)
    categories: dict[str, tuple[str, ...]]  # by categorical column, and of text that was named as one
    values: npt.NDArray[Any]  # (n, c) float64

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.values), len(self.names)

    @property
    def chunk_rows(self) -> int:
        """The rows of a chunk; of the last one perhaps fewer."""
        return max(1, min(len(self.values), max(64, _CELLS // max(1, len(self.names)))))

    def chunks(self) -> Iterator[FloatArray]:
        """Yield the values in chunks of rows; the chunks are the same in memory and on disk."""
        rows = self.chunk_rows
        for a in range(0, len(self.values), rows):
            yield np.asarray(self.values[a : a + rows])
            if a % (32 * rows) == 0:
                release(self.values)
        release(self.values)

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the index of every column; one past the last for a column that the table lacks."""
        return [self.index(name) if name in self.names else len(self.names) for name in names]

    def chunks_with(self, places: Sequence[int]) -> Iterator[FloatArray]:
        """Yield the chunks, with a column of missing values at their end if one of the places is there."""
        for chunk in self.chunks():
            lacks = len(self.names) in places
            yield np.column_stack([chunk, np.full(len(chunk), np.nan)]) if lacks else chunk

    def index(self, name: str) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise InputError(f"there is no column {name!r}; columns are {', '.join(self.names)}") from None

    def without(self, names: Sequence[str]) -> "Table":
        """Return the table without some of its columns."""
        if not names:
            return self
        kept = [i for i, name in enumerate(self.names) if name not in names]
        return Table(
            tuple(self.names[i] for i in kept),
            tuple(self.kinds[i] for i in kept),
            {name: some for name, some in self.categories.items() if name not in names},
            np.asarray(self.values[:, kept]),
        )

    def with_columns(self, other: "Table") -> "Table":
        """Return the table with the columns of another table of the same rows in place of its own ones."""
        own = self.without(other.names)
        return Table(
            own.names + other.names,
            own.kinds + other.kinds,
            own.categories | other.categories,
            np.column_stack([own.values, other.values]),
        )

    @classmethod
    def from_columns(cls, columns: dict[str, Any]) -> "Table":
        """Return a table of lists or arrays: text becomes categorical, None and "" are missing."""
        kinds, categories, arrays = [], {}, []
        for name, given in columns.items():
            array = np.asarray(given)
            if array.dtype.kind in "OUS":
                text = [None if v is None or v == "" or v != v else str(v) for v in array.tolist()]
                categories[name] = tuple(sorted({v for v in text if v is not None}))
                code = {category: float(i) for i, category in enumerate(categories[name])}
                array = np.array([np.nan if v is None else code[v] for v in text])
                kinds.append(CATEGORY if categories[name] else EMPTY)
            else:
                array = array.astype(np.float64)
                kinds.append(EMPTY if np.isnan(array).all() else NUMBER)
            arrays.append(array)
        values = np.column_stack(arrays) if arrays else np.zeros((0, 0))
        return cls(tuple(columns), tuple(kinds), categories, values)


def is_unnamed(name: str) -> bool:
    """Return whether this is the name that readers give to a column without a name, e.g. "column 3"."""
    return name.startswith("column ") and name[7:].isdecimal()


def called(name: str) -> str:
    """Return the name of a column for messages.

    >>> called("age"), called("column 3")
    ('column age', 'column 3')
    """
    return name if is_unnamed(name) else f"column {name}"


def side_by_side(columns: list[int]) -> Any:
    """Return an index of columns; a slice if they are adjacent, so that none is copied.

    >>> side_by_side([2, 3, 4]), side_by_side([2, 4])
    (slice(2, 5, None), [2, 4])
    """
    if columns and columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return columns
