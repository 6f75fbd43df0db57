"""Generated tables with several rows per person, and ordinary tables with strong categories."""

from typing import NamedTuple

import numpy as np

from unpooled.data import Table

ID_NAMES = ("subject#", "sid", "code", "record", "case", "patient", "who", "nr", "x1", "kennung", "subject")


class Generated(NamedTuple):
    """A generated table, and what identifies its people."""

    table: Table
    id: str  # the column; "" if there is none
    constants: tuple[str, ...]  # columns that do not change within a person
    rows_per_person: float


def repeated_people(seed: int) -> Generated:
    """Return visits of people: an id in most tables, columns that do not change, and noisy measurements."""
    rng = np.random.default_rng((39, seed))
    people = int(np.exp(rng.uniform(np.log(10), np.log(2000))))
    mean_rows = float(np.exp(rng.uniform(np.log(2), np.log(150))))
    mean_rows = max(2.0, min(mean_rows, 40_000 / people))
    rows = np.full(people, round(mean_rows))
    if rng.random() < 0.5:  # not everybody has the same number
        rows = 1 + rng.poisson(max(1.0, mean_rows - 1), people)
    who = np.repeat(np.arange(people), rows)
    if rng.random() < 0.5:  # sorted by date
        who = rng.permutation(who)
    n, width = len(who), int(rng.integers(3, 21))
    columns: dict[str, np.ndarray] = {}
    has_id = rng.random() < 0.75
    name = str(rng.choice(ID_NAMES)) if has_id else ""
    if has_id:
        kind = rng.integers(3)
        if kind == 0:
            ids = np.arange(1, people + 1) + int(rng.integers(0, 5000))
        elif kind == 1:
            ids = rng.choice(90_000, people, replace=False) + 10_000
        else:
            ids = np.array([f"P{i:05d}" for i in rng.permutation(people)])
        columns[name] = ids[who].astype(float) if kind < 2 else ids[who]
    constants = constant_columns(rng, people, who, most=2 if width > 3 or not has_id else 1)
    if rng.random() < 0.15 and width > 5:
        constants = {}
    columns |= constants
    if rng.random() < 0.4 and len(columns) + 2 < width:
        columns["visit"] = _visits(who)
    if rng.random() < 0.3 and len(columns) + 3 < width:
        columns["weekday"] = np.array(["mo", "tu", "we", "th", "fr"])[rng.integers(0, 5, n)]
    noise = float(np.exp(rng.uniform(np.log(0.1), np.log(2.5))))  # within a person, relative to between
    j = 0
    while len(columns) < width or j < 1:
        effect, own = rng.normal(size=people)[who], noise * rng.lognormal(0, 0.3)
        x = effect + own * rng.normal(size=n)
        shape = rng.random()
        if shape < 0.2:
            x = np.exp(x)
        elif shape < 0.35:
            x = np.round(20 + 5 * x)
        columns[f"m{j}"] = np.round(x, 4) if shape < 0.85 else np.array(["low", "mid", "high"])[_thirds(x)]
        j += 1
    _drop_cells(rng, columns)
    return Generated(Table.from_columns(columns), name, tuple(constants), n / people)


