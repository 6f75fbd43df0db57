"""The question for a whole summary table: a coordinator asks it once in a run, and a relay its members."""

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from unpooled.data.column_kinds import NUMBER
from unpooled.data.summary_table import SummaryTable, from_body, restricted, to_body
from unpooled.errors import InputError, QueryRefusedError, ReplyError
from unpooled.protocol.consistency import ReportedTotals
from unpooled.protocol.declarations import Text, Value
from unpooled.protocol.messages import Question, Reply
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray

MAX_CHARACTERS = 32_000_000  # of a table in one message; larger ones are asked questions instead


@dataclass(frozen=True, eq=False)
class SummaryGroups(Reply):
    """A summary table as texts, and the number of sites whose people are in it."""

    about: Annotated[tuple[str, ...], Text("1")]  # its description, as JSON
    lines: Annotated[tuple[str, ...], Text("lines")]  # of the table as CSV
    sites: Annotated[FloatArray, Value("1", min_value=0.0)]

    @classmethod
    def from_table(cls, table: SummaryTable, sites: float = 1.0) -> "SummaryGroups":
        about, lines = to_body(table)
        return cls((json.dumps(about),), tuple(lines), np.array([float(sites)]))

    def table(self) -> SummaryTable:
        """Return the summary table; ReplyError if it is not one."""
        try:
            about = json.loads(self.about[0])
        except ValueError:
            about = None
        try:
            return from_body(about, self.lines)
        except InputError as error:
            raise ReplyError(str(error)) from None

    @property
    def numbers(self) -> int:
        """The number of cells of the table."""
        return sum(len(values) for _, values in self.table().cells())

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
                groups = SummaryGroups.from_table(restricted(table, self.columns)[0])
            except InputError as error:
                raise QueryRefusedError(str(error)) from None
            if (characters := sum(map(len, groups.lines))) > MAX_CHARACTERS:
                raise QueryRefusedError(
                    f"the summary table has {characters:,} characters, and a message at most "
                    f"{MAX_CHARACTERS:,}"
                )
            replies.append(groups)
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
