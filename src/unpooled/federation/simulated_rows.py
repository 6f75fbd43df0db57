"""The rows of all sites of a simulation, joined after a transform so that one kernel call reads them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpooled.data import Preparation, Table
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError
from unpooled.protocol.messages import SiteId
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray, IntArray, Rows


class JoinedRows(NamedTuple):
    """The rows of several sites, one after the other: site s has rows ``offsets[s]:offsets[s + 1]``."""

    X: Rows  # (n, d)
    offsets: IntArray  # (S + 1,)
    weights: FloatArray | None  # (n,)
    within: FloatArray | None  # (S, d) variance within groups, where rows are groups

    @property
    def columns(self) -> int:
        return int(self.X.shape[1])

    def of_sites(self, chosen: Sequence[int]) -> "JoinedRows":
        """Return the rows of chosen sites; numpy copies them unless the sites follow each other."""
        within = None if self.within is None else self.within[list(chosen)]
        if isinstance(chosen, range):
            offsets = self.offsets[chosen[0] : chosen[-1] + 2]
            span = slice(offsets[0], offsets[-1])
            weights = None if self.weights is None else self.weights[span]
            return JoinedRows(self.X[span], offsets - offsets[0], weights, within)
        spans = [slice(self.offsets[i], self.offsets[i + 1]) for i in chosen]
        weights = None if self.weights is None else np.concatenate([self.weights[s] for s in spans])
        offsets = _offsets([s.stop - s.start for s in spans])
        return JoinedRows(np.concatenate([self.X[s] for s in spans]), offsets, weights, within)


class SimulatedRows(ABC):
    """The rows of all sites of a simulation: arrays, tables or summary tables.

    Parameters
    ----------
    names
        The names of the sites, sorted.
    n_rows
        The number of rows of all sites together.
    grouped
        Rows are groups, and weights the numbers of their people.
    """

    def __init__(self, names: tuple[SiteId, ...], n_rows: int, grouped: bool) -> None:
        self.names, self.n_rows, self.grouped = names, n_rows, grouped
        self._transform: Transform | None = None  # the last one
        self._transformed: JoinedRows | None = None  # the rows after it

    def transformed(self, transform: Transform) -> JoinedRows:
        """Return the joined rows after a transform. They are kept until another transform is asked for."""
        if self._transformed is None or transform is not self._transform:
            self._transformed = None  # free the old rows before the new ones are made
            self._transformed = self._apply(transform)
            self._transform = transform
        return self._transformed

    @abstractmethod
    def _apply(self, transform: Transform) -> JoinedRows:
        """Transform and join the rows of all sites."""

    @abstractmethod
    def untransformed(self) -> "JoinedRows | SeparateTables":
        """Return the rows as they are."""


class ArrayRows(SimulatedRows):
    """One array with the rows of all sites: site s has rows ``offsets[s]:offsets[s + 1]``.

    Parameters
    ----------
    X
        The rows of all sites, (n, d).
    offsets
        Where the rows of each site begin, and the end: (S + 1,).
    weights
        The weight of every row, (n,).
    names
        The names of the sites, sorted; by default "0000000" and so on. They are the only objects that are
        made for each site.
    within
        The variance within groups by site, (S, d). The rows are then groups of people.

    Examples
    --------
    >>> ArrayRows(np.zeros((5, 2)), [0, 2, 5]).names
    ('0000000', '0000001')
    """

    def __init__(
        self,
        X: Rows,
        offsets: npt.ArrayLike,
        weights: FloatArray | None = None,
        *,
        names: Sequence[SiteId] | None = None,
        within: FloatArray | None = None,
    ) -> None:
        at = np.asarray(offsets, dtype=np.int64)
        if at.ndim != 1 or len(at) < 2 or at[0] != 0 or at[-1] != len(X) or (np.diff(at) < 0).any():
            raise InputError(
                f"offsets must not decrease, start at 0 and end at {len(X)}, the number of rows: one offset "
                "per site and one for the end"
            )
        site_names = tuple(f"{i:07}" for i in range(len(at) - 1)) if names is None else tuple(names)
        if len(site_names) != len(at) - 1 or any(a >= b for a, b in pairwise(site_names)):
            raise InputError(f"names must be sorted and different, one for each of the {len(at) - 1} sites")
        super().__init__(site_names, len(X), grouped=within is not None)
        self._joined = JoinedRows(X, at, weights, within)

    def untransformed(self) -> JoinedRows:
        return self._joined

    def _apply(self, transform: Transform) -> JoinedRows:
        X, offsets, weights, within = self._joined
        scaled = None if within is None else within / transform.scaling()[1] ** 2
        return JoinedRows(transform.apply(X), offsets, weights, scaled)


class SeparateTables(NamedTuple):
    """Tables or summary tables without a transform: their columns may still differ, so they stay apart."""

    tables: Sequence[Table] | Sequence[SummaryTable]

    def of_site(self, site: int) -> JoinedRows:
        """Return the table of one site; a question about tables reads it in place of rows."""
        table: Rows = self.tables[site]  # type: ignore[assignment]
        return JoinedRows(table, np.array([0, len(table)]), None, None)


class TableRows(SimulatedRows):
    """The tables of all sites; a Preparation turns them into the rows of one array."""

    def __init__(
        self, names: tuple[SiteId, ...], tables: Sequence[Table], weights: FloatArray | None = None
    ) -> None:
        super().__init__(names, sum(map(len, tables)), grouped=False)
        self._tables, self._weights = tables, weights

    def untransformed(self) -> SeparateTables:
        return SeparateTables(self._tables)

    def _apply(self, transform: Transform) -> JoinedRows:
        if not isinstance(transform, Preparation):
            raise InputError(f"{type(transform).__name__} transforms arrays; tables need a Preparation")
        X, offsets = transform.stack(self._tables)
        return JoinedRows(X, offsets, self._weights, None)


class SummaryRows(SimulatedRows):
    """The summary tables of all sites: their rows are groups of people."""

    def __init__(self, names: tuple[SiteId, ...], tables: Sequence[SummaryTable]) -> None:
        super().__init__(names, sum(map(len, tables)), grouped=True)
        self._tables = tables

    def untransformed(self) -> SeparateTables:
        return SeparateTables(self._tables)

    def _apply(self, transform: Transform) -> JoinedRows:
        parts = [transform.apply_weighted(table, None, None) for table in self._tables]
        return JoinedRows(
            np.concatenate([rows for rows, _, _ in parts]),
            _offsets([len(rows) for rows, _, _ in parts]),
            _join_weights([(weights, len(rows)) for rows, weights, _ in parts]),
            np.stack([within for _, _, within in parts if within is not None]),
        )


def simulated_rows(
    rows: Mapping[SiteId, Rows | Table | SummaryTable],
    weights: Mapping[SiteId, FloatArray] | None = None,
    within: Mapping[SiteId, FloatArray] | None = None,
) -> SimulatedRows:
    """Return the rows of all sites of a simulation, from those of each site; see Simulation.from_rows."""
    keys = {str(name): name for name in rows}
    names = check_sites([str(name) for name in rows], {name: rows[key] for name, key in keys.items()})
    every = [rows[keys[name]] for name in names]
    mass = [None if weights is None else weights[keys[name]] for name in names]
    joined_weights = _join_weights([(w, len(X)) for w, X in zip(mass, every, strict=True)])
    arrays = [X for X in every if isinstance(X, np.ndarray)]
    tables = [X for X in every if isinstance(X, Table)]
    summaries = [X for X in every if isinstance(X, SummaryTable)]
    if len(arrays) == len(every):
        return ArrayRows(
            arrays[0] if len(arrays) == 1 else _join_rows(arrays),
            _offsets([len(X) for X in arrays]),
            joined_weights,
            names=names,
            within=None if within is None else np.stack([within[keys[name]] for name in names]),
        )
    if len(tables) == len(every):
        return TableRows(names, tables, joined_weights)
    if len(summaries) == len(every):
        return SummaryRows(names, summaries)
    raise InputError(
        "the sites of a simulation must all have arrays, all tables, or all summary tables. Use "
        "LocalFederation.from_rows for sites that differ."
    )


def check_sites(names: Sequence[SiteId], rows: Mapping[SiteId, object]) -> tuple[SiteId, ...]:
    """Return the sorted names; raise InputError if there are none, equal ones, or different columns.

    ``rows`` are those of the sites that have any; only the columns of arrays must agree.
    """
    if not names:
        raise InputError("a federation needs at least one site, got 0")
    different = tuple(sorted(set(names)))
    if len(different) < len(names):
        raise InputError(f"site names must differ: {len(names)} sites, {len(different)} names")
    widths = {name: X.shape[1] for name in different if isinstance(X := rows.get(name), np.ndarray)}
    for name, width in widths.items():
        if width != widths[first := next(iter(widths))]:
            raise InputError(f"sites with different columns: {first} has {widths[first]}, {name} has {width}")
    return different


def _join_rows(arrays: Sequence[Rows]) -> Rows:
    """The rows of all sites in one array; they are not copied if they are contiguous in memory."""
    base = arrays[0].base
    if base is not None and all(a.base is base for a in arrays) and base.flags.c_contiguous:
        end = arrays[0].__array_interface__["data"][0]
        for a in arrays:
            if a.__array_interface__["data"][0] != end or not a.flags.c_contiguous:
                break
            end += a.nbytes
        else:
            start = arrays[0].__array_interface__["data"][0] - base.__array_interface__["data"][0]
            if base.ndim == 2 and base.dtype == arrays[0].dtype and base.shape[1] == arrays[0].shape[1]:
                first = start // max(1, base.strides[0])
                joined: Rows = base[first : first + sum(map(len, arrays))]
                return joined
    return np.concatenate(arrays)


def _join_weights(parts: Sequence[tuple[FloatArray | None, int]]) -> FloatArray | None:
    """Return the weights of several sites, 1 where a site has none; None if no site has any."""
    if all(weights is None for weights, _ in parts):
        return None
    return np.concatenate([np.ones(n) if w is None else w for w, n in parts])


def _offsets(lengths: Sequence[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
