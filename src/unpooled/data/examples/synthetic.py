"""The synthetic data sets of the papers, each from a ``seed`` alone. Holzer's is one fixed set."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.data import partitions as partition
from unpooled.data.partitions import Seed
from unpooled.errors import InputError
from unpooled.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PartitionedData:
    """Rows, with the true label and the site of each."""

    X: npt.NDArray[Any]  # (n, d)
    y: IntArray  # (n,) true labels, to judge a clustering, never to make one
    site: IntArray  # (n,)

    def sites(self) -> dict[str, npt.NDArray[Any]]:
        """Return the rows of every site by name; sites without rows are left out."""
        return partition.split_rows(self.X, self.site)


GRID = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])
"""(16, 2) the true centres of Garst & Reinders' sets."""


def garst(
    beta: float, *, noise: float = 1.0, per_cluster: int = 50, sites: int = 5, seed: Seed
) -> PartitionedData:
    """Draw a 4 x 4 grid of clusters of standard deviation ``noise``, divided over sites by distance.

    The sites lie anywhere in the square from -10 to 10, as in the authors' code (the paper states 12.5).

    >>> garst(1.0, seed=0).X.shape
    (800, 2)
    """
    rng = np.random.default_rng(seed)
    places = rng.uniform(-10, 10, (sites, 2))
    y = np.repeat(np.arange(16), per_cluster)
    X = GRID[y] + noise * rng.standard_normal((len(y), 2))
    return PartitionedData(X, y, partition.by_distance(X, places, beta, seed=rng))


CLUSTERS_AT_SITES = (16, 1, 3, 10, 7)
"""The number of clusters, of 16, of which each site of ``garst_variable`` has rows."""


def garst_variable(*, per_cluster: int = 50, seed: Seed) -> PartitionedData:
    """Draw the same grid; a site has rows of the first 16, 1, 3, 10 or 7 clusters only.

    The sites that have a cluster share its rows equally. The remainder is left out, so that 788 of 800 rows
    remain, and the sites have 473, 10, 34, 173 and 98 of them.

    >>> np.bincount(garst_variable(seed=0).site).tolist()
    [473, 10, 34, 173, 98]
    """
    rng = np.random.default_rng(seed)
    holders = [[s for s, count in enumerate(CLUSTERS_AT_SITES) if j < count] for j in range(16)]
    y = np.concatenate([np.repeat(j, per_cluster // len(h) * len(h)) for j, h in enumerate(holders)])
    site = np.concatenate([np.repeat(h, per_cluster // len(h)) for h in holders])
    return PartitionedData(GRID[y] + rng.standard_normal((len(y), 2)), y, site.astype(np.int64))


def holzer() -> tuple[FloatArray, IntArray]:
    """Return (10100, 2) five blobs and 100 outliers, and their labels, 5 for an outlier: one fixed set.

    >>> X, y = holzer()
    >>> X.shape, np.bincount(y).tolist()
    ((10100, 2), [2000, 2000, 2000, 2000, 2000, 100])
    """
    from sklearn.datasets import make_blobs

    X, y = make_blobs(10_000, centers=5, cluster_std=0.2, center_box=(-1, 1), random_state=18042023)
    draw = random.Random(1)  # noqa: S311  a data set, not a secret
    far = np.array([[2 * draw.random() - 1 for _ in range(2)] for _ in range(100)])
    return np.concatenate([X, far]), np.concatenate([y, np.full(100, 5)]).astype(np.int64)


def triebe(*, k: int = 5, sites: int = 50, rows: int = 10, sd: float = 0.2, seed: Seed) -> PartitionedData:
    """Draw one column: each site draws all its rows from one of k clusters, at 1, 2, ..., k.

    >>> triebe(seed=0).X.shape
    (500, 1)
    """
    if sites % k:
        raise InputError(
            f"triebe: {k} clusters cannot share {sites} sites equally. Use a multiple of {k} sites."
        )
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(sites), rows)
    y = site % k
    return PartitionedData(1.0 + y[:, None] + sd * rng.standard_normal((len(y), 1)), y, site)


def stallmann_1(*, seed: Seed) -> PartitionedData:
    """Draw case 1: client 3 lacks the third cluster; clients 1 and 2 have the same rows."""
    true = TRUE["case 1"]
    rng = np.random.default_rng(seed)
    some = _drawn(rng, true, [[333, 333, 333], [500, 500, 0]], 0.5)
    first = some.site == 0
    X = np.concatenate([some.X[first], some.X[first], some.X[~first]])
    y = np.concatenate([some.y[first], some.y[first], some.y[~first]])
    return PartitionedData(X, y, np.repeat([0, 1, 2], [999, 999, 1000]))


def stallmann_2(*, seed: Seed) -> PartitionedData:
    """Draw case 2: one cluster is visible only in the rows of both clients together."""
    return _drawn(np.random.default_rng(seed), TRUE["case 2"], [[900, 50, 50], [50, 900, 50]], 1.1)


def stallmann_3(points: Sequence[int], *, seed: Seed) -> PartitionedData:
    """Draw case 3: each of three clients has two of the four clusters, and ``points`` rows."""
    if len(points) != 3:
        raise InputError(f"stallmann_3: points must be 3 numbers, one for each client. It has {len(points)}.")
    a, b, c = (n // 2 for n in points)
    sizes = [[a, a, 0, 0], [0, b, b, 0], [0, 0, c, c]]
    return _drawn(np.random.default_rng(seed), TRUE["case 3"], sizes, 1.0)


TRUE = {
    "case 1": np.array([[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]]),
    "case 2": np.array([[5.0, 0.0], [5.0, 10.0], [10.0, 10.0]]),
    "case 3": np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 10.0], [10.0, 0.0]]),
}
"""The true centres of Stallmann & Wilbik's cases."""

G2_COLUMNS = tuple(2**p for p in range(1, 11))
G2_DEVIATIONS = tuple(range(10, 101, 10))


def g2(columns: int, sd: int, *, seed: Seed) -> FloatArray:
    """Draw (2048, columns) like Fränti's G2 sets: two clusters at 500 and 600, truncated to whole numbers.

    The first 1024 rows are the first cluster's. Decimals are truncated, as in the published files, so that
    the mean of a cluster is half a unit below its true centre.
    """
    rng = np.random.default_rng(seed)
    means = np.repeat([500.0, 600.0], 1024)[:, None]
    drawn: FloatArray = np.floor(means + sd * rng.standard_normal((2048, columns)))
    return drawn


def g2_true(columns: int) -> FloatArray:
    """Return (2, columns) the true centres."""
    return np.array([[500.0] * columns, [600.0] * columns])


def g2_all() -> Iterator[tuple[int, int]]:
    """Return (columns, standard deviation) of the 100 sets."""
    return ((d, sd) for d in G2_COLUMNS for sd in G2_DEVIATIONS)


def _drawn(
    rng: np.random.Generator, true: FloatArray, sizes: Sequence[Sequence[int]], sd: float
) -> PartitionedData:
    """Rows around the true centres; ``sizes`` has the rows of every site in each cluster."""
    y = np.concatenate([np.repeat(np.arange(len(true)), counts) for counts in sizes])
    site = np.repeat(np.arange(len(sizes)), [sum(counts) for counts in sizes])
    return PartitionedData(true[y] + sd * rng.standard_normal((len(y), true.shape[1])), y, site)
