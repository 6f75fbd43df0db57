"""What the door costs: a round at ten sites, guarded, logged and on disk, beside the plain one.

``python -m benchmarks.bench_door``
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from unpooled import InProcess, Site
from unpooled.protocol import Ask, Turn
from unpooled.site.opening import open_site
from unpooled.site.policy import Policy
from unpooled.summaries import AskClusterSums

SITES, K, D, ROWS, ROUNDS = 10, 20, 784, 600, 15


def main() -> None:
    rng = np.random.default_rng(0)
    rows = {f"s{i}": rng.normal(size=(ROWS, D)) for i in range(SITES)}
    plain = InProcess([Site(s, X, min_cluster_size=5) for s, X in rows.items()], fused=False)
    with tempfile.TemporaryDirectory() as folder:
        doors = [open_site(s, X, Policy(), folder=Path(folder) / s) for s, X in rows.items()]
        guarded = InProcess(doors)
        one = min(_rounds(plain, rng) for _ in range(3))
        two = min(_rounds(guarded, rng) for _ in range(3))
        wait = SITES * min(_fsync(Path(folder) / "x") for _ in range(5))
    print(f"a round at {SITES} sites of {ROWS} rows, K {K}, d {D}: plain {1e3 * one:.1f} ms, guarded and")
    print(f"logged {1e3 * two:.1f} ms, of which two fsyncs a site about {2e3 * wait:.1f} ms; "
          f"{(two - 2 * wait) / one:.2f} times without them (asked: 2)")  # fmt: skip


_runs = iter(range(10**6))


def _rounds(federation: InProcess, rng: np.random.Generator) -> float:
    run, times = f"run-{next(_runs)}", []
    for number in range(ROUNDS):
        question = AskClusterSums(rng.normal(size=(1, K, D)))
        start = time.perf_counter()
        federation.ask(Turn(run, 0, number, 0), (Ask("total", federation.sites, question),))
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _fsync(path: Path) -> float:
    """One line of the log's size, written and waited for."""
    data = os.urandom(340_000)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start = time.perf_counter()
    os.write(file, data)
    os.fsync(file)
    took = time.perf_counter() - start
    os.close(file)
    return took


if __name__ == "__main__":
    main()
