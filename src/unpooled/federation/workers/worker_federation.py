"""A federation whose sites are partitions on workers: every exchange is one sum in a tree over them."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import count
from typing import Any, Protocol, TypeVar

from unpooled.data.merged_schema import merged
from unpooled.data.schema import AskSchema
from unpooled.errors import InputError, SchemaMismatchError
from unpooled.federation.workers.partition import (
    HeldByWorker,
    HeldPartition,
    PartialAnswer,
    PartialAnswers,
    PartitionRequest,
    RowPartition,
    add_answers,
    answer_partition,
    counts_of_all,
    row_counts,
)
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Asks
from unpooled.protocol.exchange import Aggregate, Federation, Part, Replies, Request, RequestId
from unpooled.protocol.messages import Reply, SiteId, Summable
from unpooled.protocol.partial_sum import partial_sum

A = TypeVar("A")
B = TypeVar("B")


class Workers(Protocol):
    """The holders of partitions: processes, or a Dask cluster."""

    def hold(self, partitions: Sequence[HeldByWorker]) -> None:
        """Hold these partitions, which workers read at the first question, and drop earlier ones."""

    def reduce(
        self,
        do: Callable[[Any, A], B],
        inputs: Mapping[int, A],
        add: Callable[[Sequence[B]], B],
    ) -> B:
        """Apply ``do`` to every partition in ``inputs``, on its worker; ``add`` the results in a tree."""


def workers_of(executor: object) -> Workers:
    """Return the workers of Processes, of a Dask Client, or of any executor of concurrent.futures."""
    from unpooled.federation.workers.process_pool import PoolWorkers, Processes

    if isinstance(executor, Processes):
        return PoolWorkers(executor.slots, executor.replace_process)
    if type(executor).__module__.split(".")[0] == "distributed" and hasattr(executor, "submit"):
        from unpooled.federation.workers.dask_cluster import DaskWorkers

        return DaskWorkers(executor)
    if isinstance(executor, Executor):
        return PoolWorkers.from_executor(executor)
    raise InputError(
        f"executor must be Processes, a Dask Client or an executor of concurrent.futures, "
        f"got {type(executor).__name__}"
    )


class WorkerFederation(Federation):
    """A federation of sites whose rows are partitions on workers. Totals are exact sums, rounded once.

    The partitions of a site answer together as one site with a sum or the schema. A question whose replies
    have no sum needs a site in one partition.

    Parameters
    ----------
    rows
        By site: one RowPartition, or several.
    executor
        Holds the rows: Processes, a Dask Client or an executor of concurrent.futures.
    min_cluster_size
        Smallest number of rows in a cluster that a site discloses; above 1 a site must be in one partition.
    n_threads
        Threads of the kernels in a worker.
    columns
        How the columns of a site's partitions must agree: "same", "common" or "any".
    """

    exact_sums = True
    rows: int

    def __init__(
        self,
        rows: Mapping[SiteId, RowPartition | Sequence[RowPartition]],
        executor: object,
        *,
        min_cluster_size: int = 1,
        n_threads: int = 1,
        columns: str = "same",
    ) -> None:
        self._workers = workers_of(executor)
        self._columns = columns
        self._parts: dict[SiteId, tuple[int, ...]] = {}
        held: list[HeldPartition] = []
        numbers = count()
        for site in sorted(rows):
            several = checked_partitions(site, rows[site], min_cluster_size)
            self._parts[site] = tuple(next(numbers) for _ in several)
            names = [site] if len(several) == 1 else [f"{site}/{i:04}" for i in range(len(several))]
            held += [
                HeldPartition(number, name, partition, min_cluster_size, n_threads)
                for number, name, partition in zip(self._parts[site], names, several, strict=True)
            ]
        self.sites = tuple(self._parts)
        if not held:
            raise InputError("a federation needs at least one site, got 0")
        self._workers.hold(held)
        counts = self._workers.reduce(row_counts, {one.number: None for one in held}, counts_of_all)
        self.rows_of = {site: sum(counts[i] for i in numbers) for site, numbers in self._parts.items()}
        self.rows = sum(self.rows_of.values())

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        for ask in asks:
            self._check_ask(ask)
        # down: to every partition the questions to its site; up: one sum in a tree
        answers = self._workers.reduce(answer_partition, self._requests(request_id, asks), add_answers)
        return [self._gathered(i, ask, answers) for i, ask in enumerate(asks)]

    def _requests(self, request_id: RequestId, asks: Asks) -> dict[int, PartitionRequest]:
        """Return the questions to every partition; equal ones are encoded once."""
        asked = [set(ask.sites) for ask in asks]
        known: dict[Any, PartitionRequest] = {}
        requests: dict[int, PartitionRequest] = {}
        for site, numbers in self._parts.items():
            indices = [i for i, sites in enumerate(asked) if site in sites]
            if not indices:
                continue
            per_site = any(callable(asks[i].question) for i in indices)
            key = (tuple(indices), site if per_site else "")
            if key not in known:
                parts = tuple(
                    Part(asks[i].verb, asks[i].question_for(site), asks[i].transform, i) for i in indices
                )
                known[key] = PartitionRequest(codec.encode(Request(request_id, parts)), _modules(parts))
            requests |= dict.fromkeys(numbers, known[key])
        return requests

    def _check_ask(self, ask: Ask[Any]) -> None:
        """Raise InputError, by name, for a question that the partitions of a site cannot answer together."""
        split = [site for site in ask.sites if len(self._parts[site]) > 1]
        if not split or ask.verb == "total":
            return
        question = ask.question_for(split[0])
        if not (isinstance(question, AskSchema) or issubclass(question.reply_type(), Summable)):
            raise InputError(
                f"{ask.title} asks for replies of single sites that have no sum, and {split[0]} is in "
                f"{len(self._parts[split[0]])} partitions. Put each site into one partition."
            )

    def _gathered(self, index: int, ask: Ask[Any], answers: PartialAnswers) -> Replies[Any]:
        portion = answers[index]
        sites = tuple(sorted(ask.sites))
        if portion.total:
            kind = ask.question_for(sites[0]).reply_type()
            total = replace(codec.decode(portion.total), sites=len(sites))
            return Aggregate(sites, sum=total.reply(kind), size=portion.size, unrounded=total)
        replies = {number: codec.decode(reply) for number, reply in portion.each}
        of_sites = [self._of_site(site, [replies[i] for i in self._parts[site]]) for site in sites]
        return Replies(sites, of_sites, exact=True)

    def _of_site(self, site: SiteId, replies: list[Any]) -> Any:
        if len(replies) == 1:
            return replies[0]
        if isinstance(replies[0], Summable):
            return partial_sum([replies]).reply()
        try:
            return merged({str(i): reply for i, reply in enumerate(replies)}, self._columns)
        except SchemaMismatchError as error:
            raise InputError(f"{site}: {str(error).replace('its sites', 'its partitions')}") from error


def _modules(parts: Sequence[Part]) -> tuple[str, ...]:
    kinds = [type(one) for part in parts for one in (part.question, part.transform) if one is not None]
    return tuple(sorted({kind.__module__ for kind in kinds}))


def checked_partitions(
    site: SiteId, value: RowPartition | Sequence[RowPartition], min_cluster_size: int = 1
) -> tuple[RowPartition, ...]:
    """Return the partitions of a site; raise InputError, with its name, if there are none."""
    partitions = (value,) if isinstance(value, RowPartition) else tuple(value)
    if not partitions:
        raise InputError(f"{site}: a site needs at least one partition, got 0")
    for partition in partitions:
        if not isinstance(partition, RowPartition):
            raise InputError(
                f"{site}: rows on workers must be given as a RowPartition, which describes how to read them, "
                f"got {type(partition).__name__}"
            )
    if min_cluster_size > 1 and len(partitions) > 1:
        raise InputError(
            f"{site}: min_cluster_size={min_cluster_size} is a rule about all rows of a site, and this site "
            f"is in {len(partitions)} partitions. Put it into one partition."
        )
    return partitions


__all__ = ["PartialAnswer", "WorkerFederation", "Workers", "checked_partitions", "workers_of"]
