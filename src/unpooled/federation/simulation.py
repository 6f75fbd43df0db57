"""A simulation: the sites are in this process and have no rules, so one kernel call answers for all of them.

What happens in one exchange (``Simulation.ask``):

1. For each ask of the exchange:

   a. Transform the rows of all sites and join them (simulated_rows.py). They are kept until an ask has
      another transform.
   b. Divide the asked sites into blocks whose replies fit into memory together.
   c. Answer for all sites of a block with one kernel call (``Question.answer_all``).
   d. Collect the replies of the block, if the method receives each one; else add them to the sum.

2. Return the replies, or the sum, and how much every site would have sent.

The sites of a LocalFederation answer one by one, as between machines. The replies are equal in every bit,
which tests/laws/test_contract.py checks.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from unpooled.data import Table
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, ReplyError, SiteFailedError, UnpooledError
from unpooled.federation.simulated_rows import (
    JoinedRows,
    SeparateTables,
    SimulatedRows,
    simulated_rows,
)
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.dp.noise import Noise, SimulatedAccountant
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Asks
from unpooled.protocol.exchange import Aggregate, Federation, Replies, RequestId, SiteSeeds, gather, size
from unpooled.protocol.messages import Question, Reply, SiteId
from unpooled.protocol.partial_sum import ExactTotal
from unpooled.protocol.site_batch import OrderedSum, ReplyBatch, SiteBatch, SiteMemories
from unpooled.protocol.transform import Transform, reads_missing
from unpooled.typing import FloatArray, Rows

_CHECKED: set[type[Question[Reply]]] = set()  # user-defined questions whose declarations were checked
_BLOCK_NUMBERS = 1_000_000  # numbers of replies held at once while summing over sites: 8 MB


class Simulation(Federation):
    """A federation of sites in this process that have rows and no rules of their own.

    Parameters
    ----------
    rows
        The rows of all sites: ``ArrayRows`` is one array and the places where sites begin. For a mapping of
        names to rows see ``Simulation.from_rows``.
    min_cluster_size
        Smallest number of rows in a cluster that a site discloses.
    n_threads
        Threads of the kernels; by default one per core.
    exact_sums
        Compute every total exactly and round it once: the same bits in any order of the sites and any tree.

    Examples
    --------
    >>> import numpy as np
    >>> sites = Simulation.from_rows({"north": np.zeros((4, 2)), "south": np.ones((3, 2))})
    >>> sites.sites
    ('north', 'south')
    """

    rows: int

    def __init__(
        self,
        rows: SimulatedRows,
        *,
        min_cluster_size: int = 1,
        n_threads: int | None = None,
        exact_sums: bool = False,
    ) -> None:
        self.sites, self.rows, self.exact_sums = rows.names, rows.n_rows, exact_sums
        self._rows, self._minimum = rows, min_cluster_size
        self._n_threads = n_threads if n_threads is not None else os.cpu_count() or 1
        self._memory: dict[str, SiteMemories] = {}  # of the latest run
        self._asked = (rows.names, rows.names)  # the sites of the last ask, as given and sorted

    @classmethod
    def from_rows(
        cls,
        rows: Mapping[SiteId, Rows | Table | SummaryTable],
        weights: Mapping[SiteId, FloatArray] | None = None,
        *,
        within: Mapping[SiteId, FloatArray] | None = None,
        min_cluster_size: int = 1,
        n_threads: int | None = None,
        exact_sums: bool = False,
    ) -> "Simulation":
        """Return a simulation of sites from a mapping of their names to their rows.

        Parameters
        ----------
        rows
            By site: an array (n, d), a Table or a SummaryTable.
        weights
            By site: the weight of every row of its array.
        within
            By site: the variance within groups, (d,). The rows of its array are then groups of people.
        min_cluster_size, n_threads, exact_sums
            As in ``Simulation``.
        """
        return cls(
            simulated_rows(rows, weights, within),
            min_cluster_size=min_cluster_size,
            n_threads=n_threads,
            exact_sums=exact_sums,
        )

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        try:
            return [self._gather(request_id, i, ask) for i, ask in enumerate(asks)]
        except UnpooledError:
            raise
        except Exception as error:
            titles = ", ".join(ask.title for ask in asks)
            raise SiteFailedError(f"a simulated site, round {request_id.round}, {titles}: {error}") from error

    def _gather(self, request_id: RequestId, part: int, ask: Ask[Reply]) -> Replies[Reply]:
        """Answer one ask: steps 1 and 2 of the module's list."""
        question = ask.question
        if not ask.sites:
            return Replies((), [])
        if not isinstance(question, Question):
            return gather(ask, self._answer_separately(request_id, part, ask), self.exact_sums)
        sites = self._sorted(ask.sites)
        self._check_declarations(question, request_id, part, ask)
        batches = self._batches(request_id, part, ask.transform, sites, question)
        if ask.verb == "each":
            replies: list[Reply] = []
            for batch in batches:
                replies += question.answer_all(batch)
            return Replies(sites, replies)

        exact = ExactTotal(self.min_contributors) if self.exact_sums else None
        ordered, reply_size = OrderedSum[Reply](), (0, 0)
        for batch in batches:
            block = question.answer_all(batch)
            (exact or ordered).add(block)
            if reply_size == (0, 0) or not isinstance(block, ReplyBatch):  # those of a batch are all alike
                reply_size = max(reply_size, size(block[0]))
        if exact is None:
            return Aggregate(sites, sum=ordered.reply(), size=reply_size)
        unrounded = exact.partial_sum()
        return Aggregate(
            sites, sum=unrounded.reply(question.reply_type()), size=reply_size, unrounded=unrounded
        )

    def _batches(
        self,
        request_id: RequestId,
        part: int,
        transform: Transform | None,
        sites: tuple[SiteId, ...],
        question: Question[Reply],
    ) -> Iterator[SiteBatch]:
        """Yield the asked sites' rows after a transform, in blocks of sites: steps 1a and 1b."""
        rows = self._rows.untransformed() if transform is None else self._rows.transformed(transform)
        every = len(sites) == len(self.sites)
        chosen = range(len(sites)) if every else [self._index[site] for site in sites]
        memory = self._memories(request_id.run)
        block = 1 if isinstance(rows, SeparateTables) else _sites_per_block(rows, question)
        for a in range(0, len(chosen), block):
            some = chosen[a : a + block]
            own = rows.of_site(some[0]) if isinstance(rows, SeparateTables) else rows.of_sites(some)
            yield SiteBatch(
                X=own.X,
                offsets=own.offsets,
                weights=own.weights,
                seeds=SiteSeeds(request_id, part, sites[a : a + block]),
                minimum=self._minimum,
                threads=self._n_threads,
                memory=memory.for_sites(some),
                noise=_simulated_noise(question, len(some)),
                grouped=self._rows.grouped,
                within=own.within,
                has_missing=reads_missing(transform, question),
            )

    def _answer_separately(self, request_id: RequestId, part: int, ask: Ask[Reply]) -> dict[SiteId, Reply]:
        """Return the replies to an ask with a question of its own for every site."""
        replies: dict[SiteId, Reply] = {}
        for site in ask.sites:
            question = ask.question_for(site)
            (batch,) = self._batches(request_id, part, ask.transform, (site,), question)
            replies[site] = question.answer(batch)
        return replies

    def _check_declarations(
        self, question: Question[Reply], request_id: RequestId, part: int, ask: Ask[Reply]
    ) -> None:
        """Check the declarations of a new class of user-defined question against one site's reply."""
        kind = type(question)
        if kind in _CHECKED or kind.__module__.startswith("unpooled."):
            return
        name, missing = codec.name_of(kind), question.undeclared()
        if missing:
            raise InputError(f"{name} does not declare {missing}; a real site would refuse it")
        (batch,) = self._batches(request_id, part, ask.transform, ask.sites[:1], question)
        try:
            question.check_reply(question.answer(replace(batch, memory=({},))))
        except ReplyError as error:
            raise InputError(f"the reply of {name} is not what its fields declare: {error}") from error
        _CHECKED.add(kind)

    def _sorted(self, sites: tuple[SiteId, ...]) -> tuple[SiteId, ...]:
        if sites is not self._asked[0]:  # a run asks the same sites over and over
            self._asked = sites, tuple(sorted(sites))
        return self._asked[1]

    @cached_property
    def _index(self) -> dict[SiteId, int]:
        return {name: i for i, name in enumerate(self.sites)}

    def _memories(self, run: str) -> SiteMemories:
        if run not in self._memory:
            self._memory = {run: SiteMemories({}, range(len(self.sites)))}
        return self._memory[run]


def _sites_per_block(rows: JoinedRows, question: Question[Reply]) -> int:
    return max(1, _BLOCK_NUMBERS // max(1, question.reply_numbers(rows.columns)))


def _simulated_noise(question: Question[Reply], sites: int) -> tuple[Noise, ...]:
    """Return the noise that each of the sites adds to its reply; empty for a question without noise."""
    prices = [question.privacy_cost] * sites if isinstance(question, PrivateQuestion) else []
    return SimulatedAccountant().spend(prices, [1.0] * len(prices)) if prices else ()
