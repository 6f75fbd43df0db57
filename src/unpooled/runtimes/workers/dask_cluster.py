"""Workers of a Dask cluster (``pip install 'unpooled[dask]'``): Dask places partitions, also lost ones.

What Dask keeps is a future for every partition, whose task reads it. If a worker is lost, Dask runs the task
again on another one. Where it moves a partition, it moves the description (HeldPartition.__reduce__).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from unpooled.errors import EngineFailed, MissingExtra, UnpooledError
from unpooled.runtimes.workers.partition import HeldPartition, loaded

A = TypeVar("A")
B = TypeVar("B")
_WIDTH = 8  # answers that one task adds up
_SECONDS = 10  # to wait for a scheduler


def client_at(address: str) -> Any:
    """A client of the scheduler at an address, as tcp://host:8786; EngineFailed if none answers."""
    try:
        from distributed import Client
    except ModuleNotFoundError as missing:
        raise MissingExtra("Dask is not installed; pip install 'unpooled[dask]' brings it") from missing
    try:
        connect: Any = Client
        client = connect(address, timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise EngineFailed(f"no Dask scheduler answers at {address}") from error
    if not client.scheduler_info()["workers"]:
        client.close()
        raise EngineFailed(f"the Dask scheduler at {address} has no workers")
    return client


class DaskWorkers:
    """The workers of a Client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._held: list[Any] = []

    def hold(self, partitions: Sequence[HeldPartition]) -> None:
        self._held = self._client.map(loaded, partitions, pure=False)

    def reduce(
        self, do: Callable[[HeldPartition, A], B], given: Mapping[int, A], add: Callable[[Sequence[B]], B]
    ) -> B:
        held = [self._held[number] for number in given]
        level = self._client.map(do, held, list(given.values()), pure=False)
        while len(level) > 1:
            level = [
                self._client.submit(add, level[a : a + _WIDTH], pure=False)
                for a in range(0, len(level), _WIDTH)
            ]
        try:
            total: B = level[0].result()
            return total
        except UnpooledError:
            raise
        except Exception as error:
            said = str(error).strip().splitlines() or [""]
            raise EngineFailed(f"Dask: {type(error).__name__}: {said[0]}") from error
