"""Where arrays go that may be larger than memory: into memory while it lasts, then into a nameless file.

Such a file is unlinked as soon as it is made, so it is gone when the process is, however the process ends.
"""

import mmap
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.core.arrays import FloatArray

_SHARE = 0.5  # of the machine's memory that rows ready for clustering may take


def memory_limit() -> int:
    """Bytes that one array may take in memory; UNPOOLED_MEMORY (in MB) overrides half of the machine's."""
    told = os.environ.get("UNPOOLED_MEMORY")
    if told:
        return int(float(told) * 1e6)
    return int(_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def empty(n: int, d: int) -> FloatArray:
    """An array (n, d) to be filled: in memory, or on disk where memory would not hold it."""
    if n * d * 8 <= memory_limit():
        return np.empty((n, d))
    with tempfile.TemporaryFile(prefix="unpooled-") as file:
        return np.memmap(file, np.float64, "w+", shape=(n, d))


def release(array: npt.NDArray[Any]) -> None:
    """Let go of the pages of an array on disk that were read; they are read again where needed."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class Spool:
    """Blocks of rows, appended one after the other: in memory up to ``limit`` bytes, beyond that on disk."""

    def __init__(self, width: int, limit: int) -> None:
        self._width, self._limit = width, limit
        self._blocks: list[FloatArray] = []
        self._rows = 0
        self._file: Any = None

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
        """(n, width): all that was appended."""
        if self._file is None:
            blocks, self._blocks = self._blocks, []
            return np.concatenate(blocks) if blocks else np.zeros((0, self._width))
        self._file.flush()
        with self._file as file:
            self._file = None
            return np.memmap(file, np.float64, "r", shape=(self._rows, self._width))
