"""The choice of k on tables without clusters, and on tables with clusters beside five pooled criteria.

``python -m benchmarks.choice_of_k`` prints two tables, from rows and from summary tables:

- tables without clusters, by kind: how often clusters are claimed, and how often they are called clear.
  The kinds of clinic_tables.py are by another author than the rule;
- tables with clusters: how often k is right. The others use the pooled rows, prepared in the same way:
  silhouette, Calinski-Harabasz and Davies-Bouldin over k-means with ten restarts, the gap statistic of
  Tibshirani, Walther and Hastie (2001) and the prediction strength of Tibshirani and Walther (2005).

``--part ranges`` prints the k of 15 real tables for three ranges of k: the range does not decide it.

``--tables`` is the number of tables of each kind and size, ``--seed`` the first seed, ``--part`` one of
``without``, ``made``, ``known`` (sets of known_k.py), ``ranges``, ``--protection`` ``rows`` or ``summary``.
"""

import argparse
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets, metrics
from sklearn.cluster import KMeans

from benchmarks import clinic_tables, made_tables
from benchmarks.known_k import K_MOST, sets
from benchmarks.made_tables import Made
from unpooled.algorithms import METHODS
from unpooled.data import PreparationOptions, Table
from unpooled.data.examples import load_penguins
from unpooled.data.readers import Reading, read_sites
from unpooled.evaluation import Analysis, AnalysisState, Choice
from unpooled.federation import Simulation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import run

KS = range(1, K_MOST + 1)
SIZES = (300, 900)
AUTHORS = (made_tables, clinic_tables)
POOLED = ("silhouette", "Calinski-H.", "Davies-B.", "gap", "pred. strength")
GAP_TABLES = 10
RANGES = (range(2, 9), range(2, 11), range(2, 13))


# ---------------------------------------------------------------- the choice of this package


def tables_of(table: Made) -> dict[str, Table]:
    """The tables of the sites."""
    sites = {}
    for i in np.unique(table.site):
        at = np.flatnonzero(table.site == i)
        columns = {
            name: [values[j] for j in at] if isinstance(values, list) else np.asarray(values)[at]
            for name, values in table.columns.items()
        }
        sites[f"s{i}"] = Table.from_columns(columns)
    return sites


def analysed(
    tables: dict[str, Table], *, summary: bool = False, ks: range = KS, seed: int = 0
) -> AnalysisState:
    """The state at the end of ``-k auto`` over the sites."""
    sites = {name: microaggregate(table) for name, table in tables.items()} if summary else tables
    methods = tuple(METHODS["lloyd"](k=k).with_restarts(10) for k in ks)
    return run(Analysis(PreparationOptions(), methods), Simulation.from_rows(sites), seed=seed).state


def chosen(tables: dict[str, Table], *, summary: bool = False, ks: range = KS, seed: int = 0) -> Choice:
    """The choice of k over the sites."""
    choice = analysed(tables, summary=summary, ks=ks, seed=seed).choice
    assert choice is not None
    return choice


def claims(choice: Choice) -> bool:
    """Whether the choice claims clusters."""
    return choice.verdict in ("clear", "unclear")


# ---------------------------------------------------------------- pooled criteria


def pooled(X: np.ndarray) -> tuple[int, ...]:
    """The k that each pooled criterion names; those that compare clusters begin at k = 2."""
    fits = {k: KMeans(k, n_init=10, random_state=0).fit(X) for k in KS if k > 1}
    named = []
    for score, sign in (
        (metrics.silhouette_score, 1),
        (metrics.calinski_harabasz_score, 1),
        (metrics.davies_bouldin_score, -1),
    ):
        named.append(max(fits, key=lambda k: sign * score(X, fits[k].labels_)))
    inertias = [float(((X - X.mean(axis=0)) ** 2).sum()), *(fit.inertia_ for fit in fits.values())]
    return (*named, gap(X, np.log(np.maximum(inertias, 1e-300))), prediction_strength(X))


def gap(X: np.ndarray, logs: np.ndarray) -> int:
    """The smallest k whose gap is within an error of the next one's; references fill the principal box."""
    rng = np.random.default_rng(0)
    turned = X @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2].T
    low, high = turned.min(axis=0), turned.max(axis=0)
    drawn = np.array([_logs(rng.uniform(low, high, turned.shape)) for _ in range(GAP_TABLES)])
    gaps, errors = drawn.mean(axis=0) - logs, drawn.std(axis=0) * np.sqrt(1 + 1 / GAP_TABLES)
    enough = gaps[:-1] >= gaps[1:] - errors[1:]
    return KS[int(np.argmax(enough))] if enough.any() else KS[-1]


