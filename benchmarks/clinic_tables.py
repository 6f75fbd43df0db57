"""More tables without clusters and with clusters, as clinics and surveys have them, by another author.

They were written by someone who had not seen the code of the rule that they judge, and none was changed
after it was judged. Every kind draws its own numbers of columns, shares and loadings from its seed.
"""

from collections.abc import Callable
from zlib import crc32

import numpy as np

from benchmarks.made_tables import SITES, Columns, Made, Rng


def _numbered(X: np.ndarray, name: str) -> Columns:
    return {f"{name}{j}": X[:, j].astype(float) for j in range(X.shape[1])}


def _items(rng: Rng, Z: np.ndarray, levels: int) -> np.ndarray:
    """Cut every column at levels - 1 places of its own, none of which leaves a level rarer than 4%."""
    ranks = Z.argsort(axis=0).argsort(axis=0) / len(Z)
    items = np.empty(Z.shape)
    for j in range(Z.shape[1]):
        while True:
            shares = rng.dirichlet(np.full(levels, 2.0))
            if shares.min() >= 0.04:
                break
        items[:, j] = np.searchsorted(np.cumsum(shares)[:-1], ranks[:, j])
    return items


def _answers(rng: Rng, Z: np.ndarray) -> np.ndarray:
    """Cut every column into yes or no at a share of its own, from 10% to 90%."""
    shares = rng.uniform(0.1, 0.9, Z.shape[1])
    cuts = np.array([np.quantile(z, share) for z, share in zip(Z.T, shares, strict=True)])
    return cuts < Z


def _loaded(rng: Rng, n: int, d: int, low: float, high: float) -> np.ndarray:
    """Normal columns of variance 1 with one common factor, each with a loading of its own."""
    loadings = rng.uniform(low, high, d) * rng.choice([-1.0, 1.0], d)
    return loadings * rng.standard_normal((n, 1)) + np.sqrt(1 - loadings**2) * rng.standard_normal((n, d))


def _words(codes: np.ndarray) -> list[str]:
    return [f"level {int(c)}" for c in codes]


def _sites(rng: Rng, n: int) -> np.ndarray:
    """Two to four sites of unequal sizes."""
    shares = rng.dirichlet(np.full(int(rng.integers(2, SITES + 2)), 4.0))
    return rng.choice(len(shares), size=n, p=shares)


# ---------------------------------------------------------------- without clusters


def _diagnoses(rng: Rng, n: int) -> Columns:
    """Independent yes or no columns, most of them rare."""
    chances = np.clip(rng.beta(1.2, 3.0, int(rng.integers(5, 15))), 0.04, 0.9)
    return _numbered(rng.random((n, len(chances))) < chances, "diagnosis")


def _chain(rng: Rng, n: int) -> Columns:
    """Yes or no columns, each of which depends on the one before it."""
    d = int(rng.integers(5, 11))
    X = np.empty((n, d))
    X[:, 0] = rng.random(n) < rng.uniform(0.2, 0.6)
    for j in range(1, d):
        if_no, if_yes = rng.uniform(0.1, 0.4), rng.uniform(0.4, 0.75)
        X[:, j] = rng.random(n) < np.where(X[:, j - 1] > 0, if_yes, if_no)
    return _numbered(X, "sign")


def _questionnaire(rng: Rng, n: int) -> Columns:
    """Items of 3 to 7 levels with one common factor."""
    Z = _loaded(rng, n, int(rng.integers(5, 13)), 0.4, 0.8)
    return _numbered(1 + _items(rng, Z, int(rng.integers(3, 8))), "item")


def _floor(rng: Rng, n: int) -> Columns:
    """Symptoms from 0 to 3 that most people do not have: a skewed common factor and a floor."""
    burden = rng.gamma(1.0, 1.0, (n, 1))
    rates = rng.uniform(0.3, 0.8, int(rng.integers(6, 10)))
    return _numbered(np.minimum(rng.poisson(burden * rates), 3), "symptom")


