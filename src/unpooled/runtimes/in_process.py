"""All sites in this process: for simulation, for tests, and for one machine that holds every site's file.

Each site answers by itself, or they are fused: where every site is plain, one kernel call over their stacked
rows answers for all. Both give the same bits, as tests/laws/test_contract.py checks.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.exchange import Gathered, Turn
from unpooled.core.messages import SiteId
from unpooled.core.protocol import Asks
from unpooled.data.copy import Copy
from unpooled.errors import BadInput, SiteFailed, UnpooledError
from unpooled.privacy.secure_sum import SecureSums, check_range, secure_sums
from unpooled.runtimes.fused import PlainSite, Pool
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site import Site
from unpooled.site.allow_list import only_totals


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
        self._pool: Pool | None = None
        self._remote: RemoteFederation | None = RemoteFederation(
            _LocalCarrier({name: known[name] for name in self._names}),
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
        self._pool = Pool.of([known[name] for name in self._names], cores, self.exact_sums)
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
    ) -> "InProcess":
        """Sites from a mapping of name to rows: arrays, tables, or copies.

        With ``within`` the rows of arrays are groups of persons, and it is the variance inside them. With
        ``secure`` they answer in secure sums only, but for the questions that ``shown`` names. With
        ``exact_sums`` every total is the exact sum, rounded once: the same bits in any order and any tree.
        """
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
            federation.rows = sum(len(X) for X in rows.values())
            return federation
        masks: Mapping[SiteId, Any] = {}
        if secure is not None:
            from unpooled.privacy.secure_sum.site_mask import maskings

            for h in held:
                _check_range(h.name, h.rows, h.weights)
            least = max(secure.min_cluster_size, min_cluster_size)
            secure = replace(secure, min_cluster_size=least)
            masks = maskings(
                tuple(rows), min_sites=secure.min_sites, required=True, shown=shown, instead=only_totals()
            )
        sites = [
            Site(
                h.name,
                h.rows,
                h.weights,
                grouped=h.grouped,
                within=h.within,
                min_cluster_size=min_cluster_size,
                mask=masks.get(h.name),
            )
            for h in held
        ]
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
        federation._pool = Pool(
            said, X, at, weights, minimum=min_cluster_size, threads=cores, exact=exact_sums
        )
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

    def ask(self, turn: Turn, asks: Asks) -> list[Gathered[Any]]:
        if self._pool is not None:
            pool = self._pool
            try:
                return [pool.gather(turn, i, ask) for i, ask in enumerate(asks)]
            except UnpooledError:
                raise
            except Exception as error:
                titles = ", ".join(ask.title for ask in asks)
                raise SiteFailed(f"a fused site, round {turn.round}, {titles}: {error}") from error
        assert self._remote is not None
        return self._remote.ask(turn, asks)


def _check_range(name: SiteId, rows: Any, weights: FloatArray | None) -> None:
    """BadInput if the rows of an array are too large for secure sums; a table's columns have units."""
    if isinstance(rows, np.ndarray) and rows.size:
        mass = float(len(rows)) if weights is None else float(np.sum(weights))
        check_range(f"site {name}", float(np.abs(rows).max()), max(mass, 1.0) * rows.shape[1])


class _LocalCarrier:
    """The carrier within one process: calls ``Site.receive``."""

    def __init__(self, sites: Mapping[SiteId, Site]) -> None:
        self._sites = sites

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return tuple(self._sites)

    def carry(self, posts: Mapping[SiteId, bytes]) -> dict[SiteId, bytes | str]:
        return {name: self._sites[name].receive(data) for name, data in posts.items()}


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
