"""Tables 2-5 of Stallmann & Wilbik (federated fuzzy c-means): published, ours, difference.

``python -m benchmarks.fuzzy_tables [--runs 10] [--g2 file.npz]``. Cases 1-3 are drawn anew in every run. Case
4 is the G2 sets of Fraenti and others, 2 to 1024 columns: drawn alike, but for those in the file (as arrays
``g2_<columns>_<sd>``).

What the paper leaves open, and what is done here: case 1 has a standard deviation of .5; case 2 has m = 1.1;
"SSE" is the sum of unsquared distances over rows x columns; the gap is that of each found centre to the
nearest true one, divided by k in case 3. The gap by optimal matching stands beside it. Sites run to
convergence in every round, weigh by sum(u), and start in the unit cube; central starts from random
memberships.

avg1 in case 3 is the one column that does not agree: within and outside SSE. The published within SSE is
large where the published gap is small and small where it is large; ours goes with the gap, as it must where
centres lie off the clusters. It is also the one that often does not settle, but goes to and fro between two
states.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unpooled import Fuzzy, InProcess, run
from unpooled.metrics import knowledge_gap, nearest_gap, outside_sse, within_sse

Sites = dict[str, np.ndarray]
METHODS = ("central", "avg1", "avg2")


class Case(NamedTuple):
    name: str
    true: np.ndarray  # (k, d)
    sites: Sites
    m: float
    share: float  # the published gap is divided by this


class Outcome(NamedTuple):
    gap: float  # as published
    matched: float  # by optimal matching
    within: float
    outside: float


def _drawn(rng: np.random.Generator, true: np.ndarray, sizes: list[list[int]], sd: float) -> Sites:
    return {
        f"client-{i}": np.concatenate(
            [c + sd * rng.standard_normal((n, len(c))) for c, n in zip(true, counts, strict=True)]
        )
        for i, counts in enumerate(sizes)
    }


def case_1(rng: np.random.Generator) -> Case:
    """Client 3 lacks the third cluster; clients 1 and 2 have the same data."""
    true = np.array([[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]])
    sites = _drawn(rng, true, [[333] * 3, [333] * 3, [500, 500, 0]], 0.5)
    sites["client-1"] = sites["client-0"]
    return Case("case 1", true, sites, 2.0, 1)


def case_2(rng: np.random.Generator) -> Case:
    """A cluster that shows only when the two clients' rows are put together."""
    true = np.array([[5.0, 0.0], [5.0, 10.0], [10.0, 10.0]])
    return Case("case 2", true, _drawn(rng, true, [[900, 50, 50], [50, 900, 50]], 1.1), 1.1, 1)


