"""The measured part of docs/exact.md: certificates of 20 sets of rows, and optima of small ones.

``python -m benchmarks.certificates`` computes all of them in some minutes on one core;
``python -m benchmarks.certificates iris ruspini:8 50000`` only the sets with these words, numbers of rows or
k, and replaces their lines in the page. Times are the process's own CPU seconds.
"""

import csv
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

import unpooled.data.examples as datasets
from unpooled import certify, exact_kmeans
from unpooled.data.examples import load_penguins
from unpooled.federation import Simulation
from unpooled.optimality.certificate import percent_above
from unpooled.typing import FloatArray

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("age", "trestbps", "chol", "thalach")
PART = re.compile(
    r"(?<=<!-- certificates: python -m benchmarks.certificates -->\n)(.*?)(?=<!-- end -->)", re.S
)
SITES = 5  # that share the rows of a set of 1000 or more

# E. H. Ruspini: Numerical methods for fuzzy clustering, Information Sciences 2, 1970
RUSPINI = """4 53 5 63 10 59 9 77 13 49 13 69 12 88 15 75 18 61 19 65 22 74 27 72 28 76 24 58 27 55 28 60 30
52 31 60 32 61 36 72 28 147 32 149 35 153 33 154 38 151 41 150 38 145 38 143 32 143 34 141 44
156 44 149 44 143 46 142 47 149 49 152 50 142 53 144 52 152 55 155 54 124 60 136 63 139 86 132
85 115 85 96 78 94 74 96 97 122 98 116 98 124 99 119 99 128 101 115 108 111 110 111 108 116 111
126 115 117 117 115 70 4 77 12 83 21 61 15 69 15 78 16 66 18 58 13 64 20 69 21 66 23 61 25 76
27 72 31 64 30"""


class Problem(NamedTuple):
    """A set of rows and a number of clusters."""

    name: str
    k: int
    rows: Callable[[], FloatArray]


def standard(X: FloatArray) -> FloatArray:
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


def ruspini() -> FloatArray:
    return np.array(RUSPINI.split(), dtype=float).reshape(-1, 2)


def heart() -> FloatArray:
    """Age, blood pressure, cholesterol and heart rate of the patients for whom all are known."""
    path = Path(datasets.__file__).parent / "heart_disease.csv"
    with path.open(encoding="utf-8") as file:
        rows = [
            [row[name] for name in ("age", "trestbps", "chol", "thalach")] for row in csv.DictReader(file)
        ]
    return standard(np.array([[float(v) for v in row] for row in rows if all(row)]))


def components(X: FloatArray, d: int) -> FloatArray:
    """The first principal components."""
    about = X - X.mean(axis=0)
    return np.asarray(about @ np.linalg.svd(about, full_matrices=False)[2][:d].T)


def groups(n: int, d: int, k: int, spread: float) -> Callable[[], FloatArray]:
    """Normal groups about centres in a cube of side 2; at a spread of 0.3 neighbours overlap."""

    def made() -> FloatArray:
        rng = np.random.default_rng([n, d, k])
        middles = rng.uniform(-1, 1, (k, d))
        return np.asarray(middles[rng.integers(k, size=n)] + spread * rng.normal(size=(n, d)))

    return made


def uniform(n: int, d: int) -> Callable[[], FloatArray]:
    return lambda: np.random.default_rng([n, d]).uniform(size=(n, d))


def cancer() -> FloatArray:
    return components(standard(load_breast_cancer().data), 2)


def digits() -> FloatArray:
    return components(np.asarray(load_digits().data, dtype=float), 2)


