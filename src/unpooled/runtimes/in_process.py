"""All sites in this process: for simulation, for tests, and for one machine that holds every site's file.

Each site answers by itself, or they are fused: where every site is plain, one kernel call over their stacked
rows answers for all. Both give the same bits, as tests/laws/test_contract.py checks.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.exchange import Gathered, SiteSeeds, Summed, Turn, gather, size
from unpooled.core.messages import Question, Reply, SiteId
from unpooled.core.protocol import Ask, Asks, View, has_holes
from unpooled.core.stack import Memories, Stack, Stacked, fold, rows_of_all, weights_of_all
from unpooled.core.subtotal import subtotal
from unpooled.data.copy import Copy
from unpooled.errors import BadInput, BadReply, SiteFailed, UnpooledError
from unpooled.privacy import Spending
from unpooled.privacy.dp.noise import Noise, Simulated
from unpooled.privacy.secure_sum import SecureSums, secure_sums
from unpooled.runtimes.doors import LocalCarrier, PlainSite, sites_of
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site import Site

_HELD: set[type[Any]] = set()  # classes of user-defined questions whose declarations were checked
_BLOCK_NUMBERS = 1_000_000  # numbers of replies held at once while summing over sites: 8 MB


class InProcess:
    """A federation of sites in this process; a member may be a Relay, which has a federation below it.

    >>> sites = InProcess.of({"north": np.zeros((4, 2)), "south": np.ones((3, 2))})
    >>> sites.sites
    ('north', 'south')
    """

    rows: int = 0  # of all sites, where ``of`` made them; of copies, groups

    def __init__(
        self,
        sites: Sequence[Site],
        *,
        fused: bool = True,
        threads: int | None = None,
        secure: SecureSums | None = None,
        exact_sums: bool = False,
    ) -> None:
        self.exact_sums = exact_sums
        kinds = {(site.min_cluster_size, site.grouped, type(site.rows)) for site in sites}
        if fused and secure is None and len(kinds) == 1 and all(site.plain for site in sites):
            self._fuse(
                [
                    PlainSite(s.name, s.rows, s.weights, s.within, s.grouped, s.min_cluster_size)
                    for s in sites
                ],
                threads,
            )
            return
        self._names = _checked({site.name: site.rows for site in sites}, len(sites))
        known = {site.name: site for site in sites}
        self._pool: _Pool | None = None
        self._remote: RemoteFederation | None = RemoteFederation(
            LocalCarrier({name: known[name] for name in self._names}),
            secure=secure,
            exact_sums=exact_sums,
            keys={site.name: site.key for site in sites if not site.is_federation},
            federations=[site.name for site in sites if site.is_federation],
        )

    def _fuse(self, sites: Sequence[PlainSite], threads: int | None) -> None:
        """Stack the rows of all sites, to answer for all at once; for sites without rules of their own."""
        self._names = _checked({site.name: site.rows for site in sites}, len(sites))
        cores = threads if threads is not None else os.cpu_count() or 1
        known = {site.name: site for site in sites}
        self._pool = _Pool.of([known[name] for name in self._names], cores, self.exact_sums)
        self._remote = None

    @classmethod
    def of(
        cls,
        rows: Mapping[SiteId, Any],
        weights: Mapping[SiteId, FloatArray] | None = None,
        *,
        within: Mapping[SiteId, FloatArray] | None = None,
        min_cluster_size: int = 1,
        fused: bool = True,
        threads: int | None = None,
        secure: SecureSums | bool | None = None,
        shown: tuple[str, ...] = (),
        exact_sums: bool = False,
        executor: Any = None,
    ) -> "InProcess":
        """Sites from a mapping of name to rows: arrays, tables, or copies.

        With ``within`` the rows of arrays are groups of persons, and it is the variance inside them. With
        ``secure`` they answer in secure sums only, but for the questions that ``shown`` names. With
        ``exact_sums`` every total is the exact sum, rounded once: the same bits in any order and any tree.
        With ``executor`` they are RowPartitions, which its workers hold (docs/workers.md).
        """
        if executor is not None:
            from unpooled.runtimes.workers.federation import put

            return put(cls.__new__(cls), executor, rows, min_cluster_size, threads, weights, within, secure)
        secure = None if secure is None else secure_sums(secure)
        held = [
            PlainSite(
                str(name),
                X,
                None if weights is None else weights[name],
                None if within is None else within[name],
                within is not None or isinstance(X, Copy),
                min_cluster_size,
            )
            for name, X in rows.items()
        ]
        if fused and secure is None:
            federation = cls.__new__(cls)
            federation.exact_sums = exact_sums
            federation._fuse(held, threads)
        else:
            sites, secure = sites_of(held, min_cluster_size, secure, shown)
            federation = cls(sites, fused=fused, threads=threads, secure=secure, exact_sums=exact_sums)
        federation.rows = sum(len(X) for X in rows.values())
        return federation

    @classmethod
    def stacked(
        cls,
        X: Rows,
        offsets: Any,
        weights: FloatArray | None = None,
        *,
        names: Sequence[SiteId] | None = None,
        min_cluster_size: int = 1,
        threads: int | None = None,
        exact_sums: bool = False,
    ) -> "InProcess":
        """Very many sites from one array: site s holds rows ``offsets[s]:offsets[s + 1]``.

        Nothing but its name is made for a site; by default these are numbers, "0000000" and so on.
        """
        at = np.asarray(offsets, dtype=np.int64)
        if at.ndim != 1 or len(at) < 2 or at[0] != 0 or at[-1] != len(X) or (np.diff(at) < 0).any():
            raise BadInput(f"offsets must rise from 0 to the {len(X)} rows, one for every site and the end")
        said = tuple(f"{i:07}" for i in range(len(at) - 1)) if names is None else tuple(names)
        if len(said) != len(at) - 1 or any(a >= b for a, b in pairwise(said)):
            raise BadInput(f"names must be sorted, differ, and be as many as sites: {len(at) - 1}")
        federation = cls.__new__(cls)
        federation.exact_sums, federation.rows = exact_sums, len(X)
        cores = threads if threads is not None else os.cpu_count() or 1
        federation._names, federation._remote = said, None
        rules: dict[str, Any] = {"minimum": min_cluster_size, "threads": cores, "exact": exact_sums}
        federation._pool = _Pool(said, X, at, weights, **rules)
        return federation

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return self._names

    @property
    def federations(self) -> tuple[SiteId, ...]:
        """The members that are federations."""
        return () if self._remote is None else self._remote.federations

    def members(self, turn: Turn, above: tuple[str, ...]) -> tuple[str, ...]:
        """The fingerprints of the keys of all members; sites that are fused have none."""
        return () if self._remote is None else self._remote.members(turn, above)

    @property
    def secure(self) -> bool:
        """True if every total is a secure sum."""
        return self._remote is not None and self._remote.secure

    def hide_cells(self, least: int) -> None:
        """From now on leave out of exact sums the cells that fewer than ``least`` sites have rows of."""
        if self._pool is not None:
            self._pool.least = least

    def ask(self, turn: Turn, asks: Asks) -> list[Gathered[Any]]:
        if self._pool is not None:
            try:
                return [self._pool.gather(turn, i, ask) for i, ask in enumerate(asks)]
            except UnpooledError:
                raise
            except Exception as error:
                titles = ", ".join(ask.title for ask in asks)
                raise SiteFailed(f"a fused site, round {turn.round}, {titles}: {error}") from error
        assert self._remote is not None
        return self._remote.ask(turn, asks)


def _checked(rows: Mapping[SiteId, Rows], count: int) -> tuple[SiteId, ...]:
    """The sorted names of the sites; BadInput if there are none, or equal names, or different columns."""
    if not count:
        raise BadInput("a federation needs at least one site, got 0")
    names = tuple(sorted(rows))
    if len(names) < count:
        raise BadInput(f"site names must differ: {count} sites, {len(names)} names")
    widths = {name: rows[name].shape[1] for name in names if isinstance(rows[name], np.ndarray)}
    for name, width in widths.items():
        if width != widths[first := next(iter(widths))]:
            raise BadInput(f"sites with different columns: {first} has {widths[first]}, {name} has {width}")
    return names


class _Pool:
    """The stacked rows of plain sites; one kernel call answers for all of them."""

    def __init__(
        self,
        names: tuple[SiteId, ...],
        X: Rows,
        offsets: npt.NDArray[np.int64],
        weights: FloatArray | None,
        *,
        minimum: int = 1,
        threads: int = 1,
        exact: bool = False,
        grouped: bool = False,
        within: FloatArray | None = None,
        tables: Sequence[Any] = (),
    ) -> None:
        self._names, self._X, self._offsets, self._weights = names, X, offsets, weights
        self._minimum, self._threads, self._exact, self._grouped = minimum, threads, exact, grouped
        self._tables = list(tables)  # of all sites, where they hold tables or copies
        self._own_within = within  # (S, d) of arrays of groups
        self._within = within  # under the last view
        self._latest: View | None = None  # the view of the last question
        self._viewed_rows: Rows | None = None  # the rows under that view
        self._memory: dict[str, Memories] = {}
        self._asked = (names, names)  # the sites of the last ask, as given and sorted
        self.least = 1  # sites behind a cell of a sum; those with fewer are left out

    @classmethod
    def of(cls, sites: Sequence[PlainSite], threads: int, exact: bool = False) -> "_Pool":
        """The rows of sites, stacked in their order."""
        every = [site.rows for site in sites]
        tables = [X for X in every if not isinstance(X, np.ndarray)]
        insides = [site.within for site in sites if site.within is not None]
        return cls(
            tuple(site.name for site in sites),
            every[0] if tables or len(every) == 1 else rows_of_all(every),
            np.concatenate([[0], np.cumsum([len(X) for X in every])]).astype(np.int64),
            weights_of_all([(site.weights, len(site.rows)) for site in sites]),
            minimum=sites[0].minimum,
            threads=threads,
            exact=exact,
            grouped=sites[0].grouped,
            within=np.stack(insides) if insides else None,
            tables=tables,
        )

    @cached_property
    def _index(self) -> dict[SiteId, int]:
        return {name: i for i, name in enumerate(self._names)}

    def gather(self, turn: Turn, part: int, ask: Ask[Any]) -> Gathered[Any]:
        question = ask.question
        if not isinstance(question, Question):
            return gather(ask, self._separately(turn, part, ask), self._exact)
        if ask.sites is not self._asked[0]:  # a run asks for the same ones over and over
            self._asked = ask.sites, tuple(sorted(ask.sites))
        sites = self._asked[1]
        if type(question) not in _HELD and not type(question).__module__.startswith("unpooled."):
            self._hold(question, turn, part, ask)
        answers = map(question.answer_all, self._stacks(turn, part, ask.view, sites, question))
        if ask.verb == "each":
            return Gathered(sites, [reply for block in answers for reply in block])
        sizes: set[tuple[int, int]] = set()

        def measured() -> Iterator[Any]:
            for block in answers:
                if not sizes or not isinstance(block, Stacked):  # stacked replies are all alike
                    sizes.add(size(block[0]))
                yield block

        if self._exact:
            total = subtotal(measured(), self.least)
            return Summed(sites, sum=total.reply(question.reply_type()), size=max(sizes), unrounded=total)
        return Summed(sites, sum=fold(measured()), size=max(sizes))

    def _hold(self, question: Question[Any], turn: Turn, part: int, ask: Ask[Any]) -> None:
        """Check the declarations of a new class of question against one site's reply."""
        name, missing = codec.name_of(type(question)), question.undeclared()
        if missing:
            raise BadInput(f"{name} does not declare {missing}; a real site would refuse it")
        (stack,) = self._stacks(turn, part, ask.view, ask.sites[:1], question)
        try:
            question.check_reply(question.answer(replace(stack, memory=({},))))
        except BadReply as error:
            raise BadInput(f"what {name} sends is not what it declares: {error}") from error
        _HELD.add(type(question))

    def _separately(self, turn: Turn, part: int, ask: Ask[Any]) -> dict[SiteId, Reply]:
        """Replies to a separate question for every site."""
        replies: dict[SiteId, Reply] = {}
        for site in ask.sites:
            question = ask.question_for(site)
            (stack,) = self._stacks(turn, part, ask.view, (site,), question)
            replies[site] = question.answer(stack)
        return replies

    def _stacks(
        self, turn: Turn, part: int, view: View | None, sites: tuple[SiteId, ...], question: Question[Any]
    ) -> Iterator[Stack]:
        """The asked sites' rows, in blocks of sites whose replies fit in memory together."""
        if self._tables and view is None:
            yield from self._raw(turn, part, sites)
            return
        X, memory = self._viewed(view), self._remembered(turn.run)
        within = self._within if view is not None else self._own_within
        every = len(sites) == len(self._names)
        chosen = range(len(sites)) if every else [self._index[site] for site in sites]
        block = max(1, _BLOCK_NUMBERS // max(1, question.reply_numbers(X.shape[1])))
        for a in range(0, len(chosen), block):
            selected = chosen[a : a + block]
            rows, offsets, weights = self._taken(X, selected)
            yield Stack(
                X=rows,
                offsets=offsets,
                weights=weights,
                seeds=SiteSeeds(turn, part, sites[a : a + block]),
                minimum=self._minimum,
                threads=self._threads,
                memory=memory.of(selected),
                noise=_simulated(question, len(selected)),
                grouped=self._grouped,
                within=None if within is None else within[list(selected)],
                holes=has_holes(view, question),
            )

    def _taken(self, X: Rows, chosen: Sequence[int]) -> tuple[Rows, npt.NDArray[np.int64], FloatArray | None]:
        """Rows, offsets and weights of chosen sites: a view if the sites are contiguous, else a copy."""
        if isinstance(chosen, range):
            offsets = self._offsets[chosen[0] : chosen[-1] + 2]
            span = slice(offsets[0], offsets[-1])
            return X[span], offsets - offsets[0], None if self._weights is None else self._weights[span]
        spans = [slice(self._offsets[i], self._offsets[i + 1]) for i in chosen]
        offsets = np.concatenate([[0], np.cumsum([s.stop - s.start for s in spans])]).astype(np.int64)
        weights = None if self._weights is None else np.concatenate([self._weights[s] for s in spans])
        return np.concatenate([X[s] for s in spans]), offsets, weights

    def _viewed(self, view: View | None) -> Rows:
        if view is None:
            return self._X
        if view is self._latest and self._viewed_rows is not None:
            return self._viewed_rows
        self._viewed_rows = None  # free the old rows before the new ones are made
        if self._tables and self._grouped:
            self._viewed_rows = self._copies_under(view)
        elif self._tables:
            self._viewed_rows, self._offsets = cast(Any, view).stack(self._tables)
        else:
            self._viewed_rows = view.apply(self._X)
            if self._own_within is not None:
                self._within = self._own_within / view.scaling()[1] ** 2
        self._latest = view
        return self._viewed_rows

    def _copies_under(self, view: View) -> Rows:
        """The groups of all copies under a view, one site after the other; their weights are the view's."""
        seen = [view.shown(copy, None, None) for copy in self._tables]
        self._offsets = np.concatenate([[0], np.cumsum([len(rows) for rows, _, _ in seen])]).astype(np.int64)
        self._weights = weights_of_all([(weights, len(rows)) for rows, weights, _ in seen])
        self._within = np.stack([cast(FloatArray, within) for _, _, within in seen])
        return np.concatenate([rows for rows, _, _ in seen])

    def _raw(self, turn: Turn, part: int, sites: tuple[SiteId, ...]) -> Iterator[Stack]:
        """Unprepared tables, site by site, since their columns may still differ."""
        memory = self._remembered(turn.run)
        for i in (self._index[site] for site in sites):
            yield Stack(
                X=self._tables[i],
                offsets=np.array([0, len(self._tables[i])]),
                weights=None,
                seeds=SiteSeeds(turn, part, (self._names[i],)),
                minimum=self._minimum,
                threads=self._threads,
                memory=memory.of((i,)),
                grouped=self._grouped,
            )

    def _remembered(self, run: str) -> Memories:
        if run not in self._memory:
            self._memory = {run: Memories({}, range(len(self._names)))}
        return self._memory[run]


def _simulated(question: Question[Any], sites: int) -> tuple[Noise, ...]:
    """The noise that each of so many sites adds to its reply; none where the question takes none."""
    prices = [question.spends] * sites if isinstance(question, Spending) else []
    return Simulated().spend(prices, [1.0] * len(prices)) if prices else ()