def _drop_cells(rng: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    """Drop cells of some measurements, in half of the tables."""
    if rng.random() < 0.5:
        for name in columns:
            if name.startswith("m") and columns[name].dtype.kind == "f" and rng.random() < 0.3:
                gone = rng.random(len(columns[name])) < rng.uniform(0.02, 0.3)
                columns[name] = np.where(gone, np.nan, columns[name])


def constant_columns(rng, people: int, who: np.ndarray, most: int) -> dict[str, np.ndarray]:
    """Return columns that do not change within a person: age, sex, height, ..."""
    age = rng.integers(20, 90, people).astype(float)
    every = {
        "age": age[who],
        "sex": np.array(["f", "m"])[rng.integers(0, 2, people)][who],
        "height": np.round(rng.normal(172, 9, people))[who],
        "born in": np.array([f"town {t}" for t in range(25)])[rng.integers(0, 25, people)][who],
    }
    names = ("age", "sex") if rng.random() < 0.6 else tuple(rng.permutation(list(every))[:most].tolist())
    return {name: every[name] for name in names[: max(1, most)]}


def _visits(who: np.ndarray) -> np.ndarray:
    visit, seen = np.zeros(len(who)), dict[int, int]()
    for i, one in enumerate(who.tolist()):
        visit[i] = seen[one] = seen.get(one, 0) + 1
    return visit


def _thirds(x: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.quantile(x, [1 / 3, 2 / 3]), x)


def ordinary(seed: int) -> Table:
    """Return a table of one row per person, with strong categories that shape some columns or all.

    In some tables the wards differ a little in every column, or a category has an effect only for one sex.
    """
    rng = np.random.default_rng((93, seed))
    n = int(np.exp(rng.uniform(np.log(60), np.log(20_000))))
    width = int(rng.integers(4, 21))
    age = np.clip(rng.normal(58, 16, n), 18, 95)
    sex = rng.integers(0, 2, n)
    numbers = max(2, width - 3)
    X = rng.normal(size=(n, numbers))
    X += 0.7 * rng.normal(size=(n, 1)) * rng.normal(size=numbers)  # they are correlated
    X += np.outer((age - 58) / 16, rng.normal(0, 0.6, numbers)) + np.outer(sex, rng.normal(0, 0.5, numbers))
    X += np.outer(((age - 58) / 16) ** 2, rng.normal(0, 0.2, numbers))
    columns: dict[str, np.ndarray] = {"age": np.round(age), "sex": np.array(["f", "m"])[sex]}
    if rng.random() < 0.6:  # a few values, which shape every column
        k = int(rng.integers(2, 8))
        species = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
        X += rng.normal(0, rng.uniform(0.5, 3), (k, numbers))[species]
        columns["species"] = np.array([f"species {i}" for i in range(k)])[species]
    for name in rng.permutation(["ward", "diagnosis", "region", "device", "town"])[: rng.integers(1, 4)]:
        k = int(np.exp(rng.uniform(np.log(5), np.log(min(60, n / 4)))))
        shares = rng.dirichlet(np.full(k, 5.0)) if rng.random() < 0.5 else _falling(k)
        values = rng.choice(k, n, p=shares)
        shaped = rng.random(numbers) < rng.uniform(0.1, 0.5)
        X += (rng.normal(0, rng.uniform(0.3, 2), (k, numbers)) * shaped)[values]
        if rng.random() < 0.2:  # an intraclass correlation of 0 to 0.04 in every column, as between clinics
            size = rng.uniform(0.05, 0.2)
            X += rng.normal(0, size, (k, numbers))[values]
            age = np.clip(age + 16 * rng.normal(0, size, k)[values], 18, 95)
            columns["age"] = np.round(age)
        if rng.random() < 0.2:  # an interaction
            some = rng.random(numbers) < 0.3
            X += (rng.normal(0, rng.uniform(0.3, 1), (k, numbers)) * some)[values] * sex[:, None]
        text = rng.random() < 0.6
        columns[str(name)] = np.array([f"{name} {i}" for i in range(k)])[values] if text else values + 1.0
        if rng.random() < 0.15:  # what is known of the category
            columns[f"part of {name}"] = np.array([f"part {i}" for i in range(4)])[rng.integers(0, 4, k)][
                values
            ]
        if rng.random() < 0.1:
            columns[f"size of {name}"] = rng.integers(10, 80, k).astype(float)[values]
    for j in range(numbers):
        shape = rng.random()
        x = X[:, j]
        if shape < 0.2:
            x = np.exp(x / 2)
        elif shape < 0.4:
            x = np.round(50 + 10 * x)
        columns[f"m{j}"] = np.round(x, 3) if shape < 0.85 else np.array(["low", "mid", "high"])[_thirds(x)]
    if rng.random() < 0.3:
        columns["sid"] = rng.permutation(n) + 1000.0
    _drop_cells(rng, columns)
    return Table.from_columns(columns)


def _falling(k: int) -> np.ndarray:
    weights = 1 / np.arange(1, k + 1)
    return weights / weights.sum()


def parkinsons(seed: int = 0, *, with_id: bool = True) -> Table:
    """Return a table in the shape of Parkinson's telemonitoring: 42 people, about 140 visits each."""
    rng = np.random.default_rng((17, seed))
    rows = rng.integers(101, 169, 42)
    who = np.repeat(np.arange(42), rows)
    n = len(who)
    columns = {"subject#": who + 1.0} if with_id else {}
    columns["age"] = rng.integers(36, 86, 42).astype(float)[who]
    columns["sex"] = (rng.random(42) < 0.33).astype(float)[who]
    columns["test_time"] = np.round(rng.uniform(-4, 215, n), 3)
    for name, noise in (("motor_UPDRS", 0.2), ("total_UPDRS", 0.25)):
        columns[name] = np.round(20 + 8 * (rng.normal(size=42)[who] + noise * rng.normal(size=n)), 3)
    for j in range(16):
        noise = rng.uniform(0.7, 2.0)
        columns[f"voice{j}"] = np.round(np.exp(rng.normal(size=42)[who] + noise * rng.normal(size=n)), 5)
    return Table.from_columns(columns)
