"""Making a copy: persons, rare levels, groups, the rule against a dominating person, rounding, sorting.

::

    rows -> persons -> distance -> groups -> cells -> sorted rows

Every step is a function of all persons of the site. What leaves a group is a mean over at least
``group_size`` persons, in which no person counts for more than the third largest of the group lets him.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpooled.core.arrays import FloatArray, IntArray
from unpooled.data.copy import Copy
from unpooled.data.table import CATEGORY, EMPTY, NUMBER, Table
from unpooled.errors import TooFewPersons
from unpooled.kernels.grouping import groups
from unpooled.privacy.copy.cells import ColumnSpread, Inside, category_cells, number_cells, spread_of
from unpooled.privacy.copy.distance import Distance
from unpooled.privacy.copy.history import PERSONS, Cells
from unpooled.privacy.copy.persons import Held, Persons, released_names
from unpooled.privacy.copy.scales import CopyLevels, Scales, frozen_levels
from unpooled.privacy.copy.settings import CopySettings
from unpooled.privacy.copy.twins import twins

Progress = Callable[[str, float], None]  # the step in words, and the share of the work that is done
_MANY_HOLES = 0.15  # of a column: from here on groups are twice as large, so that cells can be shown
_HIDDEN = 0.05  # share of the cells of such a column that may be lost


def make_copy(
    table: Table | FloatArray,
    settings: CopySettings | None = None,
    *,
    progress: Progress | None = None,
    made: str = "",
) -> Copy:
    """The protected copy of a table, or of an array (n, d). BadInput if it has too few persons for a group.

    >>> rows = Table.of({"age": [30.0, 31.0, 32.0, 70.0, 71.0, 72.0], "sex": list("fffmmm")})
    >>> copy = make_copy(rows, CopySettings(g=3))
    >>> copy.means["age"].tolist(), copy.persons.tolist(), copy.counts["sex"].tolist()
    ([31.0, 71.0], [3.0, 3.0], [[3.0, 0.0], [0.0, 3.0]])
    """
    return made_first(table, settings, progress=progress, made=made).copy


class FirstCopy(NamedTuple):
    """A copy, and what must be known to renew it later."""

    copy: Copy
    scales: Scales
    persons: Persons
    members: list[list[int]]  # of every group, as places among the persons
    cells: list[Cells]  # of every group


def made_first(
    table: Table | FloatArray,
    settings: CopySettings | None = None,
    *,
    progress: Progress | None = None,
    made: str = "",
) -> FirstCopy:
    """``make_copy``, with the groups and the scales behind the copy."""
    settings = CopySettings() if settings is None else settings
    say = progress or (lambda step, share: None)
    named = isinstance(table, Table)
    table = table if isinstance(table, Table) else unnamed(table)
    say("reading persons", 0.0)
    persons = Persons(table, settings)
    g = settings.group_size(persons.count)
    if persons.count < g:
        raise TooFewPersons(f"there are fewer than {g} persons: too few for a copy")
    columns = released_names(table, settings)
    same = twins(table, tuple(name for name, _, kind in columns if kind in (NUMBER, CATEGORY)))
    persons.treat_alike(same)
    distance = Distance(persons.count, g, settings)
    spreads: dict[str, ColumnSpread | None] = {}
    levels: dict[str, CopyLevels] = {}
    holes = 0.0
    for i, (name, _, kind) in enumerate(columns):
        say("measuring columns", 0.2 * i / len(columns))
        if kind == NUMBER:
            x = persons.number(name)
            spreads[name] = spread_of(x, g)
            holes = max(holes, used_holes(int(np.isnan(x).sum()), persons.count, spreads[name] is not None))
            distance.add_number(name, x, spreads[name])
        elif kind == CATEGORY:
            has = persons.category(name)
            levels[name] = frozen_levels(table.levels[name], has, g)
            missing = persons.count - len(np.unique(has.who))
            holes = max(holes, used_holes(missing, persons.count, bool(levels[name].names)))
            distance.add_category(name, has, levels[name].names, levels[name].places(table.levels[name]))
    least = least_size(g, holes, persons.count)
    Z = distance.matrix()
    labels = groups(Z, least, progress=lambda share: say("forming groups", 0.2 + 0.6 * share))
    inside, overall = _distances(Z, labels) if settings.person else (0.0, 0.0)
    del distance, Z
    scales = Scales(g, least, tuple(columns), spreads, levels, same, inside, overall, named=named)
    shown, inside_groups = shown_groups(
        table, persons, scales, settings, labels, lambda share: say("averaging groups", 0.8 + 0.2 * share)
    )
    members = [rows.tolist() for rows in _members(labels)]
    scales = replace(scales, within=tuple(one.variance for one in inside_groups))
    return FirstCopy(assembled(scales, shown, made), scales, persons, members, shown)


def shown_groups(
    table: Table,
    persons: Persons,
    scales: Scales,
    settings: CopySettings,
    labels: IntArray,
    tell: Callable[[float], None] = lambda share: None,
) -> tuple[list[Cells], tuple[Inside, ...]]:
    """The cells of groups of persons, and the squares within them by column; label -1 is nobody's group."""
    rows = _members(labels)
    if not rows:
        return [], ()
    sizes = np.array([len(own) for own in rows])
    members = np.full((len(rows), int(sizes.max())), -1, dtype=np.int64)
    for label, own in enumerate(rows):
        members[label, : len(own)] = own
    cells: list[Cells] = [{PERSONS: [float(size)]} for size in sizes]
    within = []
    for i, (name, shown, kind) in enumerate(scales.columns):
        tell(i / len(scales.columns))
        known, columns, inside = np.zeros(len(rows)), np.zeros((len(rows), 0)), Inside(0.0, 0.0, 0)
        if kind == NUMBER and (spread := scales.spreads[name]) is not None:
            share = settings.largest_share if name in settings.consumption else 1.0
            known, mean, inside = number_cells(
                persons.number(name)[members], members < 0, spread, scales.group_size, share
            )
            columns = mean[:, None]
        elif kind == CATEGORY and (names := scales.levels[name].names):
            has = persons.category(name)
            grouped = labels[has.who] >= 0
            has = Held(has.who[grouped], has.level[grouped], has.share[grouped])
            place = scales.levels[name].places(table.levels.get(name, ()))
            known, columns = category_cells(has, place, len(names), labels, len(rows), scales.group_size)
        within.append(inside)
        for cell, n, values in zip(cells, known.tolist(), columns.tolist(), strict=True):
            if n:
                cell[shown] = [n, *values]
    return cells, tuple(within)


