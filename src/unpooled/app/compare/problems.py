"""The data of a comparison: your own files, a folder of data sets, or a suite that every installation has.

A problem has prepared rows, the number of clusters, the site of each row, and the true labels if they are
known. Labels judge a clustering and are never clustered.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.data import PreparationOptions
from unpooled.data import partitions as partition
from unpooled.data.examples import load_penguins, synthetic
from unpooled.data.examples.images import read_images
from unpooled.data.readers import Reading, is_summary_file, read_sites
from unpooled.data.schema_agreement import agree_schema
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.federation.recipient import read_summaries
from unpooled.protocol.exchange import run_protocol
from unpooled.typing import FloatArray, IntArray

SITES = 10  # over which a data set without sites is divided


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to cluster, and their sites."""

    name: str
    X: FloatArray  # (n, d) prepared
    k: int
    y: IntArray | None = None  # (n,) true labels
    site: npt.NDArray[np.str_] | None = None  # (n,) the site that holds the row; None: not divided yet
    people: FloatArray | None = None  # (n,) of each group, if the rows are those of summary files
    within: dict[str, FloatArray] | None = None  # (d,) by site, the variance within these groups

    def __post_init__(self) -> None:
        if not 1 <= self.k <= len(self.X):
            raise InputError(
                f"{self.name}: k must be from 1 to {len(self.X)}, the number of its rows. It is {self.k}."
            )

    def sites(self) -> dict[str, FloatArray]:
        """Return the rows of every site by name."""
        if self.site is None:
            raise InputError(f"{self.name}: the rows are not divided over sites. Divide them with split_of.")
        return {str(name): self.X[self.site == name] for name in np.unique(self.site)}


# ---------------------------------------------------------------- own files


def from_files(
    files: Sequence[Path],
    k: int,
    *,
    reading: Reading | None = None,
    preparation_options: PreparationOptions | None = None,
    label: str = "",
) -> Problem:
    """Return the rows of files, prepared as ``fit`` prepares them.

    Every file is a site, or every value of the reading's site column. ``label`` names a column with true
    labels, which is not clustered.
    """
    reading, preparation_options = reading or Reading(), preparation_options or PreparationOptions()
    if any(map(is_summary_file, files)):
        return _from_summary_files(files, k, reading, preparation_options, label)
    if preparation_options.missing in ("drop", "keep"):
        raise InputError("A comparison needs every cell of every row. Set missing to fill or refuse.")
    preparation_options = (
        replace(preparation_options, missing="fill")
        if preparation_options.missing == "auto"
        else preparation_options
    )
    without = replace(reading, exclude=(*reading.exclude, label)) if label else reading
    tables = read_sites(list(files), without)
    agreed = run_protocol(
        agree_schema(tuple(sorted(tables)), preparation_options), Simulation.from_rows(tables)
    ).preparation
    names = sorted(tables)
    X = np.concatenate([np.asarray(agreed.apply(tables[name]), dtype=np.float64) for name in names])
    site = np.repeat(np.array(names, dtype=np.str_), [len(tables[name]) for name in names])
    y = _labels(files, reading, label, names) if label else None
    return Problem(", ".join(path.stem for path in files), X, k, y, site)


def _from_summary_files(
    files: Sequence[Path], k: int, reading: Reading, preparation_options: PreparationOptions, label: str
) -> Problem:
    """The groups of signed summary files, prepared as ``fit`` prepares them."""
    if not all(map(is_summary_file, files)):
        raise InputError("summary files and other files do not go together. Compare one kind of them.")
    if label or reading != Reading():
        raise InputError("summary files do not go with --label, --site-column and options that read files")
    tables = {file.header.sender: table for file, table in read_summaries(files)}
    agreed = run_protocol(
        agree_schema(tuple(sorted(tables)), preparation_options), Simulation.from_rows(tables)
    ).preparation
    parts = {name: agreed.apply_weighted(tables[name], None, None) for name in sorted(tables)}
    names = [name for name, (X, _, _) in parts.items() for _ in range(len(X))]
    return Problem(
        ", ".join(path.stem for path in files),
        np.concatenate([np.asarray(X, dtype=np.float64) for X, _, _ in parts.values()]),
        k,
        None,
        np.array(names, dtype=np.str_),
        np.concatenate([np.asarray(people) for _, people, _ in parts.values()]),
        {name: np.asarray(within) for name, (_, _, within) in parts.items()},
    )


def _labels(files: Sequence[Path], reading: Reading, label: str, names: list[str]) -> IntArray:
    only = replace(reading, columns=(label,), exclude=(), categorical=(label,))
    tables = read_sites(list(files), only)
    labels = [
        categories[int(code)] if np.isfinite(code) else ""
        for table in (tables[name] for name in names)
        for categories in [table.categories[label]]
        for code in np.asarray(table.values[:, table.index(label)], dtype=float)
    ]
    return partition.natural_id(labels)


