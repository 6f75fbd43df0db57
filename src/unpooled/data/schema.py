"""Questions about the tables of sites: a schema, then totals of the agreed columns.

The replies pass the same checks as all others. Of raw rows, a number of cells below the site's minimum size
is not shown, and a level of fewer rows is not named; of a copy, everything may be shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from unpooled.core.arrays import FloatArray, IntArray
from unpooled.core.declarations import Count, Numbers, Point, Setting, Sum, Text, Value
from unpooled.core.messages import Question, Reply, SiteId, Summable
from unpooled.core.stack import Stack, column_sums, only, repeated, shown_cells
from unpooled.core.statements import Stated
from unpooled.data.copy import OTHER, Copy, level_places
from unpooled.data.declared import DeclaredTable
from unpooled.data.table import CATEGORY, EMPTY, NUMBER, TEXT, Table
from unpooled.data.views import complete, side_by_side
from unpooled.errors import BadInput


@dataclass(frozen=True, eq=False)
class Schema(Reply):
    """A site's columns, the facts about each that may be shown, and how the site is protected.

    Sizes are rounded to a twentieth of a power of ten: enough to notice pounds among kilograms. Those of a
    trusted site's rows are rounded to a quarter.
    """

    # "copy", "noise", "trusted" or "none", and the date of the copy
    protection: Annotated[tuple[str, ...], Text("2")]

    names: Annotated[tuple[str, ...], Text("columns")]
    kinds: Annotated[tuple[str, ...], Text("columns")]
    # of categories: those of at least the minimum number of rows
    levels: Annotated[tuple[tuple[str, ...], ...], Text("columns")]
    rows: Annotated[FloatArray, Count("1")]
    # missing cells; nan: some, but fewer than may be shown; inf: nearly all
    missing: Annotated[FloatArray, Count("columns", may_be_missing=True)]
    # log10 of the root mean square; nan where it may not be shown
    size: Annotated[FloatArray, Value("columns", may_be_missing=True)]
    # log10 of the standard deviation; -inf for a constant
    spread: Annotated[FloatArray, Value("columns", may_be_missing=True)]
    # of a copy: the variance within its groups, of a category of all its levels; nan where there is none
    within: Annotated[FloatArray, Value("columns", may_be_missing=True)]
    # of the squares about the mean: the share of values beyond 3 standard deviations, in tenths
    tail: Annotated[FloatArray, Value("columns", may_be_missing=True)]

    def stated(self, question: "AskSchema") -> Stated | None:
        return Stated(float(self.rows[0])) if self.rows[0] > 0 else None


@dataclass(frozen=True, eq=False)
class AskSchema(Question[Schema]):
    """Which columns do you have, of which kind, with which levels?"""

    sees = "table"

    max_levels: Annotated[int, Setting()] = 1000

    def answer_all(self, stack: Stack) -> list[Schema]:
        replies = []
        for s in range(len(stack)):
            table = _table(stack.site(s) if len(stack) > 1 else stack)
            if isinstance(table, DeclaredTable):
                replies.append(self._declared(table))
            else:
                copied = isinstance(table, Copy)
                replies.append(self._of_copy(table) if copied else self._schema(table, stack))
        return replies

    def reply_numbers(self, d: int) -> int:
        return 0  # as many as the site's own table has columns, whatever is asked

    def _declared(self, table: DeclaredTable) -> Schema:
        """The schema of a table that is only declared: nothing in it was read from rows."""
        width = len(table.names)
        unknown = np.full(width, np.nan)
        return Schema(
            protection=("noise", ""),
            names=table.names,
            kinds=table.kinds,
            levels=((),) * width,
            rows=np.array([float(table.rows)]),
            missing=unknown,
            size=unknown,
            spread=unknown,
            within=unknown,
            tail=unknown,
        )

    def _of_copy(self, copy: Copy) -> Schema:
        """The schema of a copy. A column whose means are all between 0 and 1 may have no unit: no size."""
        count, size, spread, tail = (np.full(len(copy.names), v) for v in (0.0, np.nan, np.nan, np.nan))
        for j, name in enumerate(copy.names):
            known = copy.known[:, j]
            count[j] = known.sum()
            if name not in copy.means:
                continue
            x = copy.means[name]
            if ((x < 0) | (x > 1)).any() or not x.any():
                moments = (known @ x, known @ (x * x + copy.within_of(name)))
                (size[j],), (spread[j],) = _sizes(
                    count[j : j + 1], np.array([moments[0]]), np.array([moments[1]]), 20
                )
                mean = moments[0] / max(count[j], 1.0)
                variance = moments[1] / max(count[j], 1.0) - mean**2
                off = (x - mean) ** 2
                tail[j] = _tenths(known @ np.where(off > 9 * variance, off, 0.0), count[j], variance)
        return Schema(
            protection=("copy", copy.made),
            names=copy.names,
            kinds=copy.kinds,
            levels=tuple(
                tuple(level for level in copy.levels.get(name, ()) if level != OTHER)[: self.max_levels]
                for name in copy.names
            ),
            rows=np.array([copy.persons.sum()]),
            missing=copy.persons.sum() - count,
            size=size,
            spread=spread,
            within=np.array([_inside(copy, name) for name in copy.names]),
            tail=tail,
        )

    def _schema(self, table: Table, stack: Stack) -> Schema:
        n = len(table)
        rows = np.array([float(n)])
        count, sums, squares = (np.zeros(len(table.names)) for _ in range(3))
        yes_or_no = np.ones(len(table.names), dtype=np.bool_)  # 0/1 columns have no unit: no size is sent
        tallies = {name: np.zeros(len(levels)) for name, levels in table.levels.items()}
        for chunk in table.chunks():
            present, values, total = _there(chunk)
            count += present
            sums += total
            squares += np.einsum("ij,ij->j", values, values)
            if len(values):  # the first row tells it of most columns
                yes_or_no &= (values[0] == 0) | (values[0] == 1)
            maybe = np.flatnonzero(yes_or_no)
            yes_or_no[maybe] = ((values[:, maybe] == 0) | (values[:, maybe] == 1)).all(axis=0)
            for name, tally in tallies.items():
                tally += _tally(chunk[:, table.index(name)], len(tally))
        shown = stack.large(count, count)
        missing = n - count
        number = shown & (count > 0) & np.array([kind == NUMBER for kind in table.kinds])
        number &= ~yes_or_no | (squares == 0)
        size, spread = _sizes(np.maximum(count, 1), sums, squares, 4 if stack.minimum > 1 else 20)
        return Schema(
            protection=("trusted" if stack.minimum > 1 else "none", ""),
            names=table.names,
            kinds=table.kinds,
            levels=tuple(
                _named(table.levels[name], tallies[name], stack)[: self.max_levels]
                if kind == CATEGORY
                else ()
                for name, kind in zip(table.names, table.kinds, strict=True)
            ),
            rows=only(stack.large(rows, rows), rows),
            missing=_told(missing, count, stack),
            size=np.where(number, size, np.nan),
            spread=np.where(number, spread, np.nan),
            within=np.full(len(table.names), np.nan),
            tail=np.where(number, _tails(table, sums, squares, count), np.nan)
            if stack.minimum == 1
            else np.full(len(table.names), np.nan),
        )


def some(names: list[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def check_not_noisy(schemas: Mapping[SiteId, Schema]) -> None:
    """BadInput if a site answers with noise only: the run must then be private for all."""
    noisy = [site for site, schema in schemas.items() if schema.protection[0] == "noise"]
    if noisy:
        answer = "answers" if len(noisy) == 1 else "answer"
        raise BadInput(
            f"{', '.join(noisy)} {answer} with noise only, and this run is not private: --epsilon makes it "
            "so for all sites, else it goes without them"
        )


def stated_units(schemas: Mapping[SiteId, Schema], numbers: tuple[str, ...]) -> FloatArray:
    """(p,) a power of two near the largest size that a site states of each column, 1 where none does.

    In such units sums are near the number of rows, whatever the columns' own units are.
    """
    stated = np.array(
        [[schema.size[schema.names.index(name)] for name in numbers] for schema in schemas.values()]
    ).reshape(len(schemas), len(numbers))
    largest = np.where(np.isfinite(stated), stated, -np.inf).max(axis=0, initial=-np.inf)
    exponents = np.where(np.isfinite(largest), np.round(largest * np.log2(10.0)), 0.0)
    units: FloatArray = np.exp2(np.clip(exponents, -900, 900))
    return units


def _tails(table: Table, sums: FloatArray, squares: FloatArray, count: FloatArray) -> FloatArray:
    """(c,) of every column the share of its squares about the mean that its far values have."""
    mean = sums / np.maximum(count, 1)
    variance = np.maximum(squares / np.maximum(count, 1) - mean**2, 0.0)
    far = np.zeros(len(mean))
    means, limits = (repeated(a, table.chunk_rows) for a in (mean, 9 * variance))
    for chunk in table.chunks():
        off = chunk - means[: len(chunk)]
        off = off if np.isfinite(off.sum()) else np.nan_to_num(off)
        off *= off
        beyond = np.flatnonzero(off > limits[: len(off)])  # few
        far += np.bincount(beyond % len(far), off.ravel()[beyond], len(far))
    shares: FloatArray = _tenths(far, count, variance)
    return shares


def _tenths(far: Any, count: Any, variance: Any) -> Any:
    return np.round(10 * far / np.maximum(count * variance, 1e-300)) / 10


def _inside(copy: Copy, name: str) -> float:
    """The variance of a column within the groups of a copy; of a category, p (1 - p) of all its levels."""
    if name not in copy.counts:
        return float(copy.within[copy.index(name)])
    known, counts = copy.known_of(name), copy.counts[name]
    inside = counts * (1 - counts / np.maximum(known, 1.0)[:, None])
    return float(inside.sum() / max(float(known.sum()), 1.0))


def _there(block: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(c,) the number of present values; the values with 0 in place of missing ones; (c,) their sums."""
    sums = column_sums(block)
    if np.isfinite(sums).all():
        return np.full(block.shape[1], float(len(block))), block, sums
    missing = np.isnan(block)
    values = np.where(missing, 0.0, block)
    return len(block) - missing.sum(axis=0).astype(np.float64), values, column_sums(values)


