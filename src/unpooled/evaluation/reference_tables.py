"""Reference tables: simulated tables that have no clusters, with the columns and correlations of the data.

The coordinator makes them from totals. A column of few values keeps its shares exactly. Any other column has
one hump: its histogram made to rise and then to fall. A normal copula ties the columns together, so that
they have the observed correlations. Where sites answer from summary tables, the simulated rows are dealt to
sites of the same sizes and grouped there, and it is the groups that have the observed correlations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unpooled.kernels.grouping import groups
from unpooled.typing import FloatArray, IntArray

_FEW_VALUES = 6  # a column of at most this number of values keeps their shares
_POINT = 0.1  # share of the rows from which on a single value of other columns is kept,
_POINT_RATIO = 2.5  # if it has this multiple of the rows of its neighbours: zeros, limits of detection
_FIT_ROWS = 5000  # simulated rows on which correlations are fitted
_FIT_STEPS = 4
_DIGITS = 6  # of fitted correlations: rounding differences between processors end here
# the middles of the cells of a histogram, in standard deviations from the mean
_FAR = np.array([3.6, 4.3, 5.5, 8.0, 14.0])
GRID = np.concatenate([-_FAR[::-1], np.linspace(-3.15, 3.15, 43), _FAR])


def grid(cells: int) -> FloatArray:
    """Return the middles of the cells of a histogram: all of GRID, or ``cells`` of them for small sites."""
    if cells >= len(GRID):
        return GRID
    return np.linspace(-3.0, 3.0, max(cells, 12))


@dataclass(frozen=True, eq=False)
class ReferenceColumn:
    """A column of reference tables: its values by rank, and its direction in the correlations."""

    width: int  # prepared columns
    values: FloatArray  # (L, width) of few values, lowest first; of other columns the ends of pieces (m, 2)
    shares: FloatArray  # (L,) or (m,): of the rows
    mean: float = 0.0  # of other columns
    deviation: float = 0.0  # 0: a column of few values
    score: FloatArray | None = None  # (width,) of a category: by which its categories are ordered
    tails: tuple[float, float] = (0.0, 0.0)  # mean excess of the first and the last piece; 0: no tail

    @property
    def direction(self) -> FloatArray:
        return np.ones(self.width) if self.score is None else self.score

    def by_rank(self, n: int) -> FloatArray:
        """Return n values (n, width), from the lowest to the highest."""
        at = (np.arange(n) + 0.5) / n
        ends = np.cumsum(self.shares)
        piece = np.minimum(np.searchsorted(ends / ends[-1], at), len(ends) - 1)
        if self.deviation == 0:
            few: FloatArray = self.values[piece]
            return few
        share = self.shares / ends[-1]
        inside = np.clip((at - (ends / ends[-1] - share)[piece]) / share[piece], 0.0, 1.0)
        low, high = self.values[piece].T
        x = low + inside * (high - low)
        first, last = self.tails
        if first:
            x = np.where(piece == 0, high + first * np.log(np.maximum(inside, 0.5 / n)), x)
        if last:
            x = np.where(piece == len(ends) - 1, low - last * np.log(np.maximum(1 - inside, 0.5 / n)), x)
        x = (x - x.mean()) / max(float(x.std()), 1e-300)
        scaled: FloatArray = (self.mean + self.deviation * x)[:, None]
        return scaled


def few_values(values: FloatArray, shares: FloatArray) -> ReferenceColumn:
    """Return a column of few values (L,), with the shares of each."""
    return ReferenceColumn(1, values[:, None], np.maximum(shares, 1e-12))


def category(values: FloatArray, shares: FloatArray, covariance: FloatArray) -> ReferenceColumn:
    """Return a category with one-hot values (L, L), ordered by how its categories go with other columns.

    ``covariance`` (L, others) is that of its indicators with all other prepared columns.
    """
    left = np.linalg.svd(covariance / np.maximum(shares, 1e-12)[:, None], full_matrices=False)[0][:, 0]
    left = left * (1.0 if left[np.abs(left).argmax()] >= 0 else -1.0)
    order = np.argsort(np.round(left, _DIGITS), kind="stable")
    score = np.empty(len(shares))
    score[order] = np.arange(len(shares))
    return ReferenceColumn(len(shares), values[order], np.maximum(shares[order], 1e-12), score=score)


def column(
    middles: FloatArray, mass: FloatArray, means: FloatArray, variances: FloatArray, deviation: float
) -> ReferenceColumn:
    """Return the column behind a histogram: few values with their shares, or one hump.

    The cells have ``middles`` (m,), rows, means and variances; all rows together have ``deviation``. The
    variance of a cell that holds a single value is 0.
    """
    single = variances <= 1e-10 * deviation**2
    full = np.flatnonzero(mass > 0)
    if single[full].all() and len(full) <= _FEW_VALUES:
        return few_values(means[full], mass[full] / mass.sum())
    mean = float(mass @ means / mass.sum())
    edges = np.concatenate([[-np.inf], 0.5 * (middles[1:] + middles[:-1]), [np.inf]])
    first, last = int(full[0]), int(full[-1])
    beside = np.maximum(np.append(mass[1:], 0.0), np.append(0.0, mass[:-1]))
    # nearly all rows of a cell at one value: a quarter of the variance of rows that fill it
    single = variances <= np.gradient(middles) ** 2 / 48
    kept = np.flatnonzero(single & (mass >= _POINT * mass.sum()) & (mass >= _POINT_RATIO * beside))
    low, high = edges[first : last + 1].copy(), edges[first + 1 : last + 2].copy()
    tails = [0.0, 0.0]
    if last > first:  # the outermost pieces are tails with the mean of their cell; a single value has none
        below, above = max(high[0] - means[first], 1e-9), max(means[last] - low[-1], 1e-9)
        tails = [0.0 if single[first] else below, 0.0 if single[last] else above]
        low[0] = high[0] - (below if single[first] else 2 * below)
        high[-1] = low[-1] + (above if single[last] else 2 * above)
    else:
        low[0], high[-1] = means[first] - deviation, means[first] + deviation
    rest = mass[first : last + 1].copy()
    points = kept - first
    rest[points] = 0.5 * (beside[kept] * 0.5)  # what a hump without the point would have there
    hump = one_hump(rest / (high - low), high - low) * (high - low)
    hump *= (mass.sum() - mass[kept].sum() + rest[points].sum()) / max(float(hump.sum()), 1e-300)
    pieces = [(low[i], high[i], hump[i]) for i in range(len(hump))]
    for p, cell in zip(points, kept, strict=True):
        at = float(means[cell])
        below, above = pieces[p][:2]
        split = min(max((at - below) / (above - below), 0.0), 1.0)
        whole = pieces[p][2]
        pieces[p] = (below, at, whole * split)
        pieces.append((at, at, float(mass[cell] - rest[p])))
        pieces.append((at, above, whole * (1 - split)))
    pieces = [piece for piece in sorted(pieces) if piece[2] > 0]
    ends, shares = np.array([p[:2] for p in pieces]), np.array([p[2] for p in pieces])
    is_tail = [bool(ends[0, 1] == high[0]), bool(ends[-1, 0] == low[-1])]
    return ReferenceColumn(
        1,
        ends,
        shares / shares.sum(),
        mean,
        deviation,
        tails=(tails[0] if is_tail[0] else 0.0, tails[1] if is_tail[1] else 0.0),
    )


def one_hump(density: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the nearest densities, by weighted squares, that rise and then fall.

    >>> one_hump(np.array([1.0, 4.0, 2.0, 4.0, 1.0]), np.ones(5)).tolist()
    [1.0, 4.0, 3.0, 3.0, 1.0]
    """
    best, error = density, np.inf
    for top in range(len(density)):
        up = _rising(density[: top + 1], weights[: top + 1])
        down = _rising(density[top + 1 :][::-1], weights[top + 1 :][::-1])[::-1]
        fitted = np.concatenate([up, down])
        off = float(weights @ (fitted - density) ** 2)
        if off < error - 1e-12:
            best, error = fitted, off
    return best


