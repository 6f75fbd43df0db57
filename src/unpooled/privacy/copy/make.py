"""Making a copy: persons, rare levels, groups, the rule against a dominating person, rounding, sorting.

::

    rows -> persons -> distance -> groups -> cells -> sorted rows

Every step is a function of all persons of the site. What leaves a group is a mean over at least
``group_size`` persons, in which no person counts for more than the third largest of the group lets him.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import comb

import numpy as np

from unpooled.core.arrays import FloatArray, IntArray
from unpooled.data.copy import OTHER, Copy
from unpooled.data.table import CATEGORY, EMPTY, NUMBER, Table
from unpooled.errors import TooFewPersons
from unpooled.kernels.grouping import groups
from unpooled.privacy.copy.cells import ColumnSpread, category_cells, number_cells, spread_of
from unpooled.privacy.copy.distance import Distance
from unpooled.privacy.copy.persons import Held, Persons, released_names
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
    settings = CopySettings() if settings is None else settings
    say = progress or (lambda step, share: None)
    named = isinstance(table, Table)
    table = table if isinstance(table, Table) else _unnamed(table)
    say("reading persons", 0.0)
    persons = Persons(table, settings)
    g = settings.group_size(persons.count)
    if persons.count < g:
        raise TooFewPersons(f"there are fewer than {g} persons: too few for a copy")
    columns = released_names(table, settings)
    persons.treat_alike(twins(table, tuple(name for name, _, kind in columns if kind in (NUMBER, CATEGORY))))
    distance = Distance(persons.count, g, settings)
    spreads: dict[str, ColumnSpread | None] = {}
    held: dict[str, tuple[tuple[str, ...], IntArray]] = {}
    holes = 0.0
    for i, (name, _, kind) in enumerate(columns):
        say("measuring columns", 0.2 * i / len(columns))
        if kind == NUMBER:
            x = persons.number(name)
            spreads[name] = spread_of(x, g)
            holes = max(holes, _holes(float(np.isnan(x).mean()), spreads[name] is not None))
            distance.add_number(name, x, spreads[name])
        elif kind == CATEGORY:
            has = persons.category(name)
            held[name] = frozen_levels(table.levels[name], has, persons.count, g)
            missing = 1 - len(np.unique(has.who)) / persons.count
            holes = max(holes, _holes(missing, bool(held[name][0])))
            distance.add_category(name, has, *held[name])
    least = min(larger_groups(g, holes), max(g, persons.count // 2))
    labels = groups(distance.matrix(), least, progress=lambda share: say("forming groups", 0.2 + 0.6 * share))
    del distance
    members, sizes = _members(labels)
    known, means, counts, within, kinds = [], {}, {}, [], []
    for i, (name, shown, kind) in enumerate(columns):
        say("averaging groups", 0.8 + 0.2 * i / len(columns))
        has_value, variance, seen = (
            np.zeros(len(sizes)),
            float("nan"),
            EMPTY if kind in (NUMBER, CATEGORY) else kind,
        )
        if kind == NUMBER and (spread := spreads[name]) is not None:
            share = settings.largest_share if name in settings.consumption else 1.0
            has_value, mean, variance = number_cells(
                persons.number(name)[members], members < 0, spread, g, share
            )
            if has_value.any():
                means[shown], seen = mean, NUMBER
        elif kind == CATEGORY and held[name][0]:
            levels, place = held[name]
            has_value, by_level = category_cells(
                persons.category(name), place, len(levels), labels, len(sizes), g
            )
            if has_value.any():
                counts[shown], seen = by_level, CATEGORY
        known.append(has_value)
        within.append(variance)
        kinds.append(seen)
    return _sorted(
        Copy(
            names=tuple(shown for _, shown, _ in columns),
            kinds=tuple(kinds),
            levels={shown: held[name][0] for name, shown, _ in columns if shown in counts},
            persons=sizes.astype(np.float64),
            known=np.stack(known, axis=1) if known else np.zeros((len(sizes), 0)),
            means=means,
            counts=counts,
            within=np.array(within),
            group_size=g,
            made=made or datetime.now(UTC).date().isoformat(),
            named=named,
        )
    )


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


def _holes(missing: float, used: bool) -> float:
    return missing if used else 0.0


def frozen_levels(
    levels: tuple[str, ...], has: Held, persons: int, g: int
) -> tuple[tuple[str, ...], IntArray]:
    """The levels of the copy, and the place of each of the table's levels among them.

    A level of fewer than g persons becomes "other"; if "other" would have fewer than g, it becomes the
    commonest level. No level at all if fewer than g persons have a value.
    """
    pairs = np.unique(has.who * len(levels) + has.level)
    holders = np.bincount(pairs % len(levels), minlength=len(levels))
    common = [i for i in range(len(levels)) if holders[i] >= g and levels[i] != OTHER]
    names = tuple(levels[i] for i in sorted(common, key=lambda i: levels[i]))
    place = np.array([names.index(level) if level in names else -1 for level in levels], dtype=np.int64)
    rest = pairs[place[pairs % len(levels)] < 0] // len(levels)
    others = len(np.unique(rest))
    if others >= g:
        return (*names, OTHER), np.where(place < 0, len(names), place)
    if not names:
        return (), place
    commonest = names.index(levels[max(common, key=lambda i: holders[i])])
    return names, np.where(place < 0, commonest, place)


def _members(labels: IntArray) -> tuple[IntArray, IntArray]:
    """(G, most) the persons of each group, -1 where a group has fewer; and the sizes (G,)."""
    sizes = np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    starts = np.cumsum(sizes) - sizes
    members = np.full((len(sizes), int(sizes.max())), -1, dtype=np.int64)
    members[labels[order], np.arange(len(order)) - starts[labels[order]]] = order
    return members, sizes


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


def _unnamed(X: FloatArray) -> Table:
    """An array as a table; its columns are called 0, 1, 2 ..."""
    names = tuple(str(j) for j in range(X.shape[1]))
    return Table(names, (NUMBER,) * len(names), {}, np.asarray(X, dtype=np.float64))
