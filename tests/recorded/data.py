"""The rows that are clustered: drawn here, so that nothing of the package has a say in them."""

from pathlib import Path
from typing import Any

import numpy as np


def blobs(seed: int, n: int, d: int = 2, k: int = 3, spread: float = 1.5, box: float = 10.0) -> Any:
    """n rows about k centres."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(-box, box, (k, d))
    return middle[rng.integers(k, size=n)] + spread * rng.standard_normal((n, d))


def dealt(X: Any, parts: int, seed: int = 0, skewed: bool = False) -> dict[str, Any]:
    """Rows dealt to sites: at random, or sorted by the first column, so that sites differ."""
    rng = np.random.default_rng(seed)
    order = np.argsort(X[:, 0], kind="stable") if skewed else rng.permutation(len(X))
    cuts = np.sort(rng.choice(np.arange(8, len(X) - 8), parts - 1, replace=False))
    return {f"site-{i}": X[rows] for i, rows in enumerate(np.split(order, cuts))}


EVEN = dealt(blobs(1, 260, spread=6.0), 4, seed=3)
"""Three clusters that overlap so much that runs take a while, over four sites that are alike."""

SKEWED = dealt(blobs(2, 200, spread=8.0), 3, seed=2, skewed=True)
"""The same over three sites that differ."""

WIDE = dealt(blobs(3, 300, d=5, k=4, spread=7.0) * np.array([1.0, 10.0, 0.1, 1.0, 5.0]), 5, seed=3)
"""Five columns of different units over five sites."""

LINE = {f"client-{i:02d}": rows for i, rows in enumerate(np.split(1 + blobs(4, 200, d=1, box=1.5) ** 2, 20))}
"""One column over twenty clients."""

TINY = {f"phone-{i:02d}": rows for i, rows in enumerate(np.array_split(blobs(5, 150, spread=5.0), 45))}
"""Many sites of three or four rows."""

LARGE = dealt(np.random.default_rng(8).uniform(-1, 1, (6000, 3)), 6, seed=8)
"""Rows without clusters: centres creep, and it is the stopping rules that end a run."""

SINGLE = {name: rows.astype(np.float32) for name, rows in EVEN.items()}
"""Rows of single precision."""

GIVEN = np.array([[-5.0, -5.0], [0.0, 0.0], [5.0, 5.0]])


def weights_of(rows: dict[str, Any], seed: int = 6) -> dict[str, Any]:
    """A weight for every row."""
    rng = np.random.default_rng(seed)
    return {name: rng.exponential(size=len(X)) for name, X in rows.items()}


def bounded(n: int = 4000, d: int = 4, k: int = 3, parts: int = 2) -> dict[str, Any]:
    """Rows within -1..1: for runs with noise."""
    X = blobs(7, n, d, k, spread=1.0)
    X = X / np.abs(X).max()
    return {f"site-{i}": X[i::parts] for i in range(parts)}


def write_clinics(folder: Path) -> list[str]:
    """Three files with four clusters, and missing values; their names."""
    rng = np.random.default_rng(1)
    centers = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 3], [4, 4, 12]]) * [1, 10, 100]
    names = []
    for name, n in (("a", 120), ("b", 200), ("c", 90)):
        X = centers[rng.integers(4, size=n)] + rng.standard_normal((n, 3)) * [1, 10, 100]
        X[rng.random(X.shape) < 0.03] = np.nan
        cells = [["" if np.isnan(v) else repr(float(v)) for v in row] for row in X]
        names.append(f"{name}.csv")
        (folder / names[-1]).write_text("x,y,z\n" + "\n".join(map(",".join, cells)) + "\n", encoding="utf-8")
    return names


def write_private(folder: Path) -> list[str]:
    """Two larger files for runs with noise; their names."""
    rng = np.random.default_rng(0)
    for name in "ab":
        label = rng.integers(3, size=2500)
        age = np.array([30, 50, 70])[label] + rng.normal(0, 4, 2500)
        bmi = np.array([22, 35, 26])[label] + rng.normal(0, 2, 2500)
        lines = [f"{x:.1f},{y:.2f}" for x, y in zip(age, bmi, strict=True)]
        (folder / f"{name}.csv").write_text("age,bmi\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return ["a.csv", "b.csv"]


def write_digits(folder: Path, names: list[str], n: int, clients: int) -> None:
    """Some of scikit-learn's digits in the files that images are looked for in."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    pixels = np.rint(X / 16 * 255).astype(np.uint8)[:n]
    client = np.random.default_rng(0).integers(0, clients, n)
    for name in names:
        np.savez(folder / name, X=pixels, y=y[:n], client=client)
