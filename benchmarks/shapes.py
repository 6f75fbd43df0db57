"""Data sets of several shapes, and ways to split them.

Lloyd's stopping rules were chosen on overlapping, high_dimension, skewed and uniform, and the seeding of many
columns on sets like high_dimension; the other six were not used to choose any setting.
"""

import numpy as np

Rows = np.ndarray


def _gaussians(rng, centers, sizes, sd) -> Rows:
    sd = np.broadcast_to(sd, len(sizes))
    d = centers.shape[1]
    parts = (c + s * rng.standard_normal((n, d)) for c, n, s in zip(centers, sizes, sd, strict=True))
    return np.concatenate(list(parts))


def overlapping(rng) -> tuple[Rows, int]:
    """15 clusters that run into each other."""
    return _gaussians(rng, rng.uniform(0, 10, (15, 2)), [333] * 15, 0.9), 15


def separated(rng) -> tuple[Rows, int]:
    """15 clusters apart from each other."""
    return _gaussians(rng, rng.uniform(0, 10, (15, 2)), [333] * 15, 0.25), 15


def unbalanced(rng) -> tuple[Rows, int]:
    """Three large dense clusters and five small wide ones far away."""
    centers = np.array([[0, 0], [0, 3], [3, 1], [40, 0], [40, 12], [50, 6], [60, 0], [60, 12]], float)
    return _gaussians(rng, centers, [2000] * 3 + [100] * 5, [0.5] * 3 + [1.2] * 5), 8


def many_on_a_grid(rng) -> tuple[Rows, int]:
    """100 clusters on a grid."""
    grid = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), -1).reshape(-1, 2)
    return _gaussians(rng, grid, [150] * 100, 0.2), 100


def many_at_random(rng) -> tuple[Rows, int]:
    """50 clusters of unequal size in three columns."""
    sizes = rng.integers(50, 300, 50)
    return _gaussians(rng, rng.uniform(0, 10, (50, 3)), sizes, 0.3), 50


def on_a_curve(rng) -> tuple[Rows, int]:
    """60 clusters along a sine curve."""
    t = np.linspace(0, 60, 60)
    return _gaussians(rng, np.stack([t, 4 * np.sin(t / 4)], 1), [120] * 60, 0.25), 60


def high_dimension(rng) -> tuple[Rows, int]:
    """10 clusters in 120 columns, overlapping."""
    return _gaussians(rng, rng.normal(0, 0.35, (10, 120)), [400] * 10, 1.0), 10


def tiny_far(rng) -> tuple[Rows, int]:
    """Eight ordinary clusters and one of 20 rows far away."""
    centers = np.concatenate([rng.uniform(0, 10, (8, 2)), [[60.0, 60.0]]])
    return _gaussians(rng, centers, [500] * 8 + [20], 0.5), 9


def skewed(rng) -> tuple[Rows, int]:
    """No clusters at all: correlated log-normal columns."""
    z = rng.standard_normal((4000, 5)) @ rng.normal(0, 0.5, (5, 5))
    return np.exp(0.5 * z), 6


def uniform(rng) -> tuple[Rows, int]:
    """No clusters at all: a cube."""
    return rng.uniform(0, 1, (4000, 4)), 7


SHAPES = {
    f.__name__: f
    for f in (
        overlapping,
        separated,
        unbalanced,
        many_on_a_grid,
        many_at_random,
        on_a_curve,
        high_dimension,
        tiny_far,
        skewed,
        uniform,
    )
}


def iid(X: Rows, rng) -> np.ndarray:
    """Ten sites, rows at random."""
    return rng.integers(0, 10, len(X))


def one_cluster_per_site(X: Rows, rng) -> np.ndarray:
    """Ten sites, each with one cluster of a k-means."""
    from sklearn.cluster import KMeans

    return KMeans(10, n_init=1, random_state=0).fit_predict(X)


def dirichlet(X: Rows, rng) -> np.ndarray:
    """Ten sites with shares of ten clusters drawn from Dirichlet(0.3)."""
    cluster = one_cluster_per_site(X, rng)
    shares = rng.dirichlet(np.full(10, 0.3), size=10)
    return np.array([rng.choice(10, p=shares[c]) for c in cluster])


def tiny_sites(X: Rows, rng) -> np.ndarray:
    """Sites of ten rows each."""
    return rng.permutation(len(X)) // 10


SPLITS = {f.__name__: f for f in (iid, dirichlet, one_cluster_per_site, tiny_sites)}
