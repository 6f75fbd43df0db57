"""Workers of a Dask cluster (``pip install 'unpooled[dask]'``): its processes hold partitions.

What goes to a worker is the description of its partitions, a question and a sum: HeldByWorker.__reduce__.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from unpooled.errors import EngineError, MissingExtraError, UnpooledError
from unpooled.federation.workers.partition import HeldByWorker
from unpooled.federation.workers.worker_share import work_on_share

A = TypeVar("A")
B = TypeVar("B")
_LOSSES = 16  # of workers in one exchange
_LOOK, _PATIENCE = 0.5, 120  # seconds between two looks at the workers, and looks where there are none
_SECONDS = 10  # to wait for a scheduler


def client_at(address: str) -> Any:
    """A client of the scheduler at an address, as tcp://host:8786; EngineError if none answers."""
    try:
        from distributed import Client
    except ModuleNotFoundError as missing:
        raise MissingExtraError("Dask is not installed; pip install 'unpooled[dask]' brings it") from missing
    try:
        connect: Any = Client
        client = connect(address, timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise EngineError(f"no Dask scheduler answers at {address}") from error
    if not client.nthreads():
        client.close()
        raise EngineError(f"the Dask scheduler at {address} has no workers")
    return client


class DaskWorkers:
    """The workers of a Client: each keeps its share of the partitions, and gets one task an exchange.

    Dask is told which worker does a task. If that worker is lost, its share goes to the others, or to the
    worker that Dask started in its place, and is read there again.
    """

    def __init__(self, client: Any) -> None:
        from distributed import wait

        self._client: Any = client
        self._wait: Any = wait
        self._run, self._held = "", list[HeldByWorker]()
        self._place: dict[int, str] = {}  # the address of the worker of every partition

    def hold(self, partitions: Sequence[HeldByWorker]) -> None:
        self._run, self._held, self._place = token_hex(8), list(partitions), {}

    def reduce(
        self, do: Callable[[Any, A], B], inputs: Mapping[int, A], add: Callable[[Sequence[B]], B]
    ) -> B:
        left, done, losses = set(inputs), list[Any](), 0
        while left:
            sent = self._sent(do, {number: inputs[number] for number in left}, add)
            while sent:
                for future, numbers in [(f, n) for f, (_, n) in sent.items() if f.done()]:
                    with suppress(TimeoutError):  # the worker may be lost before its answer was fetched
                        done.append(_call_dask(partial(future.result, timeout=_LOOK)))
                        left -= numbers
                        del sent[future]
                there = self._there()
                lost = [future for future, (address, _) in sent.items() if address not in there]
                if lost:
                    losses += len(lost)
                    for future in lost:
                        del sent[future]
                    self._client.cancel(lost)
                    if losses > _LOSSES:
                        raise EngineError(
                            f"{losses} workers were lost in one exchange; is there memory enough?"
                        )
                if sent:
                    with suppress(TimeoutError):
                        self._wait(list(sent), timeout=_LOOK, return_when="FIRST_COMPLETED")
        return add(done)

    def _sent(self, do: Any, inputs: Mapping[int, Any], add: Any) -> dict[Any, tuple[str, set[int]]]:
        """A task for every worker, with the partitions that it is to answer for."""
        self._placed(self._there())
        shares: dict[str, set[int]] = {}
        for number in inputs:
            shares.setdefault(self._place[number], set()).add(number)
        sent: dict[Any, tuple[str, set[int]]] = {}
        for address, numbers in shares.items():
            keep = frozenset(number for number, at in self._place.items() if at == address)
            work = [(self._held[number], inputs[number]) for number in sorted(numbers)]
            task = self._client.submit(
                work_on_share, self._run, keep, 0, do, work, add, workers=[address], pure=False
            )
            sent[task] = address, numbers
        return sent

    def _there(self) -> list[str]:
        """The addresses of the workers; waits for one, where all are lost, as long as Dask may need."""
        for _ in range(_PATIENCE):
            addresses = sorted(_call_dask(self._client.nthreads))
            if addresses:
                return addresses
            time.sleep(_LOOK)
        raise EngineError("the Dask cluster has no workers")

    def _placed(self, addresses: Sequence[str]) -> None:
        """Place every partition: as many on each worker, and where it was before if that may be."""
        max_per_worker = -(-len(self._held) // len(addresses))
        held: dict[str, list[int]] = {address: [] for address in addresses}
        homeless = []
        for number in range(len(self._held)):
            before = held.get(self._place.get(number, ""))
            if before is not None and len(before) < max_per_worker:
                before.append(number)
            else:
                homeless.append(number)
        for number in homeless:
            min(held.values(), key=len).append(number)
        self._place = {number: address for address, numbers in held.items() for number in numbers}


def _call_dask(act: Callable[[], Any]) -> Any:
    """The result of a call to Dask; EngineError, in one line, if it fails."""
    try:
        return act()
    except (UnpooledError, TimeoutError):
        raise
    except Exception as error:
        error_lines = str(error).strip().splitlines() or [""]
        raise EngineError(f"Dask: {type(error).__name__}: {error_lines[0]}") from error
