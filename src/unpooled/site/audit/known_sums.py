"""Partitions of a site's rows into groups of known sums, as its replies give them.

A question sends centres; every row belongs to the nearest. The reply gives the count n, the sum S and the sum
of squares Q of every disclosed cell. The suppressed cells form one group together: its sums are those of all
rows less those of the disclosed cells. An attacker who knows a row knows its group in every partition.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, NoisyCells
from unpooled.protocol.messages import Question, Reply
from unpooled.protocol.questions.cluster_sums import (
    AskClusterSums,
    AskMoments,
    ClusterSums,
    LocalMeans,
    Moments,
)
from unpooled.protocol.questions.description import AskCovariance, AskProfile, Covariance, Profile
from unpooled.protocol.questions.fuzzy_sums import FuzzyMeans
from unpooled.typing import BoolArray, FloatArray, IntArray

_SMALL = 1e-9  # what counts as zero, of squares, relative to the mean square of a row
_SLACK = 1e-7  # the same after many subtractions

Sums = tuple[FloatArray, FloatArray, FloatArray]  # counts (k,), sums (k, d), sums of squares (k,)


@dataclass(frozen=True, eq=False)
class CellDisclosures:
    """The cells of one reply; sums are about a point for each cell, so that nothing cancels."""

    points: FloatArray  # (k, d)
    n: FloatArray  # (k,)
    sums: FloatArray  # (k, d)
    squares: FloatArray  # (k,)
    kind: str = "nearest"  # rows nearest the points; "all": one cell of all rows; "own": the site's clusters
    spares: bool = False  # rows may be left out of a large cell, if a few are suppressed

    def about(self, origin: FloatArray) -> Sums:
        off = self.points - origin
        squares = self.squares + 2 * (off * self.sums).sum(axis=1) + self.n * (off**2).sum(axis=1)
        return self.n.copy(), self.sums + self.n[:, None] * off, squares

    @property
    def whole_numbers(self) -> bool:
        """Whether it counts rows: it discloses some, and the counts have no weights or noise."""
        n = self.n
        return bool(len(n) and np.isfinite(n).all() and (n >= 0).all() and (n == n.round()).all() and n.any())


def disclosed_in(question: Question[Any], reply: Reply) -> Iterator[CellDisclosures]:
    """Yield the cells that a reply discloses; nothing for other questions."""
    if isinstance(question, AskClusterSums) and isinstance(reply, ClusterSums):
        for c, n, s, inertia in zip(question.centers, reply.mass, reply.sums, reply.inertia, strict=True):
            _, first = np.unique(c, axis=0, return_index=True)  # a repeated centre has no rows
            yield CellDisclosures(c[first], n[first], s[first], inertia[first], spares=True)
    elif (cells := question.disclosed_sums(reply)) is not None:
        yield CellDisclosures(*cells, spares=True)
    elif isinstance(question, AskProfile) and isinstance(reply, Profile):
        yield CellDisclosures(question.centers, reply.mass, reply.sums, reply.squares.sum(axis=1))
    elif isinstance(question, AskMoments) and isinstance(reply, Moments):
        origin = np.zeros(len(reply.sums)) if question.origin is None else question.origin
        yield CellDisclosures(origin[None], reply.mass, reply.sums[None], reply.squares.sum()[None], "all")
    elif isinstance(question, AskCovariance) and isinstance(reply, Covariance):
        squares = np.trace(reply.products)[None]
        yield CellDisclosures(question.origin[None], reply.mass, reply.sums[None], squares, "all")
    elif isinstance(reply, LocalMeans):
        nothing = np.zeros(reply.means.shape)
        yield CellDisclosures(reply.means, reply.counts, nothing, np.full(len(nothing), np.nan), "own")


def disclosed_despite_noise(question: Question[Any], reply: Reply) -> Iterator[CellDisclosures]:
    """Yield cells as ``disclosed_in`` and ignore noise: noisy counts are rounded to the nearest whole number.

    A row that is reconstructed from these need not exist: only someone who knows the rows can tell.
    """
    yield from disclosed_in(question, reply)
    if isinstance(question, AskNoisyCells) and isinstance(reply, NoisyCells) and question.m is None:
        noisy = question.in_units(reply)
        yield CellDisclosures(question.centers, np.rint(noisy.count).clip(0), noisy.sums, noisy.squares)


def centres_in(question: Question[Any], reply: Reply) -> FloatArray:
    """Return (m, d) a site's own centres of an unknown number of rows: the centre of one row is that row."""
    if isinstance(reply, FuzzyMeans):
        return reply.means
    centers = question.disclosed_centers(reply)
    return np.zeros((0, 0)) if centers is None else centers


@dataclass(eq=False)
class Partition:
    """A division of the rows that are not known yet. Cells of one group count together; -1: in none."""

    centers: FloatArray  # (k, d)
    group: IntArray  # (k,) the group of every cell
    n: FloatArray  # (g,)
    sums: FloatArray  # (g, d)
    squares: FloatArray  # (g,)

    def group_of(self, row: FloatArray, tie: float) -> int:
        """The group of a row, -1 for none. Groups at the same distance from the row become one."""
        far = ((self.centers - row) ** 2).sum(axis=1)
        near = set(self.group[far <= far.min() + tie].tolist())
        keep = min(near)
        for g in near - {keep}:
            self.group[self.group == g] = keep
            for values in (self.n, self.sums, self.squares):
                if keep >= 0:
                    values[keep] += values[g]
                values[g] = 0.0
        return int(keep)