def _sizes(
    count: FloatArray, sums: FloatArray, squares: FloatArray, steps: int
) -> tuple[FloatArray, FloatArray]:
    """log10 of root mean square and of standard deviation, in so many steps to a power of ten."""
    mean = squares / count
    variance = mean - (sums / count) ** 2
    variance = np.where(variance <= 1e-12 * mean, 0.0, variance)
    with np.errstate(divide="ignore"):
        return tuple(np.round(steps / 2 * np.log10(v)) / steps for v in (mean, variance))  # type: ignore[return-value]


def _told(missing: FloatArray, count: FloatArray, stack: Stack) -> FloatArray:
    """Missing cells as they may be shown: exactly, or as nan for few, or as inf for nearly all."""
    shown = np.where((missing > 0) & ~stack.large(missing, missing), np.nan, missing)
    return np.where((count > 0) & ~stack.large(count, count), np.inf, shown)


def _named(levels: tuple[str, ...], tally: FloatArray, stack: Stack) -> tuple[str, ...]:
    shown = shown_cells(stack, tally) & (tally > 0)
    return tuple(level for level, show in zip(levels, shown, strict=True) if show)


def _tally(codes: FloatArray, levels: int) -> FloatArray:
    """The number of rows of each level."""
    return np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=levels).astype(np.float64)


