"""The cost of summary tables: the inertia of all rows at the centres found from them, over that of pooling.

``python -m benchmarks.bench_summary_table [seeds]``: quality by shape, split and rows per site, then 200 tiny
sites beside the mode raw, then time and memory. The method was developed on shapes like the first five; the
others were not used to choose any setting.
"""

import resource
import subprocess
import sys
import time
import warnings

import numpy as np

from unpooled import FederatedKMeans
from unpooled.privacy.microaggregation import SummarySettings

SITES = 10
K = {"grid": 9, "wide": 4, "uniform": 6}


def _blobs(rng, n, d, k, sd, box=10.0):
    centers = rng.uniform(-box, box, (k, d))
    label = rng.integers(k, size=n)
    return centers[label] + sd * rng.standard_normal((n, d)), label


def clear(rng, n):
    return _blobs(rng, n, 2, 5, 0.6)


def overlapping(rng, n):
    return _blobs(rng, n, 2, 5, 2.5)


def overlapping_8(rng, n):
    return _blobs(rng, n, 8, 5, 4.0)


def lognormal(rng, n):
    X, label = _blobs(rng, n, 4, 5, 0.6, box=1.5)
    return np.exp(0.6 * X), label


def outliers(rng, n):
    X, label = _blobs(rng, n, 2, 5, 0.8)
    far = rng.random(n) < 0.01
    X[far] += rng.standard_normal((int(far.sum()), 2)) * 60
    return X, label


def stretched(rng, n):
    X, label = _blobs(rng, n, 3, 5, 0.7)
    return X @ np.array([[1.0, 0.8, 0.0], [0.0, 0.3, 0.5], [0.2, 0.0, 2.0]]), label


def heavy_tails(rng, n):
    centers, label = rng.uniform(-10, 10, (5, 3)), rng.integers(5, size=n)
    return centers[label] + 0.6 * rng.standard_t(3, (n, 3)), label


def grid(rng, n):
    centers = np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), -1).reshape(-1, 2)
    label = rng.integers(9, size=n)
    return centers[label] + 0.18 * rng.standard_normal((n, 2)), label


def whole_numbers(rng, n):
    X, label = _blobs(rng, n, 3, 5, 1.5)
    return np.round(X), label


def wide(rng, n):
    return _blobs(rng, n, 40, 4, 4.0, box=3.0)


def uniform(rng, n):
    X = rng.uniform(0, 1, (n, 3))
    return X, (X[:, 0] * 6).astype(int)


SHAPES = (
    clear, overlapping, overlapping_8, lognormal, outliers,
    stretched, heavy_tails, grid, whole_numbers, wide, uniform,
)  # fmt: skip


def iid(X, label, rng):
    return rng.integers(SITES, size=len(X))


def dirichlet(X, label, rng):
    shares = rng.dirichlet(np.full(SITES, 0.5), size=int(label.max()) + 1)
    return np.array([rng.choice(SITES, p=shares[j]) for j in label])


def by_first_column(X, label, rng):
    order = np.argsort(X[:, 0], kind="stable")
    site = np.empty(len(X), dtype=int)
    site[order] = np.arange(len(X)) * SITES // len(X)
    return site


def one_cluster_per_site(X, label, rng):
    own = rng.integers(0, 2, len(X))
    return (label * 2 + own) % SITES


SPLITS = (iid, dirichlet, by_first_column, one_cluster_per_site)


def cost(X, site, k: int, seed: int, **protection) -> tuple[float, float]:
    """The inertia of all rows at the centres found, over that of pooling; minimum rows per cluster and site.

    Clusters are those of pooling: a few rows far away are a cluster, which groups of g people cannot show.
    """
    settings = {"n_clusters": k, "random_state": seed, "n_threads": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pooled = FederatedKMeans(**settings).fit(X, sites=site)
        found = FederatedKMeans(**settings, **protection).fit(X, sites=site)
    rows = np.bincount(pooled.labels_, minlength=k)
    sites = [len(np.unique(site[pooled.labels_ == j])) for j in range(k)]
    return -found.score(X) / pooled.inertia_, float(min(rows / sites))


def quality(seeds: int = 3) -> dict[int, list[float]]:
    """By rows per site, all ratios with at least 5 g rows per cluster and site."""
    enough: dict[int, list[float]] = {}
    for rows in (30, 100, 300, 1000):
        print(f"\n{rows} rows per site: mean (worst) over {seeds} seeds, rows per cluster and site in g")
        for shape in SHAPES:
            k = K.get(shape.__name__, 5)
            line = []
            for split in SPLITS:
                ratios, smallest = [], np.inf
                for seed in range(seeds):
                    rng = np.random.default_rng([seed, rows])
                    X, label = shape(rng, SITES * rows)
                    g = SummarySettings().group_size_for(rows, X.shape[1])
                    ratio, fewest = cost(X, split(X, label, rng), k, seed, protect="summary")
                    ratios.append(ratio)
                    smallest = min(smallest, fewest / g)
                    if fewest >= 5 * g:
                        enough.setdefault(rows, []).append(ratio)
                line.append(f"{split.__name__} {np.mean(ratios):.4f} ({max(ratios):.4f}) {smallest:5.1f} g")
            print(f"  {shape.__name__:14} " + "   ".join(line), flush=True)
    for rows, ratios in enough.items():
        print(f"at least 5 g rows per cluster and site, {rows} per site: mean {np.mean(ratios):.4f}, "
              f"worst {max(ratios):.4f}")  # fmt: skip
    return enough


def tiny(seeds: int = 3) -> list[tuple[str, float, float]]:
    """200 sites of 25 rows: the modes summary and raw, which suppresses clusters of fewer than 5."""
    found = []
    print("\n200 sites of 25 rows: summary and raw")
    for shape in SHAPES:
        pair = []
        for protection in ("summary", "raw"):
            ratios = []
            for seed in range(seeds):
                rng = np.random.default_rng([seed, 25])
                X, _ = shape(rng, 5000)
                ratios.append(
                    cost(X, np.arange(5000) % 200, K.get(shape.__name__, 5), seed, protect=protection)[0]
                )
            pair.append(float(np.mean(ratios)))
        found.append((shape.__name__, *pair))
        print(f"  {shape.__name__:16} summary {pair[0]:.4f}   raw {pair[1]:.4f}", flush=True)
    return found


_SPEED = """
import resource, sys, time
import numpy as np
from unpooled.privacy.microaggregation import microaggregate
n = int(sys.argv[1])
X = np.random.default_rng(0).normal(size=(n, 16))
microaggregate(X[:2000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
table = microaggregate(X)
took = time.process_time() - start
more = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(f"{n:>9,} x 16: {took:6.2f} s, {len(table):,} groups, memory {more / X.nbytes:.2f} times the rows")
"""


def speed() -> None:
    print("\nmaking a summary table")
    for n in (10_000, 100_000, 1_000_000):
        subprocess.run([sys.executable, "-c", _SPEED, str(n)], check=True)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    start = time.perf_counter()
    quality(seeds)
    tiny(seeds)
    speed()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n{time.perf_counter() - start:.0f} s, {peak:.0f} MB")


if __name__ == "__main__":
    main()
