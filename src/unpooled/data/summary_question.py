"""The question for a whole summary table, which a relay asks its members."""

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from unpooled.data.column_kinds import NUMBER
from unpooled.data.summary_table import (
    SummaryTable,
    check_plausible,
    described,
    from_csv,
    restricted,
    to_csv,
)
from unpooled.errors import InputError, QueryRefusedError, ReplyError
from unpooled.protocol.consistency import ReportedTotals
from unpooled.protocol.declarations import Count, Text
from unpooled.protocol.messages import Question, Reply
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class SummaryGroups(Reply):
    """A summary table as texts, and the number of sites whose people are in it."""

    about: Annotated[tuple[str, ...], Text("1")]  # its description, as JSON
    lines: Annotated[tuple[str, ...], Text("lines")]  # of the table as CSV
    sites: Annotated[FloatArray, Count("1")]

    @classmethod
    def from_table(cls, table: SummaryTable, sites: float = 1.0) -> "SummaryGroups":
        lines = tuple(to_csv(table).rstrip("\n").split("\n"))
        return cls((json.dumps(described(table)),), lines, np.array([float(sites)]))

    def table(self) -> SummaryTable:
        """Return the summary table; ReplyError if it is not one."""
        try:
            table = from_csv("\n".join(self.lines) + "\n", json.loads(self.about[0]))
            check_plausible(table)
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            raise ReplyError(f"the summary table cannot be used: {error}") from None
        return table

    def check(self, question: "AskSummary") -> None:
        if not 1 <= self.sites[0] == np.floor(self.sites[0]):
            raise ReplyError("the number of its sites is not a whole number")
        self.table()

    def reported_totals(self, question: "AskSummary") -> ReportedTotals | None:
        return ReportedTotals(float(self.table().people.sum()))


@dataclass(frozen=True, eq=False)
class AskSummary(Question[SummaryGroups]):
    """The site's summary table, with some columns or all."""

    reads = "groups"
    asks_for = "the summary table itself, or some columns of it"

    columns: Annotated[tuple[str, ...], Text("p")] = ()  # (): all

    def answer_all(self, batch: SiteBatch) -> list[SummaryGroups]:
        replies = []
        for s in range(len(batch)):
            table = _summary(batch.site(s) if len(batch) > 1 else batch)
            try:
                replies.append(SummaryGroups.from_table(restricted(table, self.columns)[0]))
            except InputError as error:
                raise QueryRefusedError(str(error)) from None
        return replies

    def reply_numbers(self, d: int) -> int:
        return 0  # as many as the site's own table has, whatever is asked


def _summary(batch: SiteBatch) -> SummaryTable:
    """The summary table that a site answers from; that of an array has columns 0, 1, 2 ..."""
    X = batch.X
    if isinstance(X, SummaryTable):
        return X
    if not (isinstance(X, np.ndarray) and batch.grouped and batch.weights is not None):
        raise QueryRefusedError("this site does not answer from a summary table")
    names, people = tuple(str(j) for j in range(X.shape[1])), np.asarray(batch.weights, dtype=np.float64)
    return SummaryTable(
        names=names,
        kinds=(NUMBER,) * len(names),
        categories={},
        people=people,
        known=np.repeat(people[:, None], len(names), axis=1),
        means={name: np.ascontiguousarray(X[:, j], dtype=np.float64) for j, name in enumerate(names)},
        counts={},
        within=np.full(len(names), np.nan) if batch.within is None else batch.within[0],
        values={},
        min_group_size=int(people.min()),
        named=False,
    )
