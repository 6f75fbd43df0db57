"""Questions about the tables of sites: a schema, then totals of the agreed columns.

The replies pass the same checks as all others. A site in raw mode does not disclose a number of cells below
its minimum size, and does not name a category of fewer rows. A site may disclose everything in its summary
table.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from unpooled.data.bounded_table import BoundedTable
from unpooled.data.column_kinds import CATEGORY, EMPTY, TEXT, has_mean
from unpooled.data.summary_table import OTHER, SummaryTable, category_indices, plain_number
from unpooled.data.table import Table, side_by_side
from unpooled.data.transforms import complete
from unpooled.errors import InputError
from unpooled.protocol.consistency import ReportedTotals
from unpooled.protocol.declarations import Count, Numbers, Point, Setting, Sum, Text, Value
from unpooled.protocol.messages import Question, Reply, SiteId, Summable
from unpooled.protocol.site_batch import SiteBatch, column_sums, repeated
from unpooled.protocol.suppression import disclosed_cells, zero_suppressed
from unpooled.typing import FloatArray, IntArray

_LOOK = 64  # rows that are looked at first


@dataclass(frozen=True, eq=False)
class Schema(Reply):
    """A site's columns, the facts about each that may be disclosed, and how the site is protected.

    Sizes are rounded to a twentieth of a power of ten: enough to notice pounds among kilograms. Those of a
    site in raw mode are rounded to a quarter.
    """

    # "summary", "dp", "raw" or "none", and the date of the summary table
    protection: Annotated[tuple[str, ...], Text("2")]

    names: Annotated[tuple[str, ...], Text("columns")]
    kinds: Annotated[tuple[str, ...], Text("columns")]
    # of categories: those of at least the minimum number of rows; of numbers that have at most two values at
    # the site: the values of at least the minimum number of rows
    categories: Annotated[tuple[tuple[str, ...], ...], Text("columns")]
    rows: Annotated[FloatArray, Count("1")]
    groups: Annotated[FloatArray, Count("1")]  # of a summary table; else the rows
    # tables behind the answer: 1; of a relay those of its members
    tables: Annotated[FloatArray, Value("1", min_value=0.0)]
    # missing cells; nan: some, but fewer than may be disclosed; inf: nearly all
    missing: Annotated[FloatArray, Count("columns", may_be_missing=True)]
    # log10 of the root mean square; nan where it may not be disclosed
    size: Annotated[FloatArray, Value("columns", may_be_missing=True)]
    # log10 of the standard deviation; -inf for a constant
    spread: Annotated[FloatArray, Value("columns", may_be_missing=True)]
    # of a summary table: the variance within its groups, summed over categories; nan where there is none
    within: Annotated[FloatArray, Value("columns", may_be_missing=True)]
    # of the squares about the mean: the share of values beyond 3 standard deviations, in tenths
    tail: Annotated[FloatArray, Value("columns", may_be_missing=True)]

    def reported_totals(self, question: "AskSchema") -> ReportedTotals | None:
        return ReportedTotals(float(self.rows[0])) if self.rows[0] > 0 else None


@dataclass(frozen=True, eq=False)
class AskSchema(Question[Schema]):
    """The site's columns, their kinds, categories, missing values and coarse sizes."""

    reads = "table"
    asks_for = (
        "the schema: columns, categories, numbers of people, groups and missing values, rough size and "
        "spread, variance within groups"
    )

    max_categories: Annotated[int, Setting()] = 1000

    def answer_all(self, batch: SiteBatch) -> list[Schema]:
        replies = []
        for s in range(len(batch)):
            table = _table(batch.site(s) if len(batch) > 1 else batch)
            if isinstance(table, BoundedTable):
                replies.append(self._declared(table))
            else:
                is_summary = isinstance(table, SummaryTable)
                replies.append(self.from_summary(table) if is_summary else self._schema(table, batch))
        return replies

    def reply_numbers(self, d: int) -> int:
        return 0  # as many as the site's own table has columns, whatever is asked

    def _declared(self, table: BoundedTable) -> Schema:
        """The schema of a table that is only declared: nothing in it was read from rows."""
        width = len(table.names)
        unknown = np.full(width, np.nan)
        return Schema(
            protection=("dp", ""),
            names=table.names,
            kinds=table.kinds,
            categories=((),) * width,
            rows=np.array([float(table.rows)]),
            groups=np.array([float(table.rows)]),
            tables=np.ones(1),
            missing=unknown,
            size=unknown,
            spread=unknown,
            within=unknown,
            tail=unknown,
        )

    def from_summary(self, summary: SummaryTable) -> Schema:
        """Return the schema of a summary table.

        A column with means between 0 and 1 may have no unit: no size.
        """
        count, size, spread, tail = (np.full(len(summary.names), v) for v in (0.0, np.nan, np.nan, np.nan))
        for j, name in enumerate(summary.names):
            known = summary.known[:, j]
            count[j] = known.sum()
            if name not in summary.means:
                continue
            x = summary.means[name]
            if ((x < 0) | (x > 1)).any() or not x.any():
                moments = (known @ x, known @ (x * x + summary.within_of(name)))
                (size[j],), (spread[j],) = _sizes(
                    count[j : j + 1], np.array([moments[0]]), np.array([moments[1]]), 20
                )
                mean = moments[0] / max(count[j], 1.0)
                variance = moments[1] / max(count[j], 1.0) - mean**2
                off = (x - mean) ** 2
                tail[j] = _tenths(known @ np.where(off > 9 * variance, off, 0.0), count[j], variance)
        return Schema(
            protection=("summary", summary.made),
            names=summary.names,
            kinds=summary.kinds,
            categories=tuple(
                _texts(summary.values.get(name, ()))
                if name in summary.means
                else tuple(category for category in summary.categories.get(name, ()) if category != OTHER)[
                    : self.max_categories
                ]
                for name in summary.names
            ),
            rows=np.array([summary.people.sum()]),
            groups=np.array([float(len(summary))]),
            tables=np.ones(1),
            missing=summary.people.sum() - count,
            size=size,
            spread=spread,
            within=np.array([_inside(summary, name) for name in summary.names]),
            tail=tail,
        )

    def _schema(self, table: Table, batch: SiteBatch) -> Schema:
        n = len(table)
        rows = np.array([float(n)])
        count, sums, squares = (np.zeros(len(table.names)) for _ in range(3))
        two_values = {j: Counter[float]() for j, kind in enumerate(table.kinds) if has_mean(kind)}
        tallies = {name: np.zeros(len(categories)) for name, categories in table.categories.items()}
        for chunk in table.chunks():
            present, values, total = _there(chunk)
            count += present
            sums += total
            squares += np.einsum("ij,ij->j", values, values)
            for j in list(two_values):
                if (both := _at_most_two(two_values.pop(j), chunk[:, j])) is not None:
                    two_values[j] = both
            for name, tally in tallies.items():
                tally += _tally(chunk[:, table.index(name)], len(tally))
        disclosed = batch.large(count, count)
        missing = n - count
        number = disclosed & (count > 0) & np.array([has_mean(kind) for kind in table.kinds])
        for j, two in two_values.items():
            number[j] &= not {*two} <= {0.0, 1.0} or not squares[j]  # 0/1 columns have no unit: no size
        size, spread = _sizes(np.maximum(count, 1), sums, squares, 4 if batch.minimum > 1 else 20)
        return Schema(
            protection=("raw" if batch.minimum > 1 else "none", ""),
            names=table.names,
            kinds=table.kinds,
            categories=tuple(
                _named(table.categories[name], tallies[name], batch)[: self.max_categories]
                if kind == CATEGORY
                else _texts(v for v, rows in two_values.get(j, {}).items() if rows >= batch.minimum)
                for j, (name, kind) in enumerate(zip(table.names, table.kinds, strict=True))
            ),
            rows=zero_suppressed(batch.large(rows, rows), rows),
            groups=zero_suppressed(batch.large(rows, rows), rows),
            tables=np.ones(1),
            missing=_disclosed_missing(missing, count, batch),
            size=np.where(number, size, np.nan),
            spread=np.where(number, spread, np.nan),
            within=np.full(len(table.names), np.nan),
            tail=np.where(number, _tails(table, sums, squares, count), np.nan)
            if batch.minimum == 1
            else np.full(len(table.names), np.nan),
        )


