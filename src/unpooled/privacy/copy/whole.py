"""The copy of a site whose rows are in several parts: scales and levels of the whole, groups within parts.

::

    facts -> ids -> twins -> persons by level -> order statistics -> sums -> groups in every part

``plan_of`` is a protocol: it yields a measure, which is asked of every part, and is sent the sum of what
they answered. Every number of the plan is that of the whole, to the last bit, however the rows are divided.
Which columns are twins is seen in a sample of 20,000 rows, which depends on the order of the rows.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from unpooled.core.exact_sum import ExactSum, exact_sum, held
from unpooled.data.joined_tables import check_same_columns, joined, kind_in_all
from unpooled.data.readers.source import MOST_LEVELS
from unpooled.data.table import CATEGORY, NUMBER, TEXT
from unpooled.errors import BadInput, TooFewPersons
from unpooled.privacy.copy.cells import ColumnSpread, Trimmed, spread_from, too_few
from unpooled.privacy.copy.make import least_size, used_holes
from unpooled.privacy.copy.order_statistics import STEPS, RankSearch
from unpooled.privacy.copy.part import (
    AskBeside,
    AskDigits,
    AskFacts,
    AskIds,
    AskKnown,
    AskSample,
    AskSums,
    PartFacts,
    Stretch,
    summed,
)
from unpooled.privacy.copy.plan import CopyPlan
from unpooled.privacy.copy.scales import CopyLevels, Scales, common_levels, levels_from
from unpooled.privacy.copy.settings import CopySettings
from unpooled.privacy.copy.twins import SAMPLE, twins

Twins = tuple[tuple[str, ...], ...]
Columns = tuple[tuple[str, str, str], ...]  # (column, its name in the copy, its kind)
Asking = Generator[Any, Any, Any]
_IDS_AT_ONCE = 1 << 20


def facts_of(settings: CopySettings) -> Generator[Any, Any, tuple[list[PartFacts], int]]:
    """The tables of all parts, and the least size of a group; TooFewPersons if there are fewer."""
    answer = yield AskFacts()
    parts = sorted(answer["parts"])
    persons = sum(part.persons for part in parts)
    g = settings.group_size(persons)
    if persons < g:
        raise TooFewPersons(f"there are fewer than {g} persons: too few for a copy")
    return parts, g


def plan_of(parts: Sequence[PartFacts], g: int, settings: CopySettings) -> Generator[Any, Any, CopyPlan]:
    """The plan by which every part makes its groups."""
    persons = sum(part.persons for part in parts)
    columns = _columns(parts)
    if settings.person and len(parts) > 1:
        yield from _check_ids(persons, settings.person)
    if len(parts) > 1:
        columns = yield from _without_wide(columns)
    same = yield from _twins(parts, columns)
    numbers = tuple(name for name, _, kind in columns if kind == NUMBER)
    categories = tuple(name for name, _, kind in columns if kind == CATEGORY)
    # down: columns; up: persons with a value, persons and rows by level
    counted = yield AskKnown(same, numbers, categories)
    holders: dict[str, Counter[str]] = {name: counted["holders", name] for name in categories}
    # down: common levels; up: persons who have another one
    beside = yield AskBeside(same, {name: common_levels(of, g) for name, of in holders.items()})
    levels = {name: levels_from(of, beside[name], g) for name, of in holders.items()}
    known = {name: counted["known", name] for name in (*numbers, *categories)}
    enough = [name for name in numbers if not too_few(known[name], g)]
    found = yield from _spreads({name: known[name] for name in enough}, same, g)
    spreads: dict[str, ColumnSpread | None] = {name: found.get(name) for name in numbers}
    holes = max((_missing(name, known, persons, spreads, levels) for name in known), default=0.0)
    scales = Scales(g, least_size(g, holes, persons), columns, spreads, levels, same, named=parts[0].named)
    rows = {name: _rows_by_place(levels[name], counted["rows", name]) for name in categories}
    return CopyPlan(settings, scales, rows, datetime.now(UTC).date().isoformat())


def _columns(parts: Sequence[PartFacts]) -> Columns:
    """The columns of the whole."""
    check_same_columns([[name for name, _, _ in part.columns] for part in parts])
    kinds = [{name: kind for name, _, kind in part.columns} for part in parts]
    return tuple((name, shown, kind_in_all(name, kinds)) for name, shown, _ in parts[0].columns)


def _without_wide(columns: Columns) -> Generator[Any, Any, Columns]:
    """The columns; a category of too many levels in the whole is text, as if it were read as one file."""
    categories = tuple(name for name, _, kind in columns if kind == CATEGORY)
    if not categories:
        return columns
    # down: categories; up: their levels
    counted = yield AskKnown((), (), categories)
    wide = {name for name in categories if len(counted["holders", name]) > MOST_LEVELS}
    return tuple((name, shown, TEXT if name in wide else kind) for name, shown, kind in columns)


def _rows_by_place(levels: CopyLevels, rows: Mapping[str, int]) -> tuple[int, ...]:
    """The rows of every level that the copy has: a rare one has no name in the plan."""
    found = [0] * len(levels.names)
    if found:
        for place, count in zip(levels.places(tuple(rows)).tolist(), rows.values(), strict=True):
            found[place] += count
    return tuple(found)


def _check_ids(persons: int, column: str) -> Asking:
    """BadInput if somebody has rows in two parts: he would be two persons in the copy."""
    shares = max(1, -(-persons // _IDS_AT_ONCE))
    for share in range(shares):
        # down: which share; up: digests of ids
        answer = yield AskIds(share, shares)
        ids = np.frombuffer(b"".join(answer["ids"]), dtype="S16")
        twice = len(ids) - len(np.unique(ids))
        if twice:
            raise BadInput(
                f"{twice} of its persons have rows in several partitions: in a copy all rows of a person, by "
                f"column {column}, must be in one (parquet_partitions(..., person={column!r}) divides so)"
            )


def _twins(parts: Sequence[PartFacts], columns: Columns) -> Generator[Any, Any, Twins]:
    """Columns that tell the same and have different holes."""
    looked_at = tuple(name for name, _, kind in columns if kind in (NUMBER, CATEGORY))
    if not {name for part in parts for name in part.holes}.intersection(looked_at):
        return ()
    rows = [part.rows for part in parts]
    starts = tuple(np.concatenate([[0], np.cumsum(rows)[:-1]]).tolist())
    # down: which rows; up: these rows
    answer = yield AskSample(-(-sum(rows) // SAMPLE), starts, looked_at)
    return twins(joined([table for _, table in sorted(answer["sample"], key=lambda one: one[0])]), looked_at)


def _missing(
    name: str,
    known: Mapping[str, int],
    persons: int,
    spreads: Mapping[str, ColumnSpread | None],
    levels: Mapping[str, CopyLevels],
) -> float:
    used = bool(levels[name].names) if name in levels else spreads[name] is not None
    return used_holes(persons - known[name], persons, used)


def _spreads(known: Mapping[str, int], same: Twins, g: int) -> Generator[Any, Any, dict[str, ColumnSpread]]:
    """The spreads of columns, by the persons who have a value: ``cells.spread_of`` in parts."""
    if not known:
        return {}
    trimmed = {name: Trimmed.of(n, g) for name, n in known.items()}
    ranks = {
        name: ((n - 1) // 2, n // 2, trimmed[name][0].first, trimmed[name][0].end - 1)
        for name, n in known.items()
    }
    search = yield from _ranked(ranks, same, {})
    median = {name: (search[name].values[r[0]] + search[name].values[r[1]]) / 2 for name, r in ranks.items()}
    middles = {name: trimmed[name][0] for name in known}
    mean = yield from _means(search, middles, same, {}, {})
    variance = yield from _means(search, middles, same, {}, mean)
    near = {name: trimmed[name][1] for name in known}
    away = yield from _ranked({name: (t.first, t.end - 1) for name, t in near.items()}, same, median)
    typical = yield from _means(away, near, same, median, {})
    # down: medians; up: persons who have them
    equal = yield AskSums(same, {}, median)
    return {
        name: spread_from(median[name], mean[name], variance[name], typical[name], equal["equal", name] >= g)
        for name in known
    }


def _ranked(
    ranks: Mapping[str, Sequence[int]], same: Twins, origin: Mapping[str, float]
) -> Generator[Any, Any, dict[str, RankSearch]]:
    """The numbers at ranks of every column."""
    search = {name: RankSearch(of) for name, of in ranks.items()}
    for step in range(STEPS):
        # down: how the numbers begin; up: how they go on
        answer = yield AskDigits(same, step, {name: one.prefixes for name, one in search.items()}, origin)
        for name, one in search.items():
            one.narrow({prefix: answer[name, prefix] for prefix in one.prefixes})
    return search


def _means(
    search: Mapping[str, RankSearch],
    trimmed: Mapping[str, Trimmed],
    same: Twins,
    origin: Mapping[str, float],
    center: Mapping[str, float],
) -> Generator[Any, Any, dict[str, float]]:
    """The mean of the numbers between two ranks of every column, or of their squares about a centre."""
    ends = {name: search[name].inside(*of) for name, of in trimmed.items()}
    between = {
        name: Stretch(low, high, origin.get(name), center.get(name))
        for name, (low, high, _, _) in ends.items()
    }
    # down: the numbers at the ends; up: sums of those between
    answer = yield AskSums(same, between, {})
    means = {}
    for name, (low, high, lows, highs) in ends.items():
        total = answer["sum", name]
        for value, times in ((low, lows), (high, highs)):
            total = total + _times(exact_sum(summed(np.array([value]), center.get(name))), times)
        means[name] = float(total.rounded()) / (trimmed[name].end - trimmed[name].first)
    return means


def _times(one: ExactSum, times: int) -> ExactSum:
    return held(one.low, one.limbs.astype(np.int64) * times)
