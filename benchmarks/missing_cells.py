"""Missing cells, kept or filled: the adjusted Rand index with the true clusters, over 20 seeds.

``python -m benchmarks.missing_cells`` prints the table. Rows of 3 sites are clusters of variance 1 around
centres of variance 4, in 6 columns. In the first lines 30% of all cells are missing; in the others one site
lacks 2 columns. "kept" is ``--missing keep``, "filled" ``--missing fill``, both by ``--method lloyd``; the
last column has the number of seeds in which "kept" is at least as good.
"""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from unpooled import kernels
from unpooled.algorithms import Lloyd
from unpooled.data import PreparationOptions, Table
from unpooled.evaluation import Analysis
from unpooled.federation import Simulation
from unpooled.kernels.observed import nearest_observed
from unpooled.protocol import run

SEEDS, ROWS, COLUMNS, SITES = 20, 600, 6, 3
KS = (3, 4, 5)
MISSING = 0.3
LACKING = (0, 1)  # columns that the last site lacks


def drawn(seed: int, k: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Rows and their true clusters."""
    rng = np.random.default_rng(seed)
    centers = 2.0 * rng.normal(size=(k, COLUMNS))
    labels = rng.integers(0, k, ROWS)
    return centers[labels] + rng.normal(size=(ROWS, COLUMNS)), labels, rng


def site_tables(X: np.ndarray, lacking: tuple[int, ...] = ()) -> dict[str, Table]:
    """Every third row to each site; the last one lacks some columns."""
    return {
        f"s{i}": Table.from_columns(
            {f"c{j}": X[i::SITES, j] for j in range(COLUMNS) if i < SITES - 1 or j not in lacking}
        )
        for i in range(SITES)
    }


def agreement(tables: dict[str, Table], labels: np.ndarray, k: int, missing: str) -> float:
    """The adjusted Rand index of a clustering; rows without any value form a cluster of their own."""
    preparation_options = PreparationOptions(missing=missing, columns="any")
    state = run(Analysis(preparation_options, (Lloyd(k=k),)), Simulation.from_rows(tables), seed=0).state
    transform = state.agreement.preparation
    nearest = nearest_observed if transform.keeps_missing else kernels.nearest
    found = []
    for name in sorted(tables):
        own = np.full(len(tables[name]), -1)
        own[transform.rows_used(tables[name])] = nearest(
            transform.apply(tables[name]), state.chosen.centers
        ).labels
        found.append(own)
    true = np.concatenate([labels[i::SITES] for i in range(SITES)])
    return float(adjusted_rand_score(true, np.concatenate(found)))


def compared(k: int, *, lacks_columns: bool, seeds: int = SEEDS) -> np.ndarray:
    """(seeds, 2): the index of kept and of filled cells."""
    out = []
    for seed in range(seeds):
        X, labels, rng = drawn(seed, k)
        if lacks_columns:
            tables = site_tables(X, LACKING)
        else:
            tables = site_tables(np.where(rng.random(X.shape) < MISSING, np.nan, X))
        out.append([agreement(tables, labels, k, missing) for missing in ("keep", "fill")])
    return np.array(out)


def main() -> None:
    print(f"{'':36} {'kept':>6} {'filled':>6}   better or equal")
    for lacks_columns in (False, True):
        what = "a site lacks 2 of 6 columns" if lacks_columns else "30% of cells missing"
        for k in KS:
            found = compared(k, lacks_columns=lacks_columns)
            kept, filled = found.mean(axis=0)
            wins = int((found[:, 0] >= found[:, 1]).sum())
            print(f"{what + f', k = {k}':36} {kept:6.3f} {filled:6.3f}   {wins} of {SEEDS}", flush=True)


if __name__ == "__main__":
    main()