CERTIFIED = (
    Problem("iris, 4 columns", 3, lambda: np.asarray(load_iris().data)),
    Problem("iris, 4 columns", 10, lambda: np.asarray(load_iris().data)),
    Problem("wine, 13 columns, standardised", 3, lambda: standard(load_wine().data)),
    Problem("penguins, 4 columns, standardised", 3, lambda: standard(load_penguins().X)),
    Problem(
        "breast cancer, 2 components of 30 columns",
        2,
        lambda: components(standard(load_breast_cancer().data), 2),
    ),
    Problem("heart disease, 4 columns, standardised", 4, heart),
    Problem("digits, 2 components of 64 columns", 5, digits),
    Problem("digits, 2 components of 64 columns", 10, digits),
    Problem("uniform in a square", 4, uniform(1000, 2)),
    Problem("uniform in a square", 10, uniform(1000, 2)),
    Problem("overlapping groups, 2 columns", 3, groups(1000, 2, 3, 0.3)),
    Problem("overlapping groups, 2 columns", 5, groups(2000, 2, 5, 0.3)),
    Problem("overlapping groups, 2 columns", 8, groups(2000, 2, 8, 0.2)),
    Problem("overlapping groups, 3 columns", 5, groups(1000, 3, 5, 0.3)),
    Problem("overlapping groups, 4 columns", 4, groups(1000, 4, 4, 0.3)),
    Problem("overlapping groups, 8 columns", 3, groups(1000, 8, 3, 0.3)),
    Problem("separate groups, 8 columns", 5, groups(5000, 8, 5, 0.2)),
    Problem("separate groups, 16 columns", 4, groups(5000, 16, 4, 0.2)),
    Problem("overlapping groups, 2 columns", 3, groups(20_000, 2, 3, 0.3)),
    Problem("overlapping groups, 2 columns", 3, groups(50_000, 2, 3, 0.3)),
)
SOLVED = (
    *(Problem("iris", k, lambda: np.asarray(load_iris().data)) for k in range(2, 11)),
    *(Problem("ruspini", k, ruspini) for k in range(2, 11)),
    Problem("wine, standardised", 3, lambda: standard(load_wine().data)),
    Problem("normal, 100 rows, 2 columns", 4, lambda: np.random.default_rng(0).normal(size=(100, 2))),
    Problem("overlapping groups, 150 rows, 2 columns", 8, groups(150, 2, 8, 0.2)),
)


def certified(problem: Problem) -> str:
    """A line of the table of certificates, for the best of some runs of k-means."""
    X = problem.rows()
    centers = KMeans(problem.k, n_init=20, random_state=0).fit(X).cluster_centers_
    gaps, seconds = [], 0.0
    for count in (1, SITES):
        if count > 1 and len(X) < 1000:
            gaps.append("")
            continue
        share = np.random.default_rng(0).permutation(len(X)) % count
        federation = Simulation.from_rows({f"s{s}": X[share == s] for s in range(count)})
        started = time.process_time()
        proof = certify(federation, centers)
        seconds = max(seconds, time.process_time() - started)
        gaps.append(f"{percent_above(proof.gap)}%")
    return f"| {problem.name} | {len(X):,} | {problem.k} | {' | '.join(gaps)} | {seconds:.1f} |"


def solved(problem: Problem) -> str:
    """A line of the table of optima."""
    X = problem.rows()
    started = time.process_time()
    best = exact_kmeans(X, problem.k, time_limit=60)
    seconds = time.process_time() - started
    gap = "proved" if best.proved else f"gap {percent_above(best.gap)}%"
    return f"| {problem.name} | {len(X)} | {problem.k} | {best.inertia:.5f} | {gap} | {seconds:.1f} |"


Key = tuple[str, str, str]  # name, number of rows, k: the first cells of a line


def selected(problem: Problem, which: tuple[str, ...]) -> bool:
    """True if a set is named by a word, by name:k, or by its number of rows."""
    words = [word.partition(":") for word in which]
    size = str(len(problem.rows())) if any(name.isdigit() for name, _, _ in words) else ""
    return not which or any(
        (name == size if name.isdigit() else name in problem.name) and k in ("", str(problem.k))
        for name, _, k in words
    )


def key(line: str) -> Key:
    """
    >>> key("| iris, 4 columns | 150 | 3 | 0.00045% |  | 0.0 |")
    ('iris, 4 columns', '150', '3')
    """
    name, number, k = (cell.strip() for cell in line.split("|")[1:4])
    return name, number, k


def measured(text: str) -> tuple[dict[Key, str], dict[Key, str]]:
    """The lines of the two tables of the measured part."""
    parts = text.split("### ")
    return tuple(  # type: ignore[return-value]
        {key(line): line for line in part.splitlines() if line.startswith("| ") and key(line)[2].isdigit()}
        for part in (parts[1], parts[2])
    )


