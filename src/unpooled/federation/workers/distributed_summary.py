"""Summary tables of sites whose rows are on workers: scales of the whole site, groups within partitions.

The summary table of a partition is described by how to make it: its rows and the grouping plan
(``privacy/microaggregation/distributed``). If a worker is lost, another one makes the same groups again.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from operator import add
from secrets import token_hex
from threading import Lock
from typing import Any

import numpy as np

from unpooled.data.joined_tables import joined
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError, TooFewPeopleError
from unpooled.federation.workers.partition import GroupRows, RowPartition, with_partition_name
from unpooled.federation.workers.worker_federation import Workers, checked_partitions, workers_of
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.distributed.grouping_plan import SummaryPlan
from unpooled.privacy.microaggregation.distributed.whole_site import WholeSiteFacts, facts_of, plan_of
from unpooled.privacy.microaggregation.distributed.worker_part import PartFacts, SummaryPart
from unpooled.protocol.messages import SiteId

_Sums = dict[tuple[SiteId, Any], Any]
# groups of partitions that this process made and that partition_summary has not taken yet
_made: dict[tuple[str, SiteId, int], SummaryTable] = {}
_lock = Lock()


def summary_partitions(
    rows: Mapping[SiteId, RowPartition | Sequence[RowPartition]],
    executor: object,
    settings: SummarySettings | None = None,
    on_left_out: Callable[[SiteId, str], None] | None = None,
) -> dict[SiteId, list[RowPartition]]:
    """Return the summary tables of sites, as partitions that workers hold; only the workers read the rows.

    Scales, categories and the minimum group size are those of the whole site; groups are made within
    partitions. A partition of fewer people than a group is merged with its neighbour.

    Parameters
    ----------
    rows
        The partitions of every site.
    executor
        Holds the rows: Processes, a Dask Client or an executor of concurrent.futures.
    settings
        Settings of the summary tables.
    on_left_out
        Called with the name of a site that has too few people for a summary table, and the reason. Without it
        such a site raises TooFewPeopleError.
    """
    settings = SummarySettings() if settings is None else settings
    builder = _SummaryBuilder(workers_of(executor), settings, on_left_out)
    return builder.run({site: list(checked_partitions(site, rows[site])) for site in sorted(rows)})


class HeldRows:
    """The rows of a partition on its worker, to be summarized. Pickled, it is only their description."""

    def __init__(
        self,
        number: int,
        name: str,
        site: SiteId,
        place: int,
        partition: RowPartition,
        settings: SummarySettings,
    ) -> None:
        self.number, self.name, self.site = number, name, site
        self._described = (place, partition, settings)
        self._part: SummaryPart | None = None
        self._lock = Lock()

    def __reduce__(self) -> Any:
        return HeldRows, (self.number, self.name, self.site, *self._described)

    @property
    def part(self) -> SummaryPart:
        """Its people, read at the first use; InputError if the partition is a summary table already."""
        with self._lock:
            if self._part is None:
                place, partition, settings = self._described
                self._part = SummaryPart(place, _raw(partition), settings)
        return self._part


@dataclass(frozen=True)
class AskGroups:
    """Asks every partition to make and keep its groups, and for facts about them."""

    plan: SummaryPlan
    run: str
    site: SiteId

    def answer(self, part: SummaryPart) -> dict[Any, Any]:
        groups, facts = self.plan.grouped(part)
        with _lock:
            for key in [key for key in _made if key[0] != self.run]:
                del _made[key]
            _made[self.run, self.site, part.number] = groups
        return {"groups": (facts,)}


def measure_partition(held: HeldRows, ask: Any) -> _Sums:
    """Return the answer of a partition to a measure, on a worker."""
    return with_partition_name(
        held, lambda: {(held.site, key): value for key, value in ask.answer(held.part).items()}
    )


def sum_answers(answers: Sequence[_Sums]) -> _Sums:
    """Return the answers of several partitions as one."""
    keys = dict.fromkeys(key for answer in answers for key in answer)
    return {key: reduce(add, [answer[key] for answer in answers if key in answer]) for key in keys}


def partition_summary(
    partition: RowPartition, plan: SummaryPlan, run: str, site: SiteId, place: int
) -> SummaryTable | GroupRows:
    """Return the summary table of a partition on its worker: made before in this process, or made again."""
    with _lock:
        groups = _made.pop((run, site, place), None)
    if groups is None:
        groups, facts = plan.grouped(SummaryPart(place, _raw(partition), plan.settings))
        plan.check_same(facts)
    table = plan.complete(groups)
    if table.named:
        return table
    return GroupRows(plan.matrix(table), table.people, np.nan_to_num(table.within))


def joined_rows(*partitions: RowPartition) -> Any:
    """Return the rows of several partitions, one after the other."""
    every = [_raw(partition) for partition in partitions]
    if not all(isinstance(one, Table) for one in every):
        return np.concatenate(every)
    return joined(every)


def _raw(partition: RowPartition) -> Any:
    rows = partition.rows()
    if isinstance(rows, SummaryTable | GroupRows):
        raise InputError("it is a summary table already")
    return rows


class _SummaryBuilder:
    """Makes the summary tables of several sites, all in the same exchanges."""

    def __init__(
        self, workers: Workers, settings: SummarySettings, on_left_out: Callable[[SiteId, str], None] | None
    ) -> None:
        self._workers, self._settings, self._on_left_out = workers, settings, on_left_out

    def run(self, sites: dict[SiteId, list[RowPartition]]) -> dict[SiteId, list[RowPartition]]:
        sites, facts = self._with_enough_people(sites)
        steps = {site: plan_of(facts[site], self._settings) for site in sites}
        plans = self._asked(sites, steps)
        run = token_hex(8)
        complete = self._asked(sites, {site: _complete(plans[site], run, site) for site in sites})
        return {
            site: [
                RowPartition(partition_summary, (partition, complete[site], run, site, i))
                for i, partition in enumerate(partitions)
            ]
            for site, partitions in sites.items()
        }

    def _with_enough_people(
        self, sites: dict[SiteId, list[RowPartition]]
    ) -> tuple[dict[SiteId, list[RowPartition]], dict[SiteId, WholeSiteFacts]]:
        """Return the sites that have enough people, in partitions that have enough each."""
        while True:
            self._hold(sites)
            facts = self._asked(sites, {site: facts_of(self._settings) for site in sites})
            if not facts:
                raise InputError("no site has enough people for a summary table")
            merged = {
                site: _merge_small(sites[site], facts[site].parts, facts[site].min_group_size)
                for site in facts
            }
            if all(len(merged[site]) == len(sites[site]) for site in facts):
                return merged, facts
            # count again: a person with rows in two partitions that were merged counts once
            sites = merged

    def _hold(self, sites: Mapping[SiteId, Sequence[RowPartition]]) -> None:
        numbers = count()
        self._held = [
            HeldRows(
                next(numbers),
                site if len(partitions) == 1 else f"{site}/{i:04}",
                site,
                i,
                partition,
                self._settings,
            )
            for site, partitions in sites.items()
            for i, partition in enumerate(partitions)
        ]
        self._workers.hold(self._held)

    def _asked(
        self, sites: Mapping[SiteId, Any], steps: Mapping[SiteId, Generator[Any, Any, Any]]
    ) -> dict[SiteId, Any]:
        """Return the results of one protocol for every site; sites of too few people have none."""
        done: dict[SiteId, Any] = {}
        answers: dict[SiteId, Any] = dict.fromkeys(steps)
        while answers:
            asks = {}
            for site, answer in answers.items():
                try:
                    asks[site] = steps[site].send(answer)
                except StopIteration as end:
                    done[site] = end.value
                except TooFewPeopleError as error:
                    if self._on_left_out is None:
                        raise TooFewPeopleError(f"{site}: {error}") from None
                    self._on_left_out(site, str(error))
                except InputError as error:
                    raise InputError(f"{site}: {error}") from None
            if not asks:
                break
            # down: a measure of every site to its partitions; up: sums in a tree
            inputs = {held.number: asks[held.site] for held in self._held if held.site in asks}
            sums = self._workers.reduce(measure_partition, inputs, sum_answers)
            answers = {site: {key: value for (of, key), value in sums.items() if of == site} for site in asks}
        return {site: done[site] for site in sites if site in done}


def _complete(plan: SummaryPlan, run: str, site: SiteId) -> Generator[Any, Any, SummaryPlan]:
    # down: the plan; up: facts about the groups
    answer = yield AskGroups(plan, run, site)
    return plan.completed_by(answer["groups"])


def _merge_small(
    partitions: Sequence[RowPartition], facts: Sequence[PartFacts], min_group_size: int
) -> list[RowPartition]:
    """Merge a partition of too few people for a group with the next one, or the last with the one before."""
    merged: list[list[RowPartition]] = []
    people = min_group_size
    for partition, fact in zip(partitions, facts, strict=True):
        if people >= min_group_size:
            merged.append([])
            people = 0
        merged[-1].append(partition)
        people += fact.people
    if people < min_group_size and len(merged) > 1:
        last = merged.pop()
        merged[-1] += last
    return [some[0] if len(some) == 1 else RowPartition(joined_rows, tuple(some)) for some in merged]
