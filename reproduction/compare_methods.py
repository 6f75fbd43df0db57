"""Comparison of all methods on all sets and splits from the same seeds.

Every method gets the same rows, the same split, the same k, the same seed and the same budget: at most
``ROUNDS`` rounds, from its default start. A method without restarts of its own is also run from ten starts
in the same exchanges (``Restarts``). The scores are the inertia divided by that of pooled k-means
(n_init = 10) on the same rows, the ARI against the true labels, and the cost: rounds, exchanges, bytes that a
site sends, CPU seconds. Fuzzy centres are scored as centres, with each row assigned to the nearest.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.common import Rows, inertia_per_row, pooled_kmeans, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.plots import ranks
from reproduction.result_table import ResultTable, Row, row
from unpooled.algorithms import DWF, EWF, FKM, Fuzzy, KFed, Lloyd, MiniBatch, Restarts
from unpooled.app.compare.comparison_files import aligned_table, standalone_svg
from unpooled.app.compare.scores import ari, labels_of
from unpooled.data import partitions as partition
from unpooled.data.examples import load_penguins, synthetic
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.protocol.algorithm import Algorithm
from unpooled.protocol.run_loop import run
from unpooled.storage.atomic_files import write_atomically
from unpooled.typing import FloatArray, IntArray

DOCS = Path(__file__).parent.parent / "docs"
ROUNDS, SITES = 100, 10
SETS = ("grid", "grid, noisy", "blobs", "penguins", "many clusters")
SPLITS = ("iid", "dirichlet 0.1", "by k-means", "power law")
RECORDED = 3  # runs of the table in docs/methods.md
NAMES = ("inertia / pooled", "ARI", "rounds", "exchanges", "kB a site", "CPU s")
SHOWN_AS = {"exchanges": "round trips", "kB a site": "kB per site"}  # names of stored numbers -> in tables

METHODS: dict[str, Any] = {
    "Lloyd": lambda k: Lloyd(k=k, max_rounds=ROUNDS),
    "Lloyd, 1 start": lambda k: Lloyd(k=k, n_starts=1, max_rounds=ROUNDS),
    "k-FED": lambda k: KFed(k=k),
    "k-FED, Dennis": lambda k: KFed.as_published(k=k, k_local=max(2, int(np.ceil(np.sqrt(k))))),
    "FKM": lambda k: FKM(k=k, max_rounds=ROUNDS),
    "DWF, as published": lambda k: DWF.as_published(k=k),
    "DWF, best of 10": lambda k: Restarts(DWF(k=k, max_rounds=ROUNDS), 10),
    "EWF": lambda k: EWF(k=k, max_rounds=ROUNDS),
    "mini-batch": lambda k: MiniBatch(k=k, max_rounds=ROUNDS),
    "fuzzy": lambda k: Fuzzy(k=k, max_rounds=ROUNDS),
}
"""Name -> k -> algorithm. To compare a method of your own, add it here."""


def rows_of(name: str, rng: np.random.Generator) -> tuple[Rows, IntArray, int]:
    """Return the rows, the true labels and k of a set."""
    if name.startswith("grid"):
        grid = synthetic.garst(1.0, noise=1.5 if "noisy" in name else 1.0, seed=rng)
        return grid.X, grid.y, 16
    if name == "blobs":
        X, y = synthetic.holzer()
        return X, y, 5
    if name == "penguins":
        birds = load_penguins()
        scaled = (birds.X - birds.X.mean(axis=0)) / birds.X.std(axis=0)
        return scaled, partition.natural_id(birds.species), 3
    if name == "many clusters":
        middle = rng.uniform(-10, 10, (50, 8))
        y = rng.integers(0, 50, 5000)
        return middle[y] + rng.standard_normal((5000, 8)), y, 50
    raise InputError(f"There is no set {name!r}. Use one of {', '.join(SETS)}.")


def site_of_rows(split: str, X: Rows, y: IntArray, rng: np.random.Generator) -> IntArray:
    """Return (n,) the site of each row."""
    if split == "iid":
        return partition.iid(len(X), SITES, seed=rng)
    if split == "dirichlet 0.1":
        return partition.dirichlet(y, SITES, 0.1, min_rows=2, seed=rng)
    if split == "by k-means":
        return partition.by_kmeans(X, SITES, seed=rng)
    if split == "power law":
        return partition.power_law(len(X), SITES, 1.5, min_rows=5, seed=rng)
    raise InputError(f"There is no split {split!r}. Use one of {', '.join(SPLITS)}.")


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Run a method, and return its scores and its cost."""
    out: Numbers = {name: [] for name in NAMES}
    for number in runs:
        # the same rows, split and seed for every method and for the baseline
        same: Settings = {"set": settings["set"], "split": settings["split"]}
        rng = np.random.default_rng(seed_of(same, number))
        X, y, k = rows_of(settings["set"], rng)
        site = site_of_rows(settings["split"], X, y, rng)
        pooled = inertia_per_row(X, pooled_kmeans(X, k, rng))
        algorithm: Algorithm[Any] = METHODS[settings["method"]](k)
        federation = Simulation.from_rows(partition.split_rows(X, site), n_threads=1)
        seed = seed_from(rng)
        before = time.process_time()
        done = run(algorithm, federation, seed=seed)
        seconds = time.process_time() - before
        centers = done.state.centers
        out["inertia / pooled"].append(inertia_per_row(X, centers) / pooled)
        out["ARI"].append(ari(y, labels_of(X, centers)))
        out["rounds"].append(float(done.rounds))
        out["exchanges"].append(float(done.exchanges))
        out["kB a site"].append(max(size for _, size in done.sent().values()) / 1000)
        out["CPU s"].append(seconds)
    return out