TABLES = (".csv", ".tsv", ".csv.gz", ".csv.zst", ".parquet", ".pq", ".npy", ".npz")


def from_folder(
    folder: Path, *, k: int | None = None, reading: Reading | None = None, label: str = ""
) -> tuple[Problem, ...]:
    """Return every table in a folder as a problem of its own, in the order of their names.

    The reading's site column divides a table over sites; without one it is not divided yet. Without ``k`` it
    has as many clusters as labels.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder. Check the path.")
    files = sorted(f for f in folder.iterdir() if f.is_file() and f.name.lower().endswith(TABLES))
    if not files:
        raise InputError(f"{folder}: no file is a table. Add files that end in {', '.join(TABLES)}.")
    if k is None and not label:
        raise InputError(
            f"{folder}: the number of clusters is not known. Give -k, or a column of labels with --label."
        )
    reading = reading or Reading()
    found = []
    for file in files:
        problem = from_files([file], k if k is not None else 1, reading=reading, label=label)
        problem = replace(problem, site=problem.site if reading.site_column else None)
        found.append(problem if k is not None else replace(problem, k=len(np.unique(_labelled(problem)))))
    return tuple(found)


# ---------------------------------------------------------------- splits

Split = Callable[[Problem, int, float, Any], IntArray]


def _labelled(problem: Problem) -> IntArray:
    if problem.y is None:
        raise InputError(
            f"{problem.name}: this split needs labels, and there are none. Name their column with --label."
        )
    return problem.y


SPLITS: dict[str, tuple[float, Split]] = {  # name -> (default parameter, function)
    "iid": (0.0, lambda p, s, a, seed: partition.iid(len(p.X), s, seed=seed)),
    "dirichlet": (0.3, lambda p, s, a, seed: partition.dirichlet(_labelled(p), s, a, min_rows=2, seed=seed)),
    "power-law": (1.5, lambda p, s, a, seed: partition.power_law(len(p.X), s, a, min_rows=2, seed=seed)),
    "by-kmeans": (0.0, lambda p, s, a, seed: partition.by_kmeans(p.X, s, seed=seed)),
    "half-iid": (0.0, lambda p, s, a, seed: partition.half_iid(p.X, s, seed=seed)),
    "shards": (2.0, lambda p, s, a, seed: partition.shards(_labelled(p), s, int(a), seed=seed)),
    "labels": (2.0, lambda p, s, a, seed: partition.pathological(_labelled(p), s, int(a), seed=seed)),
}


def split_of(problem: Problem, split: str, sites: int = SITES, seed: int = 0) -> Problem:
    """Return the problem divided over sites by a split: "iid", or with a parameter "dirichlet:0.3".

    >>> drawn = Problem("blob", np.random.default_rng(0).standard_normal((40, 2)), 2)
    >>> {name: len(rows) for name, rows in split_of(drawn, "power-law:2", sites=3).sites().items()}
    {'site-0': 27, 'site-1': 8, 'site-2': 5}
    """
    name, _, number = split.partition(":")
    if name not in SPLITS:
        raise InputError(f"There is no split {name!r}. Use one of {', '.join(SPLITS)}.")
    default, function = SPLITS[name]
    try:
        parameter = float(number) if number else default
    except ValueError:
        raise InputError(
            f"--split {split}: {number!r} is not a number. Write, for example, dirichlet:0.3."
        ) from None
    site = function(problem, sites, parameter, seed)
    width = len(str(sites - 1))
    return replace(problem, site=np.array([f"site-{s:0{width}d}" for s in site.tolist()], dtype=np.str_))


# ---------------------------------------------------------------- suites


def standardised(X: npt.ArrayLike) -> FloatArray:
    """Return the columns with mean 0 and standard deviation 1, without constant columns."""
    rows = np.asarray(X, dtype=np.float64)
    spread = rows.std(axis=0)
    kept = rows[:, spread > 0]
    scaled: FloatArray = (kept - kept.mean(axis=0)) / spread[spread > 0]
    return scaled


def _shapes(data: Path | None, seed: int) -> Iterable[Problem]:
    """Generated data: clusters that k-means finds easily, and clusters that it cannot find at all."""
    from sklearn.datasets import make_blobs, make_circles, make_moons

    rng = np.random.default_rng([seed, 1])
    state = int(rng.integers(2**31))
    X, y = make_blobs(600, centers=4, random_state=state)
    yield Problem("blobs", X, 4, y)
    stretch = np.array([[0.6, -0.6], [-0.4, 0.8]])
    yield Problem("stretched", X @ stretch, 4, y)
    X, y = make_blobs([400, 100, 40], centers=None, cluster_std=[2.0, 1.0, 0.5], random_state=state)
    yield Problem("unequal", X, 3, y)
    X, y = make_moons(400, noise=0.08, random_state=state)
    yield Problem("moons", X, 2, y)
    X, y = make_circles(400, noise=0.05, factor=0.5, random_state=state)
    yield Problem("rings", X, 2, y)
    grid = synthetic.garst(1.0, seed=rng)
    yield Problem("grid", grid.X, 16, grid.y)


_NUMBERS = ("age", "trestbps", "chol", "thalach")  # of the heart disease data


def _heart() -> Problem:
    """Patients without missing numbers, by hospital; cholesterol 0 is missing. The label is the diagnosis."""
    import csv
    from importlib.resources import files

    shipped = files("unpooled.data.examples") / "heart_disease.csv"
    rows = list(csv.DictReader(shipped.read_text(encoding="utf-8").splitlines()))
    known = [row for row in rows if all(row[name] for name in _NUMBERS) and float(row["chol"]) > 0]
    X = np.array([[float(row[name]) for name in _NUMBERS] for row in known])
    y = np.array([int(float(row["num"]) > 0) for row in known], dtype=np.int64)
    return Problem(
        "heart disease", standardised(X), 2, y, np.array([row["site"] for row in known], dtype=np.str_)
    )


def _tabular(data: Path | None, seed: int) -> Iterable[Problem]:
    """scikit-learn's tables, the penguins by their islands and heart disease by hospitals, standardised."""
    from sklearn.datasets import load_breast_cancer, load_iris, load_wine

    for name, load, k in (("iris", load_iris, 3), ("wine", load_wine, 3), ("cancer", load_breast_cancer, 2)):
        X, y = load(return_X_y=True)
        yield Problem(name, standardised(X), k, y.astype(np.int64))
    birds = load_penguins()
    yield Problem("penguins", standardised(birds.X), 3, partition.natural_id(birds.species), birds.island)
    yield _heart()


