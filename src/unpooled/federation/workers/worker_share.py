"""The share of a worker: the partitions that it keeps in memory, and its part of a sum over all of them."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from threading import Lock
from typing import Any, TypeVar

from unpooled.federation.workers.partition import HeldByWorker

A = TypeVar("A")
B = TypeVar("B")
_kept: OrderedDict[tuple[str, int], HeldByWorker] = OrderedDict()  # of this process, if it is a worker
_lock = Lock()


def work_on_share(
    run: str,
    keep: frozenset[int] | None,
    max_partitions: int,
    do: Callable[[Any, A], B],
    work: Sequence[tuple[HeldByWorker, A]],
    add: Callable[[Sequence[B]], B],
) -> B:
    """Apply ``do`` to some partitions in a worker, and add up the results.

    The worker keeps the rows for the next time: of this run, of the partitions that ``keep`` names (None:
    all), and of at most ``max_partitions`` partitions (0: no limit).
    """
    results = []
    for held, argument in work:
        with _lock:
            for key in [key for key in _kept if key[0] != run or (keep is not None and key[1] not in keep)]:
                del _kept[key]
            at = run, held.number
            if at not in _kept:  # its own object holds the rows: the engine may keep the one that it sent
                _kept[at] = copy(held)
            known = _kept[at]
            _kept.move_to_end(at)
            while max_partitions and len(_kept) > max_partitions:
                _kept.popitem(last=False)
        results.append(do(known, argument))
    return add(results)