def _demography(rng: Rng, n: int) -> Columns:
    """Independent categories of 2 to 6 levels with unequal shares."""
    columns: Columns = {}
    for j in range(int(rng.integers(4, 8))):
        shares = rng.dirichlet(np.full(int(rng.integers(2, 7)), 1.5))
        columns[f"category{j}"] = _words(rng.choice(len(shares), size=n, p=shares))
    return columns


def _linked_categories(rng: Rng, n: int) -> Columns:
    """Categories and numbers that one continuum moves a little, as age moves most of a medical record."""
    Z = _loaded(rng, n, 8, 0.3, 0.7)
    columns = _numbered(Z[:, :3], "value")
    for j in range(3, 8):
        columns[f"category{j}"] = _words(_items(rng, Z[:, j : j + 1], int(rng.integers(2, 6)))[:, 0])
    return columns


def _heavy(rng: Rng, n: int) -> Columns:
    """Correlated columns with heavy tails, each with degrees of freedom of its own."""
    d = int(rng.integers(3, 9))
    Z = _loaded(rng, n, d, 0.0, 0.7)
    return _numbered(Z / np.sqrt(rng.chisquare(np.full(d, 2.5), (n, d)) / 2.5), "value")


def _skewed(rng: Rng, n: int) -> Columns:
    """Costs, stays and doses: log-normal, gamma and Weibull columns with one common factor."""
    d = int(rng.integers(4, 9))
    Z = _loaded(rng, n, d, 0.2, 0.7)
    return _numbered(np.exp(rng.uniform(0.4, 1.1, d) * Z), "amount")


def _one_factor(rng: Rng, n: int) -> Columns:
    return _numbered(_loaded(rng, n, int(rng.integers(3, 13)), 0.3, 0.95), "value")


def _three_factors(rng: Rng, n: int) -> Columns:
    """A wide table: 14 numbers, 6 items and 6 yes or no columns behind three factors."""
    loadings = rng.normal(0, 0.45, (3, 26))
    Z = rng.standard_normal((n, 3)) @ loadings + 0.8 * rng.standard_normal((n, 26))
    items, answers = _items(rng, Z[:, 14:20], 4), _answers(rng, Z[:, 20:])
    return {**_numbered(Z[:, :14], "value"), **_numbered(items, "item"), **_numbered(answers, "answer")}


def _intensive_care(rng: Rng, n: int) -> Columns:
    """One severity behind skewed laboratory values, a score with a ceiling, and yes or no columns."""
    Z = _loaded(rng, n, 9, 0.3, 0.7)
    return {
        "age": np.rint(np.clip(63 + 15 * Z[:, 0], 18, 97)),
        "lactate": np.rint(10 * np.exp(0.5 + 0.6 * Z[:, 1])) / 10,
        "creatinine": np.rint(np.exp(4.5 + 0.5 * Z[:, 2])),
        "pulse": np.rint(95 + 18 * Z[:, 3]),
        "coma": np.clip(np.rint(14.5 - 3.5 * Z[:, 4]), 3, 15),
        "stay": np.ceil(np.exp(1.0 + 0.9 * Z[:, 5])),
        "ventilated": (Z[:, 6] > 0.2).astype(float),
        "dialysis": (Z[:, 7] > 1.2).astype(float),
        "admission": _words(np.digitize(Z[:, 8], [-0.3, 0.9])),
    }


def _detection_limits(rng: Rng, n: int) -> Columns:
    """Concentrations of which 5% to 40% are set to the limit of detection."""
    Z = np.exp(0.7 * _loaded(rng, n, int(rng.integers(4, 8)), 0.2, 0.6))
    limits = np.array([np.quantile(z, rng.uniform(0.05, 0.4)) for z in Z.T])
    return _numbered(np.maximum(Z, limits), "substance")


