"""The update of a summary table after its data changed: withdrawn groups, new groups, people who wait.

::

    people -> groups with a person who left or changed -> withheld people -> regrouping -> new groups

Groups of which nobody left or changed stay as they were disclosed. Everything is planned here and nothing is
written.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from unpooled.data.column_kinds import CATEGORY, has_cells, has_mean
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation.collinear import collinear
from unpooled.privacy.microaggregation.distance import points
from unpooled.privacy.microaggregation.diversity import class_limits, earlier_odds
from unpooled.privacy.microaggregation.group_history import PEOPLE, Cells, History, ReleasedGroup
from unpooled.privacy.microaggregation.people import People
from unpooled.privacy.microaggregation.regroup import regroup
from unpooled.privacy.microaggregation.scales import Scales
from unpooled.privacy.microaggregation.summarize import (
    FirstSummary,
    assemble_summary,
    disclosed_groups,
    sensitive_classes,
)
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.typing import FloatArray, IntArray

Digest = Callable[[bytes], str]  # keyed: without the key nobody can try ids
_FINE = 1 << 16  # steps of a column's grid: smaller differences are rounding and not a change
_KNOWN = 0.5  # share of the disclosed people who must be in the new table: fewer look like other ids

STILL_DISCLOSED, DISCLOSED_AGAIN, NEWLY_DISCLOSED = "still disclosed", "disclosed again", "newly disclosed"
PENDING, NEW_PENDING = "pending, was disclosed before", "pending, new"
WITHHELD, CANNOT_RETURN, ERASED = "withheld for ever", "cannot return", "erased, and still in the file"
GONE, CHANGED = "left", "changed"
STATES = (
    STILL_DISCLOSED,
    DISCLOSED_AGAIN,
    NEWLY_DISCLOSED,
    NEW_PENDING,
    PENDING,
    WITHHELD,
    CANNOT_RETURN,
    ERASED,
)
DISCLOSED = (STILL_DISCLOSED, DISCLOSED_AGAIN, NEWLY_DISCLOSED)


@dataclass(frozen=True)
class Renewal:
    """A planned update."""

    summary: SummaryTable
    scales: Scales
    retired: tuple[int, ...]  # numbers of groups
    withheld: dict[int, frozenset[str]]  # chosen now, by group
    added: tuple[ReleasedGroup, ...]
    states: dict[str, str]  # by id of everybody in the table
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.retired and not self.added


def person_digest(digest: Digest, person: str) -> str:
    return digest(b"person:" + person.encode())


def without_erased(table: Table, settings: SummarySettings, erased: Collection[str], digest: Digest) -> Table:
    """Return the table without the rows of people who were erased."""
    if not erased:
        return table
    people = People(table, settings)
    stays = [person_digest(digest, person) not in erased for person in people.ids]
    return replace(table, values=table.values[np.array(stays)[people.row_of]])


def first_groups(table: Table, first: FirstSummary, digest: Digest) -> list[ReleasedGroup]:
    """Return the groups of a first summary table, as its registry keeps them."""
    population = _person_index(table, first.people, first.scales, digest)
    return [
        population.group(rows, first.scales, cells, first.classes)
        for rows, cells in zip(first.members, first.cells, strict=True)
    ]


def plan_renewal(
    history: History,
    scales: Scales,
    settings: SummarySettings,
    table: Table,
    digest: Digest,
    *,
    keep_changed: bool = False,
    extra_spread: float | None = None,
    made: str = "",
) -> Renewal:
    """Plan an update; with ``keep_changed`` only groups of which somebody left are withdrawn.

    New groups may be wider than the first ones, by the share ``extra_spread`` of the way to a single group.
    People without such a group wait. The plan changes ``history``, which must not be used afterwards.
    """
    scales.check_fits(table)
    columns = tuple(name for name, _, kind in scales.columns if has_cells(kind))
    scales = replace(scales, collinear=_joined(scales.collinear, collinear(table, columns)))
    people = People(table, settings)
    people.link_missing(scales.collinear)
    population = _person_index(table, people, scales, digest)
    _check_known(history, population)
    before = {p for p in population.place if history.live_group(p) is not None}
    left, changed = _left_and_changed(history, population)
    going = sorted({number for number, person in left + ([] if keep_changed else changed)})
    Z = points(table, people, scales, settings)
    kept_before = _kept(Z, [_rows(history.groups[n], population) for n in sorted(history.live)])
    for number in going:
        history.retire(number)
    known = set(history.withheld)
    history.open_groups(population.place)
    pool = [p for p in population.place if history.live_group(p) is None and history.may_return(p)]
    rows = np.array([population.place[p] for p in pool], dtype=np.int64)
    classes = sensitive_classes(table, people, scales, settings)
    of = {name: own for name, (_, own) in classes.items()}
    limits = class_limits(scales.diverse, {name: own[rows] for name, own in of.items()})
    groups = regroup(
        Z[rows],
        [history.groups_of(p) for p in pool],
        scales.min_size,
        scales.max_spread(extra_spread),
        limits,
        earlier_odds(history, pool, scales.diverse, settings.diverse_by),
    )
    labels = np.full(people.count, -1, dtype=np.int64)
    for label, group in enumerate(groups):
        labels[rows[group]] = label
    cells, _ = disclosed_groups(table, people, scales, settings, labels)
    returning = {p for p in pool if history.groups_of(p)}
    added = [
        population.group(rows[group].tolist(), scales, own, of)
        for group, own in zip(groups, cells, strict=True)
    ]
    for one in added:
        history.add(one)
    live = [history.groups[number] for number in sorted(history.live)]
    return Renewal(
        summary=assemble_summary(scales, [one.cells for one in live if one.cells is not None], made),
        scales=scales,
        retired=tuple(going),
        withheld={n: history.withheld[n] for n in sorted(set(history.withheld) - known)},
        added=tuple(added),
        states={
            people.ids[row]: _state(history, person, person in before, person in returning)
            for person, row in population.place.items()
        },
        figures={
            "people": people.count,
            "disclosed before": len(before),
            GONE: len(left),
            CHANGED: len(changed),
            "kept before": kept_before,
            "kept": _kept(Z, [_rows(one, population) for one in live]),
        },
    )


class _PersonIndex:
    """The people of a table: the position, the columns with a value and the values of each."""

    def __init__(self, who: Sequence[str], has: list[int], values: list[str]) -> None:
        self.who, self.has, self.values = who, has, values
        self.place = {person: row for row, person in enumerate(who)}

    def group(
        self, rows: Sequence[int], scales: Scales, cells: Cells, classes: Mapping[str, IntArray]
    ) -> ReleasedGroup:
        bits = scales.bits
        return ReleasedGroup(
            {self.who[i]: self.has[i] for i in rows},
            1 | sum(bits[name] for name in cells if name != PEOPLE),
            {self.who[i]: self.values[i] for i in rows},
            cells,
            {name: scales.diverse[name].count(of[list(rows)]) for name, of in classes.items()},
        )


def _person_index(table: Table, people: People, scales: Scales, digest: Digest) -> _PersonIndex:
    columns: list[FloatArray] = []
    has: list[npt.NDArray[np.bool_]] = []
    for name, _, kind in scales.columns:
        there = np.zeros(people.count, dtype=np.bool_)
        if has_mean(kind) and (spread := scales.spreads[name]) is not None:
            x = people.number(name)
            there = ~np.isnan(x)
            if spread.typical:
                columns.append(
                    np.where(there, np.round((x - spread.median) * (_FINE / spread.grid)), 0.0) + 0.0
                )
        elif kind == CATEGORY and scales.categories[name].names:
            held, categories = people.category(name), len(scales.categories[name].names)
            there[held.who] = True
            at = (
                held.who * categories
                + scales.categories[name].places(table.categories.get(name, ()))[held.category]
            )
            shares: FloatArray = np.bincount(at, held.share, people.count * categories).astype(np.float64)
            columns.append(np.round(shares * _FINE).reshape(people.count, categories))
        has.append(there)
    bits = [1] * people.count
    for i, there in enumerate(has):
        for row in np.flatnonzero(there).tolist():
            bits[row] |= 2 << i
    V = np.column_stack(columns) if columns else np.zeros((people.count, 0))
    values = [digest(b"values:%d:" % bits[i] + V[i].tobytes()) for i in range(people.count)]
    return _PersonIndex([person_digest(digest, person) for person in people.ids], bits, values)


def _check_known(history: History, population: _PersonIndex) -> None:
    disclosed = sum(len(history.groups[number].members) for number in history.live)
    present = sum(person in population.place for n in history.live for person in history.groups[n].members)
    if present < _KNOWN * disclosed:
        raise InputError(
            f"{present} of {disclosed} disclosed people are in this table. The ids may differ from those of "
            "the summary table, and then everybody would be disclosed a second time. If these people have "
            "really left, withdraw them by id with unpooled site erase."
        )


def _left_and_changed(
    history: History, population: _PersonIndex
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """(group, person) of all disclosed people who are not in the table, and of those with other values."""
    left, changed = [], []
    for number in sorted(history.live):
        group = history.groups[number]
        for person in group.members:
            row = population.place.get(person)
            if row is None:
                left.append((number, person))
            elif population.values[row] != group.values[person]:
                changed.append((number, person))
    return left, changed


def _state(history: History, person: str, before: bool, returned: bool) -> str:
    if history.live_group(person) is not None:
        return DISCLOSED_AGAIN if returned else STILL_DISCLOSED if before else NEWLY_DISCLOSED
    if person in history.erased:
        return ERASED
    if history.may_return(person):
        return PENDING if history.groups_of(person) else NEW_PENDING
    return (
        WITHHELD
        if any(person in history.withheld.get(n, ()) for n in history.groups_of(person))
        else CANNOT_RETURN
    )


def _joined(
    one: tuple[tuple[str, ...], ...], two: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """Sets of columns, those with a column in common put together."""
    joined: list[set[str]] = []
    for same in map(set, (*one, *two)):
        touching = [other for other in joined if other & same]
        joined = [other for other in joined if not other & same] + [same.union(*touching)]
    return tuple(sorted(tuple(sorted(same)) for same in joined))


def _rows(group: ReleasedGroup, population: _PersonIndex) -> IntArray:
    return np.array([population.place[p] for p in group.members if p in population.place], dtype=np.int64)


def _kept(Z: npt.NDArray[np.float32], groups: list[IntArray]) -> float:
    """The share of the variance between groups, over the people who are in a group."""
    rows = np.concatenate(groups) if groups else np.zeros(0, dtype=np.int64)
    if not len(rows):
        return 0.0
    X = Z[rows].astype(np.float64)
    whole = float(((X - X.mean(axis=0)) ** 2).sum())
    inside = sum(
        float(((Z[own] - Z[own].mean(axis=0, dtype=np.float64)) ** 2).sum()) for own in groups if len(own)
    )
    return 1 - inside / whole if whole > 0 else 1.0
