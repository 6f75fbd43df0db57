"""The view that keeps missing cells missing: clusters are then made from the cells that there are."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.core.arrays import BoolArray, FloatArray
from unpooled.data.copy import Copy
from unpooled.data.declared import DeclaredTable
from unpooled.data.table import Table
from unpooled.data.views import Number, Preparation, Shaped
from unpooled.errors import BadInput, Refused


@dataclass(frozen=True, eq=False)
class Observed(Preparation):
    """A preparation that leaves missing cells missing: NaN. Only rows without any value are left out.

    >>> from unpooled.data.views import Category
    >>> age, sex = Number("age", 50.0, 50.0, 10.0), Category("sex", ("f", "m"), False, 0, 0.5)
    >>> Observed((age, sex), drop=False).apply(Table.of({"sex": ["m", None], "age": [np.nan, 60.0]}))
    array([[nan,  0.,  2.],
           [ 1., nan, nan]])
    """

    keeps_holes = True

    def check(self, X: Any) -> None:
        if isinstance(X, DeclaredTable):
            raise Refused("a site that answers with noise fills missing values, or drops their rows")
        super().check(X)

    def kept(self, table: Table) -> BoolArray:
        return self.complete(table)

    def _takes(self, raw: FloatArray) -> BoolArray:
        there: BoolArray = ~np.isnan(raw)
        return np.asarray(there.any(axis=1))

    def _of_copy(self, copy: Copy) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The groups of a copy: their means, NaN where the copy shows none; weights (groups, 1 + width).

        The first weight is the number of persons, the others are the shares of them who have a value.
        """
        known = np.stack([copy.known_of(column.name) for column in self.columns], axis=1)
        take = np.flatnonzero(known.any(axis=1))
        known, persons = known[take], copy.persons[take]
        X, shares, within = (
            np.zeros((len(take), self.width)),
            np.zeros((len(take), self.width)),
            np.zeros(self.width),
        )
        at = 0
        for j, column in enumerate(self.columns):
            part = X[:, at : at + column.width]
            shares[:, at : at + column.width] = (known[:, j] / persons)[:, None]
            if isinstance(column, Shaped):
                raise BadInput(f"column {column.name}: the means of a copy have no {column.form}")
            if isinstance(column, Number):
                means = copy.means[column.name][take] if column.name in copy.means else np.zeros(len(take))
                part[:, 0] = (means - column.shift) / column.scale
                within[at] = copy.within_of(column.name) / column.scale**2
            else:
                part[:] = column.shares(copy, take, np.ones(len(take)))
                inside = known[:, j] @ (part * (1 / column.scale - part))  # p (1 - p) of every level
                within[at : at + column.width] = inside / max(float(known[:, j].sum()), 1.0)
            part[known[:, j] == 0] = np.nan
            at += column.width
        return X, np.column_stack([persons, shares]), within