@dataclass(eq=False)
class Space:
    """All disclosed cells of one table under one scaling, and the partitions of its rows.

    Sums are about ``origin``, near the mean of the rows. Spaces with the same ``table`` are about the same
    rows; a row z of this space is z * scale + shift there.
    """

    width: int
    table: str = ""
    shift: FloatArray | float = 0.0  # (d,)
    scale: FloatArray | float = 1.0  # (d,)
    disclosed: list[CellDisclosures] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    spared: list[Sums] = field(default_factory=list)  # cells from which rows may have been left out
    origin: FloatArray = field(default_factory=lambda: np.zeros(0))  # (d,)
    spread: float = 1.0  # mean square of a row about the origin
    rows: float = np.inf  # not known yet
    chance: bool = False  # some sets looked as if they differed by one row, and did not

    def prepare(self) -> None:
        """Make partitions of the disclosed cells."""
        self.origin = np.zeros(self.width)
        counted = [s for s in self.disclosed if s.whole_numbers and s.kind != "own"]
        if not counted:
            return
        most = max(counted, key=lambda s: float(s.n.sum()))
        n, sums, squares = (a.sum(axis=0) for a in most.about(self.origin))
        self.origin = sums / n
        total = _total(counted, self.origin)
        n, sums, squares = total or (a.sum(axis=0) for a in most.about(self.origin))
        self.spread = max(float(squares / n - sums @ sums / n**2), 1e-300)
        self.rows = float(n) if total else np.inf
        min_rows = min(float(s.n[s.n > 0].min()) for s in counted)
        self.partitions = [self._partition(s, total, min_rows) for s in counted if s.kind == "nearest"]

    def _partition(self, cells: CellDisclosures, total: Sums | None, min_rows: float) -> Partition:
        spared = _spared(cells, None if total is None else float(total[0]), min_rows)
        n, sums, squares = cells.about(self.origin)
        if spared.any():
            self.spared.append((n[spared], sums[spared], squares[spared]))
        suppressed = (cells.n == 0) | spared
        group = np.where(suppressed, -1, np.cumsum(~suppressed) - 1)
        n, sums, squares = n[~suppressed], sums[~suppressed], squares[~suppressed]
        if total is not None and suppressed.any():
            group[suppressed] = len(n)
            n = np.append(n, total[0] - n.sum())
            sums = np.concatenate([sums, (total[1] - sums.sum(axis=0))[None]])
            squares = np.append(squares, total[2] - squares.sum())
        return Partition(cells.points - self.origin, group, n, sums, squares)

    @property
    def small(self) -> float:
        return _SMALL * self.spread

    @property
    def slack(self) -> float:
        return _SLACK * self.spread

    def alone(self) -> FloatArray:
        """(m, d) the disclosed cells of a single row, about the origin."""
        single = [s.about(self.origin)[1][s.n == 1] for s in self.disclosed if s.whole_numbers]
        rows = np.concatenate([np.zeros((0, self.width)), *single])
        _, first = np.unique(np.round(rows / self.spread**0.5, 6), axis=0, return_index=True)
        return rows[np.sort(first)]

    def own_units(self, rows: FloatArray) -> FloatArray:
        """Rows about the origin, in the units of the table."""
        own: FloatArray = (rows + self.origin) * self.scale + self.shift
        return own

    def from_own_units(self, rows: FloatArray) -> FloatArray:
        here: FloatArray = (rows - self.shift) / self.scale - self.origin
        return here

    def take(self, row: FloatArray) -> bool:
        """Subtract a row (d,), about the origin, from its group everywhere; False if it cannot be one."""
        square = float(row @ row)
        at = [(p, g) for p in self.partitions if (g := p.group_of(row, self.small)) >= 0]
        for p, g in at:
            if not self._possible(float(p.n[g]) - 1, p.sums[g] - row, float(p.squares[g]) - square):
                return False
        for p, g in at:
            p.n[g] -= 1
            p.sums[g] -= row
            p.squares[g] -= square
        self.rows -= 1
        return True

    def _possible(self, n: float, sums: FloatArray, squares: float) -> bool:
        """Whether n rows may have these sums: without rows they are zero, and one row has Q = |S|^2."""
        if n < 0:
            return False
        slack = self.slack * (1 + abs(squares) / self.spread)
        if n == 0:
            return abs(squares) <= slack and float(sums @ sums) <= slack
        apart = squares - float(sums @ sums) / n
        return apart >= -slack and (n > 1 or apart <= slack)


def _total(disclosed: list[CellDisclosures], origin: FloatArray) -> Sums | None:
    """The sums of all rows: from a question about all rows, or from a reply that discloses all its cells."""
    complete = [s for s in disclosed if (s.n > 0).all()]
    if not complete:
        return None
    # among equals, the one about the nearest points: it has the smallest rounding error
    best = max(complete, key=lambda s: (s.n.sum(), -float(((s.points - origin) ** 2).sum(axis=1).max())))
    n, sums, squares = (a.sum(axis=0) for a in best.about(origin))
    return n, sums, squares


def _spared(cells: CellDisclosures, total: float | None, min_rows: float) -> BoolArray:
    """(k,) the large cells from which the site may have left out rows.

    It leaves out as many as its minimum, if it would otherwise suppress fewer. ``min_rows`` is the smallest
    disclosed count, which is the minimum or more.
    """
    none = np.zeros(len(cells.n), dtype=np.bool_)
    if not cells.spares or (cells.n > 0).all():
        return none
    suppressed = 2 * min_rows - 1 if total is None else total - cells.n.sum()
    if suppressed == 0 or suppressed >= 2 * min_rows:
        return none
    may: BoolArray = (cells.n > 0) & (cells.n + suppressed >= cells.n.max())
    return may
