"""Workers of a Dask cluster (``pip install '.[dask]'``): its processes hold partitions.

A worker receives only the description of its partitions, a question and a sum: see HeldByWorker.__reduce__.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from unpooled.errors import EngineError, MissingExtraError, UnpooledError, install_hint
from unpooled.federation.workers.partition import HeldByWorker, RowPartition
from unpooled.federation.workers.worker_federation import WorkerFederation
from unpooled.federation.workers.worker_share import work_on_share
from unpooled.protocol.messages import SiteId

A = TypeVar("A")
B = TypeVar("B")
_MAX_LOSSES = 16  # workers that may be lost in one exchange
_POLL = 0.5  # seconds between two checks of the workers
_MAX_POLLS = 120  # checks without any worker before giving up
_CONNECT_TIMEOUT = 10  # seconds to wait for a scheduler


def client_at(address: str) -> Any:
    """Return a client of the scheduler at an address, e.g. tcp://host:8786; EngineError if none answers."""
    try:
        from distributed import Client
    except ModuleNotFoundError as missing:
        raise MissingExtraError(f"Dask is not installed. {install_hint('dask')}") from missing
    try:
        connect: Any = Client
        client = connect(address, timeout=_CONNECT_TIMEOUT)
    except (OSError, ValueError) as error:
        raise EngineError(f"no Dask scheduler answers at {address}") from error
    if not client.nthreads():
        client.close()
        raise EngineError(f"the Dask scheduler at {address} has no workers")
    return client


class DaskFederation(WorkerFederation):
    """Partitions on the workers of a Dask cluster, and the connection to the cluster, which it closes."""

    def __init__(self, rows: Mapping[SiteId, RowPartition | Sequence[RowPartition]], client: Any) -> None:
        super().__init__(rows, client)
        self._client = client

    def close(self) -> None:
        self._client.close()


class DaskWorkers:
    """The workers of a Client: each keeps its share of the partitions, and gets one task per exchange.

    Every task names its worker. If that worker is lost, the other workers, or the one that Dask started in
    its place, read its share again.
    """

    def __init__(self, client: Any) -> None:
        from distributed import wait

        self._client: Any = client
        self._wait: Any = wait
        self._run, self._partitions = "", list[HeldByWorker]()
        self._address_of: dict[int, str] = {}  # the address of the worker of every partition

    def hold(self, partitions: Sequence[HeldByWorker]) -> None:
        self._run, self._partitions, self._address_of = token_hex(8), list(partitions), {}

    def reduce(
        self, do: Callable[[Any, A], B], inputs: Mapping[int, A], add: Callable[[Sequence[B]], B]
    ) -> B:
        remaining, done, losses = set(inputs), list[Any](), 0
        while remaining:
            sent = self._sent(do, {number: inputs[number] for number in remaining}, add)
            while sent:
                for future, numbers in [(f, n) for f, (_, n) in sent.items() if f.done()]:
                    with suppress(TimeoutError):  # the worker may be lost before its answer was fetched
                        done.append(_call_dask(partial(future.result, timeout=_POLL)))
                        remaining -= numbers
                        del sent[future]
                workers = self._addresses()
                lost = [future for future, (address, _) in sent.items() if address not in workers]
                if lost:
                    losses += len(lost)
                    for future in lost:
                        del sent[future]
                    self._client.cancel(lost)
                    if losses > _MAX_LOSSES:
                        raise EngineError(
                            f"{losses} workers were lost in one exchange. Do they have enough memory?"
                        )
                if sent:
                    with suppress(TimeoutError):
                        self._wait(list(sent), timeout=_POLL, return_when="FIRST_COMPLETED")
        return add(done)

    def _sent(
        self, do: Callable[[Any, A], B], inputs: Mapping[int, A], add: Callable[[Sequence[B]], B]
    ) -> dict[Any, tuple[str, set[int]]]:
        """Submit a task to every worker, with the partitions that it answers for."""
        self._assign(self._addresses())
        shares: dict[str, set[int]] = {}
        for number in inputs:
            shares.setdefault(self._address_of[number], set()).add(number)
        sent: dict[Any, tuple[str, set[int]]] = {}
        for address, numbers in shares.items():
            keep = frozenset(number for number, at in self._address_of.items() if at == address)
            work = [(self._partitions[number], inputs[number]) for number in sorted(numbers)]
            task = self._client.submit(
                work_on_share, self._run, keep, 0, do, work, add, workers=[address], pure=False
            )
            sent[task] = address, numbers
        return sent

    def _addresses(self) -> list[str]:
        """Return the addresses of the workers; if all are lost, wait until Dask has started one."""
        for _ in range(_MAX_POLLS):
            addresses = sorted(_call_dask(self._client.nthreads))
            if addresses:
                return addresses
            time.sleep(_POLL)
        raise EngineError("the Dask cluster has no workers")

    def _assign(self, addresses: Sequence[str]) -> None:
        """Assign the partitions to workers: equally many to each, and to the same as before if possible."""
        max_per_worker = -(-len(self._partitions) // len(addresses))
        assigned: dict[str, list[int]] = {address: [] for address in addresses}
        unassigned = []
        for number in range(len(self._partitions)):
            before = assigned.get(self._address_of.get(number, ""))
            if before is not None and len(before) < max_per_worker:
                before.append(number)
            else:
                unassigned.append(number)
        for number in unassigned:
            min(assigned.values(), key=len).append(number)
        self._address_of = {number: address for address, numbers in assigned.items() for number in numbers}


def _call_dask(act: Callable[[], Any]) -> Any:
    """Return the result of a call to Dask; raise EngineError, in one line, if it fails."""
    try:
        return act()
    except (UnpooledError, TimeoutError):
        raise
    except Exception as error:
        error_lines = str(error).strip().splitlines() or [""]
        raise EngineError(f"Dask: {type(error).__name__}: {error_lines[0]}") from error
