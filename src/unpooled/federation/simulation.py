"""All sites in this process: for simulation, for tests, and for one machine that holds every site's file.

Each site answers by itself, or the sites are fused: if no site has rules of its own, one kernel call over
their concatenated rows answers for all. Both give the same bits, as tests/laws/test_contract.py checks.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, ReplyError, SiteFailedError, UnpooledError
from unpooled.federation.local_transport import LocalTransport, PlainSite, make_sites
from unpooled.federation.remote import RemoteFederation
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.dp.noise import Noise, SimulatedAccountant
from unpooled.privacy.secure_sum import SecureSums, secure_sums
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Asks, Transform, reads_missing
from unpooled.protocol.exchange import Aggregate, Federation, Replies, RequestId, SiteSeeds, gather, size
from unpooled.protocol.messages import Question, Reply, SiteId
from unpooled.protocol.partial_sum import partial_sum
from unpooled.protocol.site_batch import (
    ReplyBatch,
    SiteBatch,
    SiteMemories,
    join_rows,
    join_weights,
    ordered_sum,
)
from unpooled.site.endpoint import Endpoint
from unpooled.site.site import Site
from unpooled.typing import FloatArray, Rows

_CHECKED: set[type[Any]] = set()  # classes of user-defined questions whose declarations were checked
_BLOCK_NUMBERS = 1_000_000  # numbers of replies held at once while summing over sites: 8 MB


class Simulation(Federation):
    """A federation of sites in this process. A member may be a Relay, which has a federation of its own.

    Parameters
    ----------
    sites
        The members, with different names and the same columns.
    fused
        Answer for all sites with one kernel call, if none of them has rules of its own.
    threads
        Threads of the kernels; by default one per core.
    secure
        Settings of secure sums. With them every total is a secure sum.
    exact_sums
        Compute every total exactly and round it once: the same bits in any order of the sites and any tree.

    Examples
    --------
    >>> sites = Simulation.from_rows({"north": np.zeros((4, 2)), "south": np.ones((3, 2))})
    >>> sites.sites
    ('north', 'south')
    """

    rows: int = 0

    def __init__(
        self,
        sites: Sequence[Endpoint],
        *,
        fused: bool = True,
        threads: int | None = None,
        secure: SecureSums | None = None,
        exact_sums: bool = False,
    ) -> None:
        self.exact_sums = exact_sums
        plain = [site for site in sites if isinstance(site, Site) and site.plain]
        kinds = {(site.min_cluster_size, site.grouped, type(site.rows)) for site in plain}
        if fused and secure is None and len(kinds) == 1 and len(plain) == len(sites):
            self._fuse(
                [
                    PlainSite(s.name, s.rows, s.weights, s.within, s.grouped, s.min_cluster_size)
                    for s in plain
                ],
                threads,
            )
            return
        rows = {site.name: site.rows if isinstance(site, Site) else None for site in sites}
        self.sites = _checked(rows, len(sites))
        known = {site.name: site for site in sites}
        self._pool: _Pool | None = None
        self._remote: RemoteFederation | None = RemoteFederation(
            LocalTransport({name: known[name] for name in self.sites}),
            secure=secure,
            exact_sums=exact_sums,
            keys={site.name: site.key for site in sites if not site.is_federation},
            federations=[site.name for site in sites if site.is_federation],
        )
        self.secure, self.federations = self._remote.secure, self._remote.federations

    def _fuse(self, sites: Sequence[PlainSite], threads: int | None) -> None:
        """Concatenate the rows of sites without rules of their own, to answer for all of them at once."""
        self.sites = _checked({site.name: site.rows for site in sites}, len(sites))
        cores = threads if threads is not None else os.cpu_count() or 1
        known = {site.name: site for site in sites}
        self._pool = _Pool.from_sites([known[name] for name in self.sites], cores, self.exact_sums)
        self._remote = None

    @classmethod
    def from_rows(
        cls,
        rows: Mapping[SiteId, Any],
        weights: Mapping[SiteId, FloatArray] | None = None,
        *,
        within: Mapping[SiteId, FloatArray] | None = None,
        min_cluster_size: int = 1,
        fused: bool = True,
        threads: int | None = None,
        secure: SecureSums | bool | None = None,
        allowed_in_clear: tuple[str, ...] = (),
        exact_sums: bool = False,
        executor: Any = None,
    ) -> "Simulation":
        """Return a federation of sites from a mapping of their names to their rows.

        Parameters
        ----------
        rows
            By site: an array (n, d), a Table or a SummaryTable. With ``executor``, RowPartitions.
        weights
            By site: the weight of every row of its array.
        within
            By site: the variance within groups, (d,). The rows of its array are then groups of people.
        min_cluster_size
            Smallest number of rows in a cluster that a site discloses.
        fused, threads, exact_sums
            As in ``Simulation``.
        secure
            Settings of secure sums, or True for the default ones. The sites then answer only in secure sums.
        allowed_in_clear
            Names of the questions that sites answer in clear all the same.
        executor
            Workers that hold the rows: Processes, a Dask Client or an executor of concurrent.futures.
        """
        if executor is not None:
            from unpooled.federation.workers.worker_federation import put_on_workers

            return put_on_workers(
                cls.__new__(cls), executor, rows, min_cluster_size, threads, weights, within, secure
            )
        secure = None if secure is None else secure_sums(secure)
        plain_sites = [
            PlainSite(
                str(name),
                X,
                None if weights is None else weights[name],
                None if within is None else within[name],
                within is not None or isinstance(X, SummaryTable),
                min_cluster_size,
            )
            for name, X in rows.items()
        ]
        if fused and secure is None:
            federation = cls.__new__(cls)
            federation.exact_sums = exact_sums
            federation._fuse(plain_sites, threads)
        else:
            sites, secure = make_sites(plain_sites, min_cluster_size, secure, allowed_in_clear)
            federation = cls(sites, fused=fused, threads=threads, secure=secure, exact_sums=exact_sums)
        federation.rows = sum(len(X) for X in rows.values())
        return federation

    @classmethod
    def from_stacked(
        cls,
        X: Rows,
        offsets: Any,
        weights: FloatArray | None = None,
        *,
        names: Sequence[SiteId] | None = None,
        min_cluster_size: int = 1,
        threads: int | None = None,
        exact_sums: bool = False,
    ) -> "Simulation":
        """Return a federation of many sites from one array: site s has rows ``offsets[s]:offsets[s + 1]``.

        The only object made for a site is its name: "0000000" and so on, unless ``names`` are given.
        """
        at = np.asarray(offsets, dtype=np.int64)
        if at.ndim != 1 or len(at) < 2 or at[0] != 0 or at[-1] != len(X) or (np.diff(at) < 0).any():
            raise InputError(
                f"offsets must not decrease, start at 0 and end at {len(X)}, the number of rows: one offset "
                "per site and one for the end"
            )
        site_names = tuple(f"{i:07}" for i in range(len(at) - 1)) if names is None else tuple(names)
        if len(site_names) != len(at) - 1 or any(a >= b for a, b in pairwise(site_names)):
            raise InputError(f"names must be sorted and different, one for each of the {len(at) - 1} sites")
        federation = cls.__new__(cls)
        federation.exact_sums, federation.rows = exact_sums, len(X)
        cores = threads if threads is not None else os.cpu_count() or 1
        federation.sites, federation._remote = site_names, None
        rules: dict[str, Any] = {"minimum": min_cluster_size, "threads": cores, "exact": exact_sums}
        federation._pool = _Pool(site_names, X, at, weights, **rules)
        return federation

    def members(self, request_id: RequestId, ancestors: tuple[str, ...]) -> tuple[str, ...]:
        """Return the fingerprints of the keys of all members; fused sites have none."""
        return () if self._remote is None else self._remote.members(request_id, ancestors)

    def suppress_cells(self, min_contributors: int) -> None:
        super().suppress_cells(min_contributors)
        if self._pool is not None:
            self._pool.min_contributors = min_contributors

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Reply]]:
        if self._pool is not None:
            try:
                return [self._pool.gather(request_id, i, ask) for i, ask in enumerate(asks)]
            except UnpooledError:
                raise
            except Exception as error:
                titles = ", ".join(ask.title for ask in asks)
                raise SiteFailedError(f"a fused site, round {request_id.round}, {titles}: {error}") from error
        assert self._remote is not None
        return self._remote.ask(request_id, asks)


def _checked(rows: Mapping[SiteId, object], count: int) -> tuple[SiteId, ...]:
    """Return the sorted names; raise InputError if there are no sites, equal names, or different columns."""
    if not count:
        raise InputError("a federation needs at least one site, got 0")
    names = tuple(sorted(rows))
    if len(names) < count:
        raise InputError(f"site names must differ: {count} sites, {len(names)} names")
    widths = {name: X.shape[1] for name in names if isinstance(X := rows[name], np.ndarray)}
    for name, width in widths.items():
        if width != widths[first := next(iter(widths))]:
            raise InputError(f"sites with different columns: {first} has {widths[first]}, {name} has {width}")
    return names


class _Pool:
    """The concatenated rows of plain sites; one kernel call answers for all of them."""

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
        self._tables = list(tables)  # of all sites, if they hold tables or summary tables
        self._own_within = within  # (S, d) of arrays of groups
        self._within = within  # after the last transform
        self._latest: Transform | None = None  # the transform of the last question
        self._transformed_rows: Rows | None = None  # the rows after that transform
        self._memory: dict[str, SiteMemories] = {}
        self._asked = (names, names)  # the sites of the last ask, as given and sorted
        self.min_contributors = 1  # sites that contribute to a cell of a sum; cells with fewer are suppressed

    @classmethod
    def from_sites(cls, sites: Sequence[PlainSite], threads: int, exact: bool = False) -> "_Pool":
        """Concatenate the rows of sites in their order."""
        every = [site.rows for site in sites]
        tables = [X for X in every if not isinstance(X, np.ndarray)]
        insides = [site.within for site in sites if site.within is not None]
        return cls(
            tuple(site.name for site in sites),
            every[0] if tables or len(every) == 1 else join_rows(every),
            np.concatenate([[0], np.cumsum([len(X) for X in every])]).astype(np.int64),
            join_weights([(site.weights, len(site.rows)) for site in sites]),
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

    def gather(self, request_id: RequestId, part: int, ask: Ask[Any]) -> Replies[Any]:
        question = ask.question
        if not isinstance(question, Question):
            return gather(ask, self._separately(request_id, part, ask), self._exact)
        if ask.sites is not self._asked[0]:  # a run asks for the same ones over and over
            self._asked = ask.sites, tuple(sorted(ask.sites))
        sites = self._asked[1]
        if type(question) not in _CHECKED and not type(question).__module__.startswith("unpooled."):
            self._check_declarations(question, request_id, part, ask)
        answers = map(question.answer_all, self._batches(request_id, part, ask.transform, sites, question))
        if ask.verb == "each":
            return Replies(sites, [reply for block in answers for reply in block])
        sizes: set[tuple[int, int]] = set()

        def measured() -> Iterator[Any]:
            for block in answers:
                if not sizes or not isinstance(block, ReplyBatch):  # stacked replies are all alike
                    sizes.add(size(block[0]))
                yield block

        if self._exact:
            total = partial_sum(measured(), self.min_contributors)
            return Aggregate(sites, sum=total.reply(question.reply_type()), size=max(sizes), unrounded=total)
        return Aggregate(sites, sum=ordered_sum(measured()), size=max(sizes))

    def _check_declarations(
        self, question: Question[Any], request_id: RequestId, part: int, ask: Ask[Any]
    ) -> None:
        """Check the declarations of a new class of question against one site's reply."""
        name, missing = codec.name_of(type(question)), question.undeclared()
        if missing:
            raise InputError(f"{name} does not declare {missing}; a real site would refuse it")
        (batch,) = self._batches(request_id, part, ask.transform, ask.sites[:1], question)
        try:
            question.check_reply(question.answer(replace(batch, memory=({},))))
        except ReplyError as error:
            raise InputError(f"the reply of {name} is not what its fields declare: {error}") from error
        _CHECKED.add(type(question))

    def _separately(self, request_id: RequestId, part: int, ask: Ask[Any]) -> dict[SiteId, Reply]:
        """Replies to a separate question for every site."""
        replies: dict[SiteId, Reply] = {}
        for site in ask.sites:
            question = ask.question_for(site)
            (batch,) = self._batches(request_id, part, ask.transform, (site,), question)
            replies[site] = question.answer(batch)
        return replies

    def _batches(
        self,
        request_id: RequestId,
        part: int,
        transform: Transform | None,
        sites: tuple[SiteId, ...],
        question: Question[Any],
    ) -> Iterator[SiteBatch]:
        """Yield the asked sites' rows, in blocks of sites whose replies fit in memory together."""
        if self._tables and transform is None:
            yield from self._untransformed(request_id, part, sites)
            return
        X, memory = self._transformed(transform), self._remembered(request_id.run)
        within = self._within if transform is not None else self._own_within
        every = len(sites) == len(self._names)
        chosen = range(len(sites)) if every else [self._index[site] for site in sites]
        block = max(1, _BLOCK_NUMBERS // max(1, question.reply_numbers(X.shape[1])))
        for a in range(0, len(chosen), block):
            selected = chosen[a : a + block]
            rows, offsets, weights = self._taken(X, selected)
            yield SiteBatch(
                X=rows,
                offsets=offsets,
                weights=weights,
                seeds=SiteSeeds(request_id, part, sites[a : a + block]),
                minimum=self._minimum,
                threads=self._threads,
                memory=memory.for_sites(selected),
                noise=_simulated(question, len(selected)),
                grouped=self._grouped,
                within=None if within is None else within[list(selected)],
                has_missing=reads_missing(transform, question),
            )

    def _taken(self, X: Rows, chosen: Sequence[int]) -> tuple[Rows, npt.NDArray[np.int64], FloatArray | None]:
        """Return rows, offsets and weights of chosen sites; numpy copies them unless they are contiguous."""
        if isinstance(chosen, range):
            offsets = self._offsets[chosen[0] : chosen[-1] + 2]
            span = slice(offsets[0], offsets[-1])
            return X[span], offsets - offsets[0], None if self._weights is None else self._weights[span]
        spans = [slice(self._offsets[i], self._offsets[i + 1]) for i in chosen]
        offsets = np.concatenate([[0], np.cumsum([s.stop - s.start for s in spans])]).astype(np.int64)
        weights = None if self._weights is None else np.concatenate([self._weights[s] for s in spans])
        return np.concatenate([X[s] for s in spans]), offsets, weights

    def _transformed(self, transform: Transform | None) -> Rows:
        if transform is None:
            return self._X
        if transform is self._latest and self._transformed_rows is not None:
            return self._transformed_rows
        self._transformed_rows = None  # free the old rows before the new ones are made
        if self._tables and self._grouped:
            self._transformed_rows = self._transformed_summaries(transform)
        elif self._tables:
            self._transformed_rows, self._offsets = cast(Any, transform).stack(self._tables)
        else:
            self._transformed_rows = transform.apply(self._X)
            if self._own_within is not None:
                self._within = self._own_within / transform.scaling()[1] ** 2
        self._latest = transform
        return self._transformed_rows

    def _transformed_summaries(self, transform: Transform) -> Rows:
        """Return the transformed groups of all summary tables; set their weights, offsets and variances."""
        parts = [transform.apply_weighted(table, None, None) for table in self._tables]
        self._offsets = np.concatenate([[0], np.cumsum([len(rows) for rows, _, _ in parts])]).astype(np.int64)
        self._weights = join_weights([(weights, len(rows)) for rows, weights, _ in parts])
        self._within = np.stack([cast(FloatArray, within) for _, _, within in parts])
        return np.concatenate([rows for rows, _, _ in parts])

    def _untransformed(
        self, request_id: RequestId, part: int, sites: tuple[SiteId, ...]
    ) -> Iterator[SiteBatch]:
        """Yield the tables as they are, site by site, because their columns may still differ."""
        memory = self._remembered(request_id.run)
        for i in (self._index[site] for site in sites):
            yield SiteBatch(
                X=self._tables[i],
                offsets=np.array([0, len(self._tables[i])]),
                weights=None,
                seeds=SiteSeeds(request_id, part, (self._names[i],)),
                minimum=self._minimum,
                threads=self._threads,
                memory=memory.for_sites((i,)),
                grouped=self._grouped,
            )

    def _remembered(self, run: str) -> SiteMemories:
        if run not in self._memory:
            self._memory = {run: SiteMemories({}, range(len(self._names)))}
        return self._memory[run]


def _simulated(question: Question[Any], sites: int) -> tuple[Noise, ...]:
    """Return the noise that each of the sites adds to its reply; empty for a question without noise."""
    prices = [question.privacy_cost] * sites if isinstance(question, PrivateQuestion) else []
    return SimulatedAccountant().spend(prices, [1.0] * len(prices)) if prices else ()
