"""Random problems that are hard for rounding: far groups, sentinels, ties, offsets, scales, weights, boxes.

Written from what users hand in, not from how the solver works. A problem is a function of its number alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Problem:
    """Rows and a number of clusters, named after the family they are drawn from."""

    family: str
    X: Any  # (n, d)
    k: int


@dataclass(frozen=True)
class PricedProblem:
    """Rows with weights, and a price, a box and perhaps a Voronoi cell for every centroid."""

    family: str
    X: Any  # (n, d)
    k: int
    weights: Any  # (n,)
    prices: Any  # (k, d)
    low: Any  # (k, d)
    high: Any  # (k, d)
    references: Any = None  # (k, d)
    cells: Any = None  # (k,)


def ordinary(rng, n, d):
    """Rows of scale 1, with groups or without."""
    middle = rng.normal(0, rng.choice([0.0, 3.0, 10.0]), (rng.integers(1, 5), d))
    return middle[rng.integers(len(middle), size=n)] + rng.standard_normal((n, d))


def far_groups(rng, n, d):
    """Two or three groups at a distance of 1e2 to 1e12, with structure of scale 1."""
    groups = rng.integers(2, 4)
    away = 10.0 ** rng.integers(2, 13) * rng.choice([-1.0, 0.0, 1.0], (groups, d))
    away[0] = 0.0
    return away[rng.integers(groups, size=n)] + rng.standard_normal((n, d))


def sentinels(rng, n, d):
    """Ordinary rows, some cells of which say missing by a number."""
    X = ordinary(rng, n, d)
    at = rng.random((n, d)) < rng.choice([0.1, 0.3])
    at[rng.integers(n), rng.integers(d)] = True
    return np.where(at, rng.choice([999999.0, -999.0, 9999.0, -1e9, 1e15, 1e30]), X)


def ties(rng, n, d):
    """Whole numbers of a small grid, so that many partitions cost the same."""
    return rng.integers(0, rng.choice([2, 3, 5]), (n, d)) * rng.choice([1.0, 0.1, 1 / 3, 1e6])


def near_ties(rng, n, d):
    """A grid whose points are moved by a few units in the last place."""
    X = ties(rng, n, d) + rng.choice([0.0, 1.0, 1024.0])
    for _ in range(rng.integers(1, 4)):
        X = np.where(rng.random((n, d)) < 0.5, X, np.nextafter(X, rng.choice([-np.inf, np.inf], (n, d))))
    return X


def duplicates(rng, n, d):
    """Few distinct rows, each several times."""
    few = ordinary(rng, rng.integers(1, max(2, n // 2) + 1), d)
    return few[rng.integers(len(few), size=n)]


def offsets(rng, n, d):
    """Structure of scale 1 or 1e-3 far from the origin: only the float64 rows that remain are the problem."""
    return rng.choice([1.0, 1e-3]) * ordinary(rng, n, d) + rng.choice([-1.0, 1.0], d) * 10.0 ** rng.integers(
        2, 13
    )


def scales(rng, n, d):
    """Ordinary rows in a unit of 1e-150 to 1e150."""
    return ordinary(rng, n, d) * 10.0 ** rng.integers(-150, 151)


def mixed_columns(rng, n, d):
    """Every column in a unit of its own."""
    return ordinary(rng, n, d) * 10.0 ** rng.integers(-8, 9, d)


def nested(rng, n, d):
    """Groups within groups within groups, each level smaller by a large factor."""
    factor = 10.0 ** -rng.integers(1, 7)
    return sum(factor**level * rng.integers(-2, 3, (n, d)).astype(float) for level in range(3))


def heavy_tails(rng, n, d):
    """Sizes over many orders of magnitude."""
    return rng.choice([-1.0, 1.0], (n, d)) * 10.0 ** (
        rng.choice([1.0, 4.0, 12.0]) * rng.standard_normal((n, d))
    )


def geometric(rng, n, d):
    """Powers of a ratio, in some order."""
    ratio = rng.choice([2.0, 3.0, 10.0, 1000.0])
    return rng.permuted(ratio ** np.arange(-(n // 2), n - n // 2)[:, None] * np.ones(d), axis=0)


def symmetric(rng, n, d):
    """Rows and their mirror images about a point."""
    half = ordinary(rng, (n + 1) // 2, d)
    return np.concatenate([half, -half])[:n] + rng.choice([0.0, 1.0, 1e8])


def flat(rng, n, d):
    """All rows equal in some columns, zeros of both signs among them."""
    X = ordinary(rng, n, d)
    return np.where(rng.random(d) < 0.6, rng.choice([0.0, -0.0, 7.0, 1e-300, 0.1]), X)


def equal(rng, n, d):
    """All rows equal."""
    return np.tile(ordinary(rng, 1, d) * 10.0 ** rng.integers(-5, 12), (n, 1))


def tiny_steps(rng, n, d):
    """Differences of the smallest numbers there are."""
    return rng.integers(-4, 5, (n, d)) * rng.choice([5e-324, 1e-310, 1e-162, 1e-155])


FAMILIES = (
    ordinary,
    far_groups,
    sentinels,
    ties,
    near_ties,
    duplicates,
    offsets,
    scales,
    mixed_columns,
    nested,
    heavy_tails,
    geometric,
    symmetric,
    flat,
    equal,
    tiny_steps,
)


def clusters(rng, X) -> int:
    """A number of clusters: often 2 or 3, at times 1 or as many as there are distinct rows."""
    most = len(np.unique(X + 0.0, axis=0))
    return int(np.clip(rng.choice([1, 2, 2, 3, 3, 4, 5, most]), 1, most))


def problem(number: int) -> Problem:
    """Problem ``number``: 2 to 9 rows in 1 to 3 columns."""
    rng = np.random.default_rng([1, number])
    family = FAMILIES[number % len(FAMILIES)]
    X = family(rng, int(rng.choice([2, 3, 5, 6, 7, 7, 8, 8, 9])), int(rng.integers(1, 4)))
    return Problem(family.__name__, X, clusters(rng, X))


def line_problem(number: int) -> Problem:
    """Problem ``number`` in one column, of 10 to 30 rows."""
    rng = np.random.default_rng([2, number])
    family = FAMILIES[number % len(FAMILIES)]
    X = family(rng, int(rng.integers(10, 31)), 1)
    return Problem(family.__name__, X, min(clusters(rng, X), 6))


def some_weights(rng, n):
    """Ones, counts with zeros among them, real numbers, sizes over many orders, or one heavy row."""
    kind = rng.integers(6)
    if kind == 0:
        return np.ones(n)
    if kind == 1:
        return rng.integers(0, 4, n).astype(float)
    if kind == 2:
        return rng.uniform(0.1, 3.0, n)
    if kind == 3:
        return 10.0 ** rng.uniform(-8, 8, n)
    if kind == 4:
        return np.where(np.arange(n) == rng.integers(n), 10.0 ** rng.integers(3, 13), 1.0)
    return np.full(n, 10.0 ** rng.integers(-6, 7) / 3)


def weighted_problem(number: int) -> tuple[Problem, Any]:
    """Problem ``number`` with weights; k may be more than the distinct rows."""
    rng = np.random.default_rng([3, number])
    family = FAMILIES[number % len(FAMILIES)]
    n = int(rng.integers(2, 8))
    X = family(rng, n, int(rng.integers(1, 4)))
    return Problem(family.__name__, X, int(rng.integers(1, min(4, n) + 1))), some_weights(rng, n)


def priced_problem(number: int) -> PricedProblem:
    """Problem ``number`` with a price and a box for every centroid, every third one in Voronoi cells."""
    rng = np.random.default_rng([4, number])
    family = FAMILIES[number % len(FAMILIES)]
    in_cells = number % 3 == 0
    n, d = int(rng.integers(2, 5 if in_cells else 7)), int(rng.integers(1, 3))
    k = int(rng.integers(1, 4))
    X, weights = family(rng, n, d), some_weights(rng, n)
    low, high = np.tile(X.min(axis=0), (k, 1)), np.tile(X.max(axis=0), (k, 1))
    size = np.abs(high - low).max() or 1.0
    shape = rng.integers(4)
    if shape == 1:  # wider than the rows
        low, high = low - size, high + size
    elif shape == 2:  # a box of its own for each, within the range
        ends = np.sort(rng.random((2, k, d)), axis=0)
        low, high = low + ends[0] * (high - low), low + ends[1] * (high - low)
        high = np.maximum(low, high)
    elif shape == 3:  # a point for one of them
        high = high.copy()
        high[0] = low[0]
    prices = rng.choice([0.0, 0.1, 1.0, 10.0]) * size * weights.mean() * rng.standard_normal((k, d))
    if not in_cells:
        return PricedProblem(family.__name__, X, k, weights, prices, low, high)
    references = low + rng.random((k, d)) * np.maximum(high - low, 0.0)
    cells = rng.integers(k, size=k)
    return PricedProblem(family.__name__, X, k, weights, prices, low, high, references, cells)
