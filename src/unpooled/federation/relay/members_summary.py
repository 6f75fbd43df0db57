"""The steps of a relay that answers from one summary of its members' groups (``exact = false``).

The relay asks every member for its summary table once in a study, combines their groups, three or more to a
row, and answers every question from the result, as a site does. It keeps the table for the whole study. The
tables of all studies have one record of rows, so that no two of them differ by single groups
(privacy/microaggregation/row_record.py).
"""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.summary_question import AskSummary, SummaryGroups
from unpooled.errors import LedgerError, QueryRefusedError, SchemaMismatchError, TooFewPeopleError
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.relay.relay_steps import TooFewMembersError, silent_members
from unpooled.privacy.microaggregation.combine_summaries import combine_summaries
from unpooled.privacy.microaggregation.row_record import RowRecord
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import Federation, RequestId, Response, format_silent_sites
from unpooled.protocol.messages import Reply, SiteId
from unpooled.site.chain import AnswerSource, AskedPart, Exchange, Next, Step
from unpooled.site.chain_steps import AnswerStep, TransformStep
from unpooled.site.ledger import Ledger
from unpooled.storage.atomic_files import write_atomically

FOLDER = "members"  # of a relay's folder: the tables that it answers from, one for each study
RECORD = "rows.json"  # in it: the groups behind the rows of all tables


class MembersSummary:
    """The table that a relay answers from; it asks its members when the first question comes.

    Parameters
    ----------
    relay
        The name of the relay.
    folder
        Where the table is kept; None: in memory.
    study
        The digest of the approved study, which has a table of its own.
    columns
        Those of the study; (): all.
    """

    def __init__(
        self,
        relay: SiteId,
        rules: RelayRules,
        downstream: Federation,
        ledger: Ledger,
        folder: Path | None,
        study: str,
        columns: tuple[str, ...],
    ) -> None:
        self._ledger, self._record = ledger, None if folder is None else folder / FOLDER / RECORD
        self._name, self._rules, self._downstream, self._columns = relay, rules, downstream, columns
        self._path = None if folder is None else folder / FOLDER / f"{study[:32] or 'table'}.bin"
        self._groups: SummaryGroups | None = None
        self.rows: tuple[int, str] | None = None  # number and digest of all rows, if the table is new

    def read(self, exchange: Exchange) -> SummaryGroups:
        """Return the table, with the number of sites in it; TooFewMembersError if too few members answer."""
        if self._groups is None and self._path is not None and self._path.exists():
            self._groups = codec.decode(self._path.read_bytes(), expect=SummaryGroups)
        if self._groups is None:
            groups = self._combined(exchange)
            if self._path is not None:  # before anything of it leaves
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._path, codec.encode(groups))
            self._groups = groups
        return self._groups

    @property
    def digest(self) -> str:
        """The digest of the table; "" before there is one."""
        return "" if self._groups is None else sha256(codec.encode(self._groups)).hexdigest()

    @property
    def sites(self) -> float:
        return 0.0 if self._groups is None else float(self._groups.sites[0])

    def _combined(self, exchange: Exchange) -> SummaryGroups:
        members, rules = self._downstream.sites, self._rules
        question: AskSummary = AskSummary(self._columns)
        (gathered,) = self._downstream.ask(exchange.request.request_id, (Ask("each", members, question),))
        silent = silent_members(members, gathered)
        exchange.member_failures = format_silent_sites(silent) if silent else ""
        replies: dict[SiteId, Any] = dict(gathered.each())
        needed = max(1, int(np.ceil(rules.quorum * len(members))))
        if len(replies) < needed:
            raise TooFewMembersError(
                f"{len(replies)} of {len(members)} members sent a summary table, {needed} needed"
            )
        sites = sum(float(reply.sites[0]) for reply in replies.values())
        if sites < rules.min_sites:
            raise TooFewMembersError(
                f"{sites:g} of its sites answered, and {self._name} answers for {rules.min_sites} or more"
            )
        record = self._rows()
        tables = {name: reply.table() for name, reply in sorted(replies.items())}
        try:
            table = combine_summaries(tables, rules.columns, record)
        except SchemaMismatchError as error:
            exchange.member_failures = f"{error}; {error.table}"
            raise QueryRefusedError(str(error)) from error
        except TooFewPeopleError as error:
            raise QueryRefusedError(f"{self._name}: {error}") from error
        if table.people.sum() < rules.min_people:
            raise QueryRefusedError(
                f"{self._name} answers for {rules.min_people} people or more, and has fewer"
            )
        share = float(table.people.sum()) / sum(float(one.people.sum()) for one in tables.values())
        if share < rules.quorum:
            raise QueryRefusedError(
                f"{share:.0%} of its people can be described without disclosing single groups next to its "
                f"earlier tables, and its rules require {rules.quorum:.0%}"
            )
        if self._record is not None:  # before anything of it leaves
            self._record.parent.mkdir(parents=True, exist_ok=True)
            record.write(self._record)
        self.rows = record.mark()
        return SummaryGroups.from_table(table, sites)

    def _rows(self) -> RowRecord:
        """The record of rows, which must have all that the ledger knows."""
        record = RowRecord() if self._record is None else RowRecord.read(self._record)
        count, digest = self._ledger.relay_rows()
        if self._record is not None and count and record.mark(count) != (count, digest):
            raise LedgerError(
                f"{self._record}: the record of the rows that this relay disclosed is not the latest one. "
                "Restore it, because other rows of the same groups would disclose single groups."
            )
        return record


class MembersTransformStep(Step):
    """Give every question the rows of the relay's table, transformed as it asks."""

    name = "transform"

    def __init__(self, summary: MembersSummary) -> None:
        self._summary = summary
        self._transform: TransformStep | None = None

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        if not exchange.parts:
            return call_next(exchange)
        if self._transform is None:
            source = AnswerSource.from_summary(self._summary.read(exchange).table())
            self._transform = TransformStep(source.visible, grouped=True)
        return self._transform(exchange, call_next)


class MembersAnswerStep(AnswerStep):
    """Answer from the relay's table; a relay above learns how many sites are in it."""

    def __init__(self, relay: SiteId, summary: MembersSummary) -> None:
        super().__init__(relay, threads=1, checked=True)
        self._summary = summary

    def _reply(self, request_id: RequestId, asked: AskedPart) -> Reply:
        reply = super()._reply(request_id, asked)
        return (
            replace(reply, sites=np.array([self._summary.sites]))
            if isinstance(reply, SummaryGroups)
            else reply
        )


class MembersTableStep(Step):
    """Record the table of a run with its first release; refuse to answer the run from another one."""

    name = "ledger"

    def __init__(self, ledger: Ledger, summary: MembersSummary) -> None:
        self._ledger, self._summary = ledger, summary

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        if exchange.parts:
            if self._summary.rows is not None:
                self._ledger.keep_relay_rows(*self._summary.rows)
            run, now = exchange.request.request_id.run, json.dumps(self._summary.digest)
            first = self._ledger.sum_members(run)
            if first is None:
                self._ledger.keep_sum_members(run, now)
            elif first != now:
                raise QueryRefusedError("this run began from another summary of its members")
        return call_next(exchange)
