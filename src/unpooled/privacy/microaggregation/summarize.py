"""Microaggregation: people, rare categories, groups, the rule against a dominating person, rounding, sorting.

::

    rows -> people -> distance -> groups -> cells -> sorted rows

Every step is a function of all people of the site. A group discloses means over at least ``min_group_size``
people, in which nobody counts for more than the third largest value of the group allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpooled.data.column_kinds import CATEGORY, EMPTY, NUMBER, has_cells, has_mean
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import TooFewPeopleError
from unpooled.kernels.grouping import groups
from unpooled.privacy.microaggregation.collinear import collinear
from unpooled.privacy.microaggregation.distance import PointMatrix
from unpooled.privacy.microaggregation.diversity import (
    ValueLimits,
    category_limits,
    class_limits,
    number_limits,
    one_category,
)
from unpooled.privacy.microaggregation.group_history import PEOPLE, Cells
from unpooled.privacy.microaggregation.group_means import (
    ColumnSpread,
    WithinGroupSquares,
    category_cells,
    number_cells,
    spread_of,
)
from unpooled.privacy.microaggregation.people import (
    CategoryMembership,
    People,
    count_disclosed,
    released_names,
)
from unpooled.privacy.microaggregation.scales import Scales, SummaryCategories, frozen_categories
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.typing import FloatArray, IntArray

Progress = Callable[[str, float], None]  # the step in words, and the share of the work that is done
_MANY_MISSING = 0.15  # share of a column from which on groups are twice as large, so that cells are disclosed
_SUPPRESSED = 0.05  # share of the cells of such a column that may be lost


def microaggregate(
    table: Table | FloatArray,
    settings: SummarySettings | None = None,
    *,
    progress: Progress | None = None,
    made: str = "",
) -> SummaryTable:
    """Return the summary table of a table or an array (n, d): every row is the average of at least g people.

    TooFewPeopleError if there are too few people for a group.

    >>> rows = Table.from_columns({"age": [30.0, 31.0, 32.0, 70.0, 71.0, 72.0], "sex": list("fffmmm")})
    >>> summary = microaggregate(rows, SummarySettings(min_group_size=3))
    >>> summary.means["age"].tolist(), summary.people.tolist(), summary.counts["sex"].tolist()
    ([31.0, 71.0], [3.0, 3.0], [[3.0, 0.0], [0.0, 3.0]])
    """
    return make_first_summary(table, settings, progress=progress, made=made).summary


class FirstSummary(NamedTuple):
    """A summary table, and what a later update of it needs."""

    summary: SummaryTable
    scales: Scales
    people: People
    members: list[list[int]]  # of every group, as positions among the people
    cells: list[Cells]  # of every group
    classes: dict[str, IntArray]  # of everybody, by diverse column; -1: none


def make_first_summary(
    table: Table | FloatArray,
    settings: SummarySettings | None = None,
    *,
    progress: Progress | None = None,
    made: str = "",
) -> FirstSummary:
    """Return the result of ``microaggregate`` with its groups and scales."""
    settings = SummarySettings() if settings is None else settings
    report = progress or (lambda step, share: None)
    named = isinstance(table, Table)
    table = table if isinstance(table, Table) else table_from_array(table)
    report("reading people", 0.0)
    people = People(table, settings)
    columns = released_names(table, settings)
    min_group_size = settings.group_size_for(people.count, count_disclosed(columns))
    if people.count < min_group_size:
        raise TooFewPeopleError(f"there are fewer than {min_group_size} people, too few for a summary table")
    same = collinear(table, tuple(name for name, _, kind in columns if has_cells(kind)))
    people.link_missing(same)
    distance = PointMatrix(people.count, min_group_size, settings)
    spreads: dict[str, ColumnSpread | None] = {}
    categories: dict[str, SummaryCategories] = {}
    missing = 0.0  # the largest share of people without a value in a column
    for i, (name, _, kind) in enumerate(columns):
        report("measuring columns", 0.2 * i / len(columns))
        if has_mean(kind):
            x = people.number(name)
            spreads[name] = spread_of(x, min_group_size)
            without = int(np.isnan(x).sum())
            missing = max(missing, missing_share(without, people.count, spreads[name] is not None))
            distance.add_number(name, x, spreads[name])
        elif kind == CATEGORY:
            has = people.category(name)
            categories[name] = frozen_categories(table.categories[name], has, min_group_size)
            without = people.count - len(np.unique(has.who))
            missing = max(missing, missing_share(without, people.count, bool(categories[name].names)))
            distance.add_category(
                name, has, categories[name].names, categories[name].places(table.categories[name])
            )
    min_size = min_size_for(min_group_size, missing, people.count)
    Z = distance.matrix()
    scales = Scales(min_group_size, min_size, tuple(columns), spreads, categories, same, named=named)
    classes = sensitive_classes(table, people, scales, settings)
    scales = replace(scales, diverse={name: limits for name, (limits, _) in classes.items()})
    labels = groups(
        Z,
        min_size,
        limits=class_limits(scales.diverse, {name: own for name, (_, own) in classes.items()}),
        progress=lambda share: report("forming groups", 0.2 + 0.6 * share),
    )
    if settings.person:
        inside, overall = _distances(Z, labels)
        scales = replace(scales, inside=inside, overall=overall)
    del distance, Z
    disclosed, inside_groups = disclosed_groups(
        table, people, scales, settings, labels, lambda share: report("averaging groups", 0.8 + 0.2 * share)
    )
    members = [rows.tolist() for rows in _members(labels)]
    scales = replace(scales, within=tuple(one.variance for one in inside_groups))
    of = {name: own for name, (_, own) in classes.items()}
    return FirstSummary(assemble_summary(scales, disclosed, made), scales, people, members, disclosed, of)


def sensitive_classes(
    table: Table, people: People, scales: Scales, settings: SummarySettings
) -> dict[str, tuple[ValueLimits, IntArray]]:
    """Return, by column whose values are to be diverse, its limits and the class of everybody, -1: none.

    Limits are those of the scales; for a first table they are measured. Suppressed columns have none.
    """
    found = {}
    for name, _, kind in scales.columns:
        if name not in settings.diverse:
            continue
        known = scales.diverse.get(name)
        if has_mean(kind) and (spread := scales.spreads[name]) is not None and spread.typical:
            x = people.number(name)
            limits = known or number_limits(x, settings.diverse_by)
            found[name] = limits, limits.classes(x)
        elif kind == CATEGORY and scales.categories[name].names:
            of, count = _one_category(table, people, scales, name), len(scales.categories[name].names)
            found[name] = known or category_limits(of, count, settings.diverse_by), of
    return found


def _one_category(table: Table, people: People, scales: Scales, name: str) -> IntArray:
    categories = scales.categories[name]
    place = categories.places(table.categories.get(name, ()))
    return one_category(people.category(name), place, len(categories.names), people.count)


def disclosed_groups(
    table: Table,
    people: People,
    scales: Scales,
    settings: SummarySettings,
    labels: IntArray,
    report: Callable[[float], None] = lambda share: None,
) -> tuple[list[Cells], tuple[WithinGroupSquares, ...]]:
    """Return the cells of groups of people, and the squares within them by column; -1 is not a group."""
    rows = _members(labels)
    if not rows:
        return [], ()
    sizes = np.array([len(own) for own in rows])
    members = np.full((len(rows), int(sizes.max())), -1, dtype=np.int64)
    for label, own in enumerate(rows):
        members[label, : len(own)] = own
    cells: list[Cells] = [{PEOPLE: [float(size)]} for size in sizes]
    within = []
    for i, (name, released, kind) in enumerate(scales.columns):
        report(i / len(scales.columns))
        known, columns = np.zeros(len(rows)), np.zeros((len(rows), 0))
        inside = WithinGroupSquares(0.0, 0.0, 0)
        if has_mean(kind) and (spread := scales.spreads[name]) is not None:
            share = settings.max_share if name in settings.consumption else 1.0
            known, mean, inside = number_cells(
                people.number(name)[members], members < 0, spread, scales.min_group_size, share
            )
            columns = mean[:, None]
        elif kind == CATEGORY and (names := scales.categories[name].names):
            has = people.category(name)
            place = scales.categories[name].places(table.categories.get(name, ()))
            if name in scales.diverse:  # as the groups were formed: everybody has one category
                of = _one_category(table, people, scales, name)
                who = np.flatnonzero(of >= 0)
                has, place = CategoryMembership(who, of[who], np.ones(len(who))), np.arange(len(names))
            grouped = labels[has.who] >= 0
            has = CategoryMembership(has.who[grouped], has.category[grouped], has.share[grouped])
            known, columns = category_cells(has, place, len(names), labels, len(rows), scales.min_group_size)
        within.append(inside)
        for cell, n, values in zip(cells, known.tolist(), columns.tolist(), strict=True):
            if n:
                cell[released] = [n, *values]
    return cells, tuple(within)


def assemble_summary(scales: Scales, disclosed: Sequence[Cells], made: str = "") -> SummaryTable:
    """Return the summary table of these groups, sorted by their values, so that positions reveal nothing."""
    known, kinds = np.zeros((len(disclosed), len(scales.columns))), []
    means: dict[str, FloatArray] = {}
    counts: dict[str, FloatArray] = {}
    for j, (name, column, kind) in enumerate(scales.columns):
        width = 1 if has_mean(kind) else len(scales.categories[name].names) if kind == CATEGORY else 0
        nothing = [0.0] * (1 + width)
        values = np.array([own.get(column, nothing) for own in disclosed])
        values = values.reshape(len(disclosed), 1 + width)
        known[:, j] = values[:, 0]
        there = bool(values[:, 0].any())
        kinds.append(kind if there or not has_cells(kind) else EMPTY)
        if there and has_mean(kind):
            means[column] = np.ascontiguousarray(values[:, 1])
        elif there and kind == CATEGORY:
            counts[column] = np.ascontiguousarray(values[:, 1:])
    summary = SummaryTable(
        names=tuple(column for _, column, _ in scales.columns),
        kinds=tuple(kinds),
        categories={
            column: scales.categories[name].names for name, column, _ in scales.columns if column in counts
        },
        people=np.array([own[PEOPLE][0] for own in disclosed]),
        known=known,
        means=means,
        counts=counts,
        within=np.array(scales.within),
        values={
            column: spread.values
            for name, column, _ in scales.columns
            if column in means and (spread := scales.spreads[name]) is not None and spread.values
        },
        min_group_size=scales.min_group_size,
        made=made or datetime.now(UTC).date().isoformat(),
        named=scales.named,
    )
    return sorted_by_values(summary)


def _distances(Z: npt.NDArray[np.float32], labels: IntArray) -> tuple[float, float]:
    """The mean squared distances of people from the means of their groups, and from the mean of all."""
    sizes = np.bincount(labels)
    overall = float(np.var(Z, axis=0, dtype=np.float64).sum())
    between = 0.0
    for column in Z.T:
        means = np.bincount(labels, column) / sizes
        between += float(sizes @ (means - column.mean(dtype=np.float64)) ** 2) / len(Z)
    return max(overall - between, 0.0), overall


def min_size_for(min_group_size: int, missing: float, people: int) -> int:
    """Return the smallest size of groups if at most the share ``missing`` of the people lacks a value."""
    return min(size_with_missing(min_group_size, missing), max(min_group_size, people // 2))


def size_with_missing(min_group_size: int, missing: float) -> int:
    """Return the smallest size of groups in which at least g people mostly have a value.

    ``missing`` is the share of people without a value.

    >>> [size_with_missing(5, missing) for missing in (0.0, 0.01, 0.05, 0.1, 0.2)]
    [5, 5, 6, 7, 10]
    """
    if missing > _MANY_MISSING:
        return 2 * min_group_size
    for size in range(min_group_size, 2 * min_group_size):
        chance = (comb(size, k) * (1 - missing) ** k * missing ** (size - k) for k in range(min_group_size))
        if sum(chance) <= _SUPPRESSED:
            return size
    return 2 * min_group_size


def missing_share(missing: int, people: int, used: bool) -> float:
    """Return the share of the people without a value in a column; 0 if the column is suppressed."""
    return missing / people if used else 0.0


def _members(labels: IntArray) -> list[IntArray]:
    """The people of each group."""
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    ends = np.cumsum(np.bincount(labels[order]))
    return np.split(order, ends[:-1]) if len(ends) else []


def sorted_by_values(summary: SummaryTable) -> SummaryTable:
    """Return the summary table with its rows sorted by their values, so that positions reveal nothing."""
    order = np.lexsort([np.nan_to_num(values) for _, values in reversed(summary.cells())])
    return replace(
        summary,
        people=summary.people[order],
        known=summary.known[order],
        means={name: mean[order] for name, mean in summary.means.items()},
        counts={name: by_category[order] for name, by_category in summary.counts.items()},
    )


def table_from_array(X: FloatArray) -> Table:
    """Return an array as a table; its columns are called 0, 1, 2 ..."""
    names = tuple(str(j) for j in range(X.shape[1]))
    return Table(names, (NUMBER,) * len(names), {}, np.asarray(X, dtype=np.float64))