def _rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The nearest rising values: pool adjacent violators."""
    blocks: list[list[float]] = []  # mean, weight, number
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            b, a = blocks.pop(), blocks.pop()
            w = a[1] + b[1]
            blocks.append([(a[0] * a[1] + b[0] * b[1]) / w, w, a[2] + b[2]])
    return np.concatenate([np.full(int(b[2]), b[0]) for b in blocks] or [np.zeros(0)])


class Rows(NamedTuple):
    """The rows of tables, one after the other; of groups the means, with their people as weights."""

    X: FloatArray  # (N, d)
    weights: FloatArray | None  # (N,)
    offsets: IntArray  # (tables + 1,)


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """A model of tables without clusters: columns, the correlations of a normal copula, and the sites."""

    columns: tuple[ReferenceColumn, ...]
    factor: FloatArray  # (c, c): normal columns times its transpose have the fitted correlations
    site_rows: IntArray  # (S,) rows of every site in a reference table
    group_size: int  # people in a group of a summary table; 1: sites answer from rows

    def tables(self, count: int, rng: np.random.Generator) -> Rows:
        """Return reference tables."""
        n = int(self.site_rows.sum())
        return self._rows(rng.standard_normal((count, n, len(self.columns))))

    def _rows(self, noise: FloatArray) -> Rows:
        """The tables behind independent normal numbers (tables, n, c)."""
        count, n, _ = noise.shape
        parts = []
        sorted_values = [c.by_rank(n) for c in self.columns]
        for one in noise:
            latent = np.zeros_like(one)
            for j, line in enumerate(self.factor.T):  # in order, so that no library decides about the bits
                latent += one[:, j, None] * line
            ranks = np.argsort(np.argsort(latent, axis=0, kind="stable"), axis=0, kind="stable")
            parts.append(np.hstack([values[ranks[:, j]] for j, values in enumerate(sorted_values)]))
        if self.group_size == 1:
            return Rows(np.concatenate(parts), None, n * np.arange(count + 1))
        means, people = zip(*(self._grouped(part) for part in parts), strict=True)
        offsets = np.cumsum([0, *(len(part) for part in means)])
        return Rows(np.concatenate(means), np.concatenate(people), offsets)

    def _grouped(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The groups of a table, site by site: their means and people."""
        means, people, start = [], [], 0
        for rows in self.site_rows:
            part = X[start : start + rows]
            start += int(rows)
            labels = groups(part.astype(np.float32), self.group_size)
            count = int(labels.max(initial=-1)) + 1
            number = np.bincount(labels, minlength=count).astype(np.float64)
            sums = np.stack([np.bincount(labels, x, count) for x in part.T], axis=1)
            means.append(sums / np.maximum(number, 1.0)[:, None])
            people.append(number)
        return np.concatenate(means), np.concatenate(people)

    def correlations(self, rows: Rows) -> FloatArray:
        """Return the correlations (c, c) of the columns in tables; a category counts by its order."""
        starts = np.cumsum([0, *(c.width for c in self.columns)])
        scores = np.stack(
            [
                rows.X[:, a:b] @ c.direction
                for c, a, b in zip(self.columns, starts[:-1], starts[1:], strict=True)
            ],
            axis=1,
        )
        return correlation(np.cov(scores.T, aweights=rows.weights, bias=True).reshape(2 * (len(starts) - 1,)))


