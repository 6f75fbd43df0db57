"""Attacks on the messages that left a site: three ways to recover rows from them alone.

A summary of a cell gives its count n, its sum S and, by its inertia, its sum of squares Q:

- a cell of one row is a row;
- a set of cells holds all rows: if one row is missing from their total, it is the difference;
- two cells that differ by one row x have n - n' = 1 and S - S' = x. The attacker can verify this, for
  then Q - Q' = |x|^2, which holds for hardly any other pair.

Differences are sought among all pairs of all cells ever sent under one view.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import BoolArray, FloatArray, Rows
from unpooled.core.exchange import Envelope, Part, Turn
from unpooled.core.messages import Question, Refusal, Reply
from unpooled.questions.clusters import (
    AskClusterSums,
    AskLocalMeans,
    AskMoments,
    ClusterSums,
    LocalMeans,
    Moments,
)
from unpooled.site.log import entries, unpacked

_FIT = 1e-7  # tolerance for sums of squares, relative to their size
_AT_ONCE = 2000  # cells compared with all others at once


@dataclass(eq=False)
class ShownCells:
    """Cells under one view: counts (N,), sums (N, d), sums of squares (N,), nan where not sent."""

    n: list[FloatArray] = field(default_factory=list)
    sums: list[FloatArray] = field(default_factory=list)
    squares: list[FloatArray] = field(default_factory=list)

    def add(self, n: FloatArray, sums: FloatArray, squares: FloatArray) -> None:
        shown = n > 0
        self.n.append(n[shown])
        self.sums.append(sums[shown])
        self.squares.append(squares[shown])

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Counts, sums and sums of squares of all distinct cells."""
        n, sums, squares = np.concatenate(self.n), np.concatenate(self.sums), np.concatenate(self.squares)
        scale = np.abs(sums).max(initial=1e-300)
        key = np.round(np.column_stack([n, sums / scale * 1e9]))
        _, first = np.unique(key, axis=0, return_index=True)
        return n[first], sums[first], squares[first]


@dataclass(frozen=True, eq=False)
class Attack:
    """The result of attacks: recovered rows (m, d), from cells of one row and from differences."""

    cells: int
    single: FloatArray
    differences: FloatArray

    @property
    def rows(self) -> FloatArray:
        """(m, d) distinct recovered rows."""
        both = np.concatenate([self.single, self.differences])
        if not len(both):
            return both
        scale = np.abs(both).max(initial=1e-300)
        _, first = np.unique(np.round(both / scale * 1e6), axis=0, return_index=True)
        return both[np.sort(first)]

    def hits(self, X: Rows) -> int:
        """The number of rows of X (n, d) among those found."""
        if not len(self.rows):
            return 0
        from scipy.spatial import cKDTree

        scale = np.maximum(np.asarray(X).std(axis=0), 1e-12)
        near, _ = cKDTree(self.rows / scale).query(np.asarray(X) / scale)
        return int((near < 1e-4).sum())


def cells_of(question: Question[Any], reply: Reply, cells: ShownCells) -> None:
    """Add the cells in a reply to ``cells``, with sums about 0 instead of about centres."""
    if isinstance(question, AskClusterSums) and isinstance(reply, ClusterSums):
        for c, s, n, inertia in zip(question.centers, reply.sums, reply.mass, reply.inertia, strict=True):
            squares = inertia + 2 * (c * s).sum(axis=1) + n * (c**2).sum(axis=1)
            cells.add(n, s + n[:, None] * c, squares)
            if (n > 0).any():  # the whole set is a cell too, from which a missing row can be subtracted
                cells.add(n.sum(keepdims=True), (s + n[:, None] * c).sum(axis=0)[None], squares.sum()[None])
    elif isinstance(question, AskMoments) and isinstance(reply, Moments):
        origin = np.zeros(len(reply.sums)) if question.origin is None else question.origin
        n = reply.mass
        squares = (reply.squares + 2 * origin * reply.sums + n * origin**2).sum()[None]
        cells.add(n, (reply.sums + n * origin)[None], squares)
    elif isinstance(question, AskLocalMeans) and isinstance(reply, LocalMeans) and len(reply.counts):
        cells.add(reply.counts, reply.means * reply.counts[:, None], np.full(len(reply.counts), np.nan))


