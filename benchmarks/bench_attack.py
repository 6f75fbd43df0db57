"""Rows of one site that an attack reconstructs from its log, after ordinary runs in the mode raw.

Three sites of 200 rows; one of them is attacked. ``python -m benchmarks.bench_attack``
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs

from unpooled.algorithms import Lloyd
from unpooled.data import PreparationOptions, Table
from unpooled.evaluation.analysis import Analysis
from unpooled.federation import LocalFederation
from unpooled.protocol import run
from unpooled.site.audit.attack import on_log
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.typing import FloatArray

ROWS, COLUMNS, CLUSTERS, SCAN, SEEDS = 200, (2, 4, 8), (3, 5, 8), range(2, 11), range(2)
RAW = parse('format = 1\n[protect]\nmode = "raw"')


def main() -> None:
    for d in COLUMNS:
        for k in CLUSTERS:
            for seed in SEEDS:
                X, _ = make_blobs(3 * ROWS, d, centers=k, cluster_std=2.5, random_state=seed)
                _attack(f"d {d}, k {k}, seed {seed}", X, Lloyd(k=k, min_cluster_size=5), seed)
    for d in COLUMNS:
        for seed in SEEDS:
            X, _ = make_blobs(3 * ROWS, d, centers=5, cluster_std=2.5, random_state=seed)
            scan = Analysis(PreparationOptions(), tuple(Lloyd(k=k, min_cluster_size=5) for k in SCAN))
            _attack(f"d {d}, scan of k 2..10, seed {seed}", X, scan, seed)


def _attack(name: str, X: FloatArray, algorithm: Any, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = {s: X[i::3] for i, s in enumerate(("east", "north", "west"))}
        sites = [
            open_site(s, _table(x) if isinstance(algorithm, Analysis) else x, RAW, folder=Path(folder) / s)
            for s, x in rows.items()
        ]
        run(algorithm, LocalFederation(sites), seed=seed)
        for site in sites:
            site.close()
        start = time.perf_counter()
        found = on_log(Path(folder) / "north" / "log.jsonl").rows
        took = time.perf_counter() - start
    distance = np.abs(found[:, None] - rows["north"][None]).max(axis=2)
    true = int((distance.min(axis=0, initial=np.inf) < 1e-6).sum())
    false = int((distance.min(axis=1) >= 1e-6).sum())
    print(f"{name}: {true} of {ROWS} rows to 1e-6, {false} others, {took:.1f} s", flush=True)


def _table(X: FloatArray) -> Table:
    return Table.from_columns({f"c{j}": X[:, j].tolist() for j in range(X.shape[1])})


if __name__ == "__main__":
    main()
