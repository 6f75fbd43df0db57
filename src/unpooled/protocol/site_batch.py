"""The rows that a question reads, of one site or of many, and the replies of many sites in one object.

Suppression is part of answering (suppression.py): a cell of too few rows is left out, and so are cells that
would reveal it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.protocol.codec import field_names
from unpooled.protocol.suppression import complementary_suppression, effective_size
from unpooled.typing import BoolArray, FloatArray, Rows

_SHORT = 64  # columns of a row over which numpy's own repetition costs more than the work


def repeated(place: FloatArray, rows: int) -> FloatArray:
    """Return a position (d,) once for every row: (rows, d). Short ones are repeated, long ones broadcast.

    >>> repeated(np.array([1.0, 2.0]), 3).tolist()
    [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    """
    if len(place) < _SHORT:
        return np.repeat(place[None], rows, axis=0)
    return np.broadcast_to(place, (rows, len(place)))


def column_sums(X: Rows) -> FloatArray:
    """Return the sums of columns (d,), row after row; of a single column in pairs, as numpy adds up a list.

    >>> column_sums(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [4.0, 6.0]
    """
    sums: FloatArray = np.einsum("ij->j", X) if X.shape[1] > 1 else X.sum(axis=0)
    return sums


class Fields(Protocol):
    """A reply as it is rebuilt here: from the arrays of its fields."""

    def __init__(self, *fields: FloatArray) -> None: ...


R = TypeVar("R", bound=Fields)  # a Reply
A = TypeVar("A", bound=Fields)  # a Summable


@dataclass(frozen=True, eq=False)
class SiteBatch:
    """The rows of one site or of many, one after the other: all that a question may read.

    Site s holds rows ``offsets[s]:offsets[s + 1]``. A cluster of fewer than ``minimum`` rows is suppressed;
    this is the site's own rule, never part of a question. A site that answers for itself is a batch of one,
    so there is one way to answer.
    """

    X: Rows  # (n, d)
    offsets: npt.NDArray[np.int64]  # (S + 1,)
    weights: FloatArray | None  # (n,); of groups with missing values (n, 1 + d), with the share that has each
    seeds: Any  # (S,) uint64, for random draws: determined by (seed, site, round, exchange, part)
    minimum: float = 1.0
    threads: int = 1
    memory: Sequence[dict[str, Any]] = field(default=())  # (S,) a site's memory within a run
    noise: tuple[Any, ...] = ()  # (S,) the Noise that each site was charged for, where the question takes it
    grouped: bool = False  # rows are groups, and weights the numbers of their people
    within: FloatArray | None = None  # (S, d) variance within groups, where rows are groups
    has_missing: bool = False  # rows may have missing cells, which are NaN: the transform keeps them

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def row_counts(self) -> npt.NDArray[np.int64]:
        return self.offsets[1:] - self.offsets[:-1]

    def site(self, s: int) -> "SiteBatch":
        """Site ``s`` alone."""
        a, b = self.offsets[s], self.offsets[s + 1]
        weights = None if self.weights is None else self.weights[a:b]
        memory = self.memory[s : s + 1]
        return dataclasses.replace(
            self,
            X=self.X[a:b],
            offsets=np.array([0, b - a]),
            weights=weights,
            seeds=self.seeds[s : s + 1],
            memory=memory,
            noise=self.noise[s : s + 1],
            within=None if self.within is None else self.within[s : s + 1],
        )

    def large(self, mass: FloatArray, squares: FloatArray, min_size: float = 1.0) -> BoolArray:
        """Return the mask of the cells with at least ``minimum`` rows (or ``min_size``, if larger).

        Weighted rows count by Kish's effective size (sum w)^2 / sum w^2: one heavy row among many light
        ones is one row, and a row of weight zero does not count. Groups count by their people.
        """
        min_size = max(self.minimum, min_size) * (1 - 1e-9)
        if min_size <= 1:
            return np.ones(mass.shape, dtype=np.bool_)
        if self.grouped:
            return mass >= min_size
        return effective_size(mass, squares) >= min_size

    def disclosed(self, mass: FloatArray, squares: FloatArray, min_size: float = 1.0) -> BoolArray:
        """Return the mask of the cells that may be disclosed; the cells of the last axis divide the rows.

        A disclosed cell is large enough, and a suppressed cell must not follow by subtraction from the
        disclosed cells and the site's total. So the suppressed rows of one set of cells are none or at least
        ``minimum``; if necessary, the smallest cell that could be disclosed is suppressed too.
        """
        min_size = max(self.minimum, min_size) * (1 - 1e-9)
        return complementary_suppression(self.large(mass, squares, min_size), mass, squares, min_size)


@dataclass(frozen=True, eq=False)
class ReplyBatch(Generic[R]):
    """The replies of several sites in one object: every array of ``reply`` has a leading axis of sites."""

    reply: R
    sites: int

    def __len__(self) -> int:
        return self.sites

    def __getitem__(self, s: int) -> R:
        kind = type(self.reply)
        return kind(*(getattr(self.reply, name)[s] for name in field_names(kind)))

    def __iter__(self) -> Iterator[R]:
        return (self[s] for s in range(self.sites))

    def arrays(self) -> tuple[FloatArray, ...]:
        """Return every field of the replies, with a leading axis of sites."""
        return tuple(getattr(self.reply, name) for name in field_names(type(self.reply)))

    def add_to(self, totals: Sequence[FloatArray]) -> None:
        """Add the replies to ``totals``, one array per field, strictly in site order."""
        for total, name in zip(totals, field_names(type(self.reply)), strict=True):
            add_in_order(total, getattr(self.reply, name))


class OrderedSum(Generic[A]):
    """A sum over sites, added strictly in site order, so that every runtime gives the same bits."""

    def __init__(self) -> None:
        self._kind: type[A] | None = None
        self._totals: dict[str, FloatArray] = {}  # by field of the reply

    def add(self, replies: list[A] | ReplyBatch[A]) -> None:
        """Add the replies of the next sites."""
        first, axes = (replies.reply, 1) if isinstance(replies, ReplyBatch) else (replies[0], 0)
        if self._kind is None:
            self._kind = type(first)
            names = field_names(self._kind)
            self._totals = {name: np.zeros(getattr(first, name).shape[axes:]) for name in names}
        if isinstance(replies, ReplyBatch):
            replies.add_to(tuple(self._totals.values()))
        else:
            for name, total in self._totals.items():
                add_in_order(total, np.stack([getattr(reply, name) for reply in replies]))

    def reply(self) -> A:
        """Return the sum as a reply."""
        assert self._kind is not None, "a sum over no replies"
        return self._kind(*self._totals.values())


def ordered_sum(blocks: Iterable[list[A] | ReplyBatch[A]]) -> A:
    """Return the sum over the sites of all blocks of replies, added in their order."""
    total = OrderedSum[A]()
    for replies in blocks:
        total.add(replies)
    return total.reply()


def add_in_order(total: FloatArray, column: FloatArray) -> None:
    """Add every site's part of column (S, ...) to total (...), in place and in order."""
    kernels.fold(total.reshape(-1), np.ascontiguousarray(column).reshape(len(column), -1))


class SiteMemories(Sequence[dict[str, Any]]):
    """The memories of sites within a run: each a dict that is made when it is first read."""

    def __init__(self, known: dict[int, dict[str, Any]], sites: Sequence[int]) -> None:
        self._known, self._sites = known, sites

    def for_sites(self, sites: Sequence[int]) -> "SiteMemories":
        """Return the memories of some sites, by their numbers."""
        return SiteMemories(self._known, sites)

    def __len__(self) -> int:
        return len(self._sites)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> "SiteMemories": ...
    def __getitem__(self, at: int | slice) -> "dict[str, Any] | SiteMemories":
        if isinstance(at, slice):
            return self.for_sites(self._sites[at])
        return self._known.setdefault(self._sites[at], {})