def _at_most_two(known: Counter[float], column: FloatArray) -> Counter[float] | None:
    """The rows by value of a column, with those of one more chunk (n,); None if there are three values."""
    for some_rows in (column[:_LOOK], column):  # of most columns a few rows have more
        values, rows = np.unique(some_rows[~np.isnan(some_rows)] + 0.0, return_counts=True)
        if len(values) > 2:
            return None
    both = known + Counter(dict(zip(values.tolist(), rows.tolist(), strict=True)))
    return both if len(both) <= 2 else None


def _texts(values: Iterable[float]) -> tuple[str, ...]:
    """The values of a column of numbers as categories.

    >>> _texts([1.0, 0.0, 2.5])
    ('0', '1', '2.5')
    """
    return tuple(plain_number(value) for value in sorted(values))


def some(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def check_not_noisy(schemas: Mapping[SiteId, Schema]) -> None:
    """Raise InputError if a site answers only with differential privacy: the run must then be private."""
    noisy = [site for site, schema in schemas.items() if schema.protection[0] == "dp"]
    if noisy:
        answer = "answers" if len(noisy) == 1 else "answer"
        raise InputError(
            f"{', '.join(noisy)} {answer} only with differential privacy, and this run is not private. Use "
            "--epsilon for all sites, or run without them"
        )


def stated_units(schemas: Mapping[SiteId, Schema], numbers: tuple[str, ...]) -> FloatArray:
    """Return a power of two near the largest size that a site states of each column (p,), 1 where none does.

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


def _tenths(far: FloatArray, count: FloatArray, variance: FloatArray) -> FloatArray:
    return np.round(10 * far / np.maximum(count * variance, 1e-300)) / 10


def _inside(summary: SummaryTable, name: str) -> float:
    """The variance of a column within the groups of a summary table; p (1 - p) summed over categories."""
    if name not in summary.counts:
        return float(summary.within[summary.index(name)])
    known, counts = summary.people_with_value(name), summary.counts[name]
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
    """log10 of root mean square and of standard deviation, with ``steps`` steps to a power of ten."""
    mean = squares / count
    variance = mean - (sums / count) ** 2
    variance = np.where(variance <= 1e-12 * mean, 0.0, variance)
    with np.errstate(divide="ignore"):
        sizes = (np.round(steps / 2 * np.log10(v)) / steps for v in (mean, variance))
        return tuple(sizes)  # type: ignore[return-value]


def _disclosed_missing(missing: FloatArray, count: FloatArray, batch: SiteBatch) -> FloatArray:
    """Missing cells as they may be disclosed: exactly, or as nan for few, or as inf for nearly all."""
    disclosed = np.where((missing > 0) & ~batch.large(missing, missing), np.nan, missing)
    return np.where((count > 0) & ~batch.large(count, count), np.inf, disclosed)


def _named(categories: tuple[str, ...], tally: FloatArray, batch: SiteBatch) -> tuple[str, ...]:
    disclosed = disclosed_cells(batch, tally) & (tally > 0)
    return tuple(category for category, keep in zip(categories, disclosed, strict=True) if keep)


def _tally(codes: FloatArray, categories: int) -> FloatArray:
    """The number of rows of each category."""
    return np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=categories).astype(np.float64)


def _table(batch: SiteBatch) -> Any:
    """The Table, or the SummaryTable, that a site holds."""
    if not isinstance(batch.X, Table | SummaryTable):
        raise TypeError("this question is about a table with named columns, and the site holds an array")
    return batch.X


@dataclass(frozen=True, eq=False)
class ColumnTotals(Summable):
    """Counts, sums and squares of the columns' present values; counts of every category."""

    rows: Annotated[FloatArray, Count("1")]
    count: Annotated[FloatArray, Count("p")]
    sums: Annotated[FloatArray, Sum("p", rows="count")]  # of (x - origin) / unit
    squares: Annotated[FloatArray, Sum("p", min_value=0.0, rows="count")]  # of the same, squared
    # column after column, each with one more for all other categories
    categories: Annotated[FloatArray, Count("categories")]

    @property
    def mean(self) -> FloatArray:
        """(p,) relative to the origin; 0 where no value is disclosed."""
        return self.sums / np.maximum(self.count, 1e-300)

    def times(self, unit: FloatArray) -> "ColumnTotals":
        """Return the same totals in the columns' own units."""
        return replace(self, sums=self.sums * unit, squares=self.squares * unit**2)


@dataclass(frozen=True, eq=False)
class AskColumns(Question[ColumnTotals]):
    """Totals of columns about an origin, over all rows or, if ``complete``, rows without missing values."""

    reads = "table"
    asks_for = (
        "for each column: how many rows have a value, their sum and sum of squares, and how many "
        "have each category"
    )

    numbers: Annotated[tuple[str, ...], Text("p")]
    origin: Annotated[FloatArray, Point("p")]
    unit: Annotated[FloatArray, Numbers("p")]  # of each column: a power of two, so that nothing is rounded
    categorical: Annotated[tuple[str, ...], Text("q")]
    categories: Annotated[tuple[tuple[str, ...], ...], Text("q")]
    complete: bool

    def answer_all(self, batch: SiteBatch) -> list[ColumnTotals]:
        replies = []
        for s in range(len(batch)):
            table = _table(batch.site(s) if len(batch) > 1 else batch)
            is_summary = isinstance(table, SummaryTable)
            replies.append(self._from_summary(table) if is_summary else self._totals(table, batch))
        return replies

    def _from_summary(self, summary: SummaryTable) -> ColumnTotals:
        """The totals of a summary table; squares include the variance within groups: scales are of people."""
        people = summary.complete((*self.numbers, *self.categorical)) if self.complete else summary.people
        count, sums, squares = (np.zeros(len(self.numbers)) for _ in range(3))
        for j, name in enumerate(self.numbers):
            known = people if self.complete else summary.people_with_value(name)
            if name in summary.means:
                x = (summary.means[name] - self.origin[j]) / self.unit[j]
                count[j], sums[j] = known.sum(), known @ x
                squares[j] = known @ (x * x) + known.sum() * (summary.within_of(name) / self.unit[j] ** 2)
        tallies = [np.zeros(len(categories) + 1) for categories in self.categories]
        for j, name in enumerate(self.categorical):
            if name in summary.counts:
                known = summary.people_with_value(name)
                part = people / np.maximum(known, 1.0) if self.complete else np.ones(len(summary))
                own = category_indices(summary.categories[name], self.categories[j], len(self.categories[j]))
                np.add.at(tallies[j], own, part @ summary.counts[name])
        return ColumnTotals(
            np.array([people.sum()]), count, sums, squares, np.concatenate([np.zeros(0), *tallies])
        )

    def lengths(self) -> dict[str, int]:
        width = len(self.numbers)
        if not len(self.origin) == len(self.unit) == width or len(self.categories) != len(self.categorical):
            raise InputError("AskColumns: origin and unit for every number, categories for other columns")
        if len({*self.numbers, *self.categorical}) < len(self.numbers) + len(self.categorical):
            raise InputError("AskColumns: a column twice")
        if not (np.isfinite(self.unit).all() and (np.frexp(self.unit)[0] == 0.5).all()):
            raise InputError("AskColumns: a unit must be a power of two")
        categories = sum(len(named) + 1 for named in self.categories)
        return {**super().lengths(), "p": len(self.numbers), "categories": categories}

    def equations(self, *, all_rows: bool = True) -> int:
        return 1  # of every column: the sum over the rows that have a value in it, or over complete rows

    def _totals(self, table: Table, batch: SiteBatch) -> ColumnTotals:
        numbers, codes = table.places(self.numbers), table.places(self.categorical)
        places = [self._places(j, table) for j in range(len(self.categorical))]
        rows = np.zeros(1)
        count, sums, squares = (np.zeros(len(numbers)) for _ in range(3))
        tallies = [np.zeros(len(categories) + 1) for categories in self.categories]
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
        disclosed = batch.large(count, count)
        cells = [zero_suppressed(disclosed_cells(batch, tally), tally) for tally in tallies]
        return ColumnTotals(
            rows=zero_suppressed(batch.large(rows, rows), rows),
            count=zero_suppressed(disclosed, count),
            sums=zero_suppressed(disclosed, sums),
            squares=zero_suppressed(disclosed, squares),
            categories=np.concatenate([np.zeros(0), *cells]),
        )

    def _places(self, j: int, table: Table) -> IntArray:
        """The index at which each category of the table is counted: its own, or the last one."""
        place = {category: i for i, category in enumerate(self.categories[j])}
        own = table.categories.get(self.categorical[j], ())
        return np.array([place.get(category, len(place)) for category in own], dtype=np.int64)


def kinds_by_site(
    schemas: Mapping[SiteId, Schema], columns: tuple[str, ...] | list[str]
) -> tuple[tuple[str, ...], ...]:
    """Return rows of (column, kind at every site), heading first, of columns that differ or are unusable."""
    rows = [("column", *schemas)]
    for name in columns:
        kinds = [s.kinds[s.names.index(name)] if name in s.names else "-" for s in schemas.values()]
        if len(set(kinds)) > 1 or kinds[0] in (TEXT, EMPTY, "-"):
            rows.append((name, *kinds))
    return tuple(rows)
