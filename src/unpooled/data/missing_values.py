"""Missing values: whether they are filled, kept or dropped, and by what they are filled.

They are filled (imputed) with one value per column, on which all sites agree:

- a number with the centre of its scale: the mean, or with ``--scale robust`` the median (column_scales.py);
- a number with two values, and a category, with the more frequent one (``more_frequent``).

``Preparation`` (transforms.py) writes these values into the rows, or drops incomplete rows.
``PreparationWithMissing`` keeps them missing: clusters are then made from the observed values.
"""

from dataclasses import dataclass

import numpy as np

from unpooled.data.bounded_table import BoundedTable
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.data.transforms import Number, Preparation, Shaped
from unpooled.errors import InputError, QueryRefusedError
from unpooled.typing import BoolArray, FloatArray, IntArray

MISSING = ("auto", "keep", "fill", "drop", "refuse")  # the option --missing
MANY = 0.05  # share of missing cells above which "auto" keeps them missing, up to which it fills them


def decided(missing: str, share: float) -> str:
    """Return the option, with "auto" decided by the share of cells that are missing.

    >>> [decided("auto", share) for share in (0.01, 0.2)], decided("drop", 0.2)
    (['fill', 'keep'], 'drop')
    """
    return ("keep" if share > MANY else "fill") if missing == "auto" else missing


def more_frequent(rows: FloatArray) -> int:
    """Return the place of the value that most rows have: a missing value is filled with it.

    >>> more_frequent(np.array([3.0, 8.0, 1.0]))
    1
    """
    return int(np.argmax(rows))


@dataclass(frozen=True, eq=False)
class PreparationWithMissing(Preparation):
    """A preparation that leaves missing cells missing: NaN. Only rows without any value are left out.

    >>> from unpooled.data.transforms import Category
    >>> age, sex = Number("age", 50.0, 50.0, 10.0), Category("sex", ("f", "m"), False, 0, 0.5)
    >>> table = Table.from_columns({"sex": ["m", None], "age": [np.nan, 60.0]})
    >>> PreparationWithMissing((age, sex), drop=False).apply(table)
    array([[nan,  0.,  2.],
           [ 1., nan, nan]])
    """

    keeps_missing = True

    @property
    def keeps_all_rows(self) -> bool:
        return False

    def check(self, X: object) -> None:
        if isinstance(X, BoundedTable):
            raise QueryRefusedError(
                "a site with differential privacy fills missing values, or drops their rows"
            )
        super().check(X)

    def rows_used(self, table: Table) -> BoolArray:
        return self.complete(table)

    def _takes(self, raw: FloatArray) -> BoolArray:
        there: BoolArray = ~np.isnan(raw)
        return np.asarray(there.any(axis=1))

    def _groups_used(self, summary: SummaryTable) -> IntArray:
        """The groups of a summary table of which people have a value."""
        known = [summary.people_with_value(column.name) for column in self.columns]
        return np.flatnonzero(np.stack(known, axis=1).any(axis=1))

    def _from_summary(self, summary: SummaryTable) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The groups of a summary table: their means, NaN if suppressed; weights (groups, 1 + width).

        The first weight is the number of people, the others are the shares of people who have a value.
        """
        take = self._groups_used(summary)
        X, shares, within = self._observed(summary, take)
        return X, np.column_stack([summary.people[take], shares]), within

    def _observed(self, summary: SummaryTable, take: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The means of some groups, the shares of their people who have a value, the variance within them."""
        X, shares, within = (
            np.zeros((len(take), self.width)),
            np.zeros((len(take), self.width)),
            np.zeros(self.width),
        )
        at = 0
        for column in self.columns:
            known = summary.people_with_value(column.name)[take]
            part = X[:, at : at + column.width]
            shares[:, at : at + column.width] = (known / summary.people[take])[:, None]
            if isinstance(column, Shaped):
                raise InputError(f"column {column.name}: the means of a summary table have no {column.form}")
            if isinstance(column, Number):
                means = (
                    summary.means[column.name][take] if column.name in summary.means else np.zeros(len(take))
                )
                part[:, 0] = (means - column.shift) / column.scale
                within[at] = summary.within_of(column.name) / column.scale**2
            else:
                part[:] = column.shares(summary, take, np.ones(len(take)))
                inside = known @ (part * (1 / column.scale - part))  # p (1 - p) of every category
                within[at : at + column.width] = inside / max(float(known.sum()), 1.0)
            part[known == 0] = np.nan
            at += column.width
        return X, shares, within