def case_3(rng: np.random.Generator, points: tuple[int, int, int]) -> Case:
    """Every client has two of the four clusters."""
    true = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 10.0], [10.0, 0.0]])
    a, b, c = (n // 2 for n in points)
    sizes = [[a, a, 0, 0], [0, b, b, 0], [0, 0, c, c]]
    return Case(f"case 3 {points}", true, _drawn(rng, true, sizes, 1.0), 2.0, 4)


POINTS = ((100, 1000, 100), (100, 1000, 1000), (1000, 100, 100), (1000, 1000, 1000))

# gap / within / outside; nan where the paper gives none
PUBLISHED: dict[str, dict[str, tuple[float, float, float]]] = {
    "case 1": {
        "central": (np.nan, 0.3120, 3.7070),
        "avg1": (np.nan, 0.3588, 3.4078),
        "avg2": (np.nan, 0.3120, 3.7041),
    },
    "case 2": {"central": (1.47, 0.71, 8.57), "avg1": (2.77, 0.73, 8.29), "avg2": (1.25, 0.72, 8.55)},
    "case 3 (100, 1000, 100)": {
        "central": (0.41, 0.70, 15.24),
        "avg1": (1.17, 1.88, 12.92),
        "avg2": (0.12, 0.63, 17.18),
    },
    "case 3 (100, 1000, 1000)": {
        "central": (0.21, 0.65, 16.00),
        "avg1": (3.88, 1.28, 11.95),
        "avg2": (0.08, 0.63, 17.21),
    },
    "case 3 (1000, 100, 100)": {
        "central": (0.17, 0.65, 16.55),
        "avg1": (1.34, 2.28, 13.83),
        "avg2": (0.10, 0.63, 17.18),
    },
    "case 3 (1000, 1000, 1000)": {
        "central": (0.04, 0.63, 17.14),
        "avg1": (3.62, 1.16, 11.69),
        "avg2": (0.03, 0.62, 17.14),
    },
}
PUBLISHED_G2 = {  # quantiles of the normalised gap: 25 %, 50 %, 75 %, least, most
    "central": (2.42, 9.01, 30.98, 0.98, 99.80),
    "avg1": (2.43, 8.87, 30.33, 0.98, 99.24),
    "avg2": (2.41, 8.94, 30.38, 0.97, 95.55),
}


def found(case: Case, method: str, seed: int, rounds: int = 100) -> np.ndarray:
    """The centres that a column of the tables finds; central is one site with all rows."""
    k = len(case.true)
    if method == "central":
        X = np.concatenate(list(case.sites.values()))
        u = np.random.default_rng(seed).dirichlet(np.ones(k), len(X)) ** case.m
        start = u.T @ X / u.sum(axis=0)[:, None]
        central = Fuzzy(k=k, m=case.m, init=start, n_starts=1, tol=1e-3, tol_kind="absolute")
        return run(central, InProcess.of({"all": X}, threads=1), seed=seed).state.centers
    merge = "avg1" if method == "avg1" else "avg2"
    algorithm = Fuzzy.as_published(k=k, m=case.m, merge=merge, rounds=rounds)
    return run(algorithm, InProcess.of(case.sites, threads=1), seed=seed).state.centers


def outcome(case: Case, centers: np.ndarray) -> Outcome:
    X = np.concatenate(list(case.sites.values()))
    return Outcome(
        nearest_gap(centers, case.true) / case.share,
        knowledge_gap(centers, case.true) / case.share,
        within_sse(X, centers),
        outside_sse(X, centers),
    )


def cases(rng: np.random.Generator) -> Iterator[Case]:
    yield case_1(rng)
    yield case_2(rng)
    for points in POINTS:
        yield case_3(rng, points)


def table(runs: int, seed: int = 0, rounds: int = 100) -> dict[str, dict[str, np.ndarray]]:
    """Per case and method (runs, 4): gap, matched gap, within, outside."""
    got: dict[str, dict[str, list[Outcome]]] = {}
    for i in range(runs):
        for case in cases(np.random.default_rng([seed, i])):
            for method in METHODS:
                centers = found(case, method, 1000 * seed + i, rounds)
                got.setdefault(case.name, {}).setdefault(method, []).append(outcome(case, centers))
    return {name: {m: np.array(v) for m, v in by.items()} for name, by in got.items()}


def g2_sets(path: Path | None, seed: int) -> Iterator[tuple[str, np.ndarray, int]]:
    """(name, rows, columns) of the G2 sets: from the file where it has them, else drawn alike."""
    stored = np.load(path) if path is not None else {}
    for d in (2**p for p in range(1, 11)):
        for sd in range(10, 101, 10):
            name = f"g2_{d}_{sd}"
            rng = np.random.default_rng([seed, d, sd])
            means = np.repeat([500.0, 600.0], 1024)[:, None]
            drawn = np.rint(means + sd * rng.standard_normal((2048, d)))
            yield name, np.asarray(stored[name], float) if name in stored else drawn, d


def g2_gaps(path: Path | None, runs: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Per method, the gap over the root of the number of columns, of every set and run; ten clients."""
    gaps: dict[str, list[float]] = {method: [] for method in METHODS}
    for name, X, d in g2_sets(path, seed):
        true = np.array([[500.0] * d, [600.0] * d])
        for i in range(runs):
            parts = np.array_split(np.random.default_rng([seed, i]).permutation(len(X)), 10)
            case = Case(name, true, {f"{j}": X[part] for j, part in enumerate(parts)}, 2.0, 1)
            for method in METHODS:
                centers = found(case, method, seed=i, rounds=30)
                gaps[method].append(nearest_gap(centers, true) / np.sqrt(d))
    return {method: np.array(values) for method, values in gaps.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables 2-5 of Stallmann & Wilbik")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--g2", type=Path, default=None, help="file with the G2 sets; drawn alike without it")
    parser.add_argument("--no-g2", action="store_true")
    args = parser.parse_args()
    print("published | ours +- sd over runs | difference       (the gap by optimal matching in brackets)")
    for name, by in table(args.runs, args.seed).items():
        print(name)
        for method in METHODS:
            mean, sd = by[method].mean(axis=0), by[method].std(axis=0)
            cells = []
            for at, published in zip((0, 2, 3), PUBLISHED[name][method], strict=True):
                known = "    -" if np.isnan(published) else f"{published:5.2f}"
                less = "      " if np.isnan(published) else f"{mean[at] - published:+6.2f}"
                cells.append(f"{known} | {mean[at]:5.2f} +- {sd[at]:4.2f} | {less}")
            print(f"  {method:8} gap {cells[0]} [{mean[1]:5.2f}]   within {cells[1]}   outside {cells[2]}")
    if args.no_g2:
        return
    print("case 4, G2: normalised gap, quantiles 25 %, 50 %, 75 %, least, most")
    for method, gaps in g2_gaps(args.g2, max(1, args.runs // 5), args.seed).items():
        ours = [*np.quantile(gaps, [0.25, 0.5, 0.75]), gaps.min(), gaps.max()]
        cells = [
            f"{p:5.2f} | {o:5.2f} | {o - p:+6.2f}" for p, o in zip(PUBLISHED_G2[method], ours, strict=True)
        ]
        print(f"  {method:8} " + "    ".join(cells))


if __name__ == "__main__":
    main()
