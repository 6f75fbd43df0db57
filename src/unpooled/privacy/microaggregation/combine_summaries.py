"""One summary table of the groups of several sites: every row is the average of at least three groups.

A relay answers from it. All that leaves is a function of tables whose rows are equal or have no group in
common (row_record.py), so no difference of answers is about fewer than three groups.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from unpooled.data.column_kinds import CATEGORY, EMPTY, has_cells, has_mean
from unpooled.data.merged_schema import merged
from unpooled.data.schema import AskSchema
from unpooled.data.summary_table import OTHER, SummaryTable, category_indices
from unpooled.errors import TooFewPeopleError
from unpooled.kernels.grouping import groups
from unpooled.privacy.microaggregation.group_means import WithinGroupSquares
from unpooled.privacy.microaggregation.row_record import FREE, RowRecord, group_keys
from unpooled.privacy.microaggregation.summarize import min_size_for, sorted_by_values
from unpooled.typing import FloatArray, IntArray

MIN_GROUPS = 3  # of every cell: with two, each site of them knows the other's group
_FARTHEST, _MISSING = 8.0, 0.5  # as in the distance between people


class _GroupColumn(NamedTuple):
    """A column of all groups."""

    known: FloatArray  # (G,) people with a value
    values: FloatArray  # (G, 1) means, or (G, categories) shares; 0 where nobody has a value
    inside: FloatArray  # (G,) variance within the groups; nan: not known


def combine_summaries(
    tables: Mapping[str, SummaryTable], columns: str = "same", record: RowRecord | None = None
) -> SummaryTable:
    """Return one summary table of the groups of some sites; ``columns`` as in PreparationOptions.

    The rows are those of the ``record``, as far as all their groups are there, and new ones, which are added
    to it. QueryRefusedError if the record does not allow the columns.
    SchemaMismatchError if the tables do not fit each other, TooFewPeopleError if they have too few groups.

    >>> from unpooled.privacy.microaggregation import SummarySettings, microaggregate
    >>> rows = np.repeat(np.arange(4.0), 9)[:, None]
    >>> one = microaggregate(rows, SummarySettings(min_group_size=3))
    >>> both = combine_summaries({"north": one, "south": one})
    >>> len(one), len(both), int(both.people.min()), both.min_group_size
    (12, 8, 9, 9)
    """
    return combine_with_rows(tables, columns, record)[0]


def combine_with_rows(
    tables: Mapping[str, SummaryTable], columns: str = "same", record: RowRecord | None = None
) -> tuple[SummaryTable, IntArray]:
    """Return the table, and a label (G,) of every group of the tables: equal ones are of one row.

    A negative label is of a group that is in no row.
    """
    schemas = {name: AskSchema(max_categories=1 << 30).from_summary(table) for name, table in tables.items()}
    schema = merged(schemas, columns)
    parts = list(tables.values())
    people = np.concatenate([table.people for table in parts])
    if len(people) < MIN_GROUPS:
        raise TooFewPeopleError(f"there are fewer than {MIN_GROUPS} groups, too few for a summary of them")
    categories = {
        name: _categories(parts, name, known)
        for name, kind, known in zip(schema.names, schema.kinds, schema.categories, strict=True)
        if kind == CATEGORY
    }
    of = {
        name: _number(parts, name) if has_mean(kind) else _shares(parts, name, categories[name])
        for name, kind in zip(schema.names, schema.kinds, strict=True)
        if has_mean(kind) or categories.get(name)
    }
    labels = _labels(tables, schema.names, of, set(of) - set(categories), record or RowRecord())
    if not (labels >= 0).any():
        raise TooFewPeopleError("no three groups of its members can be described together")
    count = int(labels.max()) + 1
    there = labels >= 0
    of = {name: _GroupColumn(*(field[there] for field in column)) for name, column in of.items()}
    shown, people = labels[there], people[there]
    known = np.zeros((count, len(schema.names)))
    within = np.full(len(schema.names), np.nan)
    means, counts, kinds = {}, {}, list(schema.kinds)
    for j, name in enumerate(schema.names):
        if name in of:
            known[:, j], cells, within[j] = _cells(of[name], shown, count)
        if not known[:, j].any():  # nothing of the column is disclosed
            kinds[j] = EMPTY if has_cells(kinds[j]) else kinds[j]
        elif name in categories:
            counts[name] = np.round(cells * known[:, j : j + 1], 9)
            within[j] = np.nan
        else:
            means[name] = np.ascontiguousarray(cells[:, 0])
    combined = sorted_by_values(
        SummaryTable(
            names=schema.names,
            kinds=tuple(kinds),
            categories={name: categories[name] for name in counts},
            people=np.bincount(shown, people, count).astype(np.float64),
            known=known,
            means=means,
            counts=counts,
            within=within,
            values={name: both for name in means if (both := _two_values(parts, name))},
            min_group_size=MIN_GROUPS * min(table.min_group_size for table in parts),
            made=max(table.made for table in parts),
            named=all(table.named for table in parts),
        )
    )
    return combined, labels


def _labels(
    tables: Mapping[str, SummaryTable],
    names: tuple[str, ...],
    columns: Mapping[str, _GroupColumn],
    numbers: set[str],
    record: RowRecord,
) -> IntArray:
    """(G,) the row of every group: that of the record, or a new one of groups that were never in a row."""
    keys = [key for member, table in tables.items() for key in group_keys(member, table, names)]
    labels, may_add = record.labels(names, keys)
    free = np.flatnonzero(labels == FREE)
    if may_add and len(free) >= MIN_GROUPS:
        of_free = {name: _GroupColumn(*(f[free] for f in column)) for name, column in columns.items()}
        new = _grouped(of_free, numbers, len(free))
        record.add(names, [keys[i] for i in free], new)
        labels[free] = int(labels.max(initial=-1)) + 1 + new
    return labels


def _categories(parts: list[SummaryTable], name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    other = any(OTHER in table.categories.get(name, ()) for table in parts)
    return (*known, OTHER) if other else known


def _number(parts: list[SummaryTable], name: str) -> _GroupColumn:
    means = [table.means.get(name, np.zeros(len(table))) for table in parts]
    inside = [np.full(len(t), t.within[t.index(name)] if name in t.means else np.nan) for t in parts]
    known = np.concatenate([table.people_with_value(name) for table in parts])
    return _GroupColumn(known, np.concatenate(means)[:, None], np.concatenate(inside))


def _shares(parts: list[SummaryTable], name: str, categories: tuple[str, ...]) -> _GroupColumn:
    shares = []
    for table in parts:
        own = np.zeros((len(table), len(categories)))
        if name in table.counts:
            place = category_indices(table.categories[name], categories, len(categories) - 1)
            np.add.at(own.T, place, table.counts[name].T)
        shares.append(own / np.maximum(table.people_with_value(name), 1.0)[:, None])
    known = np.concatenate([table.people_with_value(name) for table in parts])
    return _GroupColumn(known, np.concatenate(shares), np.full(len(known), np.nan))


def _grouped(columns: Mapping[str, _GroupColumn], numbers: set[str], count: int) -> IntArray:
    """(G,) the row of every group. It does not depend on the order of the sites."""
    points: list[FloatArray] = [np.zeros((count, 1))]
    missing = 0.0
    for name, (known, values, _) in columns.items():
        if not known.any():
            continue
        z = values / np.sqrt(2.0)
        if name in numbers:
            mean = known @ values / known.sum()
            deviation = np.sqrt(known @ (values - mean) ** 2 / known.sum())
            z = (values - mean) / np.where(deviation > 0, deviation, 1.0)
        there = (known > 0)[:, None]
        points.append(np.where(there, np.clip(z, -_FARTHEST, _FARTHEST), 0.0).astype(np.float64))
        points.append(np.where(there, 0.0, _MISSING))
        missing = max(missing, float((known == 0).mean()))
    Z = np.concatenate(points, axis=1)
    order = np.lexsort(Z.T[::-1])
    labels = np.empty(len(Z), dtype=np.int64)
    min_size = min_size_for(MIN_GROUPS, missing, len(Z))
    labels[order] = groups(np.ascontiguousarray(Z[order], dtype=np.float32), min_size)
    return labels


def _cells(column: _GroupColumn, labels: IntArray, count: int) -> tuple[FloatArray, FloatArray, float]:
    """(rows,) people with a value, (rows, values) means, and the variance within rows.

    A cell of fewer than three groups with a value is suppressed.
    """
    known, values, inside = column
    enough = np.bincount(labels[known > 0], minlength=count) >= MIN_GROUPS
    total = np.where(enough, np.bincount(labels, known, count), 0.0)
    sums = np.stack([np.bincount(labels, known * v, count) for v in values.T], axis=1)
    means = np.where(enough[:, None], sums / np.maximum(total, 1.0)[:, None], 0.0)
    spread = known * enough[labels] * (inside + ((values - means[labels]) ** 2).sum(axis=1))
    measured = ~np.isnan(inside)
    squares = WithinGroupSquares(
        float(spread[measured].sum()), float((known * enough[labels])[measured].sum()), int(enough.sum())
    )
    return total, means, squares.variance if measured.any() else float("nan")


def _two_values(parts: list[SummaryTable], name: str) -> tuple[float, ...]:
    """The values of a column that has at most two at all sites together; () if it has more."""
    own = [table.values.get(name, ()) for table in parts if name in table.means]
    both = tuple(sorted({value for values in own for value in values}))
    return both if all(own) and len(both) <= 2 else ()
