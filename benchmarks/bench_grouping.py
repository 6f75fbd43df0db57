"""Groups for microaggregation, of 11 rows or more, 16 columns, one thread: time, squared error, memory.

The squared error is that of the groups over that of the plain principal-axis cut, which is slow and left out
for the largest size. Memory is what the process needs beyond the rows, as a share of their size in float64.
``python -m benchmarks.bench_grouping [rows]`` stops at that many rows.
"""

import subprocess
import sys
import time

import numpy as np

from benchmarks.bench_rounds import Row
from benchmarks.plain_cut import plain_cut
from unpooled.kernels.grouping import groups

MIN_SIZE, COLUMNS = 11, 16
SECONDS = {10_000: 0.3, 100_000: 2.0, 1_000_000: 32.0}  # target, at most
COMPARED = 100_000  # rows up to which the plain cut is made


def blobs(n: int, d: int = COLUMNS, k: int = 20) -> np.ndarray:
    """(n, d) float32 rows in clusters, made in float32 so that nothing larger was ever in memory."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), np.float32)
    X += rng.normal(scale=4, size=(k, d)).astype(np.float32)[rng.integers(k, size=n)]
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    return X


def squared_error(Z: np.ndarray, labels: np.ndarray) -> float:
    sizes = np.bincount(labels)
    return float(sum(((z - (np.bincount(labels, z) / sizes)[labels]) ** 2).sum() for z in Z.T.astype(float)))


def seconds(Z: np.ndarray) -> float:
    """CPU seconds of one grouping, the better of two where that is quick."""
    took = []
    for _ in range(2 if len(Z) <= COMPARED else 1):
        before = time.process_time()
        groups(Z, MIN_SIZE)
        took.append(time.process_time() - before)
    return min(took)


def memory(n: int) -> float:
    """What a process of its own needs beyond the rows, as a share of the rows in float64."""
    code = f"""
import re
import numpy as np
from unpooled.kernels.grouping import groups
def peak(): return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
Z = np.random.default_rng(0).standard_normal(({n}, {COLUMNS}), np.float32)
before = peak()
groups(Z, {MIN_SIZE})
print((peak() - before) / (8 * Z.size))
"""
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def rows(max_rows: int = max(SECONDS)) -> list[Row]:
    """(what, target at most, measured)."""
    found: list[Row] = []
    for n, target in SECONDS.items():
        if n > max_rows:
            break
        Z = blobs(n)
        found.append((f"groups of {n:,} x {COLUMNS}, seconds (at most)", target, seconds(Z)))
        if n <= COMPARED:
            ratio = squared_error(Z, groups(Z, MIN_SIZE)) / squared_error(
                Z, plain_cut(Z.astype(float), MIN_SIZE)
            )
            found.append(
                (f"groups of {n:,} x {COLUMNS}, squared error over plain cut (at most)", 0.85, ratio)
            )
        found.append((f"groups of {n:,} x {COLUMNS}, memory over rows in float64 (at most)", 0.5, memory(n)))
    return found


def main() -> None:
    for what, target, measured in rows(int(sys.argv[1]) if len(sys.argv) > 1 else max(SECONDS)):
        print(f"{what:66} target {target:8.2f}   measured {measured:8.2f}")


if __name__ == "__main__":
    main()