def _table(stack: Stack) -> Any:
    """The Table, or the Copy, that a site holds."""
    if not isinstance(stack.X, Table | Copy):
        raise TypeError("this question is about a table with named columns, and the site holds an array")
    return stack.X


@dataclass(frozen=True, eq=False)
class ColumnTotals(Summable):
    """Counts, sums and squares of the columns' present values; counts of every category's levels."""

    rows: Annotated[FloatArray, Count("1")]
    count: Annotated[FloatArray, Count("p")]
    sums: Annotated[FloatArray, Sum("p", rows="count")]  # of (x - origin) / unit
    squares: Annotated[FloatArray, Sum("p", least=0.0, rows="count")]  # of the same, squared
    # category after category, each with one for all other levels
    levels: Annotated[FloatArray, Count("levels")]

    @property
    def mean(self) -> FloatArray:
        """(p,) relative to the origin; 0 where no value is shown."""
        return self.sums / np.maximum(self.count, 1e-300)

    def times(self, unit: FloatArray) -> "ColumnTotals":
        """The same totals in the columns' own units."""
        return replace(self, sums=self.sums * unit, squares=self.squares * unit**2)


@dataclass(frozen=True, eq=False)
class AskColumns(Question[ColumnTotals]):
    """Totals of columns about an origin, over all rows or, if ``complete``, over rows that lack nothing."""

    sees = "table"

    numbers: Annotated[tuple[str, ...], Text("p")]
    origin: Annotated[FloatArray, Point("p")]
    unit: Annotated[FloatArray, Numbers("p")]  # of each column: a power of two, so that nothing is rounded
    categories: Annotated[tuple[str, ...], Text("q")]
    levels: Annotated[tuple[tuple[str, ...], ...], Text("q")]
    complete: bool

    def answer_all(self, stack: Stack) -> list[ColumnTotals]:
        replies = []
        for s in range(len(stack)):
            table = _table(stack.site(s) if len(stack) > 1 else stack)
            copied = isinstance(table, Copy)
            replies.append(self._of_copy(table) if copied else self._totals(table, stack))
        return replies

    def _of_copy(self, copy: Copy) -> ColumnTotals:
        """The totals of a copy; the variance within groups is in the squares: scales are those of persons."""
        persons = copy.complete((*self.numbers, *self.categories)) if self.complete else copy.persons
        count, sums, squares = (np.zeros(len(self.numbers)) for _ in range(3))
        for j, name in enumerate(self.numbers):
            known = persons if self.complete else copy.known_of(name)
            if name in copy.means:
                x = (copy.means[name] - self.origin[j]) / self.unit[j]
                count[j], sums[j] = known.sum(), known @ x
                squares[j] = known @ (x * x) + known.sum() * (copy.within_of(name) / self.unit[j] ** 2)
        tallies = [np.zeros(len(levels) + 1) for levels in self.levels]
        for j, name in enumerate(self.categories):
            if name in copy.counts:
                known = copy.known_of(name)
                part = persons / np.maximum(known, 1.0) if self.complete else np.ones(len(copy))
                own = level_places(copy.levels[name], self.levels[j], len(self.levels[j]))
                np.add.at(tallies[j], own, part @ copy.counts[name])
        return ColumnTotals(
            np.array([persons.sum()]), count, sums, squares, np.concatenate([np.zeros(0), *tallies])
        )

    def lengths(self) -> dict[str, int]:
        width = len(self.numbers)
        if not len(self.origin) == len(self.unit) == width or len(self.levels) != len(self.categories):
            raise BadInput("AskColumns: origin and unit for every number, levels for every category")
        if len({*self.numbers, *self.categories}) < len(self.numbers) + len(self.categories):
            raise BadInput("AskColumns: a column twice")
        if not (np.isfinite(self.unit).all() and (np.frexp(self.unit)[0] == 0.5).all()):
            raise BadInput("AskColumns: a unit must be a power of two")
        levels = sum(len(named) + 1 for named in self.levels)
        return {**super().lengths(), "p": len(self.numbers), "levels": levels}

    def _totals(self, table: Table, stack: Stack) -> ColumnTotals:
        numbers, codes = table.places(self.numbers), table.places(self.categories)
        places = [self._places(j, table) for j in range(len(self.categories))]
        rows = np.zeros(1)
        count, sums, squares = (np.zeros(len(numbers)) for _ in range(3))
        tallies = [np.zeros(len(levels) + 1) for levels in self.levels]
        origins, units = (repeated(a, table.chunk_rows) for a in (self.origin, 1 / self.unit))
        moved, scaled = self.origin.any(), (self.unit != 1).any()
        for chunk in table.chunks_with((*numbers, *codes)):
            if self.complete:
                chunk = chunk[complete(chunk[:, [*numbers, *codes]])]
            rows += len(chunk)
            block = chunk[:, side_by_side(numbers)]
            if moved:
                block = block - origins[: len(chunk)]
            if scaled:
                block = block * units[: len(chunk)]
            present, block, total = _there(block)
            count += present
            sums += total
            squares += np.einsum("ij,ij->j", block, block)
            for tally, place, column in zip(tallies, places, codes, strict=True):
                np.add.at(tally, place, _tally(chunk[:, column], len(place)))
        shown = stack.large(count, count)
        cells = [only(shown_cells(stack, tally), tally) for tally in tallies]
        return ColumnTotals(
            rows=only(stack.large(rows, rows), rows),
            count=only(shown, count),
            sums=only(shown, sums),
            squares=only(shown, squares),
            levels=np.concatenate([np.zeros(0), *cells]),
        )

    def _places(self, j: int, table: Table) -> IntArray:
        """The index at which each level of the table is counted: its own, or the last one."""
        place = {level: i for i, level in enumerate(self.levels[j])}
        own = table.levels.get(self.categories[j], ())
        return np.array([place.get(level, len(place)) for level in own], dtype=np.int64)


def kinds_by_site(
    schemas: Mapping[SiteId, Schema], columns: tuple[str, ...] | list[str]
) -> tuple[tuple[str, ...], ...]:
    """Rows of (column, kind at every site), heading first; only columns that differ or cannot be used."""
    rows = [("column", *schemas)]
    for name in columns:
        kinds = [s.kinds[s.names.index(name)] if name in s.names else "-" for s in schemas.values()]
        if len(set(kinds)) > 1 or kinds[0] in (TEXT, EMPTY, "-"):
            rows.append((name, *kinds))
    return tuple(rows)
