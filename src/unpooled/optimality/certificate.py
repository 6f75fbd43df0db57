"""Bounds on the distance of given centres from the optimum, from totals only: by parts, then by prices.

The bound from parts is one total (parts.py). It is weak where the sites' rows differ much; for few rows a
search with prices can then close the gap.

That search is a branch and bound over boxes of centroids. Any k centroids lie in the cells of the references,
perhaps several in one cell: every multiset of cells is a part of the search (35 for k = 4). A part is halved
where its sites disagree, until no part can contain cheaper centroids. Sites return a lower bound per part,
summed over sites.

A site keeps its own prices. They come from its rows: q_k = 2 sum (y - m_k) over its cluster k, about
centres m that the coordinator sends, a Newton step of the dual function. Only their sum over the sites is
reported, and the bound is corrected for it: sum_i L_i(q_i) - max (sum_i q_i).m holds for any prices. So the
bound stays valid if a site loses its prices, and a cluster below a site's minimum has no price there.

Bounds are rounded down and the inertia up, here and at the sites.
"""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from unpooled.errors import InputError, ReplyError
from unpooled.optimality.bounds import (
    UNLIMITED,
    AskBounds,
    AskPartsBound,
    Bounds,
    PartsBound,
    half_widths,
    unit_for,
)
from unpooled.optimality.exact import relative_gap
from unpooled.optimality.questions import AskObjective
from unpooled.protocol.algorithm import Steps, together, total
from unpooled.protocol.messages import Message, SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.typing import FloatArray, IntArray

UNCONDITIONAL = "unconditional"
TOLERANCE = 1e-4  # the usual gap that counts as proved
MAX_CLASSES = 500  # multisets of cells that are still searched: up to k = 6
NODES = 50_000  # that a site's search visits for one part
_BATCH = 8  # parts of the search in one exchange


@dataclass(frozen=True, eq=False)
class Certificate(Message):
    """The bounds on a clustering's distance from the best possible."""

    centers: FloatArray  # (k, d) the given ones, or better ones if the search found them
    inertia: float  # of these centres
    input_inertia: float  # of the given ones
    lower_bound: float  # no k centres cost less
    condition: str  # always "unconditional": bounds of the dual methods may have a condition
    proved: bool  # the gap is at most the tolerance
    boxes: int  # of centroids that sites were asked about
    seconds: float
    sites: tuple[SiteId, ...]  # whose rows it is about
    missing: tuple[SiteId, ...]  # did not answer: it says nothing about their rows

    @property
    def gap(self) -> float:
        """The largest possible distance of ``centers`` from the optimum: 1 - lower_bound / inertia."""
        return relative_gap(self.lower_bound, self.inertia)

    @property
    def input_gap(self) -> float:
        """The largest possible distance of the given centres from the optimum."""
        return relative_gap(self.lower_bound, self.input_inertia)

    @property
    def sentence(self) -> str:
        """The certificate in one sentence for people."""
        k = len(self.centers)
        into = f"into {k} groups" if k > 1 else "into one group"
        bound = f"No clustering {into} can be more than {percent_above(self.input_gap)}% better"
        scope = f" for the rows of {', '.join(self.sites)}" if self.missing else ""
        without = f"; {', '.join(self.missing)} did not answer" if self.missing else ""
        return f"{bound}{scope}{without}."


def certificate_from_parts(
    centers: FloatArray, parts: PartsBound, sites: tuple[SiteId, ...], silent: tuple[SiteId, ...]
) -> Certificate:
    """Return the certificate of a bound from parts alone; ``silent`` sites did not answer."""
    inertia, lower = inertia_above(float(parts.inertia[0])), true_bound(parts)
    return Certificate(
        centers=centers,
        inertia=inertia,
        input_inertia=inertia,
        lower_bound=lower,
        condition=UNCONDITIONAL,
        proved=relative_gap(lower, inertia) <= TOLERANCE,
        boxes=0,
        seconds=float("nan"),
        sites=tuple(site for site in sites if site not in silent),
        missing=tuple(site for site in sites if site in silent),
    )