@cache
def unavoidable(name: str, number: str, k: str) -> str:
    """The gap between the sites' own best clusterings together and that of all rows: no bound is closer."""
    (problem,) = (p for p in CERTIFIED if (p.name, f"{len(p.rows()):,}", str(p.k)) == (name, number, k))
    X = problem.rows()
    share = np.random.default_rng(0).permutation(len(X)) % SITES
    pooled, *own = (
        KMeans(problem.k, n_init=20, random_state=0).fit(rows).inertia_
        for rows in (X, *(X[share == s] for s in range(SITES)))
    )
    return f"{100 * (1 - sum(own) / pooled):.1f}%"


def large(lines: Iterable[str]) -> Iterator[str]:
    """Sets of 1000 or more rows with a large gap: above 3% up to k = 5, above 10% up to k = 10."""
    for line in lines:
        name, number, k = key(line)
        for cell, sites in zip(line.split("|")[4:6], ("1 site", f"{SITES} sites"), strict=True):
            gap = float(cell.replace("%", "").strip() or 0)
            if int(number.replace(",", "")) >= 1000 and gap > (3 if int(k) <= 5 else 10):
                lowest = f"; at least {unavoidable(name, number, k)}" if sites[0] != "1" else ""
                yield f"{name}, {number} rows, k = {k}, {sites}: {cell.strip()}{lowest}"


def in_order(problems: tuple[Problem, ...], found: dict[Key, str]) -> tuple[str, list[str]]:
    """The lines of a table, and the sets that it does not have."""
    wanted = [(p.name, f"{len(p.rows()):,}", str(p.k)) for p in problems]
    lacking = [
        f"{name}, {number} rows, k = {k}" for name, number, k in wanted if (name, number, k) not in found
    ]
    return "\n".join(found[one] for one in wanted if one in found), lacking


def measured_part(certificates: dict[Key, str], optima: dict[Key, str]) -> str:
    """The measured part of the page."""
    table, lacking = in_order(CERTIFIED, certificates)
    small, unsolved = in_order(SOLVED, optima)
    missing = "; ".join([*lacking, *unsolved])
    above = "\n".join(f"- {line}" for line in large(certificates.values())) or "- none"
    note = f"Not measured yet: {missing}.\n\n" if missing else ""
    return f"""{note}### Upper bounds on a possible improvement

"3%" means that no clustering of these rows into k groups has an inertia that is more than 3% lower. The table
has the bound for the rows at one site and, from 1000 rows on, for the same rows divided at random over
{SITES} sites. Every site then fits k centres of its own to fewer rows, so the bound is weaker. The effort is
`normal`; seconds are the CPU time of all sites together, the longer of the two.

| rows | number | k | at most better, 1 site | {SITES} sites | seconds |
|---|---:|---:|---:|---:|---:|
{table}

Large bounds, from 1000 rows on (above 3% up to k = 5, above 10% up to k = 10):

{above}

"At least" is the gap that the sites' own best clusterings leave together (the best of 20 runs of k-means
each): no sum over these sites can leave a smaller one. Two reasons make the bound weaker with several sites:

- At one site the rows are divided into parts that resemble the whole. Rows that are at a site by chance do
  not, and sites that do not exchange rows cannot rearrange them.
- Rows that are uniform in a square have no groups. 200 of them have their best 10 centres elsewhere than the
  next 200, so each site's own centres fit its few rows much better than common centres could.

### Small sets, solved

`exact_kmeans` with a limit of 60 seconds. "proved" means that no clustering is better by more than a
billionth.

| rows | number | k | inertia | optimum | seconds |
|---|---:|---:|---:|---|---:|
{small}
"""


def main() -> None:
    which, path = tuple(sys.argv[1:]), ROOT / "docs" / "exact.md"
    before, text, after = PART.split(path.read_text(encoding="utf-8"))
    tables = measured(text)
    for found, problems, line in ((tables[0], CERTIFIED, certified), (tables[1], SOLVED, solved)):
        for problem in problems:
            if selected(problem, which):
                cells = line(problem)
                print(cells, flush=True)
                found[key(cells)] = cells
                path.write_text(f"{before}{measured_part(*tables)}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
