"""The preparation of tables with outcome columns, which describe clusters and do not count in the distance.

Clusters are made without them. A question about outcomes reads the clustered columns and, beside them, the
outcomes in standard deviations; a missing outcome stays missing, whatever happens to the other columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.summary_table import SummaryTable
from unpooled.data.transforms import Category, Number, Preparation, complete
from unpooled.errors import QueryRefusedError
from unpooled.typing import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class PreparationWithOutcomes(PreparationWithMissing):
    """A preparation whose last columns are outcomes. The rows are those of the preparation without them.

    >>> from unpooled.data.table import Table
    >>> from unpooled.data.transforms import Number
    >>> age, days = Number("age", 50.0, 50.0, 10.0), Number("days", 4.0, 4.0, 2.0)
    >>> wide = PreparationWithOutcomes.beside(Preparation((age,), drop=False), (days,))
    >>> wide.apply(Table.from_columns({"age": [60.0, np.nan], "days": [np.nan, 8.0]}))
    array([[ 1., nan],
           [ 0.,  2.]])
    """

    outcomes: int  # of the columns: the last ones
    keep: bool  # missing values of the other columns stay missing

    @classmethod
    def beside(cls, preparation: Preparation, outcomes: Sequence[Number | Category]) -> Self:
        """Return a preparation with these outcome columns beside its own."""
        columns = (*preparation.columns, *outcomes)
        return cls(columns, preparation.drop, len(outcomes), preparation.keeps_missing)

    def check(self, X: object) -> None:
        if not 1 <= self.outcomes < len(self.columns):
            raise QueryRefusedError(f"{self.outcomes} outcomes of {len(self.columns)} columns")
        super().check(X)

    @property
    def keeps_all_rows(self) -> bool:
        return not self.drop and not self.keep

    @property
    def stays_missing(self) -> tuple[bool, ...]:
        clustered = len(self.columns) - self.outcomes
        return (self.keep,) * clustered + (True,) * self.outcomes

    def _takes(self, raw: FloatArray) -> BoolArray:
        clustered = raw[:, : raw.shape[1] - self.outcomes]
        if self.drop:
            return complete(clustered)
        if self.keep:
            return super()._takes(clustered)
        return np.ones(len(raw), dtype=np.bool_)

    def _from_summary(self, summary: SummaryTable) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The groups of a summary table; weights (groups, 1 + width): people, shares that have a value."""
        clustered, outcomes = self.columns[: -self.outcomes], self.columns[-self.outcomes :]
        kind = PreparationWithMissing if self.keep else Preparation
        own = kind(clustered, self.drop)
        X, weights, within = own._from_summary(summary)
        take = own._groups_used(summary)
        beside, shares, within_beside = PreparationWithMissing(outcomes, False)._observed(summary, take)
        if weights.ndim == 1:
            weights = np.column_stack([weights, np.ones(X.shape)])
        return (
            np.hstack([X, beside]),
            np.column_stack([weights, shares]),
            np.concatenate([within, within_beside]),
        )
