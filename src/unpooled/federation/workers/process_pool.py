"""Workers by concurrent.futures: processes of this machine, each with its own partitions."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from secrets import token_hex
from typing import Any, TypeVar

from unpooled.errors import EngineError, InputError
from unpooled.federation.die_with_parent import die_with_parent
from unpooled.federation.workers.partition import HeldByWorker
from unpooled.federation.workers.worker_share import work_on_share

A = TypeVar("A")
B = TypeVar("B")
_MAX_ATTEMPTS = 4  # at an exchange in which workers die


class Processes:
    """Worker processes of this machine, which keep their partitions; a process that dies is replaced.

    A program that uses it needs ``if __name__ == "__main__":``, as for any process pool.

    Parameters
    ----------
    count
        Number of processes; by default one per core.
    """

    def __init__(self, count: int | None = None) -> None:
        count = (os.cpu_count() or 1) if count is None else count
        if count < 1:
            raise InputError(f"workers must be at least 1, got {count}")
        self.slots: list[Executor] = [_process() for _ in range(count)]

    def replace_process(self, slot: int) -> Executor:
        """Start a new process in place of one that died."""
        self.slots[slot].shutdown(wait=False)
        self.slots[slot] = _process()
        return self.slots[slot]

    def shutdown(self) -> None:
        """End all processes."""
        for slot in self.slots:
            slot.shutdown()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _process() -> Executor:
    return ProcessPoolExecutor(1, get_context("spawn"), _dying_with_parent, (os.getpid(),))


def _dying_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        die_with_parent(parent)


class PoolWorkers:
    """Partitions on executors: partition i always goes to executor i modulo their number."""

    def __init__(
        self,
        slots: list[Executor],
        replace_process: Callable[[int], Executor] | None = None,
        n_processes: int = 0,
    ) -> None:
        self._slots, self._replace_process, self._n_processes = slots, replace_process, n_processes
        self._run, self._partitions = "", list[HeldByWorker]()

    @classmethod
    def from_executor(cls, executor: Executor) -> "PoolWorkers":
        """Use any executor. A task may go to any process of a pool, so rows may be read more than once."""
        count = int(getattr(executor, "_max_workers", 1))
        apart = not isinstance(executor, ThreadPoolExecutor)
        return cls([executor] * count, n_processes=count if apart else 0)

    def hold(self, partitions: Sequence[HeldByWorker]) -> None:
        self._run, self._partitions = token_hex(8), list(partitions)

    def reduce(
        self, do: Callable[[Any, A], B], inputs: Mapping[int, A], add: Callable[[Sequence[B]], B]
    ) -> B:
        shares: dict[int, dict[int, A]] = {}
        for number, one in inputs.items():
            shares.setdefault(number % len(self._slots), {})[number] = one
        done: dict[int, B] = {}
        for _ in range(_MAX_ATTEMPTS):
            sent = {
                slot: self._sent(slot, do, share, add) for slot, share in shares.items() if slot not in done
            }
            for slot, future in sent.items():
                try:
                    done[slot] = future.result()
                except BrokenExecutor as error:
                    self._lost(slot, error)
            if len(done) == len(shares):
                return add([done[slot] for slot in sorted(done)])
        raise EngineError(
            f"worker processes died {_MAX_ATTEMPTS} times in one exchange. Do they have enough memory?"
        )

    def _sent(
        self,
        slot: int,
        do: Callable[[Any, A], B],
        share: Mapping[int, A],
        add: Callable[[Sequence[B]], B],
    ) -> "Future[B]":
        fair = -(-len(self._partitions) // self._n_processes) if self._n_processes else 0
        work = [(self._partitions[number], one) for number, one in share.items()]
        try:
            return self._slots[slot].submit(work_on_share, self._run, None, fair, do, work, add)
        except BrokenExecutor as error:
            self._lost(slot, error)
            return self._slots[slot].submit(work_on_share, self._run, None, fair, do, work, add)

    def _lost(self, slot: int, error: BaseException) -> None:
        if self._replace_process is None:
            raise EngineError(
                "the pool lost a process and takes no more work. Use Processes(n), which replaces a lost "
                "process."
            ) from error
        self._slots[slot] = self._replace_process(slot)
