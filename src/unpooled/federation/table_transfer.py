"""Live runs over summary tables: every site transfers its table once, and the coordinator does the rest.

``TableTransfer`` stands before the federation that asks the sites. What happens in one exchange:

1. In the first exchange of the run, ask every site for the study's columns of its summary table, and keep the
   tables on disk. A site that does not answer is not part of the run.
2. Answer for all sites whose table is here, as a Simulation: that is also how a run over signed summary files
   is computed.
3. Ask those that answered without a table, because they answer from rows, and join both.

A run that is resumed reads the tables and asks nobody twice. They are removed when the run has finished.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from unpooled.data.summary_question import AskSummary, SummaryGroups
from unpooled.data.summary_table import SummaryTable, restricted
from unpooled.errors import CheckpointError, CodecError, InputError
from unpooled.federation.simulation import Simulation
from unpooled.federation.transport_federation import TransportFederation
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Asks
from unpooled.protocol.exchange import Federation, Replies, RequestId, gather
from unpooled.protocol.messages import Message, Refusal, Reply, SiteId
from unpooled.site.chain import AnswerSource
from unpooled.storage.atomic_files import write_atomically

TABLES = "tables"  # the file in the folder of a run


@dataclass(frozen=True, eq=False)
class ReceivedTables(Message):
    """The tables that came in a run, and what became of the other sites."""

    exchange: tuple[int, int]  # round and number of the exchange in which they came
    tables: dict[SiteId, SummaryGroups]
    without: tuple[SiteId, ...]  # sites that answered without a table: they are asked every question
    absent: dict[SiteId, str]  # sites that did not answer, and why: they are not part of the run

    def sizes(self) -> dict[SiteId, tuple[int, int]]:
        """Return the numbers and bytes that each site sent with its table."""
        return {site: (groups.numbers, len(codec.encode(groups))) for site, groups in self.tables.items()}


class TableTransfer(Federation):
    """A federation of which each site transfers its summary table once.

    Parameters
    ----------
    sites
        The federation that asks the sites, without secure sums.
    columns
        The columns of the study; (): all.
    path
        The file that keeps the tables until the run has finished.
    """

    def __init__(self, sites: TransportFederation, columns: tuple[str, ...], path: Path) -> None:
        self.sites, self.exact_sums = sites.sites, sites.exact_sums
        self._remote, self._columns, self._path = sites, columns, path
        self._received: ReceivedTables | None = None
        self._local: Simulation | None = None  # of the sites whose table is here

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        if self._received is None:
            self._received = self._transferred(request_id)
            self._local = _simulation(self._received, self.exact_sums)
        received = self._received
        now = (request_id.round, request_id.exchange) == received.exchange
        here, there = self._answered_here(request_id, asks), self._answered_there(request_id, asks)
        trips = int(now) + (there[0].exchanges if there else 0)
        answers = []
        for i, ask in enumerate(asks):
            joined = self._joined(ask, here[i], there[i] if there else None)
            sent = dict.fromkeys(joined.sites, (0, 0))
            sent |= there[i].sent() if there else {}
            if now and i == 0:
                sent |= {site: size for site, size in received.sizes().items() if site in sent}
            answers.append(replace(joined, exchanges=trips, sizes=sent))
        return answers

    # ------------------------------------------------------------ the tables

    def _transferred(self, request_id: RequestId) -> ReceivedTables:
        """Return the tables of the run; sites are asked that have not answered before its first round."""
        known = self._read()
        if known is None:
            known = ReceivedTables((request_id.round, request_id.exchange), {}, (), {})
        elif request_id.round or not known.absent:
            return known
        missing = tuple(site for site in self.sites if site not in {*known.tables, *known.without})
        (replies,) = self._remote.ask(request_id, (Ask("each", missing, AskSummary(self._columns)),))
        tables = known.tables | {
            site: groups for site, groups in replies.each().items() if isinstance(groups, SummaryGroups)
        }
        silent = {site: replies.refusals.get(site, "no answer") for site in missing if site not in tables}
        answered = {site for site in silent if site in self._remote.answered}
        received = replace(
            known,
            tables={site: tables[site] for site in self.sites if site in tables},
            without=tuple(site for site in self.sites if site in {*known.without, *answered}),
            absent={site: why for site, why in silent.items() if site not in answered},
        )
        write_atomically(self._path, codec.encode(received))
        return received

    def _read(self) -> ReceivedTables | None:
        if not self._path.exists():
            return None
        try:
            received: ReceivedTables = codec.decode(self._path.read_bytes(), expect=ReceivedTables)
        except CodecError as error:
            raise CheckpointError(f"{self._path}: {error}") from error
        return received

    # ------------------------------------------------------------ answers

    def _answered_here(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        """Return the answers for the sites whose table is here: single replies, if others join them."""
        assert self._received is not None
        tables, alone = self._received.tables, not self._received.without
        mine = tuple(
            replace(
                ask,
                verb=ask.verb if alone else "each",
                sites=tuple(site for site in ask.sites if site in tables),
            )
            for ask in asks
        )
        if self._local is None:
            return [Replies((), []) for _ in asks]
        return [*self._local.ask(request_id, mine)]

    def _answered_there(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        """Return the answers of the sites without a table; [] if none of them is asked."""
        assert self._received is not None
        without = set(self._received.without)
        theirs = tuple(
            replace(ask, sites=tuple(site for site in ask.sites if site in without)) for ask in asks
        )
        return self._remote.ask(request_id, theirs) if any(ask.sites for ask in theirs) else []

    def _joined(self, ask: Ask[Reply], here: Replies[Reply], there: Replies[Reply] | None) -> Replies[Reply]:
        assert self._received is not None
        absent = {site: why for site, why in self._received.absent.items() if site in ask.sites}
        if not self._received.without:
            return replace(here, refusals={**here.refusals, **absent})
        replies: dict[SiteId, Reply] = {site: Refusal(why) for site, why in absent.items()}
        for some in (here, there):
            if some is not None:
                replies |= dict(zip(some.sites, some.replies, strict=True))
                replies |= {site: Refusal(why) for site, why in some.refusals.items()}
        return gather(ask, replies, self.exact_sums)


class RehearsedTransfer(Federation):
    """Sites in this process with summary tables: each sends its table once, as in a run between machines.

    Parameters
    ----------
    simulation
        The sites.
    tables
        Their summary tables.
    columns
        The columns of the study; (): all.
    """

    rows: int

    def __init__(
        self, simulation: Simulation, tables: Mapping[SiteId, SummaryTable], columns: tuple[str, ...] = ()
    ) -> None:
        self._simulation, self._tables, self._columns = simulation, tables, columns
        self.sites, self.exact_sums = simulation.sites, simulation.exact_sums
        self.rows = simulation.rows

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        first = (request_id.round, request_id.exchange) == (0, 0)
        answers = []
        for i, replies in enumerate(self._simulation.ask(request_id, asks)):
            sizes = dict.fromkeys(replies.sites, (0, 0))
            if first and i == 0:
                sizes = {site: self._size(site) for site in replies.sites}
            answers.append(replace(replies, exchanges=int(first), sizes=sizes))
        return answers

    def _size(self, site: SiteId) -> tuple[int, int]:
        try:
            table, _ = restricted(self._tables[site], self._columns)
        except InputError:  # it has none of the columns
            return 0, 0
        numbers = sum(len(values) for _, values in table.cells())
        return numbers, len(codec.encode(SummaryGroups.from_table(table)))


def _simulation(received: ReceivedTables, exact_sums: bool) -> Simulation | None:
    """The sites whose table is here; None if there is none."""
    sources = {site: AnswerSource.from_summary(groups.table()) for site, groups in received.tables.items()}
    if not sources:
        return None
    weights, within = ({}, {})  # of arrays; a named table has its own
    for site, source in sources.items():
        if source.weights is not None and source.within is not None:
            weights[site], within[site] = source.weights, source.within
    named: Mapping[str, object] = sources if not weights else {}
    return Simulation.from_rows(
        {site: source.X for site, source in sources.items()},
        None if named else weights,
        within=None if named else within,
        exact_sums=exact_sums,
    )
