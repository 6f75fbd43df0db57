"""A million rows x 16 over 10 Parquet files: from files to report, against clustering alone."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

_MAKE = """
import sys, numpy as np, pyarrow, pyarrow.parquet
rng = np.random.default_rng(0)
centers = rng.normal(0, 1.2, (10, 16))
for i in range(10):
    X = centers[rng.integers(10, size={rows})] + rng.standard_normal(({rows}, 16))
    X = X * np.linspace(1, 50, 16) + np.linspace(0, 100, 16)
    table = pyarrow.table({{f"x{{j}}": X[:, j] for j in range(16)}})
    pyarrow.parquet.write_table(table, f"{{sys.argv[1]}}/h{{i}}.parquet")
"""

_FILES = """
import json, resource, sys, time
from pathlib import Path
from unpooled.app.job import Job
from unpooled.app.local_sites import open_sites
from unpooled.app.result import ClusterResult
from unpooled.app.report import page
from unpooled.protocol.run_loop import run
import pyarrow.parquet, sklearn.cluster
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
job = Job(tuple(map(str, sorted(Path(sys.argv[1]).glob("*.parquet")))), (10,), min_cluster_size=1)
begin = time.perf_counter()
federation = open_sites(job).federation
ends = []
note = lambda record: ends.append(time.perf_counter())
outcome = ClusterResult(job, run(job.algorithm, federation, progress=note))
page(outcome)
total, took = time.perf_counter() - begin, ends[-3] - begin  # the last two rounds judge and describe
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base
print(json.dumps([took, peak / 1024, outcome.choice.scores[0].inertia, total]))
"""

_ALONE = """
import json, sys, time
from pathlib import Path
import numpy as np, pyarrow.parquet
from sklearn.preprocessing import StandardScaler
from unpooled.algorithms import Lloyd
from unpooled.federation import Simulation
from unpooled.protocol import run
tables = [pyarrow.parquet.read_table(p) for p in sorted(Path(sys.argv[1]).glob("*.parquet"))]
X = np.concatenate([np.column_stack([c.to_numpy() for c in t.columns]) for t in tables])
X = StandardScaler().fit_transform(X)
rows = {f"h{i}": part for i, part in enumerate(np.split(X, 10))}
begin = time.perf_counter()
done = run(Lloyd(k=10), Simulation.from_rows(rows))
print(json.dumps([time.perf_counter() - begin, done.state.inertia, done.rounds]))
"""


def measured(code: str, folder: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout or "[]"))


def rows(count: int = 100_000) -> list[tuple[str, float, float]]:
    """(what, target at most, measured)."""
    with tempfile.TemporaryDirectory() as folder:
        measured(_MAKE.format(rows=count), folder)
        size_in_memory = 10 * count * 16 * 8 / 2**20
        files, alone = (min(measured(code, folder) for _ in range(2)) for code in (_FILES, _ALONE))
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
    print(f"  {size:.0f} MB; {files[3]:.2f} s from files to report, {alone[0]:.2f} s clustering alone")
    return [
        ("reading, preparation and clustering / clustering alone", 1.5, files[0] / alone[0]),
        ("memory beyond the program's own / size of the data", 1.5, files[1] / size_in_memory),
        ("inertia / inertia of clustering alone", 1.005, files[2] / alone[1]),
    ]


def main() -> None:
    print(str(__doc__).splitlines()[0])
    for what, target, measured_ in rows():
        print(f"  {what:60} target at most {target:6.3f}   measured {measured_:6.3f}", flush=True)
    print(f"  (this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB)")


if __name__ == "__main__":
    main()
