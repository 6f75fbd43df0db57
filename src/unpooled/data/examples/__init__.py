"""Example data of the package: the penguins of the Palmer Archipelago, with one site per island.

Collected by Kristen Gorman and the Palmer Station, Antarctica LTER (Gorman, Williams, Fraser: PLoS ONE 9(3),
e90081, 2014); CC0. PENGUINS.md beside the table lists what to cite.
"""

import csv
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from unpooled.typing import FloatArray

MEASUREMENTS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")


@dataclass(frozen=True, eq=False)
class Penguins:
    """Measured penguins, one row each, with their island and species."""

    X: FloatArray  # (n, 4)
    columns: tuple[str, ...]  # names of the 4 measurements, each ending in its unit
    island: npt.NDArray[np.str_]  # (n,) the site that holds the row
    species: npt.NDArray[np.str_]  # (n,) to judge a clustering, never to make one
    dropped: int  # rows of the table left out because a measurement is missing

    def by_island(self) -> dict[str, FloatArray]:
        """Return the rows of every island by name."""
        return {str(name): self.X[self.island == name] for name in np.unique(self.island)}


def load_penguins() -> Penguins:
    """Return the shipped table without the rows that lack a measurement.

    >>> penguins = load_penguins()
    >>> penguins.X.shape, penguins.dropped, sorted(set(penguins.species.tolist()))
    ((342, 4), 2, ['Adelie', 'Chinstrap', 'Gentoo'])
    """
    text = (files(__name__) / "penguins.csv").read_text(encoding="utf-8")
    table = list(csv.DictReader(text.splitlines()))
    rows = [row for row in table if "NA" not in [row[name] for name in MEASUREMENTS]]
    return Penguins(
        X=np.array([[float(row[name]) for name in MEASUREMENTS] for row in rows]),
        columns=MEASUREMENTS,
        island=np.array([row["island"] for row in rows]),
        species=np.array([row["species"] for row in rows]),
        dropped=len(table) - len(rows),
    )
