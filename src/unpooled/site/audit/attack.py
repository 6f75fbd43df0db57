"""Reconstruction attacks on the messages that left a site: rows recovered from them alone.

The figures of a cell give its count n, its sum S and, by its inertia, its sum of squares Q:

- a cell of one row is a row;
- a set of cells holds all rows: if one row is missing from their total, it is the difference;
- two sets of rows that differ by one row x have n - n' = 1 and S - S' = x. The attacker can verify this,
  because then Q - Q' = |x|^2, which holds for hardly any other pair.

The sets are unions of the cells of one question (known_sums.py), compared with those of all others
(search.py). A row that is found is subtracted from its cell in every question, by the centres that were sent;
then there are more cells of one row, and more sets that differ by one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.transforms import Affine, Category, Preparation
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId
from unpooled.protocol.messages import Question, Refusal, Reply
from unpooled.protocol.questions.cluster_sums import AskClusterSums, ClusterSums
from unpooled.protocol.transform import Transform
from unpooled.site.audit.known_sums import CellDisclosures, Space, disclosed_in
from unpooled.site.audit.search import rows_in
from unpooled.site.log import entries, unpacked
from unpooled.typing import FloatArray, Rows


@dataclass(frozen=True, eq=False)
class Attack:
    """The result of attacks: recovered rows (m, d), in the units of the table.

    ``single`` were disclosed in a cell of their own, ``differences`` follow from several cells. ``masked`` is
    the number of answers in secure sums, which the attack cannot read: only the coordinator has the sums.
    """

    cells: int
    single: FloatArray
    differences: FloatArray
    masked: int = 0

    @property
    def not_judged(self) -> str:
        """A sentence on the answers that the attack could not read; "" if there are none."""
        if not self.masked:
            return ""
        some = (
            "1 answer was masked and is"
            if self.masked == 1
            else f"{self.masked:,} answers were masked and are"
        )
        return f"{some} not judged here: only the coordinator can read their sums over the sites."

    @property
    def rows(self) -> FloatArray:
        """(m, d) distinct recovered rows."""
        both = np.concatenate([self.single, self.differences])
        if not len(both):
            return both
        scale = np.maximum(np.ptp(both, axis=0), 1e-6 * np.abs(both).max(axis=0) + 1e-300)
        _, first = np.unique(np.round(both / scale * 1e6), axis=0, return_index=True)
        return both[np.sort(first)]

    def hits(self, X: Rows) -> int:
        """Return the number of rows of X (n, d) that were recovered."""
        if not len(self.rows):
            return 0
        from scipy.spatial import cKDTree

        scale = np.maximum(np.asarray(X).std(axis=0), 1e-12)
        near, _ = cKDTree(self.rows / scale).query(np.asarray(X) / scale)
        return int((near < 1e-4).sum())


def attack(spaces: Iterable[Space]) -> Attack:
    """Search all disclosed cells. Spaces of one table share rows; of several tables the worst counts."""
    tables: dict[str, list[Space]] = {}
    cells = 0
    for space in spaces:
        space.prepare()
        cells += _distinct_cells(space)
        tables.setdefault(space.table, []).append(space)
    results = [_attack_table(same, cells) for same in tables.values()]
    none = np.zeros((0, 0))
    return max(results, key=lambda result: len(result.rows), default=Attack(cells, none, none))


def _attack_table(spaces: list[Space], cells: int) -> Attack:
    """Search every space of one table; a row found in one is subtracted in the others, and these searched."""
    single: list[FloatArray] = []
    differences: list[FloatArray] = []

    def subtract_elsewhere(space: Space, row: FloatArray) -> None:
        for other in spaces:
            if other is not space and other.take(other.from_own_units(space.own_units(row))):
                open_spaces.add(id(other))

    open_spaces = set(map(id, spaces))
    for space in spaces:
        for row in space.alone():
            if space.take(row):
                single.append(space.own_units(row))
                subtract_elsewhere(space, row)
    while open_spaces:
        for space in spaces:
            if id(space) in open_spaces:
                open_spaces.discard(id(space))
                for row in rows_in(space):
                    differences.append(space.own_units(row))
                    subtract_elsewhere(space, row)
    empty = np.zeros((0, spaces[0].width))
    alone, apart = (np.stack(rows) if rows else empty for rows in (single, differences))
    return Attack(cells, alone, apart)


def _distinct_cells(space: Space) -> int:
    """The number of different disclosed cells."""
    cells = [np.column_stack(s.about(space.origin)[:2])[s.n > 0] for s in space.disclosed]
    if not cells:
        return 0
    return len(np.unique(np.round(np.concatenate(cells) / space.spread**0.5, 6), axis=0))


Reading = Callable[[Question[Any], Reply], Iterable[CellDisclosures]]
"""A function that yields the cells that an attacker reads from a reply."""


def on_log(path: Path, read: Reading = disclosed_in) -> Attack:
    """Attack a site's own log."""
    spaces: dict[tuple[str | None, int], Space] = {}
    transforms: dict[str, Transform] = {}
    masked = 0
    for _, entry in entries(path):
        if entry is None or entry.get("kind") != "release":
            continue
        transforms |= {
            name: codec.decode(unpacked(transform)) for name, transform in entry.get("transforms", {}).items()
        }
        replies = codec.decode(unpacked(entry["payload"])).replies
        masked += sum(asked["masked"] and asked["verb"] != STAGE for asked in entry["asked"])
        for asked, reply in zip(entry["asked"], replies, strict=True):
            for cells in read(codec.decode(unpacked(asked["payload"])), reply):
                key = (asked["transform"], cells.points.shape[1])
                if key not in spaces:
                    spaces[key] = _space(key[0], transforms.get(str(key[0])), key[1])
                spaces[key].disclosed.append(cells)
    return replace(attack(spaces.values()), masked=masked)


def _space(name: str | None, transform: Transform | None, width: int) -> Space:
    """An empty space; transforms that scale the same columns are of one table."""
    if isinstance(transform, Affine):
        return Space(width, f"rows of {width}", *transform.scaling())
    if isinstance(transform, Preparation):
        columns = [
            (c.name, c.categories if isinstance(c, Category) else (), c.fill) for c in transform.columns
        ]
        return Space(width, f"{columns} {transform.drop}", *transform.scaling())
    return Space(width, f"rows of {width}" if name is None else name)


# ---------------------------------------------------------------- an active attacker


def probe(
    ask: Callable[[Question[Any]], Reply | None],
    mean: FloatArray,
    sd: FloatArray,
    queries: int,
    rng: np.random.Generator,
) -> Attack:
    """Attack with questions that isolate rows: two centres whose border moves across the data, by bisection.

    In a random direction the border is moved until both sides are disclosed, then closer and closer to where
    a count changes; sides that differ by one row are left to the differences. ``ask`` sends one question with
    two centres to a site and returns None for a refusal.
    """
    space, left = Space(len(mean)), queries
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
                space.disclosed.extend(disclosed_in(question, reply))
                known[offset] = float(reply.mass[0, 1])
    return attack([space])


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
    """Return a function that sends single questions to ``Site.answer``, each in a round of its own."""
    rounds = iter(range(10**9))

    def ask(question: Question[Any]) -> Reply | None:
        request = Request(RequestId("probe", 0, next(rounds), 0), (Part("total", question, None, 0),))
        (reply,) = site_answer(request).replies
        return None if isinstance(reply, Refusal) else reply

    return ask
