"""Rows that no process holds: ``python -m benchmarks.bench_workers``, or with a number of rows (20 million).

Four workers of a Dask cluster on this machine hold 64 partitions of rows x 16 columns. In each of three runs
a worker is killed (kill -9) while it answers. The exit code is 1 unless

- every run gives the bits of a reference that streams over one partition at a time with exact sums;
- at a tenth of the rows, ordered sums in one process agree to 1e-12;
- no process ever holds half of the rows, by its largest resident memory.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from unpooled.algorithms import Lloyd
from unpooled.federation import Simulation
from unpooled.federation.workers import RowPartition, WorkerFederation
from unpooled.protocol import run
from unpooled.protocol.algorithm import Ask, Asks
from unpooled.protocol.exchange import Aggregate, Federation, Replies, RequestId
from unpooled.protocol.partial_sum import partial_sum

WORKERS, PARTS, D, K, RUNS = 4, 64, 16, 10, 3


def made(seed: int, rows: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """Rows that are a function of a seed: any worker can make them again."""
    rng = np.random.default_rng(seed)
    X = rng.random((rows, D))
    X += (np.random.default_rng(0).standard_normal((K, D)))[rng.integers(K, size=rows)]
    return X


def partitions(rows: int) -> list[RowPartition]:
    return [RowPartition(made, (seed, rows // PARTS)) for seed in range(1, PARTS + 1)]


class Streamed(Federation):
    """The same sums without workers: one partition is made, answers, and is freed."""

    exact_sums = True

    def __init__(self, parts: list[RowPartition]) -> None:
        self._parts = parts
        self.sites = ("all",)

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Any]]:
        sums: list[Any] = [[] for _ in asks]
        for i, part in enumerate(self._parts):
            name = f"all/{i:04}"
            one = Simulation.from_rows({name: part.rows()}, n_threads=1, exact_sums=True)
            own = tuple(Ask("total", (name,), ask.question, ask.transform) for ask in asks)
            for found, replies in zip(sums, one.ask(request_id, own), strict=True):
                found.append(replies.partial_sum())
        totals = [partial_sum([found]) for found in sums]
        return [Aggregate(self.sites, sum=total.reply(), size=(1, 1), unrounded=total) for total in totals]


class Memory(threading.Thread):
    """The largest resident memory of this process and of each of its children, read ten times per second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[int, int] = {}
        self._over = threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.1):
            for process in [me, *me.children(recursive=True)]:
                try:
                    self.peaks[process.pid] = max(self.peaks.get(process.pid, 0), process.memory_info().rss)
                except psutil.Error:
                    continue

    def stop(self) -> None:
        self._over.set()
        self.join()


class WithKill(Federation):
    """A federation that kills a worker in the middle of an exchange."""

    def __init__(self, federation: Federation, kill: Callable[[], None], exchange: int) -> None:
        self._federation, self._kill, self._remaining = federation, kill, exchange
        self.sites, self.exact_sums = federation.sites, True

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Any]]:
        self._remaining -= 1
        if self._remaining == 0:
            threading.Timer(0.1, self._kill).start()
        return self._federation.ask(request_id, asks)


def clustered(federation: Any) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """The centres after three rounds from centres that are a little off."""
    start = np.random.default_rng(0).standard_normal((K, D)) + 0.2
    return np.asarray(run(Lloyd(k=K, init=start, max_rounds=3), federation, seed=1).state.centers)


def main() -> int:
    import dask
    from distributed import Client, LocalCluster

    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 20_000_000
    memory = Memory()
    memory.start()
    parts, failed = partitions(rows), 0
    print(f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; {rows:,} rows x {D}", flush=True)
    began = time.perf_counter()
    reference = clustered(Streamed(parts))
    print(f"streamed in one process: {time.perf_counter() - began:.0f} s", flush=True)
    dask.config.set({"distributed.comm.timeouts.connect": "300s"})  # a busy machine starts processes slowly
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "death_timeout": 600}
    cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, **quiet)
    with cluster, Client(cluster) as client:
        for number in range(RUNS):
            client.wait_for_workers(WORKERS)
            began = time.perf_counter()
            federation = WorkerFederation({"all": parts}, client)
            read, killed = time.perf_counter() - began, list[int]()

            def kill(number: int = number, killed: list[int] = killed) -> None:
                pid = sorted(client.run(os.getpid).values())[number]
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

            began = time.perf_counter()
            found = clustered(WithKill(federation, kill, 1 + number))
            same = bool((found == reference).all())
            failed += not same or not killed
            print(
                f"run {number + 1}: read in {read:.0f} s, clustered in {time.perf_counter() - began:.0f} s, "
                f"worker {killed} killed with -9 in exchange {1 + number}; "
                f"bits of the streamed reference: {'the same' if same else 'DIFFERENT'}",
                flush=True,
            )
            del federation
        small = partitions(rows // 10)
        tenth = clustered(WorkerFederation({"all": small}, client))
    memory.stop()
    local = Simulation.from_rows({f"all/{i:04}": part.rows() for i, part in enumerate(small)}, n_threads=1)
    difference = float(np.abs(tenth / clustered(local) - 1).max())
    failed += not difference <= 1e-12
    print(f"{rows // 10:,} rows, ordered sums in one process: difference {difference:.1e}, at most 1e-12")
    all_bytes = rows * D * 8
    peaks = sorted(memory.peaks.values(), reverse=True)
    failed += not peaks[0] < all_bytes / 2
    print(
        f"all rows are {all_bytes / 1e9:.2f} GB; the largest resident memory of each of {len(peaks)} "
        f"processes, in GB: {', '.join(f'{size / 1e9:.2f}' for size in peaks)}"
    )
    print("passed" if not failed else "FAILED")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