def attack(views: Iterable[ShownCells]) -> Attack:
    """All three attacks on all cells, view by view."""
    single: list[FloatArray] = []
    differences: list[FloatArray] = []
    count = 0
    for view in views:
        n, sums, squares = view.arrays()
        count += len(n)
        single.append(sums[np.abs(n - 1) < 1e-9])
        differences.extend(_differing_by_one(n, sums, squares))
    width = single[0].shape[1] if single else 0
    same = [s for s in single if s.shape[1] == width]
    return Attack(
        count,
        np.concatenate(same) if same else np.zeros((0, 0)),
        np.concatenate([d for d in differences if d.shape[1] == width])
        if differences
        else np.zeros((0, width)),
    )


def _differing_by_one(n: FloatArray, sums: FloatArray, squares: FloatArray) -> Iterator[FloatArray]:
    size = max(float(np.nanmax(np.abs(squares), initial=1e-300)), 1e-300)
    for a in range(0, len(n), _AT_ONCE):
        block = slice(a, a + _AT_ONCE)
        apart = np.abs(n[block, None] - n[None] - 1) < 1e-9
        i, j = np.nonzero(apart)
        for b in range(0, len(i), 200_000):
            p, q = i[b : b + 200_000] + a, j[b : b + 200_000]
            rows = sums[p] - sums[q]
            fits: BoolArray = np.abs(squares[p] - squares[q] - (rows**2).sum(axis=1)) <= _FIT * size
            yield rows[fits]


def on_log(path: Path) -> Attack:
    """The attacks on a site's own log."""
    views: dict[str, ShownCells] = {}
    for _, entry in entries(path):
        if entry is None or entry.get("kind") != "release":
            continue
        replies = codec.decode(unpacked(entry["payload"])).replies
        for asked, reply in zip(entry["asked"], replies, strict=True):
            view = views.setdefault(str(asked["view"]), ShownCells())
            cells_of(codec.decode(unpacked(asked["payload"])), reply, view)
    return attack(view for view in views.values() if view.n)


# ---------------------------------------------------------------- an active attacker


def probe(
    ask: Callable[[Question[Any]], Reply | None],
    mean: FloatArray,
    sd: FloatArray,
    queries: int,
    rng: np.random.Generator,
) -> Attack:
    """Attack with questions that isolate rows: two centres whose border moves across the data, by bisection.

    In a random direction the border is moved until both sides are shown, then closer and closer to where a
    count changes; sides that differ by one row are left to the differences. ``ask`` puts one question of two
    centres to a site and returns None for a refusal.
    """
    cells, left = ShownCells(), queries
    while left > 0:
        direction = rng.standard_normal(len(mean))
        direction *= sd / np.linalg.norm(direction)
        known: dict[float, float] = {}
        for step in range(min(10, left)):
            left -= 1
            offset = _next_offset(known, step, rng)
            far = 3.0
            centers = np.stack([mean + (offset - far) * direction, mean + (offset + far) * direction])
            question = AskClusterSums(centers[None])
            reply = ask(question)
            if isinstance(reply, ClusterSums):
                cells_of(question, reply, cells)
                known[offset] = float(reply.mass[0, 1])
    return attack([cells]) if cells.n else Attack(0, np.zeros((0, len(mean))), np.zeros((0, len(mean))))


def _next_offset(known: dict[float, float], step: int, rng: np.random.Generator) -> float:
    """The next offset: between the two whose counts are closest but unequal, or a random one in the tail."""
    if step < 2 or len(known) < 2:
        return float(rng.uniform(1.0, 2.5))
    offsets = sorted(known)
    gaps = [(abs(known[a] - known[b]), a, b) for a, b in pairwise(offsets)]
    wide = [gap for gap in gaps if gap[0] >= 2]
    if not wide:
        return float(rng.uniform(0.5, 2.5))
    _, a, b = min(wide)
    return (a + b) / 2


def in_process(site_answer: Callable[[Any], Any]) -> Callable[[Question[Any]], Reply | None]:
    """A function that puts single questions to ``Site.answer``, each in a round of its own."""
    rounds = iter(range(10**9))

    def ask(question: Question[Any]) -> Reply | None:
        post = Envelope(Turn("probe", 0, next(rounds), 0), (Part("total", question, None, 0),))
        (reply,) = site_answer(post).replies
        return None if isinstance(reply, Refusal) else reply

    return ask
