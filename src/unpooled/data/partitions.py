"""Splits of rows into sites, for simulation: functions from arrays to the site of every row.

Every function returns (n,) integers from 0 to sites - 1. Its randomness comes from ``seed`` alone, a number
or a generator. Names are those of other federated tools if they exist (Flower's IidPartitioner is ``iid``,
DirichletPartitioner ``dirichlet``, ShardPartitioner ``shards``, PathologicalPartitioner ``pathological``,
NaturalIdPartitioner ``natural_id``, SizePartitioner ``sizes``); ``by_kmeans`` and ``half_iid`` are Holzer et
al.'s, ``by_distance`` is Garst & Reinders'.

>>> labels = iid(10, 3, seed=0)
>>> np.bincount(labels).tolist()
[4, 3, 3]
>>> parts = split_rows(np.arange(10.0)[:, None], labels)
>>> sorted(parts), len(parts["site-0"])
(['site-0', 'site-1', 'site-2'], 4)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.errors import InputError
from unpooled.typing import FloatArray, IntArray

Seed = int | Sequence[int] | np.random.Generator


def split_rows(X: npt.NDArray[Any], labels: IntArray) -> dict[str, npt.NDArray[Any]]:
    """Return the rows of every site by name, in row order; sites without rows are left out."""
    if len(X) != len(labels):
        raise InputError(f"There are {len(X)} rows and {len(labels)} site labels. Give one label per row.")
    order = np.argsort(labels, kind="stable")
    X, ends = X[order], np.cumsum(np.bincount(labels))
    width = len(str(len(ends) - 1))
    starts = np.concatenate([[0], ends[:-1]])
    return {f"site-{i:0{width}d}": X[a:b] for i, (a, b) in enumerate(zip(starts, ends, strict=True)) if a < b}


def iid(n: int, sites: int, *, seed: Seed) -> IntArray:
    """Rows shuffled and cut into equal chunks."""
    _check(n, sites)
    return _shuffled(n, _equal(n, sites), np.random.default_rng(seed))


def sizes(n: int, sizes: Sequence[int], *, seed: Seed) -> IntArray:
    """Rows shuffled and cut into chunks of these sizes, which must add up to n."""
    given = np.asarray(sizes, dtype=np.int64)
    if given.sum() != n or (given < 0).any():
        raise InputError(
            f"sizes must not be negative, and their sum must be {n}, the number of rows. It is {given.sum()}."
        )
    return _shuffled(n, given, np.random.default_rng(seed))


def power_law(n: int, sites: int, exponent: float, *, min_rows: int = 1, seed: Seed) -> IntArray:
    """Rows shuffled, the i-th site's share proportional to i^-exponent, each at least ``min_rows`` rows.

    Flower's LinearPartitioner and SquarePartitioner are exponents -1 and -2.

    >>> np.bincount(power_law(100, 3, 2.0, seed=0)).tolist()
    [72, 19, 9]
    """
    _check(n, sites)
    if min_rows < 0 or min_rows * sites > n:
        raise InputError(
            f"power_law: {n} rows are not enough for {sites} sites of at least {min_rows} rows. Use fewer "
            "sites or a smaller min_rows."
        )
    share = np.arange(1, sites + 1, dtype=np.float64) ** -exponent
    exact = min_rows + share / share.sum() * (n - min_rows * sites)
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: n - counts.sum()]] += 1  # the largest remainders
    return _shuffled(n, counts, np.random.default_rng(seed))


def natural_id(ids: npt.ArrayLike) -> IntArray:
    """One site for every distinct id (a writer, a hospital), in sorted order.

    >>> natural_id(["b", "a", "b"]).tolist()
    [1, 0, 1]
    """
    found = np.asarray(ids)
    if found.ndim != 1 or not len(found):
        raise InputError(f"natural_id: ids must be one list that is not empty. Its shape is {found.shape}.")
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def dirichlet(
    y: npt.ArrayLike, sites: int, alpha: float, *, min_rows: int = 0, seed: Seed, tries: int = 1000
) -> IntArray:
    """The rows of every label divided in Dirichlet(alpha) proportions; a smaller alpha is more skewed.

    The draw is repeated until every site has ``min_rows`` rows.
    """
    labels = natural_id(y)
    _check(len(labels), sites)
    if not alpha > 0:
        raise InputError(f"dirichlet: alpha must be above 0. It is {alpha}.")
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        out = np.empty(len(labels), dtype=np.int64)
        for label in range(labels.max() + 1):
            rows = rng.permutation(np.flatnonzero(labels == label))
            cuts = np.cumsum(rng.dirichlet(np.full(sites, float(alpha))))[:-1] * len(rows)
            for site, part in enumerate(np.split(rows, np.rint(cuts).astype(np.int64))):
                out[part] = site
        if np.bincount(out, minlength=sites).min() >= min_rows:
            return out
    raise InputError(
        f"dirichlet: {tries} draws gave no split of {len(labels)} rows with {min_rows} rows at each of "
        f"{sites} sites. Use fewer sites, a larger alpha or a smaller min_rows."
    )


def shards(y: npt.ArrayLike, sites: int, shards_per_site: int, *, seed: Seed) -> IntArray:
    """Rows sorted by label and cut into equal shards, ``shards_per_site`` for each site (McMahan et al.)."""
    labels = natural_id(y)
    count = sites * shards_per_site
    _check(len(labels), count)
    rng = np.random.default_rng(seed)
    order = np.argsort(labels, kind="stable")
    owner = rng.permutation(np.repeat(np.arange(sites), shards_per_site))
    out = np.empty(len(labels), dtype=np.int64)
    out[order] = np.repeat(owner, _equal(len(labels), count))
    return out


def pathological(y: npt.ArrayLike, sites: int, labels_per_site: int, *, seed: Seed) -> IntArray:
    """Rows of ``labels_per_site`` labels for every site; the sites of a label share its rows equally."""
    labels = natural_id(y)
    known = int(labels.max()) + 1
    if not 1 <= labels_per_site <= known:
        raise InputError(
            f"pathological: labels_per_site must be from 1 to {known}, the number of labels. It is "
            f"{labels_per_site}."
        )
    _check(len(labels), sites)
    if sites * labels_per_site < known:
        raise InputError(
            f"pathological: {sites} sites of {labels_per_site} labels cannot hold {known} labels. Use more "
            "sites or more labels per site."
        )
    rng = np.random.default_rng(seed)
    # labels are dealt in rounds, so that the numbers of sites per label differ by at most one
    offsets = (np.arange(sites)[:, None] * labels_per_site + np.arange(labels_per_site)) % known
    held = rng.permutation(known)[offsets]
    out = np.empty(len(labels), dtype=np.int64)
    for label in range(known):
        rows = rng.permutation(np.flatnonzero(labels == label))
        owners = rng.permutation(np.flatnonzero((held == label).any(axis=1)))
        out[rows] = np.repeat(owners, _equal(len(rows), len(owners)))
    return out


def by_kmeans(X: npt.NDArray[Any], sites: int, *, seed: Seed, threads: int = 1) -> IntArray:
    """Clusters of a k-means (5 steps, best of 5), each of them a site: Holzer et al.'s non-IID split."""
    _check(len(X), sites)
    draw = np.random.default_rng(seed).integers(0, 2**63, size=1, dtype=np.uint64)
    offsets = np.array([0, len(X)])
    result = kernels.kmeans(X, offsets, sites, draw, n_init=5, max_iter=5, threads=threads)
    centers = result.centers[0][result.mass[0] > 0]
    return kernels.nearest(X, centers, threads=threads).labels.astype(np.int64)


