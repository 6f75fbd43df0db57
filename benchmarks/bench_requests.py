"""What the door costs: a round at ten sites, guarded, logged and on disk, beside the plain one.

``python -m benchmarks.bench_requests``
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from unpooled import Simulation, Site
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site.open_site import open_site, site_arguments
from unpooled.site.policy import parse

AUTO = parse("format = 1\n[protect]\nauto_approve = true")
SITES, K, D, ROWS, ROUNDS = 10, 20, 784, 600, 15


def main() -> None:
    rng = np.random.default_rng(0)
    rows = {f"s{i}": rng.normal(size=(ROWS, D)) for i in range(SITES)}
    raw = Simulation([Site(s, X) for s, X in rows.items()], fused=False)
    print(f"from rows: {1e3 * min(_rounds(raw, rng) for _ in range(3)):.1f} ms a round")
    held = {s: site_arguments(microaggregate(X)) for s, X in rows.items()}
    plain = Simulation([Site(s, **h) for s, h in held.items()], fused=False)
    one = min(_rounds(plain, rng) for _ in range(3))
    print(f"a round at {SITES} sites of {ROWS} rows, K {K}, d {D}, from copies: plain {1e3 * one:.1f} ms")
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where waiting for the disk takes no time
    for name, where in (("in memory, where fsync is free", memory), ("on disk", None)):
        with tempfile.TemporaryDirectory(dir=where) as folder:
            waits = min(_fsyncs(Path(folder)) for _ in range(3)) if where is None else 0.0
            doors = [open_site(s, X, AUTO, Path(folder) / s) for s, X in rows.items()]
            took = min(_rounds(Simulation(doors), rng) for _ in range(3))
            for door in doors:
                door.close()
        beside = f", {1e3 * waits:.1f} ms of it two fsyncs a site" if waits else ""
        print(
            f"guarded and logged {name}: {1e3 * took:.1f} ms{beside}: "
            f"{(took - waits) / one:.2f} times the plain one (asked: 1.5)"
        )


def _fsyncs(folder: Path) -> float:
    """What the disk alone takes: the bytes of a log line and of a ledger's pages per site, waited for."""
    line, page, times = os.urandom(int(2 * 4 / 3 * 8 * K * D)), os.urandom(3 * 4096), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for site in range(SITES):
            for kind, data in (("log", line), ("ledger", page)):
                with open(folder / f"{site}-{kind}", "ab", buffering=0) as file:
                    file.write(data)
                    os.fsync(file.fileno())
        times.append(time.perf_counter() - start)
    return float(np.median(times))


_runs = iter(range(10**6))


def _rounds(federation: Simulation, rng: np.random.Generator) -> float:
    run, times = f"run-{next(_runs)}", []
    for number in range(ROUNDS):
        question = AskClusterSums(rng.normal(size=(1, K, D)))
        start = time.perf_counter()
        federation.ask(RequestId(run, 0, number, 0), (Ask("total", federation.sites, question),))
        times.append(time.perf_counter() - start)
    return float(np.median(times))


if __name__ == "__main__":
    main()