def _logs(X: np.ndarray) -> list[float]:
    return [float(np.log(KMeans(k, n_init=1, random_state=0).fit(X).inertia_)) for k in KS]


def prediction_strength(X: np.ndarray) -> int:
    """The largest k whose prediction strength, over five halvings, is 0.8 or more; else 1."""
    rng = np.random.default_rng(0)
    strengths = {k: [] for k in KS if k > 1}
    for _ in range(5):
        order = rng.permutation(len(X))
        train, test = X[order[: len(X) // 2]], X[order[len(X) // 2 :]]
        for k, found in strengths.items():
            one = KMeans(k, n_init=5, random_state=0).fit(train)
            own = KMeans(k, n_init=5, random_state=0).fit(test).labels_
            given = one.predict(test)
            shares = []
            for j in range(k):
                counts = np.bincount(given[own == j], minlength=k)
                n = counts.sum()
                shares.append((counts * (counts - 1)).sum() / (n * (n - 1)) if n > 1 else 0.0)
            found.append(min(shares))
    return max((k for k, found in strengths.items() if np.mean(found) >= 0.8), default=1)


# ---------------------------------------------------------------- the two tables


def without_clusters(protection: str, tables: int, seed: int) -> tuple[int, int, int]:
    """Print the first table; return the numbers of tables, of claims and of clear ones."""
    print(f"\nTables without clusters, from {protection}, seeds {seed} to {seed + tables - 1}, {SIZES} rows")
    print(f"{'kind':34} {'tables':>7} {'claimed':>8} {'clear':>6}   k claimed")
    totals = np.zeros(3, dtype=int)
    for author, kind in [(one, kind) for one in AUTHORS for kind in one.WITHOUT]:
        found = []
        for n in SIZES:
            for one in range(seed, seed + tables):
                sites = tables_of(author.made(kind, n, one))
                found.append(chosen(sites, summary=protection == "summary"))
        numbers = [len(found), sum(map(claims, found)), sum(c.clear for c in found)]
        totals += numbers
        named = ", ".join(f"{c.k}{'!' if c.clear else ''}" for c in found if claims(c))
        print(f"{kind:34} {numbers[0]:7} {numbers[1]:8} {numbers[2]:6}   {named}", flush=True)
    count, claimed, clear = (int(v) for v in totals)
    print(f"{'all':34} {count:7} {claimed:8} {clear:6}")
    print(
        f"claimed {claimed / count:.1%} (at most {_bound(claimed, count):.1%}), "
        f"clear {clear / count:.1%} (at most {_bound(clear, count):.1%})"
    )
    return count, claimed, clear


def _bound(found: int, count: int) -> float:
    """The one-sided 95% bound of a share (Clopper-Pearson)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
        i = np.arange(found + 1)
        terms = (
            logs[count] - logs[i] - logs[count - i] + i * np.log(max(p, 1e-300)) + (count - i) * np.log1p(-p)
        )
        low, high = (p, high) if np.exp(terms).sum() > 0.05 else (low, p)
    return high


class Known(NamedTuple):
    """A table whose k is known."""

    name: str
    sites: dict[str, Table]
    k: int


def made_sets(tables: int, seed: int) -> Iterator[Known]:
    """The kinds with clusters of both authors."""
    for author in AUTHORS:
        for kind in author.CLUSTERED:
            for n in SIZES:
                for one in range(seed, seed + tables):
                    table = author.made(kind, n, one)
                    yield Known(f"{kind}, {n} rows, seed {one}", tables_of(table), table.k)


def known_sets(folder: Path | None) -> Iterator[Known]:
    """The sets of known_k.py, those without clusters too, divided over three sites."""
    for name, X, k in sets(folder):
        columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
        site = np.random.default_rng(0).integers(3, size=len(X))
        yield Known(name, tables_of(Made(columns, k, site)), k)


def with_clusters(protection: str, problems: Iterator[Known], title: str) -> None:
    """Print the second table."""
    print(f"\n{title}, from {protection}; the others use pooled rows")
    print(f"{'set':52} {'k':>3} {'ours':>5}         " + " ".join(f"{name:>14}" for name in POOLED))
    right, clear, without = np.zeros(1 + len(POOLED), dtype=int), [], []
    count = 0
    for name, sites, true in problems:
        state = analysed(sites, summary=protection == "summary")
        choice = state.choice
        assert choice is not None
        if true == 1:
            without.append(choice)
            print(f"{name:52} {true:3} {choice.k:5} {choice.verdict}", flush=True)
            continue
        preparation = analysed(sites, ks=range(2, 3)).agreement.preparation
        X = np.nan_to_num(np.concatenate([preparation.apply(table) for table in sites.values()]))
        named = (choice.k, *pooled(X))
        right += np.array(named) == true
        count += 1
        clear += [(true, choice.k)] if choice.clear else []
        marked = [f"{k}{' ' if k == true else '!'}" for k in named]
        mark = choice.verdict if choice.verdict in ("clear", "not judged") else ""
        print(
            f"{name:52} {true:3} {marked[0]:>5} {mark:8}" + " ".join(f"{m:>14}" for m in marked[1:]),
            flush=True,
        )
    figures = ", ".join(f"{n} {r}" for n, r in zip(POOLED, right[1:], strict=True))
    print(f"\nright, of {count} sets with clusters: ours {right[0]}, {figures}")
    print(f"{len(clear)} are clear, {sum(a != b for a, b in clear)} of them of a wrong k")
    if without:
        print(
            f"of {len(without)} sets without clusters {sum(map(claims, without))} claimed, "
            f"{sum(c.clear for c in without)} clear"
        )


# ---------------------------------------------------------------- ranges of k


def real_tables() -> Iterator[tuple[str, dict[str, Table]]]:
    """Fifteen tables that ship with scikit-learn or this package, by site."""
    for name in ("iris", "wine", "breast_cancer", "diabetes", "digits"):
        yield name, _over_three_sites(getattr(datasets, f"load_{name}")().data)
    digits, label = datasets.load_digits(return_X_y=True)
    yield "digits 0, 1, 4", _over_three_sites(digits[np.isin(label, (0, 1, 4))])
    islands = {name: Table.from_columns(_named(X)) for name, X in load_penguins().by_island().items()}
    yield "penguins", islands
    for name, table in islands.items():
        yield f"penguins of {name}", {name: table}
    codes = ("sex", "cp", "fbs", "restecg", "exang", "slope", "ca", "thal")
    reading = Reading(site_column="site", exclude=("num",), categorical=codes)
    hospitals = read_sites([Path(str(files("unpooled.data.examples") / "heart_disease.csv"))], reading)
    yield "heart disease", hospitals
    for name, table in hospitals.items():
        yield f"heart disease, {name}", {name: table}


def _over_three_sites(X: np.ndarray) -> dict[str, Table]:
    site = np.random.default_rng(0).integers(3, size=len(X))
    return tables_of(Made(_named(X), 1, site))


def _named(X: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x{j}": X[:, j] for j in range(X.shape[1])}


def by_range(protection: str) -> None:
    """Print the k that each range gives."""
    print(f"\nThe k of real tables by range, from {protection}")
    print(f"{'table':34} " + " ".join(f"{f'{r[0]}..{r[-1]}':>22}" for r in RANGES))
    differ = []
    for name, sites in real_tables():
        found = [chosen(sites, summary=protection == "summary", ks=ks) for ks in RANGES]
        print(f"{name:34} " + " ".join(f"{f'{c.k} {c.verdict}':>22}" for c in found), flush=True)
        inside = all(c.k in RANGES[0] for c in found)
        if inside and len({c.k for c in found}) > 1:
            differ.append(name)
    print(f"differ by range: {', '.join(differ) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--part", choices=("without", "made", "known", "ranges"))
    parser.add_argument("--protection", choices=("rows", "summary"))
    parser.add_argument("--folder", type=Path, help="where G2's own files are")
    options = parser.parse_args()
    for protection in [options.protection] if options.protection else ["rows", "summary"]:
        if options.part in (None, "without"):
            without_clusters(protection, options.tables, options.seed)
        if options.part in (None, "made"):
            problems = made_sets(max(1, options.tables // 5), options.seed)
            with_clusters(protection, problems, "Tables with clusters")
        if options.part in (None, "known"):
            with_clusters(protection, known_sets(options.folder), "Sets of known k")
        if options.part in (None, "ranges"):
            by_range(protection)


if __name__ == "__main__":
    main()
