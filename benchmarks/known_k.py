"""Data sets whose number of clusters is known, to judge the choice of k. Nothing was tuned on them.

They were written before the rule they judge. A set without clusters has k = 1. ``sets`` gives them all;
those that may not be shipped come from a folder, where there is one.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import numpy as np
from sklearn import datasets

from unpooled.data.examples import load_penguins
from unpooled.data.examples.synthetic import g2, holzer, stallmann_1, stallmann_2, stallmann_3, triebe

Rows = np.ndarray
Rng = np.random.Generator
Made = tuple[Rows, int]

K_MOST = 12


# ---------------------------------------------------------------- clusters


def balls(rng: Rng, k: int, d: int, n: int, apart: float) -> Rows:
    """k normal clusters of sd 1, any two centres at least ``apart`` from each other."""
    return _spread(rng, k, d, apart)[rng.integers(k, size=n)] + rng.standard_normal((n, d))


def _spread(rng: Rng, k: int, d: int, apart: float) -> Rows:
    """(k, d) centres in a box that grows until all are far enough from each other, none needlessly far."""
    side = apart
    while True:
        for _ in range(200):
            centers = rng.uniform(0, side, (k, d))
            gaps = np.linalg.norm(centers[:, None] - centers[None], axis=2) + 1e9 * np.eye(k)
            if gaps.min() >= apart:
                return centers
        side *= 1.15


def unequal(rng: Rng, sizes: list[int], d: int, apart: float) -> Rows:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return _spread(rng, len(sizes), d, apart)[labels] + rng.standard_normal((len(labels), d))


def widths(rng: Rng, deviations: list[float], d: int, n: int) -> Rows:
    """Clusters of unequal standard deviations, centres five times the mean one apart."""
    labels = rng.integers(len(deviations), size=n)
    centers = _spread(rng, len(deviations), d, 5 * float(np.mean(deviations)))
    return centers[labels] + np.array(deviations)[labels, None] * rng.standard_normal((n, d))


def slanted(rng: Rng, k: int, d: int, n: int, stretch: float) -> Rows:
    """Clusters stretched alike along one direction."""
    way = rng.standard_normal(d)
    way /= np.linalg.norm(way)
    X = balls(rng, k, d, n, 6.0)
    return X + (stretch - 1) * np.outer(X @ way, way)


def cigars(rng: Rng, k: int, d: int, n: int, stretch: float) -> Rows:
    """Clusters each stretched along a direction of its own."""
    labels = rng.integers(k, size=n)
    ways = rng.standard_normal((k, d))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    noise = rng.standard_normal((n, d))
    along = (noise * ways[labels]).sum(axis=1, keepdims=True)
    return _spread(rng, k, d, 5.0 * stretch)[labels] + noise + (stretch - 1) * along * ways[labels]


def lattice(rng: Rng, shape: tuple[int, ...], n: int, sd: float) -> Rows:
    places = np.stack(np.meshgrid(*(np.arange(float(m)) for m in shape)), -1).reshape(-1, len(shape))
    return places[rng.integers(len(places), size=n)] + sd * rng.standard_normal((n, len(shape)))


def few_columns_matter(rng: Rng, k: int, d: int, noise: int, n: int) -> Rows:
    return np.concatenate([balls(rng, k, d, n, 7.0), rng.standard_normal((n, noise))], axis=1)


def boxes(rng: Rng, k: int, d: int, n: int) -> Rows:
    """Uniform clusters."""
    return _spread(rng, k, d, 5.0)[rng.integers(k, size=n)] + rng.uniform(-1.5, 1.5, (n, d))


def heavy(rng: Rng, k: int, d: int, n: int) -> Rows:
    """Clusters with heavy tails: Student's t with four degrees of freedom."""
    return _spread(rng, k, d, 9.0)[rng.integers(k, size=n)] + rng.standard_t(4, (n, d))


def lopsided(rng: Rng, k: int, d: int, n: int) -> Rows:
    """Clusters that trail off to one side: gamma columns."""
    return _spread(rng, k, d, 7.0)[rng.integers(k, size=n)] + rng.gamma(2.0, 0.7, (n, d))


def binary(rng: Rng, k: int, d: int, n: int) -> Rows:
    """Yes and no answers: each cluster has its own pattern, one answer in ten is turned."""
    patterns = rng.integers(2, size=(k, d))
    turned = rng.random((n, d)) < 0.1
    return (patterns[rng.integers(k, size=n)] ^ turned).astype(float)


def outliers(rng: Rng, k: int, d: int, n: int) -> Rows:
    """Clusters, and one row in fifty anywhere."""
    X = balls(rng, k, d, n, 7.0)
    away = rng.random(n) < 0.02
    return np.where(away[:, None], rng.uniform(X.min(axis=0), X.max(axis=0), X.shape), X)


