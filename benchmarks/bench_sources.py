"""Ten million rows x 8 from Parquet: peak memory; ``unpooled.cluster`` on DataFrames beside the estimator.

``python -m benchmarks.bench_sources [rows]``: CPU time, one thread; memory is the peak. The call and the
estimator take turns in one process, after one of each, and the ratio is the median over five turns.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

_MAKE = """
import sys, numpy as np, pyarrow, pyarrow.parquet
rng = np.random.default_rng(0)
centers = rng.normal(0, 1.5, (6, 8))
schema = pyarrow.schema([(f"x{j}", pyarrow.float64()) for j in range(8)])
for i in range(4):
    with pyarrow.parquet.ParquetWriter(f"{sys.argv[1]}/h{i}.parquet", schema) as file:
        for _ in range(10):
            n = int(sys.argv[2]) // 40
            X = centers[rng.integers(6, size=n)] + rng.standard_normal((n, 8))
            file.write_table(pyarrow.table({f"x{j}": X[:, j] for j in range(8)}))
"""
_FIT = """
import json, resource, sys, time
from pathlib import Path
import unpooled
files = {path.stem: path for path in sorted(Path(sys.argv[1]).glob("*.parquet"))}
begin = time.process_time()
result = unpooled.cluster(files, 6, n_threads=1)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([time.process_time() - begin, peak]))
"""
_BESIDE = """
import json, sys, time
import numpy as np, pandas, unpooled.app.cluster, pyarrow
from unpooled import FederatedKMeans
rng = np.random.default_rng(0)
n = int(sys.argv[2])
centers = rng.normal(0, 1.0, (8, 8))
X = centers[rng.integers(8, size=n)] + rng.standard_normal((n, 8))
arrays = {f"h{i}": part for i, part in enumerate(np.split(X, 4))}
tables = {name: pandas.DataFrame(part, columns=[f"x{j}" for j in range(8)]) for name, part in arrays.items()}
def cpu(work):
    begin = time.process_time()
    work()
    return time.process_time() - begin
estimator = lambda: FederatedKMeans(8, n_init=10, scale="standard", random_state=0, n_threads=1).fit(arrays)
call = lambda: unpooled.cluster(tables, 8, n_threads=1)
call(), estimator()
turns = [(cpu(call), cpu(estimator)) for _ in range(5)]
print(json.dumps([np.median([c / e for c, e in turns]), *np.median(turns, axis=0)]))
"""


def measured(code: str, folder: str, rows: int) -> list[float]:
    words = [sys.executable, "-c", code, folder, str(rows)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout or "[]"))


def rows(count: int = 10_000_000) -> list[tuple[str, float, float]]:
    """(what, target at most, measured)."""
    with tempfile.TemporaryDirectory() as folder:
        measured(_MAKE, folder, count)
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**30
        took, peak = measured(_FIT, folder, count)
        ratio, call, estimator = measured(_BESIDE, folder, min(count, 400_000))
    print(
        f"  {size:.2f} GB of Parquet, {took:.0f} CPU s; cluster() {call:.2f}, estimator {estimator:.2f} CPU s"
    )
    return [
        ("peak memory of cluster() from Parquet, GB", 2.0, peak),
        ("CPU of cluster() on DataFrames / of FederatedKMeans on arrays", 1.2, ratio),
    ]


def main() -> None:
    print(str(__doc__).splitlines()[0])
    for what, target, value in rows(*map(int, sys.argv[1:2])):
        print(f"  {what:62} target at most {target:5.2f}   measured {value:5.2f}", flush=True)


if __name__ == "__main__":
    main()
