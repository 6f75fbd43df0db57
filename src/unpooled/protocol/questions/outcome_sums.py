"""The question about outcomes: counts and sums of columns by cluster that do not count in the distance.

Rows have the clustered columns first and the outcomes last; a missing outcome is NaN. The reply holds only
counts and sums, which a site in raw mode discloses as it does those of clustered columns.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from unpooled import kernels
from unpooled.errors import InputError
from unpooled.protocol.declarations import Centers, Count, Length, Sum
from unpooled.protocol.messages import Question, Summable, check_squares
from unpooled.protocol.questions.sums_with_missing import (
    RowsWithMissing,
    chunks_with_missing,
    disclosed_by_column,
)
from unpooled.protocol.site_batch import SiteBatch
from unpooled.protocol.suppression import zero_suppressed
from unpooled.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class OutcomeSums(Summable):
    """Per cluster: rows; by outcome, the rows that have it, and its first two moments about a position."""

    cells = "mass"

    mass: Annotated[FloatArray, Count("k")]
    known: Annotated[FloatArray, Count("k outcomes")]
    sums: Annotated[FloatArray, Sum("k outcomes", rows="known")]
    squares: Annotated[FloatArray, Sum("k outcomes", min_value=0.0, rows="known")]

    def check(self, question: "AskOutcomes") -> None:
        position = question.centers[:, question.centers.shape[1] - question.outcomes :]
        check_squares(self.sums, self.known, self.squares, position**2)


@dataclass(frozen=True, eq=False)
class AskOutcomes(Question[OutcomeSums]):
    """Counts, sums and squares of outcomes by cluster, over the rows that have them.

    The last ``outcomes`` columns do not count in the distance: there, ``centers`` hold the positions about
    which sums are taken.
    """

    reads = "rows"
    asks_for = "for each cluster: the number of values, the mean and the spread of every outcome"
    supports_missing = True

    centers: Annotated[FloatArray, Centers("k d")]
    outcomes: Annotated[int, Length()]

    def answer_all(self, batch: SiteBatch) -> list[OutcomeSums]:
        k, p = len(self.centers), self.outcomes
        replies = []
        for s in range(len(batch)):
            mass, heavy = np.zeros(k), np.zeros(k)
            known, effective, sums, squares = (np.zeros((k, p)) for _ in range(4))
            for rows in chunks_with_missing(batch, s):
                labels, w = self._labels(rows, batch.threads), rows.weights
                mass += np.bincount(labels, w, k)
                heavy += np.bincount(labels, w * w, k)
                for j, at in enumerate(range(batch.X.shape[1] - p, batch.X.shape[1])):
                    people = rows.part[:, at] * w
                    z = np.where(people > 0, rows.X[:, at] - self.centers[labels, at], 0.0)
                    for totals, values in (
                        (known, people),
                        (effective, people**2),
                        (sums, people * z),
                        (squares, people * z**2),
                    ):
                        totals[:, j] += np.bincount(labels, values, k)
            clusters = batch.disclosed(mass[None], heavy[None])
            cells = disclosed_by_column(batch, clusters, known[None], effective[None])[0]
            columns = (zero_suppressed(cells, a) for a in (known, sums, squares))
            replies.append(OutcomeSums(zero_suppressed(clusters[0], mass), *columns))
        return replies

    def lengths(self) -> dict[str, int]:
        lengths = super().lengths()
        if not 1 <= self.outcomes < lengths["d"]:
            raise InputError(f"AskOutcomes: {self.outcomes} outcomes of {lengths['d']} columns")
        return lengths

    def equations(self, *, all_rows: bool = True) -> int:
        return len(self.centers)  # of every outcome: its sums over the clusters' rows that have it

    def _labels(self, rows: RowsWithMissing, threads: int) -> IntArray:
        """The cluster of every row (n,), by the same comparison as for questions about complete rows."""
        d = rows.X.shape[1] - self.outcomes
        X, part = np.ascontiguousarray(rows.X[:, :d]), np.ascontiguousarray(rows.part[:, :d])
        centers = np.ascontiguousarray(self.centers[:, :d])
        if (part == 1).all():
            return kernels.nearest(X, centers, threads=threads).labels.astype(np.int64)
        return RowsWithMissing(X, part, rows.weights).nearest(centers, threads)