# ---------------------------------------------------------------- no clusters


def stretched_normal(rng: Rng, n: int, d: int) -> Rows:
    return rng.standard_normal((n, d)) @ rng.normal(size=(d, d))


def ball(rng: Rng, n: int, d: int) -> Rows:
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.random((n, 1)) ** (1 / d)


def triangle(rng: Rng, n: int) -> Rows:
    X = rng.random((n, 2))
    return np.where((X.sum(axis=1) > 1)[:, None], 1 - X, X)


def ridge(rng: Rng, n: int) -> Rows:
    """A bent strip without gaps."""
    t = rng.uniform(-1, 1, n)
    return np.stack([t, t**2, t], axis=1) + 0.15 * rng.standard_normal((n, 3))


# ---------------------------------------------------------------- the list

_MADE: dict[str, tuple[int, Callable[[Rng], Rows]]] = {
    **{
        f"balls, k {k}, {d} columns, {n} rows, {apart:g} apart": (
            k,
            lambda rng, a=(k, d, n, apart): balls(rng, *a),
        )
        for k, d, n, apart in (
            (2, 2, 300, 5.0),
            (2, 10, 200, 4.0),
            (2, 4, 1000, 3.2),
            (3, 2, 1500, 4.0),
            (3, 5, 120, 6.0),
            (3, 30, 400, 5.0),
            (4, 3, 800, 4.5),
            (4, 8, 2000, 3.5),
            (5, 2, 1000, 5.0),
            (5, 6, 500, 4.0),
            (6, 4, 1200, 5.0),
            (6, 15, 600, 4.5),
            (7, 3, 1400, 6.0),
            (8, 5, 1600, 4.5),
            (8, 2, 2400, 5.0),
            (9, 10, 900, 5.0),
            (10, 4, 3000, 5.0),
            (10, 20, 1000, 5.0),
        )
    },
    "sizes 600, 60": (2, lambda rng: unequal(rng, [600, 60], 3, 6.0)),
    "sizes 500, 100, 30": (3, lambda rng: unequal(rng, [500, 100, 30], 2, 6.0)),
    "sizes 800, 400, 200, 100": (4, lambda rng: unequal(rng, [800, 400, 200, 100], 5, 5.0)),
    "sizes 1000, 50, 50, 50, 50": (5, lambda rng: unequal(rng, [1000, 50, 50, 50, 50], 4, 7.0)),
    "sizes 400, 300, 200, 100, 50, 25": (
        6,
        lambda rng: unequal(rng, [400, 300, 200, 100, 50, 25], 6, 6.0),
    ),
    "widths 1, 3": (2, lambda rng: widths(rng, [1.0, 3.0], 3, 600)),
    "widths 0.5, 1, 2": (3, lambda rng: widths(rng, [0.5, 1.0, 2.0], 2, 900)),
    "widths 1, 1, 2, 2, 3": (5, lambda rng: widths(rng, [1.0, 1.0, 2.0, 2.0, 3.0], 6, 1000)),
    "slanted by 2, k 3": (3, lambda rng: slanted(rng, 3, 2, 700, 2.0)),
    "slanted by 3, k 4": (4, lambda rng: slanted(rng, 4, 4, 800, 3.0)),
    "cigars of 2, k 3": (3, lambda rng: cigars(rng, 3, 3, 600, 2.0)),
    "cigars of 3, k 5": (5, lambda rng: cigars(rng, 5, 5, 1000, 3.0)),
    "lattice 2 by 2": (4, lambda rng: lattice(rng, (2, 2), 800, 0.2)),
    "lattice 3 by 3": (9, lambda rng: lattice(rng, (3, 3), 1800, 0.18)),
    "lattice 2 by 2 by 2": (8, lambda rng: lattice(rng, (2, 2, 2), 1200, 0.2)),
    "row of 6": (6, lambda rng: lattice(rng, (6,), 900, 0.17)),
    "2 columns of 10 matter, k 3": (3, lambda rng: few_columns_matter(rng, 3, 2, 8, 600)),
    "4 columns of 10 matter, k 5": (5, lambda rng: few_columns_matter(rng, 5, 4, 6, 1000)),
    "boxes, k 4": (4, lambda rng: boxes(rng, 4, 3, 700)),
    "boxes, k 7": (7, lambda rng: boxes(rng, 7, 2, 1400)),
    "heavy tails, k 3": (3, lambda rng: heavy(rng, 3, 3, 800)),
    "heavy tails, k 5": (5, lambda rng: heavy(rng, 5, 4, 1500)),
    "lopsided, k 3": (3, lambda rng: lopsided(rng, 3, 2, 900)),
    "lopsided, k 6": (6, lambda rng: lopsided(rng, 6, 5, 1200)),
    "answers yes and no, k 3": (3, lambda rng: binary(rng, 3, 20, 600)),
    "answers yes and no, k 5": (5, lambda rng: binary(rng, 5, 30, 1000)),
    "outliers, k 4": (4, lambda rng: outliers(rng, 4, 3, 1000)),
    "whole numbers, k 4": (4, lambda rng: np.rint(balls(rng, 4, 5, 800, 5.0))),
    "normal, 2 columns": (1, lambda rng: rng.standard_normal((1000, 2))),
    "normal, 6 columns, 100 rows": (1, lambda rng: rng.standard_normal((100, 6))),
    "normal, 25 columns": (1, lambda rng: rng.standard_normal((600, 25))),
    "normal, 4 columns, 5000 rows": (1, lambda rng: rng.standard_normal((5000, 4))),
    "normal, stretched, 3 columns": (1, lambda rng: stretched_normal(rng, 800, 3)),
    "normal, stretched, 10 columns": (1, lambda rng: stretched_normal(rng, 500, 10)),
    "uniform, 1 column": (1, lambda rng: rng.uniform(size=(500, 1))),
    "uniform, 2 columns": (1, lambda rng: rng.uniform(size=(1000, 2))),
    "uniform, 5 columns": (1, lambda rng: rng.uniform(size=(400, 5))),
    "uniform ball, 3 columns": (1, lambda rng: ball(rng, 900, 3)),
    "uniform triangle": (1, lambda rng: triangle(rng, 700)),
    "exponential, 3 columns": (1, lambda rng: rng.exponential(size=(800, 3))),
    "Student's t, 4 columns": (1, lambda rng: rng.standard_t(5, (900, 4))),
    "log-normal, 2 columns": (1, lambda rng: np.exp(0.5 * rng.standard_normal((1000, 2)))),
    "a bent strip": (1, lambda rng: ridge(rng, 600)),
    "coin flips, 12 columns": (1, lambda rng: rng.integers(2, size=(700, 12)).astype(float)),
}


