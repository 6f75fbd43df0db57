"""Transforms of rows before a question reads them, agreed once and applied by each site.

``Affine`` shifts and scales the columns of an array. ``Preparation`` turns a table into numbers: it fills
missing values or drops their rows, scales numbers, and encodes categories as one column each; it is saved
with the model. By what missing values are filled, and how they are kept, is in missing_values.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unpooled.data import column_kinds
from unpooled.data.bounded_table import BoundedTable
from unpooled.data.column_kinds import CATEGORY, EMPTY, NUMBER, has_mean, kind_of
from unpooled.data.summary_table import SummaryTable, plain_number
from unpooled.data.table import Table, empty, side_by_side
from unpooled.errors import InputError, QueryRefusedError
from unpooled.html.formatting import figure
from unpooled.protocol.messages import Message
from unpooled.protocol.site_batch import repeated
from unpooled.protocol.transform import Transform
from unpooled.typing import BoolArray, FloatArray, IntArray, Rows


@dataclass(frozen=True, eq=False)
class Affine(Transform):
    """Every column shifted and scaled: (x - shift) / scale.

    >>> scaling = Affine(np.array([1.0]), np.array([2.0]))
    >>> scaling.apply(np.array([[5.0]])), scaling.undo(np.array([[2.0]]))
    (array([[2.]]), array([[5.]]))
    """

    shift: FloatArray  # (d,)
    scale: FloatArray  # (d,) > 0

    @property
    def keeps_all_rows(self) -> bool:
        return True

    def check(self, X: object) -> None:
        """Refuse anything but one number, or one per column: one per row would reveal the number of rows."""
        for numbers in (self.shift, self.scale):
            if isinstance(X, np.ndarray) and numbers.shape not in ((), (1,), X.shape[1:]):
                raise QueryRefusedError(
                    f"a scaling of shape {numbers.shape} for rows of {X.shape[1]} columns"
                )

    def apply(self, X: Rows) -> Rows:
        if X.dtype == np.float32:
            return ((X - self.shift) / self.scale).astype(np.float32)
        out: Rows = X - self.shift
        out /= self.scale
        return out

    def undo(self, Z: FloatArray) -> FloatArray:
        return Z * self.scale + self.shift

    def scaling(self) -> tuple[FloatArray, FloatArray]:
        return self.shift, self.scale


@dataclass(frozen=True, eq=False)
class Number(Message):
    """A column of numbers: missing values filled, then (x - shift) / scale."""

    name: str
    fill: float
    shift: float
    scale: float

    @property
    def kind(self) -> str:
        """The kind of the column that a table must have."""
        return NUMBER

    @property
    def described(self) -> str:
        """The kind, for the report."""
        return "number"

    @property
    def width(self) -> int:
        return 1

    @property
    def label(self) -> str:
        """The name of the prepared column."""
        return self.name

    def shown(self, value: float) -> str:
        """Return a value, or a mean, as people read it."""
        return figure(value)


@dataclass(frozen=True, eq=False)
class Shaped(Number):
    """A column of numbers that are shaped before they are filled and scaled; all three are in shaped units.

    "log" takes logarithms. "rank" takes the share of rows below, interpolated between ``knots``, quantiles of
    all rows at equal steps, as scikit-learn's QuantileTransformer does: a value that fills several knots has
    the middle of their shares, and the ends have 0 and 1.

    >>> Shaped("x", 0.5, 0.0, 1.0, "rank", (1.0, 2.0, 4.0)).shaped(np.array([0.0, 1.5, 4.0]))
    array([0.  , 0.25, 1.  ])
    """

    form: str
    knots: tuple[float, ...]

    @property
    def label(self) -> str:
        return f"{self.form}({self.name})"

    def shaped(self, x: FloatArray) -> FloatArray:
        """Return the shaped values (n,); nan stays nan. InputError for a value that has no logarithm."""
        if self.form == "log":
            if (x <= 0).any():
                raise InputError(
                    f"column {self.name} has a value that is not above 0: it has no logarithm; "
                    f"--scale {self.name}=rank takes ranks"
                )
            return np.asarray(np.log(x))
        knots, shares = np.array(self.knots), np.linspace(0, 1, len(self.knots))
        at = np.clip(np.searchsorted(knots, x), 1, len(knots) - 1)
        near = np.where(x - knots[at - 1] < knots[at] - x, knots[at - 1], knots[at])
        x = np.where(np.abs(x - near) <= 1e-10 * (knots[-1] - knots[0]), near, x)  # knots have 12 digits
        under = np.interp(x, knots, shares)
        over = np.interp(-x, -knots[::-1], -shares[::-1])
        middle = np.where(x <= knots[0], 0.0, np.where(x >= knots[-1], 1.0, 0.5 * (under - over)))
        return np.where(np.isnan(x), np.nan, middle)


@dataclass(frozen=True, eq=False)
class Ordinal(Number):
    """A column of the positions of ordered categories; a mean is printed with the nearest category.

    >>> Ordinal("grade", 0.0, 0.0, 1.0, ("low", "mid", "high")).shown(1.3)
    'mid 1.30'
    """

    order: tuple[str, ...]

    @property
    def kind(self) -> str:
        return column_kinds.Ordered.SIGN.join(self.order)

    @property
    def described(self) -> str:
        return f"ordinal ({kind_of(self.kind).legend})"

    def shown(self, value: float) -> str:
        if np.isnan(value):
            return figure(value)
        return f"{self.order[min(max(round(value), 0), len(self.order) - 1)]} {figure(value)}"


@dataclass(frozen=True, eq=False)
class Binary(Number):
    """A column of numbers that has two values over all sites, e.g. 0 and 1: a category in all but its coding.

    It is scaled like a number, which keeps the two values as far apart as one-hot encoding would. A missing
    value is filled with the more frequent value, and clusters are described by the share of the higher one.
    """

    low: float
    high: float

    @classmethod
    def from_share(
        cls, name: str, low: float, high: float, share: float, fill: float, rows: float, known: float
    ) -> Self:
        """Return the column in which ``share`` of the ``known`` rows with a value have the higher one."""
        share = (share * known + (rows - known) * (fill == high)) / max(rows, 1.0)
        span = high - low
        return cls(name, fill, low + span * share, span * float(np.sqrt(share * (1 - share))), low, high)

    @property
    def category(self) -> str:
        """The higher value, as a category."""
        return plain_number(self.high)

    @property
    def described(self) -> str:
        return f"category ({figure(self.low)} or {figure(self.high)})"

    def share(self, mean: float) -> float:
        """Return the share of the higher value behind a mean in the column's own unit."""
        return min(max((mean - self.low) / (self.high - self.low), 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class Category(Message):
    """A categorical column, one-hot over the agreed categories: 1 / scale in the category's place.

    With ``other`` there is one place more, for all other categories; without it such a row has zeros.
    """

    name: str
    categories: tuple[str, ...]
    other: bool
    fill: int  # the place of the most frequent category
    scale: float

    @property
    def kind(self) -> str:
        """The kind of the column that a table must have."""
        return CATEGORY

    @property
    def described(self) -> str:
        """The kind, for the report."""
        return "category"

    @property
    def label(self) -> str:
        return self.name

    @property
    def places(self) -> tuple[str, ...]:
        return (*self.categories, "other") if self.other else self.categories

    @property
    def width(self) -> int:
        return len(self.categories) + int(self.other)

    def place_of(self, categories: Sequence[str]) -> IntArray:
        """Return the place of each of a table's own categories, -1 for none."""
        places = {category: i for i, category in enumerate(self.categories)}
        unknown = len(self.categories) if self.other else -1
        return np.array([places.get(category, unknown) for category in categories], dtype=np.int64)

    def shares(self, summary: SummaryTable, take: IntArray, share: FloatArray) -> FloatArray:
        """Return the shares of the categories in groups of a summary table (groups, width), in all 1 / scale.

        ``share`` of the people of each group have a value; the others count as the most frequent category.
        """
        out = np.zeros((len(take), self.width + 1))  # the last place is for categories that have none
        if self.name in summary.counts:
            counts = summary.counts[self.name][take]
            known = np.maximum(counts.sum(axis=1), 1.0)
            for category, place in enumerate(self.place_of(summary.categories[self.name])):
                out[:, place] += share * counts[:, category] / known
        out[:, self.fill] += 1 - share
        scaled: FloatArray = out[:, : self.width] / self.scale
        return scaled


@dataclass(frozen=True, eq=False)
class Preparation(Transform):
    """The transformation of tables into numbers that all sites apply before clustering.

    >>> age, sex = Number("age", 50.0, 50.0, 10.0), Category("sex", ("f", "m"), False, 0, 0.5)
    >>> preparation = Preparation((age, sex), drop=False)
    >>> preparation.apply(Table.from_columns({"sex": ["m", None], "age": [60.0, np.nan]}))
    array([[1., 0., 2.],
           [0., 2., 0.]])
    """

    columns: tuple[Number | Category, ...]
    drop: bool  # leave out rows with a missing value, instead of filling it

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def keeps_all_rows(self) -> bool:
        return not self.drop

    @property
    def stays_missing(self) -> tuple[bool, ...]:
        """Of every column, whether its missing values stay missing."""
        return (self.keeps_missing,) * len(self.columns)

    @property
    def outputs(self) -> tuple[tuple[str, str], ...]:
        """(label, category) of every prepared number; the category is "" for a numeric column."""
        return tuple(
            (column.label, place)
            for column in self.columns
            for place in (("",) if isinstance(column, Number) else column.places)
        )

    def check(self, X: object) -> None:
        """Refuse a column twice, categories of a column of numbers, a fill without a place, and shapes of
        columns that have none: their failure, or the memory that they take, would depend on the rows."""
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise QueryRefusedError("a preparation with a column twice")
        kinds = dict(zip(X.names, X.kinds, strict=True)) if isinstance(X, Table) else {}
        for column in self.columns:
            if isinstance(column, Shaped) and isinstance(X, SummaryTable | BoundedTable):
                raise QueryRefusedError(
                    f"{column.label}: a summary table, or a declared table, has its columns as they are"
                )
            if isinstance(column, Category):
                if has_mean(kinds.get(column.name, EMPTY)):
                    raise QueryRefusedError(f"categories of column {column.name}, which holds numbers")
                if not -1 <= column.fill < max(column.width, 1):
                    raise QueryRefusedError(
                        f"column {column.name}: a missing value has no place {column.fill}"
                    )

    def apply(self, X: Any) -> Rows:
        """Return the rows of a table as numbers (n, width), without incomplete rows if these are dropped."""
        return self.stack([X])[0]

    def apply_weighted(
        self, X: Table | SummaryTable, weights: FloatArray | None, within: FloatArray | None
    ) -> tuple[Rows, FloatArray | None, FloatArray | None]:
        return self._from_summary(X) if isinstance(X, SummaryTable) else (self.apply(X), weights, within)

    def rows_used(self, table: Table) -> BoolArray:
        """Return the mask (n,) of the rows that get a cluster: those of ``apply``."""
        return self.complete(table) if self.drop else np.ones(len(table), dtype=np.bool_)

    def _people_used(self, summary: SummaryTable) -> FloatArray:
        """(groups,) the people who count: those who can have all values, if rows without one are dropped."""
        return summary.complete(tuple(c.name for c in self.columns)) if self.drop else summary.people

    def _groups_used(self, summary: SummaryTable) -> IntArray:
        """The groups of a summary table whose people count."""
        return np.flatnonzero(self._people_used(summary) > 0)

    def _from_summary(self, summary: SummaryTable) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The groups of a summary table: their means as numbers, their people, the variance within them.

        People without a value count with the fill, as rows would. If rows without a value are dropped, a
        group counts with the people who can have all values.
        """
        weights, take = self._people_used(summary), self._groups_used(summary)
        X, within, at = np.zeros((len(take), self.width)), np.zeros(self.width), 0
        weights = weights[take]
        for column in self.columns:
            known = summary.people_with_value(column.name)[take]
            share = np.ones(len(take)) if self.drop else known / weights  # of the people who count
            part = X[:, at : at + column.width]
            if isinstance(column, Shaped):
                raise InputError(f"column {column.name}: the means of a summary table have no {column.form}")
            if isinstance(column, Number):
                means = (
                    summary.means[column.name][take] if column.name in summary.means else np.zeros(len(take))
                )
                filled = np.where(share < 1, share * means + (1 - share) * column.fill, means)
                part[:, 0] = (filled - column.shift) / column.scale
                within[at] = summary.within_of(column.name) / column.scale**2
            else:
                part[:] = column.shares(summary, take, share)
                inside = weights @ (part * (1 / column.scale - part))  # p (1 - p) of every category
                within[at : at + column.width] = inside / max(float(weights.sum()), 1.0)
            at += column.width
        return X, weights, within

    def stack(self, tables: Sequence[Table]) -> tuple[FloatArray, IntArray]:
        """Return the rows of several tables one after the other, and their offsets (tables + 1,)."""
        X = empty(sum(map(len, tables)), self.width)
        offsets = [0]
        for table in tables:
            offsets.append(self._fill(table, X, offsets[-1]))
        return X[: offsets[-1]], np.array(offsets, dtype=np.int64)

    def _fill(self, table: Table, X: FloatArray, start: int) -> int:
        categories = [table.categories.get(column.name, ()) for column in self.columns]
        parts = _parts(self.columns, categories, self.stays_missing, table.chunk_rows)
        places = table.places([column.name for column in self.columns])
        take = side_by_side(places)
        for chunk in table.chunks_with(places):
            raw = chunk[:, take]
            if self.drop or self.keeps_missing:
                raw = raw[self._takes(raw)]
            for part in parts:
                part.write(raw, X[start : start + len(raw)])
            start += len(raw)
        return start

    def _takes(self, raw: FloatArray) -> BoolArray:
        """(n,) mask of the rows that ``apply`` returns, by their own columns (n, c)."""
        return complete(raw)

    def complete(self, table: Table) -> BoolArray:
        """Return the mask (n,) of the rows without missing values; if others are dropped, those get none."""
        take = table.places([column.name for column in self.columns])
        masks = (self._takes(chunk[:, take]) for chunk in table.chunks_with(take))
        return np.concatenate([np.zeros(0, np.bool_), *masks])

    def undo(self, Z: FloatArray) -> FloatArray:
        """Return rows (m, width) in the columns' own units; for categories, the share of each."""
        shift, scale = self.scaling()
        own: FloatArray = Z * scale + shift
        return own

    def scaling(self) -> tuple[FloatArray, FloatArray]:
        shifts = [np.full(c.width, c.shift if isinstance(c, Number) else 0.0) for c in self.columns]
        scales = [np.full(c.width, c.scale) for c in self.columns]
        return np.concatenate([np.zeros(0), *shifts]), np.concatenate([np.zeros(0), *scales])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.outputs)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of every column that a new table must have."""
        return {c.name: c.kind for c in self.columns}


def number_column(kind: str, name: str, fill: float, shift: float, scale: float) -> Number:
    """Return the prepared column of a column of numbers of a kind."""
    own = kind_of(kind)
    if isinstance(own, column_kinds.Ordered):
        return Ordinal(name, fill, shift, scale, own.order)
    return Number(name, fill, shift, scale)


def complete(raw: npt.NDArray[Any]) -> BoolArray:
    """Return the mask (n,) of the rows without a missing value."""
    whole: BoolArray = ~np.isnan(raw).any(axis=1)
    return whole


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Adjacent columns of numbers, written together."""

    source: slice
    target: slice
    fill: FloatArray  # (rows of a chunk, c), as are the other two
    shift: FloatArray
    scale: FloatArray

    def write(self, raw: FloatArray, out: FloatArray) -> None:
        block, scaled, n = raw[:, self.source], out[:, self.target], len(raw)
        np.subtract(block, self.shift[:n], out=scaled)
        if not np.isfinite(scaled.sum()):
            np.subtract(np.where(np.isnan(block), self.fill[:n], block), self.shift[:n], out=scaled)
        scaled /= self.scale[:n]


@dataclass(frozen=True, eq=False)
class _Categories:
    """One categorical column, written as one-hot."""

    source: int
    target: slice
    place: IntArray  # (categories of the table + 1,) the last is for missing values
    value: float
    keep: bool  # a missing value stays missing

    def write(self, raw: FloatArray, out: FloatArray) -> None:
        codes = raw[:, self.source]
        missing = np.isnan(codes)
        place = self.place[np.where(missing, len(self.place) - 1, codes).astype(np.int64)]
        block = out[:, self.target]
        block[:] = 0.0
        known = np.flatnonzero(place >= 0)
        block[known, place[known]] = self.value
        if self.keep:
            block[missing] = np.nan


@dataclass(frozen=True, eq=False)
class _Shaped:
    """One column of numbers with a shape."""

    source: int
    target: int
    column: Shaped
    keep: bool  # a missing value stays missing

    def write(self, raw: FloatArray, out: FloatArray) -> None:
        c = self.column
        shaped = c.shaped(raw[:, self.source])
        filled = shaped if self.keep else np.where(np.isnan(shaped), c.fill, shaped)
        out[:, self.target] = (filled - c.shift) / c.scale


def _parts(
    columns: Sequence[Number | Category],
    categories: Sequence[Sequence[str]],
    keep: Sequence[bool],
    rows: int,
) -> list[_Numbers | _Categories | _Shaped]:
    """The writers of runs of numbers and of categorical columns, given the categories of a table.

    A missing value of a column with ``keep`` stays missing.
    """
    parts: list[_Numbers | _Categories | _Shaped] = []
    at, i = 0, 0
    while i < len(columns):
        column = columns[i]
        if isinstance(column, Category):
            place = np.append(column.place_of(categories[i]), column.fill)
            parts.append(_Categories(i, slice(at, at + column.width), place, 1 / column.scale, keep[i]))
            at, i = at + column.width, i + 1
            continue
        run: list[Number] = []
        if isinstance(column, Shaped):
            parts.append(_Shaped(i, at, column, keep[i]))
            at, i = at + 1, i + 1
            continue
        for following in columns[i:]:
            if isinstance(following, Category | Shaped):
                break
            run.append(following)
        fills, shifts, scales = (np.array([getattr(c, f) for c in run]) for f in ("fill", "shift", "scale"))
        fills = np.where(keep[i : i + len(run)], np.nan, fills)
        fill, shift, scale = (repeated(line, rows) for line in (fills, shifts, scales))
        parts.append(_Numbers(slice(i, i + len(run)), slice(at, at + len(run)), fill, shift, scale))
        at, i = at + len(run), i + len(run)
    return parts
