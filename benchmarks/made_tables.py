"""Tables without clusters and with clusters, as sites have them: numbers, yes and no, items, categories.

They judge the choice of k and were written before its rule. A kind is a function of a generator and a number
of rows; it returns the columns, the true k (1: no clusters) and the site of every row. ``made`` makes one.
"""

from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

import numpy as np

Rng = np.random.Generator
Columns = dict[str, object]  # name: values, of numbers (n,) or of texts
SITES = 3


class Made(NamedTuple):
    """A table, its true number of clusters, and the site of every row."""

    columns: Columns
    k: int
    site: np.ndarray  # (n,)


# ---------------------------------------------------------------- pieces


def _named(X: np.ndarray, name: str = "x") -> Columns:
    return {f"{name}{j}": X[:, j] for j in range(X.shape[1])}


def _normal(rng: Rng, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d))


def _correlated(rng: Rng, n: int, d: int) -> np.ndarray:
    """Normal columns with random correlations."""
    return _normal(rng, n, d) @ rng.normal(size=(d, d))


def _factor(rng: Rng, n: int, d: int, loading: float = 0.7) -> np.ndarray:
    """Normal columns of variance 1 with one common factor."""
    common = rng.standard_normal((n, 1))
    return loading * common + np.sqrt(1 - loading**2) * _normal(rng, n, d)


def _cut(X: np.ndarray, shares: list[float]) -> np.ndarray:
    """Normal columns cut into items 0, 1, .. by the shares of the lower values, as quantiles of a normal."""
    grid = np.linspace(-6, 6, 4001)
    density = np.exp(-(grid**2) / 2)
    below = np.cumsum(density) / density.sum()
    return np.searchsorted(np.interp(np.cumsum(shares)[:-1], below, grid), X).astype(float)


def _yes(rng: Rng, n: int, chances: np.ndarray) -> np.ndarray:
    return (rng.random((n, len(chances))) < chances).astype(float)


def _texts(codes: np.ndarray, names: str = "abcdefgh") -> list[str]:
    return [names[int(c)] for c in codes]


def _apart(rng: Rng, k: int, d: int, apart: float) -> np.ndarray:
    """(k, d) centres, the nearest two ``apart`` from each other."""
    best: np.ndarray | None = None
    for _ in range(50):
        centers = rng.standard_normal((k, d))
        gaps = np.linalg.norm(centers[:, None] - centers[None], axis=2) + 1e9 * np.eye(k)
        centers = centers * apart / gaps.min()
        if best is None or np.abs(centers).max() < np.abs(best).max():
            best = centers
    assert best is not None
    return best


def _balls(rng: Rng, labels: np.ndarray, d: int, apart: float) -> np.ndarray:
    k = int(labels.max()) + 1
    return _apart(rng, k, d, apart)[labels] + _normal(rng, len(labels), d)


def _labels(rng: Rng, n: int, shares: list[float]) -> np.ndarray:
    return rng.choice(len(shares), size=n, p=np.array(shares) / np.sum(shares))


def _even(rng: Rng, n: int, k: int) -> np.ndarray:
    return _labels(rng, n, [1.0] * k)


