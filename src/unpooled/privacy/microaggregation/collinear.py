"""Collinear columns: their missing values must be in the same rows."""

import numpy as np

from unpooled.data.column_kinds import CATEGORY, has_mean
from unpooled.data.table import Table
from unpooled.typing import FloatArray, IntArray

_ALIKE = 0.98  # share of the variance of one column that the other explains
SAMPLE = 20_000  # rows that are compared
_FEWEST = 20  # rows with both values, below which columns do not count as collinear
_TINY = 1e-200  # variances below are rounding


def collinear(table: Table, columns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return sets of columns that nearly determine each other and have missing values in different rows.

    >>> x = np.arange(30.0)
    >>> y = np.where(x == 3, np.nan, 2 * x + 1)
    >>> collinear(Table.from_columns({"x": x, "y": y, "z": x % 7}), ("x", "y", "z"))
    (('x', 'y'),)
    """
    step = -(-len(table) // SAMPLE)
    values = {name: np.array(table.values[::step, table.index(name)]) for name in columns}
    missing = {name: np.isnan(x) for name, x in values.items()}
    open_columns = [name for name in columns if missing[name].any()]
    same = {name: {name} for name in columns}
    for a in open_columns:
        for b in columns:
            if b in same[a] or np.array_equal(missing[a], missing[b]):
                continue
            both = ~missing[a] & ~missing[b]
            if both.sum() >= _FEWEST and _alike(
                _kind(table, a), values[a][both], _kind(table, b), values[b][both]
            ):
                joined = same[a] | same[b]
                for name in joined:
                    same[name] = joined
    sets = {tuple(name for name in columns if name in joined) for joined in same.values() if len(joined) > 1}
    return tuple(sorted(sets))


def _kind(table: Table, name: str) -> str:
    return table.kinds[table.index(name)]


def _alike(kind: str, x: FloatArray, other: str, y: FloatArray) -> bool:
    """True if one column nearly determines the other."""
    if has_mean(kind) and has_mean(other):
        spread = float(np.std(x)) * float(np.std(y))
        covariance = float(np.mean((x - x.mean()) * (y - y.mean())))
        return spread > _TINY and (covariance / spread) ** 2 >= _ALIKE
    if kind == CATEGORY and has_mean(other):
        return _explained(x.astype(np.int64), y) >= _ALIKE
    if has_mean(kind) and other == CATEGORY:
        return _explained(y.astype(np.int64), x) >= _ALIKE
    if kind == other == CATEGORY:
        return min(_agreement(x, y), _agreement(y, x)) >= _ALIKE
    return False


def _explained(category: IntArray, y: FloatArray) -> float:
    """The share of the variance of y between categories."""
    total = float(np.var(y))
    n = np.bincount(category)
    mean = np.bincount(category, y) / np.maximum(n, 1)
    return float(n @ (mean - y.mean()) ** 2) / len(y) / total if total > _TINY else 0.0


def _agreement(x: FloatArray, y: FloatArray) -> float:
    """The share of rows whose y is the most frequent one for their x; 0 if y is constant."""
    if len(np.unique(y)) < 2:
        return 0.0
    pairs, counts = np.unique(np.stack([x, y]), axis=1, return_counts=True)
    best: dict[float, int] = {}
    for category, count in zip(pairs[0].tolist(), counts.tolist(), strict=True):
        best[category] = max(best.get(category, 0), count)
    return sum(best.values()) / len(x)
