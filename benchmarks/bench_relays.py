"""Very many sites in one process: ``python -m benchmarks.bench_relays``, or with the largest number of sites.

First 1e3 to 1e6 sites of 20 rows x 16 columns, k 10: sites a second in a round of Lloyd (the sums of all
sites), memory a site, with folded and with exact sums. Then a country of regions of sites, every message
through the doors and the codec: what a site costs in an exchange, from 10 to 10,000 sites. Each measurement
has a process of its own. Seconds are those of the clock, and those of a core: on a busy machine only the
latter mean anything, and half of them is what two idle cores would take.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import psutil

from unpooled import Simulation, Site
from unpooled.federation.relay.relay import Relay
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums

ROWS, D, K = 20, 16, 10
MOST_SECONDS, MOST_GB, FLAT = 2.0, 8.0, 0.2  # a round of 1e6 sites; a site's cost from 10 to 10,000 of them


def rows(sites: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sites * ROWS, D))
    middle = 3 * rng.standard_normal((K, D))
    for a in range(0, len(X), 1 << 20):
        part = X[a : a + (1 << 20)]
        part += middle[rng.integers(K, size=len(part))]
    return X


def timed(act: Callable[[int], object], rounds: int) -> tuple[float, float]:
    """Seconds by the clock and of a core, the least of so many rounds after a first."""
    act(0)
    wall, cpu = [], []
    for number in range(1, rounds + 1):
        began, used = time.perf_counter(), time.process_time()
        act(number)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return min(wall), min(cpu)


def one_process(sites: int, exact: bool) -> None:
    """A round of the sums that Lloyd asks for, of sites that are stacked in one array."""
    X = rows(sites)
    before = psutil.Process().memory_info().rss
    federation = Simulation.from_stacked(X, np.arange(0, len(X) + 1, ROWS), threads=2, exact_sums=exact)
    centers = X[None, :: len(X) // K][:, :K].copy()
    names = federation.sites

    def act(number: int) -> object:
        (got,) = federation.ask(RequestId("r", 0, number, 0), (Ask("total", names, AskClusterSums(centers)),))
        return got.total()

    wall, cpu = timed(act, 3)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    more = psutil.Process().memory_info().rss - before
    how = "exact " if exact else "folded"
    print(
        f"{sites:9,} sites, {how} sums: a round {wall:.3f} s, {cpu:.3f} s of a core; "
        f"{sites / wall:,.0f} sites a second, {sites / cpu:,.0f} on one core; {most / 2**20:.2f} GB at most, "
        f"{more / sites:,.0f} bytes a site besides its rows"
    )
    if sites >= 10**6 and not exact:
        verdict(
            f"a round at most {MOST_SECONDS:g} s on two cores", cpu / 2, MOST_SECONDS, "s (half of a core's)"
        )
        verdict(f"at most {MOST_GB:g} GB", most / 2**20, MOST_GB, "GB")


def through_doors(regions: int, sites: int) -> None:
    """An exchange with regions of sites, each asked with bytes, through its own door."""
    X = rows(regions * sites)
    parts = np.split(X, regions * sites)
    members = [[Site(f"{r}-{s}", parts[r * sites + s]) for s in range(sites)] for r in range(regions)]
    tree = Simulation([Relay(f"{r:03}", below) for r, below in enumerate(members)])
    question = AskClusterSums(X[None, : K * ROWS : ROWS].copy())

    def act(number: int) -> object:
        (got,) = tree.ask(RequestId("r", 0, number, 0), (Ask("total", tree.sites, question),))
        return got.total()

    wall, cpu = timed(act, max(5, 2000 // (regions * sites)))
    print(f"{regions} {sites} {1e6 * cpu / (regions * sites)} {1e6 * wall / (regions * sites)}")


def verdict(asked: str, found: float, limit: float, unit: str) -> None:
    reached = "reached" if found <= limit else "NOT REACHED"
    print(f"  asked: {asked}: {found:.2f} {unit}: {reached}", flush=True)


def alone(*words: object) -> str:
    """What a measurement in a process of its own prints."""
    command = [sys.executable, "-m", "benchmarks.bench_relays", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    most = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**6
    print(f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    for exact in (False, True):
        for sites in (n for n in (10**3, 10**4, 10**5, 10**6) if n <= most):
            print(alone("one", sites, int(exact)), end="", flush=True)
    costs = {}
    for regions, sites in ((1, 10), (10, 10), (10, 100), (100, 100)):
        *_, cpu, wall = map(float, alone("doors", regions, sites).split())
        costs[regions * sites] = cpu
        print(
            f"{regions * sites:9,} sites in {regions} regions, through doors and codec: {cpu:.0f} us of a "
            f"core a site and exchange ({wall:.0f} us by the clock)",
            flush=True,
        )
    dearest = max(costs.values()) / costs[10] - 1
    verdict(
        "a site costs as much at 10,000 as at 10, within 20 %", 100 * dearest, 100 * FLAT, "% more at most"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one_process(int(sys.argv[2]), bool(int(sys.argv[3])))
    elif sys.argv[1:2] == ["doors"]:
        through_doors(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
