"""Very many sites in one process: ``python -m benchmarks.bench_relays``, or with the largest number of sites.

First 1e3 to 1e6 sites of 20 rows x 16 columns, k 10: sites per second in a round of Lloyd (the sums of all
sites) and memory per site, with sums in order and with exact sums. Then relays with sites below them, with
every message encoded and decoded: the cost of a site in an exchange, from 10 to 10,000 sites. Each
measurement has a process of its own. Seconds are wall time and CPU time of a core: on a busy machine only the
latter is meaningful, and two idle cores would take half of it.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import psutil

from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.simulated_rows import ArrayRows
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site

ROWS, D, K = 20, 16, 10
MAX_SECONDS, MAX_GB, MAX_GROWTH = 2.0, 8.0, 0.2  # a round of 1e6 sites; a site's cost from 10 to 10,000


def rows(sites: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sites * ROWS, D))
    middle = 3 * rng.standard_normal((K, D))
    for a in range(0, len(X), 1 << 20):
        part = X[a : a + (1 << 20)]
        part += middle[rng.integers(K, size=len(part))]
    return X


def timed(act: Callable[[int], object], rounds: int) -> tuple[float, float]:
    """Wall and CPU seconds, the minimum of ``rounds`` rounds after a first one."""
    act(0)
    wall, cpu = [], []
    for number in range(1, rounds + 1):
        began, used = time.perf_counter(), time.process_time()
        act(number)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return min(wall), min(cpu)


def one_process(sites: int, exact: bool) -> None:
    """A round of the sums of Lloyd, of sites whose rows are in one array."""
    X = rows(sites)
    before = psutil.Process().memory_info().rss
    federation = Simulation(ArrayRows(X, np.arange(0, len(X) + 1, ROWS)), n_threads=2, exact_sums=exact)
    centers = X[None, :: len(X) // K][:, :K].copy()
    names = federation.sites

    def act(number: int) -> object:
        asks = (Ask("total", names, AskClusterSums(centers)),)
        (replies,) = federation.ask(RequestId("r", 0, number, 0), asks)
        return replies.total()

    wall, cpu = timed(act, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    more = psutil.Process().memory_info().rss - before
    kind = "exact  " if exact else "ordered"
    print(
        f"{sites:9,} sites, {kind} sums: a round {wall:.3f} s, {cpu:.3f} CPU s; "
        f"{sites / wall:,.0f} sites per second, {sites / cpu:,.0f} on one core; {peak / 2**20:.2f} GB peak, "
        f"{more / sites:,.0f} bytes per site besides its rows"
    )
    if sites >= 10**6 and not exact:
        verdict(
            f"a round at most {MAX_SECONDS:g} s on two cores", cpu / 2, MAX_SECONDS, "s (half of the CPU s)"
        )
        verdict(f"at most {MAX_GB:g} GB", peak / 2**20, MAX_GB, "GB")


def encoded(relays: int, sites: int) -> None:
    """An exchange with relays of sites, with every message encoded and decoded."""
    X = rows(relays * sites)
    parts = np.split(X, relays * sites)
    members = [[Site(f"{r}-{s}", parts[r * sites + s]) for s in range(sites)] for r in range(relays)]
    tree = LocalFederation([Relay(f"{r:03}", some, RelayRules(exact=True)) for r, some in enumerate(members)])
    question = AskClusterSums(X[None, : K * ROWS : ROWS].copy())

    def act(number: int) -> object:
        (replies,) = tree.ask(RequestId("r", 0, number, 0), (Ask("total", tree.sites, question),))
        return replies.total()

    wall, cpu = timed(act, max(5, 2000 // (relays * sites)))
    print(f"{relays} {sites} {1e6 * cpu / (relays * sites)} {1e6 * wall / (relays * sites)}")


def verdict(target: str, measured: float, limit: float, unit: str) -> None:
    """Print whether a target is met."""
    met = "met" if measured <= limit else "NOT MET"
    print(f"  target: {target}: {measured:.2f} {unit}: {met}", flush=True)


def alone(*words: object) -> str:
    """The output of a measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_relays", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    max_sites = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**6
    print(f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    for exact in (False, True):
        for sites in (n for n in (10**3, 10**4, 10**5, 10**6) if n <= max_sites):
            print(alone("one", sites, int(exact)), end="", flush=True)
    costs = {}
    for relays, sites in ((1, 10), (10, 10), (10, 100), (100, 100)):
        *_, cpu, wall = map(float, alone("encoded", relays, sites).split())
        costs[relays * sites] = cpu
        print(
            f"{relays * sites:9,} sites below {relays} relays, messages encoded: {cpu:.0f} CPU us per site "
            f"and exchange ({wall:.0f} us wall time)",
            flush=True,
        )
    growth = max(costs.values()) / costs[10] - 1
    verdict(
        f"a site costs at 10,000 sites as much as at 10, within {MAX_GROWTH:.0%}",
        100 * growth,
        100 * MAX_GROWTH,
        "% more at most",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one_process(int(sys.argv[2]), bool(int(sys.argv[3])))
    elif sys.argv[1:2] == ["encoded"]:
        encoded(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