def _settings(set_: str, split: str, method: str) -> Settings:
    return {"set": set_, "split": split, "method": method}


def _configurations(sources: Sources, quick: bool) -> list[Settings]:
    return [_settings(s, p, m) for s in SETS for p in SPLITS for m in METHODS]


def ranked(results: Results, name: str, higher: bool) -> dict[str, FloatArray]:
    """Return the rank of each method in every set, split and run: 1 is best, ties within 0.1% share ranks."""
    out: dict[str, list[FloatArray]] = {m: [] for m in METHODS}
    for s in SETS:
        for p in SPLITS:
            values = np.array([results.values(_settings(s, p, m), name) for m in METHODS])
            values = -values if higher else values
            near = 1e-3 * np.abs(values).clip(1e-12)
            better = (values[None] < (values - near)[:, None]).sum(axis=1)
            equal = (np.abs(values[None] - values[:, None]) <= near[:, None]).sum(axis=1)
            for m, ranks_ in zip(METHODS, 1 + better + (equal - 1) / 2, strict=True):
                out[m].append(ranks_)
    return {m: np.concatenate(all_ranks) for m, all_ranks in out.items()}


def _present(results: Results, sources: Sources, quick: bool) -> Presentation:
    inertia, agreement = ranked(results, "inertia / pooled", False), ranked(results, "ARI", True)
    means: list[Row] = []
    for m in METHODS:
        for name in NAMES:
            values = np.concatenate([results.values(_settings(s, p, m), name) for s in SETS for p in SPLITS])
            means.append(row((m, SHOWN_AS.get(name, name)), values))
        worst = max(
            float(results.values(_settings(s, p, m), "inertia / pooled").max()) for s in SETS for p in SPLITS
        )
        means.append(Row((m, "inertia / pooled, worst"), worst))
        means.append(row((m, "rank by inertia"), inertia[m], digits=2))
        means.append(row((m, "rank by ARI"), agreement[m], digits=2))
    detail = [
        row((s, p, m), results.values(_settings(s, p, m), "inertia / pooled"))
        for s in SETS
        for p in SPLITS
        for m in METHODS
    ]
    tables = (
        ResultTable("methods", "Means over all sets, splits and seeds", ("method", "score"), tuple(means)),
        ResultTable("sets", "Inertia over that of pooled k-means", ("set", "split", "method"), tuple(detail)),
    )
    figures = tuple(
        Plot(f"ranks-{name}", f"Mean rank by {score} (1 is best)", ranks(f"rank by {score}", by_method))
        for name, score, by_method in (("inertia", "inertia", inertia), ("ari", "ARI", agreement))
    )
    return Presentation(tables, figures)


EXPERIMENT = Experiment(
    "compare",
    "All methods on the same rows, from the same seeds, with the same number of rounds.",
    "comparison of all methods, as in the documentation",
    full=20,
    quick=3,
    block=1,
    configurations=_configurations,
    perform=perform,
    present=_present,
    version=2,
)


EXPERIMENTS = (EXPERIMENT,)


def short(results: Results) -> list[list[str]]:
    """Return one line per method, the lowest inertia first, as quoted in the documentation."""
    inertia, agreement = ranked(results, "inertia / pooled", False), ranked(results, "ARI", True)
    lines = [
        ["method", "inertia / pooled", "worst", "ARI", "rank", "rank, ARI", "rounds", "kB per site", "CPU ms"]
    ]
    for m in sorted(METHODS, key=lambda m: float(inertia[m].mean())):
        every = {
            n: np.concatenate([results.values(_settings(s, p, m), n) for s in SETS for p in SPLITS])
            for n in NAMES
        }
        lines.append(
            [
                m,
                f"{every['inertia / pooled'].mean():.3f}",
                f"{every['inertia / pooled'].max():.2f}",
                f"{every['ARI'].mean():.3f}",
                f"{inertia[m].mean():.1f}",
                f"{agreement[m].mean():.1f}",
                f"{every['rounds'].mean():.0f}",
                f"{every['kB a site'].mean():.1f}",
                f"{1000 * every['CPU s'].mean():.0f}",
            ]
        )
    return lines


def write_page(lines: list[list[str]], figures: Sequence[Plot], docs: Path = DOCS) -> None:
    """Write the table of docs/methods.md, and the figure docs/ranks.svg."""
    methods = docs / "methods.md"
    text = methods.read_text(encoding="utf-8")
    block = f"<!-- compared: make results -->\n{aligned_table(lines, 1)}<!-- end -->"
    text = re.sub(r"<!-- compared: make results -->.*?<!-- end -->", lambda _: block, text, flags=re.S)
    write_atomically(methods, text.encode())
    (ranked_figure,) = (figure for figure in figures if figure.name == "ranks-inertia")
    write_atomically(docs / "ranks.svg", standalone_svg(ranked_figure.svg).encode())
