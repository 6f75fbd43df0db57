"""The question for one exact round on rows, after the clustering was found on summary tables.

A site in raw mode that answers only in secure sums answers from groups of its rows. This is the only question
that reads the rows themselves. It opens few equations about them: one for every cluster, and the inertia as
one number. A site whose equation budget does not allow it answers from the groups, and says so.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from unpooled.protocol.declarations import Centers, Count, Sum, Value
from unpooled.protocol.messages import Question, Summable, check_squares
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.protocol.questions.sums_with_missing import AskObservedSums
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class ExactSums(Summable):
    """Sums and counts of the clusters, the inertia of all of them, and the sites that answered from rows."""

    cells = "mass"

    sums: Annotated[FloatArray, Sum("k d", rows="known")]  # of x - c
    known: Annotated[FloatArray, Count("k d")]  # rows with a value in the column
    mass: Annotated[FloatArray, Count("k")]
    inertia: Annotated[FloatArray, Sum("1", min_value=-1e-6)]
    # 1 of a site that answered from its rows, 0 of one that answered from groups
    exact: Annotated[FloatArray, Value("1", min_value=0.0)]

    def check(self, question: "AskExactSums") -> None:
        rows = np.array([float(self.mass.sum())])
        about = np.divide(self.sums**2, self.known, out=np.zeros_like(self.sums), where=self.known > 0)
        size = float((question.centers**2).sum(axis=-1).max(initial=0.0))
        check_squares(np.sqrt(about.sum() * rows), rows, self.inertia, size)

    def means(self, centers: FloatArray) -> FloatArray:
        """Return the means of the clusters (k, d); where no row has a value, the centre stays."""
        there = self.known > 0
        return centers + np.where(there, self.sums / np.where(there, self.known, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class AskExactSums(Question[ExactSums]):
    """Sums and counts of the rows by nearest centre, with the inertia as one number."""

    asks_for = "counts, means and the inertia of the rows nearest to each centre, from the rows themselves"
    reads = "raw rows"
    sums_add_up = True
    supports_missing = True

    centers: Annotated[FloatArray, Centers("k d")]

    def answer_all(self, batch: SiteBatch) -> list[ExactSums]:
        sums_of = AskObservedSums if batch.has_missing else AskClusterSums
        answers: Any = sums_of(self.centers[None]).answer_all(batch)
        exact = np.array([0.0 if batch.grouped else 1.0])
        return [
            ExactSums(
                one.sums[0],
                np.broadcast_to(one.known[0], one.sums[0].shape).copy(),
                one.mass[0],
                one.inertia[0].sum(keepdims=True),
                exact,
            )
            for one in answers
        ]
