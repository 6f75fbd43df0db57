"""The suite ``debian``: data sets of Debian's R packages, if they are installed, read without R."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unpooled.app.compare.problems import Problem, standardised
from unpooled.app.compare.r_data import LIBRARIES, read_frame
from unpooled.data import partitions as partition
from unpooled.errors import InputError


class RDataset(NamedTuple):
    """A data frame, its number of clusters, and its columns with the true labels."""

    package: str
    name: str
    k: int
    labels: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


SETS = (
    RDataset("cluster", "ruspini", 4),
    RDataset("cluster", "xclara", 3),
    RDataset("MASS", "crabs", 4, ("sp", "sex"), ("index",)),
    RDataset("mclust", "banknote", 2, ("Status",)),
    RDataset("mclust", "diabetes", 3, ("class",)),
    RDataset("mclust", "thyroid", 3, ("Diagnosis",)),
    RDataset("mlbench", "Glass", 6, ("Type",)),
    RDataset("mlbench", "PimaIndiansDiabetes", 2, ("diabetes",)),
    RDataset("mlbench", "Sonar", 2, ("Class",)),
    RDataset("mlbench", "Vehicle", 4, ("Class",)),
)


def debian_suite(data: Path | None, seed: int = 0) -> Iterable[Problem]:
    """Return the standardised sets of the packages that are installed, or unpacked under ``data``."""
    found = [problem for one in SETS if (problem := _problem(one, _libraries(data))) is not None]
    if not found:
        where = "installed" if data is None else f"in {data}"
        raise InputError(
            f"None of the R packages {', '.join(dict.fromkeys(s.package for s in SETS))} is {where}. Run "
            f"apt install {' '.join(missing_packages(data))}, or unpack them with dpkg -x into a folder for "
            "--data."
        )
    return found


def missing_packages(data: Path | None) -> list[str]:
    """Return Debian's names of the packages that are not installed."""
    there = [any((folder / s.package / "data").is_dir() for folder in _libraries(data)) for s in SETS]
    gone = [s.package for s, here in zip(SETS, there, strict=True) if not here]
    return [f"r-cran-{name.lower()}" for name in dict.fromkeys(gone)]


def _libraries(data: Path | None) -> tuple[Path, ...]:
    if data is None:
        return LIBRARIES
    return (data, *(data / library.relative_to("/") for library in LIBRARIES))


def _problem(one: RDataset, libraries: tuple[Path, ...]) -> Problem | None:
    frame = read_frame(one.package, one.name, libraries)
    if frame is None:
        return None
    numbers = [c for c in frame if c not in (*one.labels, *one.left_out)]
    try:
        X = np.column_stack([np.asarray(frame[c], dtype=np.float64) for c in numbers])
        labels = [" ".join(map(str, row)) for row in zip(*(frame[c] for c in one.labels), strict=True)]
    except (KeyError, ValueError, TypeError):
        raise InputError(
            f"{one.package}, {one.name}: the columns are not the expected ones, but {', '.join(frame)}. "
            "Install another version of the R package."
        ) from None
    return Problem(one.name, standardised(X), one.k, partition.natural_id(labels) if labels else None)


def any_installed() -> bool:
    """Return True if any of the packages is installed."""
    return len(missing_packages(None)) < len({s.package for s in SETS})