def _images(data: Path | None, seed: int) -> Iterable[Problem]:
    """scikit-learn's digits; MNIST and FEMNIST if ``data`` has them: 2,000 images of each."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    yield Problem("digits", X / 16.0, 10, y.astype(np.int64))
    for path in sorted(data.glob("*mnist*.npz")) if data is not None else ():
        images = read_images(path)
        some = np.sort(np.random.default_rng([seed, 2]).permutation(len(images.y))[:2000])
        labels = partition.natural_id(images.y[some])
        yield Problem(path.stem, images.rows(np.float64)[some], 20, labels)


def _private(data: Path | None, seed: int) -> Iterable[Problem]:
    """Sets large enough for differential privacy: the price of a formal guarantee."""
    from sklearn.datasets import make_blobs

    rng = np.random.default_rng([seed, 3])
    for n, d, k in ((20_000, 2, 5), (20_000, 5, 5)):
        X, y = make_blobs(n, d, centers=k, cluster_std=0.8, random_state=int(rng.integers(2**31)))
        yield Problem(f"{n} rows, {d} columns", X, k, y)


def _debian(data: Path | None, seed: int) -> Iterable[Problem]:
    """Sets of Debian's R packages, if they are installed."""
    from unpooled.app.compare.r_sets import debian_suite

    return debian_suite(data, seed)


SUITES: dict[str, Callable[[Path | None, int], Iterable[Problem]]] = {
    "shapes": _shapes,
    "tabular": _tabular,
    "images": _images,
    "private": _private,
    "debian": _debian,
}
WITH_DATA = {"images": "files named *mnist*.npz", "debian": "unpacked R packages"}  # read from a data folder


def suite(name: str, *, data: Path | None = None, seed: int = 0) -> tuple[Problem, ...]:
    """Return the problems of a suite; ``data`` is a folder with additional data sets."""
    if name not in SUITES:
        raise InputError(f"There is no suite {name!r}. Use {', '.join(SUITES)}, or a folder of tables.")
    if data is not None and not data.is_dir():
        raise InputError(f"{data}: there is no such folder. Check the path.")
    if data is not None and name not in WITH_DATA:
        readers = " and ".join(f"{other} ({what})" for other, what in WITH_DATA.items())
        raise InputError(f"The suite {name} reads no data folder. Only these suites do: {readers}.")
    if data is not None and name == "images" and not any(data.glob("*mnist*.npz")):
        raise InputError(
            f"{data}: no file is named *mnist*.npz. The suite images reads files with such names."
        )
    return tuple(SUITES[name](data, seed))