def percent_above(share: float) -> str:
    """Return the share in percent, with two digits, rounded up.

    >>> percent_above(0.01501), percent_above(0.0), percent_above(1e-12), percent_above(1.0)
    ('1.6', '0', '0.0001', '100')
    """
    smallest = Decimal("0.0001") if share > 0 else Decimal(0)
    percent = min(max(100 * Decimal(share), smallest), Decimal(100))
    text = f"{Context(2, ROUND_CEILING).create_decimal(percent):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(order=True, eq=True)
class _Part:
    """A box of centroids that is still open; ordered by its bound."""

    bound: float
    number: int
    low: FloatArray = field(compare=False)
    high: FloatArray = field(compare=False)
    cells: IntArray = field(compare=False)
    best: int = field(compare=False, default=-1)  # the evaluation that gave the bound
    last: "_Seen | None" = field(compare=False, default=None)
    seen: "_Seen | None" = field(compare=False, default=None)  # the result of that evaluation
    pace: float = field(compare=False, default=1.0)
    stale: int = field(compare=False, default=0)  # steps that hardly raised the bound


class _Seen(NamedTuple):
    """The position of the sites' centroids in an evaluation."""

    name: int
    value: float
    mean: FloatArray  # (k, d)
    spread: FloatArray  # (k, d) weighted squared deviations, added over sites
    means: FloatArray  # (k, d) of the rows, by the sites' partitions


class _Try(NamedTuple):
    part: _Part
    parent: int
    step: float
    centers: FloatArray


def bound_parts(
    sites: tuple[SiteId, ...], centers: FloatArray, effort: str, work: float = UNLIMITED
) -> Steps[PartsBound]:
    """Ask for a lower bound from parts of the sites' rows, and the inertia of the centres."""
    # down: the centres; up: their inertia, which says how finely bounds are rounded
    costs = yield from total(sites, AskObjective(centers[None]))
    inertia = float(costs.inertia[0])
    if not inertia < 1e290 or 0 < inertia < 1e-280:
        raise InputError(
            f"the inertia is {inertia:.0e}: squares of such numbers are beyond float64. Scale them"
        )
    # down: the centres; up: a sum of bounds, the inertia, the number of rows
    return (yield from total(sites, AskPartsBound(centers, effort, unit_for(inertia), work)))


def true_bound(parts: PartsBound) -> float:
    """Return the sum of the sites' bounds; ReplyError if it is above the cost of the given centres."""
    lower, inertia = float(parts.lower[0]), inertia_above(float(parts.inertia[0]))
    if lower > inertia * (1 + 1e-9) + 1e-290:
        raise ReplyError(
            f"the sites' bounds sum up to {lower:.9g}, above the inertia {inertia:.9g} that they report: the "
            "answer of a site is impossible"
        )
    return min(lower, inertia)


def search_prices(
    sites: tuple[SiteId, ...],
    centers: FloatArray,
    box: FloatArray,
    known: PartsBound,
    *,
    tolerance: float,
    boxes: int,
    seconds: float,
    nodes: int = NODES,
    clock: Callable[[], float] = time.monotonic,
    report: Callable[[str], None] = lambda text: None,
) -> "Steps[PriceSearchResult]":
    """Raise the bound ``known`` by prices until it is within ``tolerance`` of the inertia of the best
    centres, ``boxes`` were bounded, or time is up.

    ``box`` (2, d) encloses all rows.
    """
    started = clock()
    k = len(centers)
    search = _Search(sites, centers, box, tolerance, nodes)
    search.inertia, search.mass = inertia_above(float(known.inertia[0])), float(known.mass[0])
    search.classes = list(combinations_with_replacement(range(k), k))
    search.base = float(known.lower[0])
    search.begin()
    while search.unfinished and search.gap > tolerance and search.evaluations < boxes:
        left = seconds - (clock() - started)
        if left <= 0:
            break
        report(f"gap at most {percent_above(search.gap)}%, {search.evaluations} boxes of centroids bounded")
        yield from search.evaluate(search.next(), left)
    return PriceSearchResult(
        search.centers,
        search.inertia,
        float(search.lower),
        search.evaluations,
    )