def _digit_preference(rng: Rng, n: int) -> Columns:
    """Values read off an instrument: some rounded to 10, others to 5 or 1."""
    Z = _loaded(rng, n, 5, 0.2, 0.6)
    values = np.array([125, 78, 172, 75, 70]) + Z * np.array([18, 11, 9, 14, 10])
    steps = rng.choice([1.0, 5.0, 10.0], size=values.shape, p=[0.3, 0.4, 0.3])
    return _numbered(np.rint(values / steps) * steps, "reading")


def _proportions(rng: Rng, n: int) -> Columns:
    """Shares of 4 to 7 parts that add up to 1."""
    return _numbered(rng.dirichlet(rng.uniform(1.5, 5.0, int(rng.integers(4, 8))), size=n), "share")


def _growth(rng: Rng, n: int) -> Columns:
    """Curved and widening relations with age, without a gap."""
    age = rng.uniform(20, 85, n)
    t = (age - 20) / 65
    noise = rng.standard_normal((n, 4))
    return {
        "age": np.rint(age),
        "pressure": 110 + 35 * t**1.5 + (7 + 8 * t) * noise[:, 0],
        "filtration": 120 * np.exp(-0.7 * t) + 14 * noise[:, 1],
        "calcium": np.maximum(0, np.exp(3 * t + 1.2 * noise[:, 2]) - 2),
        "bone": 1.2 - 0.35 * t + 0.15 * noise[:, 3],
    }


def _different_sites(rng: Rng, n: int) -> Made:
    """Sites with other means, other shares of yes or no and of categories, and another spread."""
    site = _sites(rng, n)
    s = int(site.max()) + 1
    means, spreads = 0.35 * rng.standard_normal((s, 4)), rng.uniform(0.85, 1.2, (s, 4))
    X = means[site] + spreads[site] * rng.standard_normal((n, 4))
    chances = np.clip(rng.uniform(0.15, 0.5, 4) + 0.12 * rng.standard_normal((s, 4)), 0.05, 0.95)
    columns = {**_numbered(X, "value"), **_numbered(rng.random((n, 4)) < chances[site], "answer")}
    ends = np.cumsum(rng.dirichlet([6.0, 4.0, 2.0], size=s), axis=1)
    columns["category"] = _words((rng.random((n, 1)) > ends[site]).sum(axis=1).clip(0, 2))
    return Made(columns, 1, site)


def _gaps(rng: Rng, n: int) -> Made:
    """The record of intensive care, with a tenth of four columns missing and one missing at one site."""
    columns, site = _intensive_care(rng, n), _sites(rng, n)
    for name in ("lactate", "creatinine", "pulse", "coma"):
        columns[name] = np.where(rng.random(n) < 0.1, np.nan, columns[name])
    columns["stay"] = np.where((site == 0) & (rng.random(n) < 0.9), np.nan, columns["stay"])
    return Made(columns, 1, site)


_WITHOUT: dict[str, Callable[[Rng, int], Columns | Made]] = {
    "diagnoses": _diagnoses,
    "signs that depend on each other": _chain,
    "questionnaire": _questionnaire,
    "symptoms with a floor": _floor,
    "demography": _demography,
    "categories along a continuum": _linked_categories,
    "heavy tails": _heavy,
    "costs and stays": _skewed,
    "one factor": _one_factor,
    "26 columns, three factors": _three_factors,
    "intensive care": _intensive_care,
    "detection limits": _detection_limits,
    "digit preference": _digit_preference,
    "proportions": _proportions,
    "curves of age": _growth,
    "different sites": _different_sites,
    "intensive care, missing cells": _gaps,
}


# ---------------------------------------------------------------- with clusters


def _drawn(rng: Rng, n: int, k: int, smallest: float) -> np.ndarray:
    """Labels of k clusters of unequal sizes, each at least ``smallest`` of the rows."""
    shares = smallest + (1 - k * smallest) * rng.dirichlet(np.full(k, 3.0))
    return rng.choice(k, size=n, p=shares)