def correlation(covariance: FloatArray) -> FloatArray:
    """Return the correlations behind a covariance matrix; 0 for a column without variance."""
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    unit = np.where(spread > 1e-12, spread, np.inf)
    matrix: FloatArray = covariance / np.outer(unit, unit)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def fit_model(
    columns: Sequence[ReferenceColumn],
    covariance: FloatArray,
    site_rows: IntArray,
    group_size: int,
    rng: np.random.Generator,
) -> ReferenceModel:
    """Return the model whose tables have the columns, and the correlations of ``covariance`` (d, d)."""
    c = len(columns)
    starts = np.cumsum([0, *(one.width for one in columns)])
    turn = np.zeros((int(starts[-1]), c))
    for j, one in enumerate(columns):
        turn[starts[j] : starts[j + 1], j] = one.direction
    wanted = correlation(turn.T @ covariance @ turn)
    n = int(site_rows.sum())
    noise = rng.standard_normal((max(1, round(_FIT_ROWS / max(n, 1))), n, c))
    latent, model = wanted, ReferenceModel(tuple(columns), np.eye(c), site_rows, group_size)
    for step in range(_FIT_STEPS + 1):
        latent, factor = _nearest(latent)
        model = ReferenceModel(tuple(columns), factor, site_rows, group_size)
        if step < _FIT_STEPS:
            latent = latent + wanted - model.correlations(model._rows(noise))
    return model


def _nearest(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The nearest correlations without a negative eigenvalue, and a factor of them."""
    values, vectors = np.linalg.eigh(np.round(0.5 * (matrix + matrix.T), _DIGITS))
    near = np.round(correlation((vectors * np.maximum(values, 1e-4)) @ vectors.T), _DIGITS)
    values, vectors = np.linalg.eigh(near)
    factor = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T  # the symmetric root has no free sign
    return near, np.round(factor, _DIGITS)
