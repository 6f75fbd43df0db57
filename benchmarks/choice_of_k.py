"""The choice of k beside four pooled criteria, on sets of known k.

``python -m benchmarks.choice_of_k [folder] [--summary]`` prints the table. Ours is ``-k auto`` of three
sites, from raw rows or from summary tables. The others use the pooled rows: scikit-learn's silhouette,
Calinski-Harabasz and Davies-Bouldin over k-means with ten restarts, which begin at k = 2, and the gap
statistic of Tibshirani, Walther and Hastie (2001), which begins at 1.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn import metrics
from sklearn.cluster import KMeans

from benchmarks.known_k import K_MOST, sets
from unpooled import Simulation, run
from unpooled.algorithms import METHODS
from unpooled.data import PreparationOptions, Table
from unpooled.evaluation import Analysis, Choice
from unpooled.privacy.microaggregation import microaggregate

KS = range(1, K_MOST + 1)
POOLED = ("silhouette", "Calinski-H.", "Davies-B.", "gap")
REFERENCES = 10


def ours(X: np.ndarray, *, summary: bool = False, ks: range = KS) -> Choice:
    """The choice over three sites over which the rows are divided at random."""
    holder = np.random.default_rng(0).integers(3, size=len(X))
    tables = {
        f"s{i}": Table.from_columns({f"x{j}": X[holder == i, j] for j in range(X.shape[1])}) for i in range(3)
    }
    sites = {name: microaggregate(table) for name, table in tables.items()} if summary else tables
    methods = tuple(METHODS["lloyd"](k=k).with_restarts(10) for k in ks)
    choice = run(Analysis(PreparationOptions(), methods), Simulation.from_rows(sites), seed=0).state.choice
    assert choice is not None
    return choice


def standard(X: np.ndarray) -> np.ndarray:
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0))[:, deviation > 0] / deviation[deviation > 0]


def pooled(X: np.ndarray) -> tuple[int, ...]:
    """The k that each pooled criterion names."""
    fits = {k: KMeans(k, n_init=10, random_state=0).fit(X) for k in KS if k > 1}
    named = []
    for score, sign in (
        (metrics.silhouette_score, 1),
        (metrics.calinski_harabasz_score, 1),
        (metrics.davies_bouldin_score, -1),
    ):
        named.append(max(fits, key=lambda k: sign * score(X, fits[k].labels_)))
    inertias = [float(((X - X.mean(axis=0)) ** 2).sum()), *(fit.inertia_ for fit in fits.values())]
    return (*named, gap(X, np.log(np.maximum(inertias, 1e-300))))


def gap(X: np.ndarray, logs: np.ndarray) -> int:
    """The smallest k whose gap is within an error of the next one's; references fill the principal box."""
    rng = np.random.default_rng(0)
    turned = X @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2].T
    low, high = turned.min(axis=0), turned.max(axis=0)
    drawn = np.array([_logs(rng.uniform(low, high, turned.shape)) for _ in range(REFERENCES)])
    gaps, errors = drawn.mean(axis=0) - logs, drawn.std(axis=0) * np.sqrt(1 + 1 / REFERENCES)
    enough = gaps[:-1] >= gaps[1:] - errors[1:]
    return KS[int(np.argmax(enough))] if enough.any() else KS[-1]


def _logs(X: np.ndarray) -> list[float]:
    return [float(np.log(KMeans(k, n_init=1, random_state=0).fit(X).inertia_)) for k in KS]


def main(folder: Path | None, summary: bool) -> None:
    print(f"{'set':52} {'k':>3} {'ours':>5}   " + " ".join(f"{name:>11}" for name in POOLED))
    right, clear, count = np.zeros(5, dtype=int), [], 0
    for name, X, true in sets(folder):
        choice = ours(X, summary=summary)
        named = (choice.k, *pooled(standard(X)))
        right += np.array(named) == true
        count += 1
        if choice.clear:
            clear.append((true, choice.k))
        marked = [f"{k}{' ' if k == true else '!'}" for k in named]
        mark = "clear" if choice.clear else ""
        print(
            f"{name:52} {true:3} {marked[0]:>5} {mark:5} " + " ".join(f"{m:>11}" for m in marked[1:]),
            flush=True,
        )
    print(
        f"\nright, of {count}: ours {right[0]}, "
        + ", ".join(f"{n} {r}" for n, r in zip(POOLED, right[1:], strict=True))
    )
    agreed, noise = sum(a == b for a, b in clear), sum(true == 1 for true, _ in clear)
    print(f"{len(clear)} choices are clear: {agreed} have the true k, {noise} are of data without clusters")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--summary"]
    main(Path(words[0]) if words else None, "--summary" in sys.argv)
