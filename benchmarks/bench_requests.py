"""The cost of guards and logs: a round at ten sites, guarded, logged and on disk, beside a plain one.

``python -m benchmarks.bench_requests``
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from unpooled.federation import LocalFederation, Simulation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site
from unpooled.site.open_site import AnswerSource, open_site
from unpooled.site.policy import parse

AUTO = parse(
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
)
SITES, K, D, ROWS, ROUNDS = 10, 20, 784, 600, 15


def main() -> None:
    rng = np.random.default_rng(0)
    rows = {f"s{i}": rng.normal(size=(ROWS, D)) for i in range(SITES)}
    raw = LocalFederation([Site(s, X) for s, X in rows.items()])
    print(f"from rows: {1e3 * min(_rounds(raw, rng) for _ in range(3)):.1f} ms per round")
    tables = {s: AnswerSource.from_summary(microaggregate(X)) for s, X in rows.items()}
    plain = LocalFederation(
        [Site(s, t.X, t.weights, grouped=t.grouped, within=t.within) for s, t in tables.items()]
    )
    one = min(_rounds(plain, rng) for _ in range(3))
    print(f"a round at {SITES} sites of {ROWS} rows, K {K}, d {D}, summary tables: plain {1e3 * one:.1f} ms")
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # no time is spent waiting for a disk
    for name, where in (("in memory, where fsync is free", memory), ("on disk", None)):
        with tempfile.TemporaryDirectory(dir=where) as folder:
            waits = min(_fsyncs(Path(folder)) for _ in range(3)) if where is None else 0.0
            sites = [open_site(s, X, AUTO, Path(folder) / s) for s, X in rows.items()]
            took = min(_rounds(LocalFederation(sites), rng) for _ in range(3))
            for site in sites:
                site.close()
        fsyncs = f", {1e3 * waits:.1f} ms of it two fsyncs per site" if waits else ""
        print(
            f"guarded and logged {name}: {1e3 * took:.1f} ms{fsyncs}: "
            f"{(took - waits) / one:.2f} times the plain one (target: 1.5)"
        )


def _fsyncs(folder: Path) -> float:
    """Seconds of the disk alone: writing a log line and the pages of a ledger for every site, with fsync."""
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