def _patterns(rng: Rng, labels: np.ndarray, d: int, turned: float) -> np.ndarray:
    """Yes and no answers: every cluster has its pattern, any two differ in a third of the answers or more."""
    k = int(labels.max()) + 1
    while True:
        patterns = rng.integers(2, size=(k, d))
        differ = (patterns[:, None] != patterns[None]).sum(axis=2) + d * np.eye(k, dtype=int)
        if differ.min() >= max(2, d // 3):
            break
    return (patterns[labels] ^ (rng.random((len(labels), d)) < turned)).astype(float)


def _categories(rng: Rng, labels: np.ndarray, d: int, levels: int, kept: float) -> Columns:
    """Categories: every cluster has its own usual level of each column, which a row has with chance kept."""
    k = int(labels.max()) + 1
    usual = np.stack([rng.permutation(max(levels, k))[:k] % levels for _ in range(d)], axis=1)
    drawn = rng.integers(levels, size=(len(labels), d))
    codes = np.where(rng.random(drawn.shape) < kept, usual[labels], drawn)
    return {f"c{j}": _texts(codes[:, j]) for j in range(d)}


def _at_sites(rng: Rng, n: int) -> np.ndarray:
    return rng.integers(SITES, size=n)


# ---------------------------------------------------------------- tables without clusters


def _mixture(rng: Rng, n: int, factor: bool) -> Columns:
    Z = _factor(rng, n, 7) if factor else _normal(rng, n, 7)
    return {
        **_named(Z[:, :4]),
        "yes1": _cut(Z[:, 4], [0.6, 0.4]),
        "yes2": _cut(Z[:, 5], [0.75, 0.25]),
        "kind": _texts(_cut(Z[:, 6], [0.5, 0.3, 0.2])),
    }


def _heart_like(rng: Rng, n: int) -> Columns:
    """One continuum cut into yes and no, items and categories; rounded numbers; many zeros."""
    Z = _factor(rng, n, 10, 0.5)
    return {
        "age": np.rint(54 + 9 * Z[:, 0]),
        "pressure": np.rint((130 + 17 * Z[:, 1]) / 2) * 2,
        "chol": np.rint(np.exp(5.5 + 0.2 * Z[:, 2])),
        "rate": np.rint(140 - 24 * Z[:, 3]),
        "oldpeak": np.rint(10 * np.maximum(0.4 + 1.2 * Z[:, 4], 0)) / 10,
        "sex": _cut(Z[:, 5], [0.25, 0.75]),
        "sugar": _cut(Z[:, 6], [0.85, 0.15]),
        "angina": _cut(Z[:, 7], [0.6, 0.4]),
        "pain": _texts(_cut(Z[:, 8], [0.05, 0.2, 0.25, 0.5])),
        "vessels": _cut(Z[:, 9], [0.6, 0.2, 0.13, 0.07]),
    }


def _counts(rng: Rng, n: int) -> Columns:
    means = rng.gamma(1.5, 1.5, (n, 6))
    return _named(rng.poisson(means) * (rng.random((n, 6)) < 0.6).astype(float))


def _bent(rng: Rng, n: int) -> Columns:
    t = rng.uniform(-1, 1, n)
    return _named(np.stack([t, t**2, t], axis=1) + 0.15 * _normal(rng, n, 3))


def _site_shares(rng: Rng, n: int) -> Made:
    """Sites whose means and shares differ a little."""
    site = _at_sites(rng, n)
    X = _normal(rng, n, 5) + 0.4 * rng.standard_normal((SITES, 5))[site]
    chances = np.clip(0.35 + 0.12 * rng.standard_normal((SITES, 3)), 0.1, 0.9)
    return Made({**_named(X), **_named((rng.random((n, 3)) < chances[site]).astype(float), "y")}, 1, site)


_WITHOUT: dict[str, Callable[[Rng, int], Columns]] = {
    "6 normals": lambda rng, n: _named(_normal(rng, n, 6)),
    "15 normals": lambda rng, n: _named(_normal(rng, n, 15)),
    "uniform": lambda rng, n: _named(rng.uniform(size=(n, 4))),
    "random correlations": lambda rng, n: _named(_correlated(rng, n, 6)),
    "one long axis": lambda rng, n: _named(_factor(rng, n, 5, 0.9)),
    "t3 by column": lambda rng, n: _named(rng.standard_t(3, (n, 5))),
    "multivariate t3": lambda rng, n: _named(_normal(rng, n, 5) / np.sqrt(rng.chisquare(3, (n, 1)) / 3)),
    "log-normal": lambda rng, n: _named(np.exp(_normal(rng, n, 5))),
    "laboratory values": lambda rng, n: _named(np.exp(0.5 * _factor(rng, n, 8, 0.6))),
    "six yes or no": lambda rng, n: _named(_yes(rng, n, np.linspace(0.2, 0.5, 6))),
    "ten rare yes or no": lambda rng, n: _named(_yes(rng, n, np.linspace(0.05, 0.4, 10))),
    "items 1 to 4": lambda rng, n: _named(1 + _cut(_normal(rng, n, 6), [0.4, 0.3, 0.2, 0.1])),
    "items 1 to 5, a factor": lambda rng, n: _named(1 + _cut(_factor(rng, n, 8), [0.1, 0.2, 0.4, 0.2, 0.1])),
    "4 normals, one yes or no": lambda rng, n: {
        **_named(_normal(rng, n, 4)),
        "yes": _yes(rng, n, np.array([0.4]))[:, 0],
    },
    "mixed": lambda rng, n: _mixture(rng, n, factor=False),
    "mixed, a factor": lambda rng, n: _mixture(rng, n, factor=True),
    "nine yes or no, a factor": lambda rng, n: _named(_cut(_factor(rng, n, 9), [0.6, 0.4])),
    "heart-like": _heart_like,
    "counts with zeros": _counts,
    "rounded": lambda rng, n: _named(np.rint(_factor(rng, n, 5, 0.4) * 2)),
    "bent strip": _bent,
}


# ---------------------------------------------------------------- tables with clusters


def _phenotypes(rng: Rng, n: int) -> tuple[Columns, int]:
    labels = _labels(rng, n, [0.4, 0.3, 0.2, 0.1])
    return {
        **_named(_balls(rng, labels, 4, 4.0)),
        **_named(_patterns(rng, labels, 6, 0.1), "y"),
        **_categories(rng, labels, 2, 4, 0.8),
    }, 4


def _unequal_sites(rng: Rng, n: int) -> Made:
    """Clusters that are unequally frequent at the sites, and a yes or no that has nothing to do with them."""
    site = _at_sites(rng, n)
    shares = np.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    labels = (rng.random((n, 1)) > np.cumsum(shares, axis=1)[site]).sum(axis=1)
    columns = {**_named(_balls(rng, labels, 4, 5.5)), "yes": _yes(rng, n, np.array([0.4]))[:, 0]}
    return Made(columns, 3, site)


def _overlap(rng: Rng, n: int) -> np.ndarray:
    X = _normal(rng, n, 4)
    X[:, 0] += 3.2 * rng.integers(2, size=n)
    return X


def _few_matter(rng: Rng, n: int) -> np.ndarray:
    labels = _even(rng, n, 2)
    return np.concatenate([_balls(rng, labels, 2, 6.0), _normal(rng, n, 7)], axis=1)


def _weak(rng: Rng, n: int) -> Columns:
    labels = _even(rng, n, 3)
    return {**_named(_balls(rng, labels, 3, 2.5)), **_categories(rng, labels, 4, 4, 0.8)}


def _widths(rng: Rng, n: int) -> np.ndarray:
    labels = _even(rng, n, 3)
    spread = np.array([0.5, 1.0, 1.7])[labels, None]
    return _apart(rng, 3, 4, 6.0)[labels] + spread * _normal(rng, n, 4)


def _likert(rng: Rng, labels: np.ndarray, d: int, levels: int, apart: float) -> np.ndarray:
    usual = rng.uniform(1, levels, (int(labels.max()) + 1, d))
    usual = usual.mean(axis=0) + apart * (usual - usual.mean(axis=0)) / usual.std(axis=0)
    return np.clip(np.rint(usual[labels] + 0.8 * _normal(rng, len(labels), d)), 1, levels)


_CLUSTERED: dict[str, Callable[[Rng, int], tuple[Columns, int] | Made]] = {
    "2 balls": lambda rng, n: (_named(_balls(rng, _even(rng, n, 2), 4, 6.0)), 2),
    "3 balls": lambda rng, n: (_named(_balls(rng, _even(rng, n, 3), 5, 6.0)), 3),
    "5 balls": lambda rng, n: (_named(_balls(rng, _even(rng, n, 5), 6, 6.0)), 5),
    "slanted": lambda rng, n: (
        _named(_balls(rng, _even(rng, n, 3), 4, 7.0) @ (np.eye(4) + 0.3 * rng.normal(size=(4, 4)))),
        3,
    ),
    "twelve yes or no": lambda rng, n: (_named(_patterns(rng, _even(rng, n, 3), 12, 0.08)), 3),
    "numbers and yes or no": lambda rng, n: (
        {
            **_named(_balls(rng, labels := _even(rng, n, 3), 3, 5.0)),
            **_named(_patterns(rng, labels, 4, 0.1), "y"),
        },
        3,
    ),
    "six categories": lambda rng, n: (_categories(rng, _even(rng, n, 3), 6, 4, 0.85), 3),
    "Likert items": lambda rng, n: (_named(_likert(rng, _even(rng, n, 3), 8, 5, 1.3)), 3),
    "rounded clusters": lambda rng, n: (_named(np.rint(_balls(rng, _even(rng, n, 4), 4, 6.0))), 4),
    "unequal sites": _unequal_sites,
    "phenotypes": _phenotypes,
}
_HARD: dict[str, Callable[[Rng, int], tuple[Columns, int] | Made]] = {
    "4 close balls": lambda rng, n: (_named(_balls(rng, _even(rng, n, 4), 4, 4.2)), 4),
    "overlapping normals": lambda rng, n: (_named(_overlap(rng, n)), 2),
    "sizes 70, 20, 10": lambda rng, n: (_named(_balls(rng, _labels(rng, n, [0.7, 0.2, 0.1]), 4, 5.0)), 3),
    "widths": lambda rng, n: (_named(_widths(rng, n)), 3),
    "log-normal clusters": lambda rng, n: (
        _named(np.exp(0.35 * _balls(rng, _even(rng, n, 3), 3, 5.0))),
        3,
    ),
    "t4 clusters": lambda rng, n: (
        _named(_apart(rng, 3, 4, 7.0)[_even(rng, n, 3)] + rng.standard_t(4, (n, 4))),
        3,
    ),
    "eight yes or no, 15% turned": lambda rng, n: (_named(_patterns(rng, _even(rng, n, 2), 8, 0.15)), 2),
    "twenty yes or no, unequal": lambda rng, n: (
        _named(_patterns(rng, _labels(rng, n, [0.4, 0.3, 0.2, 0.1]), 20, 0.12)),
        4,
    ),
    "weak numbers, categories": lambda rng, n: (_weak(rng, n), 3),
    "items 1 to 4, k 2": lambda rng, n: (_named(_likert(rng, _even(rng, n, 2), 8, 4, 0.9)), 2),
    "Poisson counts": lambda rng, n: (
        _named(rng.poisson(rng.choice([1.0, 5.0, 12.0], size=(3, 6))[_even(rng, n, 3)]).astype(float)),
        3,
    ),
    "2 of 9 columns matter": lambda rng, n: (_named(_few_matter(rng, n)), 2),
}

WITHOUT = (*_WITHOUT, "sites differ", "heart-like, missing cells")
SEPARATED, HARD = tuple(_CLUSTERED), tuple(_HARD)
CLUSTERED = (*SEPARATED, *HARD)


def made(kind: str, n: int, seed: int) -> Made:
    """Return a table of a kind, the same for the same seed."""
    rng = np.random.default_rng([crc32(kind.encode()), n, seed])
    if kind == "sites differ":
        return _site_shares(rng, n)
    if kind == "heart-like, missing cells":
        return _with_missing_cells(rng, n)
    if kind in _WITHOUT:
        columns = _WITHOUT[kind](rng, n)
        return Made(columns, 1, _at_sites(rng, n))
    got = {**_CLUSTERED, **_HARD}[kind](rng, n)
    return got if isinstance(got, Made) else Made(got[0], got[1], _at_sites(rng, n))


def _with_missing_cells(rng: Rng, n: int) -> Made:
    """One column that two sites hardly have, and a tenth of two others missing anywhere."""
    site, columns = _at_sites(rng, n), _heart_like(rng, n)
    for name, chance in (
        ("vessels", np.where(site == 0, 0.02, 0.9)),
        ("chol", np.full(n, 0.1)),
        ("oldpeak", np.full(n, 0.1)),
    ):
        columns[name] = np.where(rng.random(n) < chance, np.nan, np.asarray(columns[name], dtype=float))
    return Made(columns, 1, site)
