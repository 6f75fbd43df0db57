"""What protection costs where rows are few: ``python -m tests.attacks cost``.

Inertia of all rows at the centres found, over that of Lloyd on the pooled rows: the mean over seeds, and the
largest.
"""

import numpy as np

from attacks.test_relay_attacks import shared_clusters
from attacks.test_sums_of_rows import inertia, overlapping, polished
from unpooled.algorithms import Lloyd
from unpooled.data.summary_table import SummaryTable
from unpooled.federation import Simulation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.privacy.microaggregation.combine_summaries import combine_summaries
from unpooled.protocol import run
from unpooled.typing import FloatArray

SEEDS = 6
REGIONS = (("h0", "h1", "h2", "h3"), ("h4", "h5", "h6", "h7"))
Ratios = tuple[float, float]


def pooled(X: FloatArray, k: int) -> float:
    """Return the inertia of Lloyd on the pooled rows."""
    return float(inertia(X, run(Lloyd(k=k), Simulation.from_rows({"all": X}), seed=1).state.centers))


def of_rows(seed: int, n: int, d: int, k: int) -> Ratios:
    """Return the ratio at centres from groups of rows of three sites, and after one exact round."""
    rows = overlapping(seed, n, d)
    X = np.concatenate(list(rows.values()))
    _, state = polished(rows, k)
    best = pooled(X, k)
    return inertia(X, state.inner.centers) / best, inertia(X, state.centers) / best


def of_relays(seed: int, kind: str, n: int, k: int) -> Ratios:
    """Return the ratio at centres from the tables of eight hospitals, and from those of their two relays."""
    rows = shared_clusters(seed, kind, n)
    X = np.concatenate(list(rows.values()))
    own = {name: microaggregate(one) for name, one in rows.items()}
    relays = {str(i): combine_summaries({s: own[s] for s in some}) for i, some in enumerate(REGIONS)}
    best = pooled(X, k)
    return inertia(X, _from(own, k)) / best, inertia(X, _from(relays, k)) / best


def _from(tables: dict[str, SummaryTable], k: int) -> FloatArray:
    rows = {name: table.matrix() for name, table in tables.items()}
    people = {name: table.people for name, table in tables.items()}
    centers: FloatArray = run(Lloyd(k=k), Simulation.from_rows(rows, people), seed=1).state.centers
    return centers


def print_cost() -> None:
    _head("raw rows of three sites, overlapping clusters", "groups", "exact round")
    for k in (3, 8):
        for d in (2, 8):
            for n in (150, 300, 600, 1200):
                _line(f"{n} rows, d {d}, k {k}", [of_rows(seed, n, d, k) for seed in range(SEEDS)])
    _head("eight hospitals under two relays", "hospitals", "relays")
    for k in (4, 8):
        for kind in ("shared", "regional", "own"):
            for n in (60, 100, 200):
                found = [of_relays(seed, kind, n, k) for seed in range(SEEDS)]
                _line(f"{kind} clusters, {n} rows each, k {k}", found)


def _head(title: str, *columns: str) -> None:
    print(f"{title:50}" + "".join(f"{name:>20}" for name in columns))


def _line(name: str, ratios: list[Ratios]) -> None:
    cells = (f"{np.mean(one):10.3f}, max {max(one):.3f}" for one in zip(*ratios, strict=True))
    print(f"{name:50}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
