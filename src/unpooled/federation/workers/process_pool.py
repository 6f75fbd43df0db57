"""Workers by concurrent.futures: processes of this machine, each with the partitions that it keeps."""

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
_TRIES = 4  # of an exchange, where workers die


class Processes:
    """So many worker processes of this machine, which keep their partitions; one that dies is replaced.

    A program that makes them guards its start by ``if __name__ == "__main__":``, as for any process pool.
    """

    def __init__(self, count: int | None = None) -> None:
        count = (os.cpu_count() or 1) if count is None else count
        if count < 1:
            raise InputError(f"workers must be at least 1, got {count}")
        self.slots: list[Executor] = [_process() for _ in range(count)]

    def replace_process(self, slot: int) -> Executor:
        """A new process in place of one that died."""
        self.slots[slot].shutdown(wait=False)
        self.slots[slot] = _process()
        return self.slots[slot]

    def shutdown(self) -> None:
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
    """Partitions over executors: partition i always goes to executor i mod their number."""

    def __init__(
        self,
        slots: list[Executor],
        replace_process: Callable[[int], Executor] | None = None,
        n_processes: int = 0,
    ) -> None:
        self._slots, self._replace_process, self._n_processes = slots, replace_process, n_processes
        self._run, self._held = "", list[HeldByWorker]()

    @classmethod
    def from_executor(cls, executor: Executor) -> "PoolWorkers":
        """Any executor. Which process of a pool takes a task is not known: rows may be read again."""
        count = int(getattr(executor, "_max_workers", 1))
        apart = not isinstance(executor, ThreadPoolExecutor)
        return cls([executor] * count, n_processes=count if apart else 0)

    def hold(self, partitions: Sequence[HeldByWorker]) -> None:
        self._run, self._held = token_hex(8), list(partitions)

    def reduce(
        self, do: Callable[[Any, A], B], inputs: Mapping[int, A], add: Callable[[Sequence[B]], B]
    ) -> B:
        shares: dict[int, dict[int, A]] = {}
        for number, one in inputs.items():
            shares.setdefault(number % len(self._slots), {})[number] = one
        done: dict[int, B] = {}
        for _ in range(_TRIES):
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
        raise EngineError(f"worker processes died {_TRIES} times in one exchange; is there memory enough?")

    def _sent(self, slot: int, do: Any, share: Mapping[int, Any], add: Any) -> "Future[Any]":
        fair = -(-len(self._held) // self._n_processes) if self._n_processes else 0
        work = [(self._held[number], one) for number, one in share.items()]
        try:
            return self._slots[slot].submit(work_on_share, self._run, None, fair, do, work, add)
        except BrokenExecutor as error:
            self._lost(slot, error)
            return self._slots[slot].submit(work_on_share, self._run, None, fair, do, work, add)

    def _lost(self, slot: int, error: BaseException) -> None:
        if self._replace_process is None:
            raise EngineError(
                "the pool lost a process and takes no more work; Processes(n) replaces a lost one"
            ) from error
        self._slots[slot] = self._replace_process(slot)
