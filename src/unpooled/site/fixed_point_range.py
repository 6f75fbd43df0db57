"""The range check of secure sums: a question's numbers must be in proportion to the sizes of the columns.

Sums travel in steps of 2^-64 and modulo 2^64. In units so large that a site's sum is near one step, the
total would count the sites whose sum is above it. In units so small that a sum of squares leaves the range
of a float, a site could only refuse, or send something else, and a search over units would find where. A
site therefore refuses both by public facts: the question, and the sizes that the site states in its schema.
"""

from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np

from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.data.transforms import Category, Preparation, Shaped
from unpooled.errors import InputError, QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.declarations import Box, Centers, Numbers, Point, Setting, declared_fields
from unpooled.protocol.exchange import Part
from unpooled.protocol.messages import Question
from unpooled.protocol.site_batch import SiteBatch
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray, Rows

COARSEST = 2.0**30  # unit or scale, over the size of the values
NOTHING = 2.0**200  # the same from which on all sums of the column are 0, at every site
LARGEST = 2.0**500  # unit or scale: its square is a number
FINEST = 2.0**-42  # unit or scale, over the size of the values and of what is subtracted from them
FARTHEST = 2.0**33  # of centres, origins and other numbers of a question, in units of the rows that it reads


class _Column(NamedTuple):
    """The scaling of a column, which the coordinator chose, and its size, which the site states; 0: none."""

    label: str | int
    size: float
    shift: float
    scale: float


class FixedPointRange:
    """Refuse a query of a secure sum whose numbers are out of proportion to the stated sizes of ``X``.

    With at most 2^28 rows every sum of squares within this range is below 2^116. It is therefore finite, and
    none vanishes from the sum as a multiple of 2^64 because of its size. A scale so large that a column
    contributes nothing at any site is the way to leave a column out, and is answered.
    """

    def __init__(self, X: Rows | Table | SummaryTable) -> None:
        self._rows = X
        self._names: tuple[str, ...] = X.names if isinstance(X, Table | SummaryTable) else ()
        self._width = X.shape[1] if isinstance(X, np.ndarray) else 0

    @cached_property
    def _sizes(self) -> dict[str | int, float]:
        """The stated sizes; a run without secure sums never needs them."""
        return stated_sizes(self._rows)

    def __call__(self, part: Part) -> None:
        """Check one part of a secure sum, before it is answered."""
        for column in self._columns(part):
            if not (np.isfinite(column.shift) and np.isfinite(column.scale) and column.scale > 0):
                raise QueryRefusedError("the scaling of a column is not a positive number")
            size = max(column.size, abs(column.shift))
            if NOTHING * size <= column.scale <= LARGEST:
                continue
            if column.scale > LARGEST or (column.size and not column.scale <= COARSEST * column.size):
                raise QueryRefusedError(
                    f"the unit of column {column.label} is far above the size of its values"
                )
            if not column.scale >= FINEST * size:
                raise QueryRefusedError(
                    f"the unit of column {column.label} is far below the size of its values"
                )
        name = codec.name_of(type(part.question))
        for field, setting, value in declared_fields(part.question, Setting):
            if (setting.above, setting.max_value) != (-inf, inf) and not (
                setting.above < value <= setting.max_value
            ):
                raise QueryRefusedError(
                    f"{name}: the {field} must be above {setting.above:g} and at most {setting.max_value:g}"
                )
        for numbers in _numbers(part.question):
            if not (np.abs(numbers) <= FARTHEST).all():  # a number that is not finite fails, too
                raise QueryRefusedError(f"{name} has a number that is too large for secure sums")

    def _columns(self, part: Part) -> Iterator[_Column]:
        question, transform = part.question, part.transform
        if isinstance(question, AskColumns):
            try:
                question.lengths()
            except InputError as error:
                raise QueryRefusedError(str(error)) from None
            for label, origin, unit in zip(question.numbers, question.origin, question.unit, strict=True):
                yield _Column(label, self._size(label), float(origin), float(unit))
        elif isinstance(transform, Preparation):
            yield from self._prepared(transform)
        elif self._width:
            yield from self._scaled(transform)

    def _size(self, name: str | int) -> float:
        """The size of a column; 0 if all its values are 0, or the site has no such column."""
        known = name in self._names if isinstance(name, str) else True
        return self._sizes.get(name, 1.0) if known else 0.0

    def _prepared(self, transform: Preparation) -> Iterator[_Column]:
        for column in transform.columns:
            if isinstance(column, Category):
                yield _Column(column.label, 1.0, 0.0, column.scale)
                continue
            size, shaped = self._size(column.name), isinstance(column, Shaped)
            if isinstance(column, Shaped) and column.knots:
                spread = float(np.abs(column.knots).max())
                if not (np.isfinite(spread) and (not size or spread <= COARSEST * size)):
                    raise QueryRefusedError(
                        f"the ranks of column {column.name} are far above the size of its values"
                    )
            shift = max(abs(column.shift), abs(column.fill)) if np.isfinite(column.fill) else column.shift
            yield _Column(column.label, 1.0 if shaped and size else size, shift, column.scale)

    def _scaled(self, transform: Transform | None) -> Iterator[_Column]:
        """The columns of an array; without a transform nobody chose its scale, which may be small."""
        if transform is None:
            for j in range(self._width):
                yield _Column(j, 0.0, self._size(j), 1.0)
            return
        try:
            shift, scale = (np.broadcast_to(a, self._width) for a in transform.scaling())
        except ValueError:
            return  # the transform refuses it, by its shape
        for j in range(self._width):
            yield _Column(j, self._size(j), float(shift[j]), float(scale[j]))


def _numbers(question: Question[Any]) -> Iterator[FloatArray]:
    """All numbers of a question except the origins and units of columns, which have sizes."""
    if isinstance(question, AskColumns):
        return
    for kind in (Centers, Point, Box, Numbers):
        yield from (np.asarray(value) for _, _, value in declared_fields(question, kind))
    for field in fields(question):
        if isinstance(value := getattr(question, field.name), float):
            yield np.array([value])


def stated_sizes(X: Rows | Table | SummaryTable) -> dict[str | int, float]:
    """Return the root mean square of every numeric column, rounded as in a schema, by name or position.

    For a column of a summary table without a stated size (all means between 0 and 1) it is a power of 1000.
    """
    if isinstance(X, np.ndarray):
        with np.errstate(divide="ignore", over="ignore"):
            largest = np.abs(X).max(axis=0, initial=0.0).astype(np.float64)
            part = X / np.where(largest > 0, largest, 1.0)  # squares of X itself may overflow
            sizes = np.round(4 * np.log10(largest * np.sqrt(np.mean(part**2, axis=0)))) / 4
        return {j: float(10**size) for j, size in enumerate(sizes)}
    # the site asks itself, so that the sizes are those of its schema; nothing leaves
    batch = SiteBatch(X, np.array([0, len(X)]), None, None)  # type: ignore[arg-type]  # a table, for a schema
    schema = AskSchema().answer(batch)
    sizes_by_name: dict[str | int, float] = {
        name: float(10 ** (np.round(4 * size) / 4))
        for name, size in zip(schema.names, schema.size, strict=True)
        if not np.isnan(size)
    }
    if not isinstance(X, SummaryTable):
        return sizes_by_name
    for name in X.means:
        if name not in sizes_by_name and (present := X.people_with_value(name) > 0).any():
            mean = float(np.sqrt(np.mean(X.means[name][present] ** 2)))
            sizes_by_name[name] = 1000.0 ** np.floor(np.log10(mean) / 3) if mean > 0 else 0.0
    return sizes_by_name
