"""A site's rows as they come: columns by name, of numbers or of categories, with missing values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.core.arrays import FloatArray
from unpooled.data.spill import release
from unpooled.errors import BadInput

NUMBER, CATEGORY, TEXT, EMPTY = "number", "category", "text", "empty"
_CELLS = 1 << 18  # of a chunk: it stays in the processor's cache


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one site. A missing value is NaN; a category is held as codes into its levels.

    ``values`` may be a memory map of a file that is larger than memory: it is only ever read in chunks. A
    column is "empty" where it has no value here, and "text" where it has too many levels to be a category.

    >>> table = Table.of({"age": [61.0, np.nan], "sex": ["f", "m"]})
    >>> table.kinds, table.levels["sex"], table.shape
    (('number', 'category'), ('f', 'm'), (2, 2))
    """

    names: tuple[str, ...]  # (c,)
    kinds: tuple[str, ...]  # (c,)
    levels: dict[str, tuple[str, ...]]  # of every category
    values: npt.NDArray[Any]  # (n, c) float64

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.values), len(self.names)

    def chunks(self) -> Iterator[FloatArray]:
        """The values, some rows at a time; the cut does not depend on where they are held."""
        rows = max(64, _CELLS // max(1, len(self.names)))
        for a in range(0, len(self.values), rows):
            yield np.asarray(self.values[a : a + rows])
            if a % (32 * rows) == 0:
                release(self.values)
        release(self.values)

    def index(self, name: str) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise BadInput(f"there is no column {name!r}; columns are {', '.join(self.names)}") from None

    @classmethod
    def of(cls, columns: dict[str, Any]) -> "Table":
        """A table from lists or arrays: text becomes a category, None and "" are missing."""
        kinds, levels, arrays = [], {}, []
        for name, given in columns.items():
            array = np.asarray(given)
            if array.dtype.kind in "OUS":
                text = [None if v is None or v == "" or v != v else str(v) for v in array.tolist()]
                levels[name] = tuple(sorted({v for v in text if v is not None}))
                code = {level: float(i) for i, level in enumerate(levels[name])}
                array = np.array([np.nan if v is None else code[v] for v in text])
                kinds.append(CATEGORY if levels[name] else EMPTY)
            else:
                array = array.astype(np.float64)
                kinds.append(EMPTY if np.isnan(array).all() else NUMBER)
            arrays.append(array)
        values = np.column_stack(arrays) if arrays else np.zeros((0, 0))
        return cls(tuple(columns), tuple(kinds), levels, values)