def assembled(scales: Scales, shown: Sequence[Cells], made: str = "") -> Copy:
    """The copy that has these groups as its rows, in the order of their values: their places say nothing."""
    known, kinds = np.zeros((len(shown), len(scales.columns))), []
    means: dict[str, FloatArray] = {}
    counts: dict[str, FloatArray] = {}
    for j, (name, column, kind) in enumerate(scales.columns):
        width = 1 if kind == NUMBER else len(scales.levels[name].names) if kind == CATEGORY else 0
        nothing = [0.0] * (1 + width)
        values = np.array([own.get(column, nothing) for own in shown]).reshape(len(shown), 1 + width)
        known[:, j] = values[:, 0]
        there = bool(values[:, 0].any())
        kinds.append(kind if there or kind not in (NUMBER, CATEGORY) else EMPTY)
        if there and kind == NUMBER:
            means[column] = np.ascontiguousarray(values[:, 1])
        elif there and kind == CATEGORY:
            counts[column] = np.ascontiguousarray(values[:, 1:])
    copy = Copy(
        names=tuple(column for _, column, _ in scales.columns),
        kinds=tuple(kinds),
        levels={column: scales.levels[name].names for name, column, _ in scales.columns if column in counts},
        persons=np.array([own[PERSONS][0] for own in shown]),
        known=known,
        means=means,
        counts=counts,
        within=np.array(scales.within),
        group_size=scales.group_size,
        made=made or datetime.now(UTC).date().isoformat(),
        named=scales.named,
    )
    return _sorted(copy)


def _distances(Z: npt.NDArray[np.float32], labels: IntArray) -> tuple[float, float]:
    """The mean squared distances of persons from the means of their groups, and from the mean of all."""
    sizes = np.bincount(labels)
    overall = float(np.var(Z, axis=0, dtype=np.float64).sum())
    between = 0.0
    for column in Z.T:
        means = np.bincount(labels, column) / sizes
        between += float(sizes @ (means - column.mean(dtype=np.float64)) ** 2) / len(Z)
    return max(overall - between, 0.0), overall


def least_size(g: int, holes: float, persons: int) -> int:
    """The least size of groups, where at most the share ``holes`` of so many persons lacks a value."""
    return min(larger_groups(g, holes), max(g, persons // 2))


def larger_groups(g: int, holes: float) -> int:
    """The least size of groups of which at least g persons mostly have a value, where ``holes`` have none.

    >>> [larger_groups(5, holes) for holes in (0.0, 0.01, 0.05, 0.1, 0.2)]
    [5, 5, 6, 7, 10]
    """
    if holes > _MANY_HOLES:
        return 2 * g
    for size in range(g, 2 * g):
        chance = (comb(size, k) * (1 - holes) ** k * holes ** (size - k) for k in range(g))
        if sum(chance) <= _HIDDEN:
            return size
    return 2 * g


def used_holes(missing: int, persons: int, used: bool) -> float:
    """The share of the persons who lack a value in a column; 0 where the column is not shown."""
    return missing / persons if used else 0.0


def _members(labels: IntArray) -> list[IntArray]:
    """The persons of each group."""
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    ends = np.cumsum(np.bincount(labels[order]))
    return np.split(order, ends[:-1]) if len(ends) else []


def _sorted(copy: Copy) -> Copy:
    """The copy with its rows in the order of their values: their places say nothing."""
    order = np.lexsort([np.nan_to_num(values) for _, values in reversed(copy.cells())])
    return replace(
        copy,
        persons=copy.persons[order],
        known=copy.known[order],
        means={name: mean[order] for name, mean in copy.means.items()},
        counts={name: by_level[order] for name, by_level in copy.counts.items()},
    )


def unnamed(X: FloatArray) -> Table:
    """An array as a table; its columns are called 0, 1, 2 ..."""
    names = tuple(str(j) for j in range(X.shape[1]))
    return Table(names, (NUMBER,) * len(names), {}, np.asarray(X, dtype=np.float64))
