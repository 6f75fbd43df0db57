"""The summary table of a site whose rows are in several parts: scales of the whole, groups within parts.

::

    facts -> ids -> collinear columns -> people by category -> order statistics -> sums -> groups by part

``plan_of`` is a protocol: it yields a measure, which every part answers, and receives the sum of the answers.
Every number of the plan is that of the whole, to the last bit, however the rows are divided. Collinear
columns are found in a sample of 20,000 rows, which depends on the order of the rows.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from unpooled.data.column_kinds import CATEGORY, TEXT, has_cells, has_mean
from unpooled.data.joined_tables import check_same_columns, joined, kind_in_all
from unpooled.data.readers.source import MAX_CATEGORIES
from unpooled.errors import InputError, TooFewPeopleError
from unpooled.privacy.microaggregation.collinear import SAMPLE, collinear
from unpooled.privacy.microaggregation.distributed.grouping_plan import SummaryPlan
from unpooled.privacy.microaggregation.distributed.order_statistics import STEPS, RankSearch
from unpooled.privacy.microaggregation.distributed.worker_part import (
    AskDigitCounts,
    AskFacts,
    AskIds,
    AskNonMissing,
    AskRareCategories,
    AskSample,
    AskSums,
    PartFacts,
    ValueRange,
    summed,
)
from unpooled.privacy.microaggregation.group_means import (
    ColumnSpread,
    TrimmedRange,
    common_of_two,
    spread_from,
    too_few,
)
from unpooled.privacy.microaggregation.people import count_disclosed
from unpooled.privacy.microaggregation.scales import (
    Scales,
    SummaryCategories,
    categories_from_counts,
    common_categories,
)
from unpooled.privacy.microaggregation.summarize import min_size_for, missing_share
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.protocol.exact_sum import ExactSum, exact_sum, normalized

CollinearSets = tuple[tuple[str, ...], ...]
Columns = tuple[tuple[str, str, str], ...]  # (column, its name in the summary table, its kind)
Asking = Generator[Any, Any, Any]
_IDS_AT_ONCE = 1 << 20


class WholeSiteFacts(NamedTuple):
    """The facts of all parts, the columns of the whole, and its minimum group size."""

    parts: list[PartFacts]
    columns: Columns
    min_group_size: int


def facts_of(settings: SummarySettings) -> Generator[Any, Any, WholeSiteFacts]:
    """Return the facts of all parts and of the site; TooFewPeopleError if it has too few people."""
    if settings.diverse:
        raise InputError(
            "diverse columns need all rows of a site in one place, and these rows are in partitions. Use "
            "sensitive in place of diverse, or one table."
        )
    answer = yield AskFacts()
    parts = sorted(answer["parts"])
    people = sum(part.people for part in parts)
    fewest = settings.group_size_for(people, 0)  # columns count only where there are enough people
    if people < fewest:
        raise TooFewPeopleError(f"there are fewer than {fewest} people, too few for a summary table")
    columns = _columns(parts)
    if len(parts) > 1:
        columns = yield from _without_wide(columns)
    return WholeSiteFacts(parts, columns, settings.group_size_for(people, count_disclosed(columns)))


def plan_of(facts: WholeSiteFacts, settings: SummarySettings) -> Generator[Any, Any, SummaryPlan]:
    """Return the plan by which every part forms its groups."""
    parts, columns, min_group_size = facts
    people = sum(part.people for part in parts)
    if settings.person and len(parts) > 1:
        yield from _check_ids(people, settings.person)
    same = yield from _collinear(parts, columns)
    numbers = tuple(name for name, _, kind in columns if has_mean(kind))
    categorical = tuple(name for name, _, kind in columns if kind == CATEGORY)
    # down: columns; up: people with a value, people and rows by category
    counted = yield AskNonMissing(same, numbers, categorical)
    holders: dict[str, Counter[str]] = {name: counted["holders", name] for name in categorical}
    # down: common categories; up: people who have another one
    rare = yield AskRareCategories(
        same, {name: common_categories(of, min_group_size) for name, of in holders.items()}
    )
    categories = {
        name: categories_from_counts(of, rare[name], min_group_size) for name, of in holders.items()
    }
    known = {name: counted["known", name] for name in (*numbers, *categorical)}
    enough = [name for name in numbers if not too_few(known[name], min_group_size)]
    measured = yield from _spreads({name: known[name] for name in enough}, same, min_group_size)
    spreads: dict[str, ColumnSpread | None] = {name: measured.get(name) for name in numbers}
    missing = max((_missing(name, known, people, spreads, categories) for name in known), default=0.0)
    scales = Scales(
        min_group_size,
        min_size_for(min_group_size, missing, people),
        columns,
        spreads,
        categories,
        same,
        named=parts[0].named,
    )
    rows = {name: _rows_by_place(categories[name], counted["rows", name]) for name in categorical}
    return SummaryPlan(settings, scales, rows, datetime.now(UTC).date().isoformat())


def _columns(parts: Sequence[PartFacts]) -> Columns:
    """The columns of the whole."""
    check_same_columns([[name for name, _, _ in part.columns] for part in parts])
    kinds = [{name: kind for name, _, kind in part.columns} for part in parts]
    return tuple((name, released, kind_in_all(name, kinds)) for name, released, _ in parts[0].columns)


def _without_wide(columns: Columns) -> Generator[Any, Any, Columns]:
    """The columns; one with too many categories in the whole is text, as if it were read as one file."""
    categorical = tuple(name for name, _, kind in columns if kind == CATEGORY)
    if not categorical:
        return columns
    # down: categorical columns; up: their categories
    counted = yield AskNonMissing((), (), categorical)
    wide = {name for name in categorical if len(counted["holders", name]) > MAX_CATEGORIES}
    return tuple((name, released, TEXT if name in wide else kind) for name, released, kind in columns)


def _rows_by_place(categories: SummaryCategories, rows: Mapping[str, int]) -> tuple[int, ...]:
    """The rows of every category of the summary table: a rare one has no name in the plan."""
    counts = [0] * len(categories.names)
    if counts:
        for place, count in zip(categories.places(tuple(rows)).tolist(), rows.values(), strict=True):
            counts[place] += count
    return tuple(counts)


def _check_ids(people: int, column: str) -> Asking:
    """Raise InputError if somebody has rows in two parts: they would be two people in the summary table."""
    shares = max(1, -(-people // _IDS_AT_ONCE))
    for share in range(shares):
        # down: which share; up: digests of ids
        answer = yield AskIds(share, shares)
        ids = np.frombuffer(b"".join(answer["ids"]), dtype="S16")
        twice = len(ids) - len(np.unique(ids))
        if twice:
            raise InputError(
                f"{twice} of its people have rows in several partitions. For a summary table all rows of a "
                f"person, by column {column}, must be in one partition. Use parquet_partitions(..., "
                f"person={column!r})."
            )


def _collinear(parts: Sequence[PartFacts], columns: Columns) -> Generator[Any, Any, CollinearSets]:
    """Collinear columns with missing values in different rows."""
    looked_at = tuple(name for name, _, kind in columns if has_cells(kind))
    if not {name for part in parts for name in part.missing}.intersection(looked_at):
        return ()
    rows = [part.rows for part in parts]
    starts = tuple(np.concatenate([[0], np.cumsum(rows)[:-1]]).tolist())
    # down: which rows; up: these rows
    answer = yield AskSample(-(-sum(rows) // SAMPLE), starts, looked_at)
    return collinear(
        joined([table for _, table in sorted(answer["sample"], key=lambda one: one[0])]), looked_at
    )


def _missing(
    name: str,
    known: Mapping[str, int],
    people: int,
    spreads: Mapping[str, ColumnSpread | None],
    categories: Mapping[str, SummaryCategories],
) -> float:
    used = bool(categories[name].names) if name in categories else spreads[name] is not None
    return missing_share(people - known[name], people, used)


def _spreads(
    known: Mapping[str, int], same: CollinearSets, min_group_size: int
) -> Generator[Any, Any, dict[str, ColumnSpread]]:
    """The spreads of columns, by the people who have a value: ``group_means.spread_of`` in parts."""
    if not known:
        return {}
    trimmed = {name: TrimmedRange.from_count(n, min_group_size) for name, n in known.items()}
    ranks = {
        name: ((n - 1) // 2, n // 2, trimmed[name][0].first, trimmed[name][0].end - 1, 0, n - 1)
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
    ends = [{name: search[name].values[r[at]] for name, r in ranks.items()} for at in (4, 5)]
    # down: medians, then the least and the largest number; up: people who have them
    equal = yield AskSums(same, {}, median)
    lows = yield AskSums(same, {}, ends[0])
    highs = yield AskSums(same, {}, ends[1])
    return {
        name: spread_from(
            median[name],
            mean[name],
            variance[name],
            typical[name],
            equal["equal", name] >= min_group_size,
            common_of_two(
                ends[0][name],
                ends[1][name],
                lows["equal", name],
                highs["equal", name],
                known[name],
                min_group_size,
            ),
        )
        for name in known
    }


def _ranked(
    ranks: Mapping[str, Sequence[int]], same: CollinearSets, origin: Mapping[str, float]
) -> Generator[Any, Any, dict[str, RankSearch]]:
    """The numbers at ranks of every column."""
    search = {name: RankSearch(of) for name, of in ranks.items()}
    for step in range(STEPS):
        # down: how the numbers begin; up: how they continue
        answer = yield AskDigitCounts(
            same, step, {name: one.prefixes for name, one in search.items()}, origin
        )
        for name, one in search.items():
            one.narrow({prefix: answer[name, prefix] for prefix in one.prefixes})
    return search


def _means(
    search: Mapping[str, RankSearch],
    trimmed: Mapping[str, TrimmedRange],
    same: CollinearSets,
    origin: Mapping[str, float],
    center: Mapping[str, float],
) -> Generator[Any, Any, dict[str, float]]:
    """The mean of the numbers between two ranks of every column, or of their squares about a centre."""
    ends = {name: search[name].inside(*of) for name, of in trimmed.items()}
    between = {
        name: ValueRange(low, high, origin.get(name), center.get(name))
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
    return normalized(one.low, one.limbs.astype(np.int64) * times)