def _centres(rng: Rng, k: int, d: int, apart: float) -> np.ndarray:
    """Centres of which the nearest two are ``apart`` from each other, in a box that is just large enough."""
    side = apart / 2
    while True:
        centers = rng.uniform(0, side, (k, d))
        gaps = np.linalg.norm(centers[:, None] - centers[None], axis=2)[np.triu_indices(k, 1)]
        if gaps.min() >= apart:
            return centers * apart / gaps.min()
        side *= 1.01


def _profiles(rng: Rng, k: int, d: int, apart: float) -> np.ndarray:
    """(k, d) chances of yes; in any two clusters they differ by ``apart`` on average, or more."""
    while True:
        chances = rng.choice([0.1, 0.25, 0.75, 0.9], size=(k, d))
        gaps = np.abs(chances[:, None] - chances[None]).mean(axis=2)[np.triu_indices(k, 1)]
        if gaps.min() >= apart:
            return chances


def _classes(rng: Rng, n: int) -> tuple[Columns, int]:
    """A latent class model of yes or no columns."""
    k = int(rng.integers(2, 5))
    labels = _drawn(rng, n, k, 0.15)
    return _numbered(rng.random((n, 14)) < _profiles(rng, k, 14, 0.35)[labels], "answer"), k


def _classes_of_categories(rng: Rng, n: int) -> tuple[Columns, int]:
    """A latent class model of categories: each class has a usual level of every column."""
    k, d = int(rng.integers(2, 5)), 8
    labels, columns = _drawn(rng, n, k, 0.15), {}
    for j in range(d):
        levels = int(rng.integers(max(3, k), 6))
        usual = rng.permutation(levels)[:k][labels]
        columns[f"category{j}"] = _words(np.where(rng.random(n) < 0.75, usual, rng.integers(levels, size=n)))
    return columns, k


def _airways(rng: Rng, n: int) -> tuple[Columns, int]:
    """Phenotypes in skewed numbers, items, and yes or no columns."""
    k = int(rng.integers(3, 5))
    labels = _drawn(rng, n, k, 0.12)
    X = _centres(rng, k, 5, 4.5)[labels] + rng.standard_normal((n, 5))
    return {
        **_numbered(X[:, :3], "value"),
        **_numbered(np.exp(0.25 * X[:, 3:]), "amount"),
        **_numbered(rng.random((n, 4)) < _profiles(rng, k, 4, 0.25)[labels], "answer"),
        "item": np.clip(np.rint(3 + labels - k / 2 + 0.8 * rng.standard_normal(n)), 1, 5),
    }, k


def _scales(rng: Rng, n: int) -> tuple[Columns, int]:
    """Items from 1 to 7 of three groups of people."""
    labels = _drawn(rng, n, 3, 0.2)
    centers = _centres(rng, 3, 9, 5.0)
    X = 4 + (centers - centers.mean(axis=0))[labels] + rng.standard_normal((n, 9))
    return _numbered(np.clip(np.rint(X), 1, 7), "item"), 3


def _severity(rng: Rng, n: int) -> tuple[Columns, int]:
    """Three groups in a row: mild, moderate, severe, in six numbers."""
    labels = _drawn(rng, n, 3, 0.2)
    loadings = rng.uniform(1.5, 2.5, 6)
    return _numbered(labels[:, None] * loadings + rng.standard_normal((n, 6)), "value"), 3


def _own_shapes(rng: Rng, n: int) -> tuple[Columns, int]:
    """Clusters, each with correlations of its own."""
    k = int(rng.integers(2, 6))
    labels = _drawn(rng, n, k, 0.12)
    turns = np.eye(5) + 0.35 * rng.standard_normal((k, 5, 5))
    noise = np.einsum("nd,nde->ne", rng.standard_normal((n, 5)), turns[labels])
    return _numbered(_centres(rng, k, 5, 7.0)[labels] + noise, "value"), k