def _published() -> Iterator[tuple[str, Rows, int]]:
    """Sets of other authors: scikit-learn's, and those of papers that the package recomputes."""
    for name, load, k in (
        ("iris", datasets.load_iris, 3),
        ("wine", datasets.load_wine, 3),
        ("breast cancer", datasets.load_breast_cancer, 2),
        ("digits", datasets.load_digits, 10),
    ):
        yield name, load().data, k
    digits, label = datasets.load_digits(return_X_y=True)
    yield "digits 0, 1, 4", digits[np.isin(label, (0, 1, 4))], 3
    yield "penguins", load_penguins().X, 3
    demo, _ = datasets.make_blobs(1500, random_state=170)
    yield "scikit-learn's demo, blobs", demo, 3
    yield "scikit-learn's demo, slanted", demo @ np.array([[0.6, -0.6], [-0.4, 0.8]]), 3
    varied, _ = datasets.make_blobs(1500, cluster_std=[1.0, 2.5, 0.5], random_state=170)
    yield "scikit-learn's demo, widths", varied, 3
    X, y = datasets.make_blobs(1500, random_state=170)
    yield "scikit-learn's demo, sizes", np.vstack([X[y == 0][:500], X[y == 1][:100], X[y == 2][:10]]), 3
    four, _ = datasets.make_blobs(500, centers=4, center_box=(-10, 10), shuffle=True, random_state=1)
    yield "scikit-learn's silhouette demo", four, 4
    yield "Holzer's", holzer()[0], 5
    yield "Triebe's", triebe(seed=3).X, 5
    yield "Stallmann's case 1", stallmann_1(seed=3).X, 3
    yield "Stallmann's case 2", stallmann_2(seed=3).X, 3
    yield "Stallmann's case 3", stallmann_3((600, 600, 600), seed=3).X, 4
    for columns, sd in ((4, 40), (8, 60), (32, 80)):
        yield f"G2 by its definition, {columns} columns, sd {sd}", g2(columns, sd, seed=3), 2


def sets(folder: Path | None = None) -> Iterator[tuple[str, Rows, int]]:
    """(name, rows, true k) of every set; with G2's own files where ``folder`` has them."""
    for name, (k, make) in _MADE.items():
        yield name, make(np.random.default_rng(crc32(name.encode()))), k
    yield from _published()
    if folder is not None and (folder / "g2_dim2_original.npz").exists():
        kept = np.load(folder / "g2_dim2_original.npz")
        for sd in (10, 20, 30, 40, 50):
            yield f"G2's file, 2 columns, sd {sd}", kept[f"g2_2_{sd}"].astype(float), 2