def half_iid(
    X: npt.NDArray[Any],
    sites: int,
    *,
    seed: Seed,
    halves: tuple[IntArray, IntArray] | None = None,
    threads: int = 1,
) -> IntArray:
    """One half of the rows split by ``iid``, the other half by ``by_kmeans``.

    ``halves`` are the rows of the two; if None, they are drawn.
    """
    _check(len(X), 2 * sites)
    rng = np.random.default_rng(seed)
    if halves is None:
        order = rng.permutation(len(X))
        halves = order[: len(X) // 2], order[len(X) // 2 :]
    first, second = (np.sort(half) for half in halves)
    if not np.array_equal(np.sort(np.concatenate([first, second])), np.arange(len(X))):
        raise InputError(f"half_iid: each of the {len(X)} rows must be in one of the halves, once.")
    out = np.empty(len(X), dtype=np.int64)
    out[first] = iid(len(first), sites, seed=rng)
    out[second] = by_kmeans(X[second], sites, seed=rng, threads=threads)
    return out


def by_distance(X: FloatArray, places: FloatArray, beta: float, *, seed: Seed) -> IntArray:
    """Rows divided by their distance to the sites at ``places`` (sites, d).

    A row reaches each site with probability 1 - exp(-beta / distance). If it reaches several sites, one is
    drawn; if it reaches none, the nearest site gets it. With a smaller beta a site has more rows from its own
    surroundings. Garst & Reinders, eq. 2; the Euclidean distance and the case of no site are those of their
    code.
    """
    if X.ndim != 2 or places.ndim != 2 or X.shape[1] != places.shape[1]:
        raise InputError(
            f"by_distance: rows and places must have the same columns. Their shapes are {X.shape} and "
            f"{places.shape}."
        )
    if not beta > 0:
        raise InputError(f"by_distance: beta must be above 0. It is {beta}.")
    rng = np.random.default_rng(seed)
    distance = np.sqrt(((X[:, None] - places[None]) ** 2).sum(axis=2))
    with np.errstate(divide="ignore"):
        hit = rng.random(distance.shape) < -np.expm1(-beta / distance)
    drawn = np.where(hit, rng.random(distance.shape), -1.0).argmax(axis=1)
    out: IntArray = np.where(hit.any(axis=1), drawn, distance.argmin(axis=1)).astype(np.int64)
    return out


def _check(n: int, sites: int) -> None:
    if sites < 1 or sites > n:
        raise InputError(f"{n} rows cannot be divided over {sites} sites. Use 1 to {n} sites.")


def _equal(n: int, parts: int) -> IntArray:
    """The sizes of equal parts of n; the first ones may be larger by one."""
    counts = np.full(parts, n // parts, dtype=np.int64)
    counts[: n % parts] += 1
    return counts


def _shuffled(n: int, counts: IntArray, rng: np.random.Generator) -> IntArray:
    out = np.empty(n, dtype=np.int64)
    out[rng.permutation(n)] = np.repeat(np.arange(len(counts)), counts)
    return out