def _with_noise_columns(rng: Rng, n: int) -> tuple[Columns, int]:
    """Clusters in four numbers, beside four yes or no columns and a category that have none."""
    k = int(rng.integers(2, 5))
    labels = _drawn(rng, n, k, 0.15)
    X = _centres(rng, k, 4, 6.0)[labels] + rng.standard_normal((n, 4))
    answers = rng.random((n, 4)) < rng.uniform(0.15, 0.6, 4)
    return {
        **_numbered(X, "value"),
        **_numbered(answers, "answer"),
        "category": _words(rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])),
    }, k


def _events(rng: Rng, n: int) -> tuple[Columns, int]:
    """Counts, overdispersed, of three kinds of users."""
    labels = _drawn(rng, n, 3, 0.2)
    means = np.array([1.0, 4.0, 12.0])[rng.permuted(np.tile([0, 1, 2], (6, 1)), axis=1).T]
    return _numbered(rng.poisson(means[labels] * rng.gamma(8.0, 1 / 8, (n, 6))), "count"), 3


def _incomplete(rng: Rng, n: int) -> tuple[Columns, int]:
    """Clusters in numbers and yes or no columns, with a twelfth of the cells missing."""
    k = int(rng.integers(2, 5))
    labels = _drawn(rng, n, k, 0.15)
    X = _centres(rng, k, 5, 6.0)[labels] + rng.standard_normal((n, 5))
    answers = (rng.random((n, 4)) < _profiles(rng, k, 4, 0.3)[labels]).astype(float)
    cells = np.concatenate([X, answers], axis=1)
    return _numbered(np.where(rng.random(cells.shape) < 1 / 12, np.nan, cells), "column"), k


def _absent_at_sites(rng: Rng, n: int) -> Made:
    """Four clusters, none of which every site has."""
    site = rng.integers(3, size=n)
    shares = np.array([[0.5, 0.3, 0.2, 0.0], [0.0, 0.4, 0.3, 0.3], [0.5, 0.0, 0.0, 0.5]])
    labels = (rng.random((n, 1)) > np.cumsum(shares, axis=1)[site]).sum(axis=1).clip(0, 3)
    return Made(_numbered(_centres(rng, 4, 5, 6.0)[labels] + rng.standard_normal((n, 5)), "value"), 4, site)


def _a_small_one(rng: Rng, n: int) -> tuple[Columns, int]:
    """Two large clusters and one of 8%, in numbers with yes or no columns that tell it apart."""
    labels = rng.choice(3, size=n, p=[0.5, 0.42, 0.08])
    X = _centres(rng, 3, 4, 6.0)[labels] + rng.standard_normal((n, 4))
    chances = np.array([[0.2, 0.3], [0.3, 0.2], [0.9, 0.85]])
    return {**_numbered(X, "value"), **_numbered(rng.random((n, 2)) < chances[labels], "answer")}, 3


_CLUSTERED: dict[str, Callable[[Rng, int], tuple[Columns, int] | Made]] = {
    "latent classes, yes or no": _classes,
    "latent classes, categories": _classes_of_categories,
    "airways": _airways,
    "items 1 to 7": _scales,
    "mild, moderate, severe": _severity,
    "own shapes": _own_shapes,
    "beside noise columns": _with_noise_columns,
    "overdispersed counts": _events,
    "clusters, missing cells": _incomplete,
    "clusters absent at sites": _absent_at_sites,
    "a cluster of 8%": _a_small_one,
}

WITHOUT, CLUSTERED = tuple(_WITHOUT), tuple(_CLUSTERED)


def made(kind: str, n: int, seed: int) -> Made:
    """Return a table of a kind, the same for the same seed."""
    rng = np.random.default_rng([crc32(kind.encode()), n, seed])
    got = {**_WITHOUT, **_CLUSTERED}[kind](rng, n)
    if isinstance(got, Made):
        return got
    columns, k = got if isinstance(got, tuple) else (got, 1)
    return Made(columns, k, _sites(rng, n))