class PriceSearchResult(NamedTuple):
    """The result of a search with prices."""

    centers: FloatArray  # (k, d)
    inertia: float
    lower: float
    boxes: int


def inertia_above(inertia: float) -> float:
    """Return an inertia from sites, rounded up: their sums of squares and the sum over sites are rounded."""
    return inertia * (1 + 4e-12)


_FIELDS = ("lower", "prices", "weight", "first", "second", "sums", "counts", "empty")


class _Search:
    """The open parts of the search, the best centres, and the rules for dividing parts."""

    def __init__(
        self, sites: tuple[SiteId, ...], centers: FloatArray, box: FloatArray, tolerance: float, nodes: int
    ) -> None:
        self.sites, self.centers, self.box, self.tolerance, self.nodes = sites, centers, box, tolerance, nodes
        self.references = centers
        self.classes: list[tuple[int, ...]] = []  # multisets of cells
        self.inertia, self.mass = np.inf, 0.0
        self.open: list[_Part] = []
        self.closed = np.inf  # the lowest bound of the parts that are closed as good enough
        self.base = 0.0  # a lower bound for all parts
        self.fresh: list[_Try] = []  # parts that were not evaluated yet
        self.misled = False  # better centres were found: restart, since their cells are better too
        self.numbers = self.evaluations = 0

    @property
    def lower(self) -> float:
        searched = min(self.open[0].bound if self.open else np.inf, self.closed, self.inertia)
        return max(self.base, searched if not self.fresh else 0.0)

    @property
    def unfinished(self) -> bool:
        return bool(self.open or self.fresh)

    @property
    def gap(self) -> float:
        return relative_gap(self.lower, self.inertia)

    def begin(self) -> None:
        """Start over with every multiset of cells of the best centres; one centroid per cell gets prices."""
        self.references, self.open, self.closed, self.fresh = self.centers, [], np.inf, []
        for cells in map(np.array, self.classes):
            own = np.array_equal(cells, np.arange(len(cells)))
            self.fresh.append(_Try(self.root(cells), -1, float(own), self.centers[cells]))

    def root(self, cells: IntArray) -> _Part:
        k = len(cells)
        return self._part(-np.inf, np.tile(self.box[0], (k, 1)), np.tile(self.box[1], (k, 1)), cells)

    def _part(self, bound: float, low: FloatArray, high: FloatArray, cells: IntArray, **known: Any) -> _Part:
        self.numbers += 1
        return _Part(bound, self.numbers, low, high, cells, **known)

    def next(self) -> list[_Try]:
        """The parts with the lowest bounds: another step of prices while steps help, else their halves."""
        if self.fresh:
            tries, self.fresh = self.fresh[:_BATCH], self.fresh[_BATCH:]
            return tries
        tries = []
        goal = self.inertia * (1 - self.tolerance)
        while self.open and len(tries) < _BATCH:
            part = heapq.heappop(self.open)
            assert part.last is not None
            assert part.seen is not None
            if part.bound >= goal:
                self.closed = min(self.closed, part.bound)
            elif part.stale < 3:
                # Polyak's step, with the best known inertia in place of the unknown dual optimum
                rise = 2 * float(part.last.spread.sum())
                step = part.pace * (self.inertia - part.last.value) / rise if rise > 0 else 0.0
                tries.append(_Try(part, part.last.name, min(step, 1.0), part.last.mean))
            else:
                tries += [
                    _Try(half, part.best, 0.0, part.seen.mean) for half in self._halves(part, part.seen)
                ]
        return tries

    def _halves(self, part: _Part, seen: _Seen) -> list[_Part]:
        """Two boxes, split in the coordinate in which the sites' centroids differ most."""
        width = part.high - part.low
        score = np.where(width > 1e-9 * (self.box[1] - self.box[0]), seen.spread + 1e-9 * width, 0.0)
        j, i = np.unravel_index(int(score.argmax()), score.shape)
        edge = 0.1 * width[j, i]
        upper, lower = part.high.copy(), part.low.copy()
        upper[j, i] = lower[j, i] = np.clip(seen.mean[j, i], part.low[j, i] + edge, part.high[j, i] - edge)
        known: dict[str, Any] = {"best": part.best, "seen": seen, "stale": 1}
        return [
            self._part(part.bound, part.low, upper, part.cells, **known),
            self._part(part.bound, lower, part.high, part.cells, **known),
        ]

    def evaluate(self, tries: list[_Try], seconds: float) -> Steps[None]:
        """Evaluate some parts in one exchange, and return them to the open ones with their new bounds."""
        if not tries:
            return
        parts = [t.part for t in tries]
        names = np.arange(self.evaluations, self.evaluations + len(tries))
        self.evaluations += len(tries)
        ask = AskBounds(
            low=np.stack([p.low for p in parts]),
            high=np.stack([p.high for p in parts]),
            cells=np.stack([p.cells for p in parts]),
            references=self.references,
            centers=np.stack([t.centers for t in tries]),
            steps=np.array([t.step for t in tries]),
            names=names,
            parents=np.array([t.parent for t in tries]),
            nodes=self.nodes,
            seconds=max(0.02, 0.5 * seconds / (len(tries) * len(self.sites))),  # beyond 1e9: no limit
        )
        candidates = np.stack([t.part.seen.means if t.part.seen else self.centers for t in tries])
        # down: boxes, and centres to move prices about; up: bounds, moments of the sites' centroids, summed
        asks: list[Steps[Any]] = [total(self.sites, ask), total(self.sites, AskObjective(candidates))]
        bounds, costs = yield from together(asks)
        yield from self._better(candidates, costs)
        if self.misled:
            self.misled = False
            self.begin()
            return
        for b, t in enumerate(tries):
            self._learn(t.part, int(names[b]), Bounds(*(getattr(bounds, f)[b] for f in _FIELDS)))

    def _learn(self, part: _Part, name: int, bounds: Bounds) -> None:
        """Update a part by the result of its evaluation, and put it back among the open ones."""
        q = bounds.prices
        paid = float((np.abs(q) * half_widths(part.low, part.high)).sum())
        value = float(bounds.lower) - paid - 2.0**-50 * (q.size + 2) * (abs(float(bounds.lower)) + paid)
        if bounds.empty > 0:
            return  # the box and the cells have no point in common
        weight = np.maximum(bounds.weight, 1e-300)[:, None]
        mean = bounds.first / weight
        mass = bounds.counts[:, None]
        means = np.where(mass > 0, bounds.sums / np.where(mass > 0, mass, 1.0), mean)
        seen = _Seen(name, value, mean, np.maximum(bounds.second - weight * mean**2, 0.0), means)
        left = self.inertia - max(part.bound, 0.0)
        helped = value - part.bound > 0.05 * left
        if part.last is not None or part.stale:
            part.stale = max(part.stale - 1, 0) if helped else part.stale + 1
            part.pace = part.pace if helped else 0.6 * part.pace
        part.last = seen
        if value > part.bound or part.best < 0:
            part.best, part.seen = name, seen
        part.bound = max(part.bound, value)
        heapq.heappush(self.open, part)

    def _better(self, centers: FloatArray, costs: object) -> Steps[None]:
        """Take over candidate centres that cost less than the best so far, after a few Lloyd steps."""
        inertia, mass = costs.inertia, costs.mass  # type: ignore[attr-defined]
        if mass[0] < self.mass * (1 - 1e-9) or inertia.min() >= self.inertia * (1 - 1e-9):
            return
        best = centers[int(inertia.argmin())][None]
        for _ in range(20):
            sums = yield from total(self.sites, AskClusterSums(best))
            after = sums.means(best)
            if np.allclose(after, best, rtol=0, atol=1e-12):
                break
            best = after
        costs = yield from total(self.sites, AskObjective(best))
        now = inertia_above(float(costs.inertia[0]))
        if now < self.inertia:
            gained = relative_gap(now, self.inertia)
            self.inertia, self.centers = now, best[0]
            self.misled = gained > self.tolerance
