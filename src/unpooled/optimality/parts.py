"""A lower bound from parts: for rows split in any way, the sum of the parts' optima is at most the optimum of
all rows.

Every site cuts its rows into parts that each look like the whole, bounds every part, and sends the sum. The
limits of the searches are numbers of steps, never times, so that the same rows give the same bits everywhere.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from math import ceil, fsum, inf, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unpooled import kernels
from unpooled.errors import InputError
from unpooled.kernels.exact_solver import budget_bound, deal, exact, semidefinite_bound
from unpooled.typing import FloatArray


class Effort(NamedTuple):
    """The limits of the search in a part, the rows of the largest parts, and the work in all."""

    rows: int  # at least; more for many clusters
    rows_per_cluster: int
    nodes: int  # of branch and bound over partitions
    boxes: int  # of column generation; too few end a search that work would let end well
    goal: float  # the share of the bound that column generation may leave
    work: float  # steps of arithmetic for up to 10,000 rows, about 2e9 to a second; in proportion beyond


EFFORTS = {
    "quick": Effort(100, 14, 50_000, 100_000, 3e-3, 2e10),
    "normal": Effort(160, 20, 500_000, 400_000, 1e-3, 1.2e11),
    "thorough": Effort(240, 30, 5_000_000, 1_000_000, 3e-4, 1.2e12),
}
FEW_COLUMNS = 8  # up to which column generation comes before the semidefinite programme
_SMALLER = (1.0, 0.5, 0.3, 0.2, 0.14)  # of the largest part: sizes that are tried
_ONE = 2.5  # of the largest part: up to so many rows, all are tried as one part as well
_FIRST = 0.3  # of the work: for all rows as one part, where there are more than of the largest part
_TRIED = 2  # parts of each size
_TRIALS = (0.4, 0.6)  # of the work that is left: for sizes that are tried, also after all rows as one part
_AGAIN = 0.2  # of the work: after that no second way to cut the rows is begun
_PER_CELL = 4  # rows of a cell in every part, where clusters are dealt in cells
_FEW = 15  # rows that branch and bound solves at once
_WHOLE = 1e-5  # the share of the bound that column generation may leave where all rows are one part
_LONGEST = (
    250  # rows of a semidefinite programme, and of branch and bound where column generation does not end
)
_FLAT = 3  # columns, up to which a semidefinite programme is no better than column generation
_STEPS = 100  # fewer steps of a semidefinite programme come to nothing
_STARTS = 10  # of k-means, whose best clustering column generation starts from
_GOOD = 0.995  # of the cost at the given centres: no smaller parts are tried

# called with the numbers of bounded parts and of all parts, where that happens in this process
progress: ContextVar[Callable[[int, int], None] | None] = ContextVar("progress", default=None)


class _Work:
    """Steps of arithmetic: the limit, and what was spent. Counted, never timed, so that bounds repeat."""

    def __init__(self, limit: float) -> None:
        self.limit, self.spent = limit, 0.0

    def left(self) -> float:
        return max(0.0, self.limit - self.spent)


def bound_by_parts(X: FloatArray, centers: FloatArray, effort: Effort, weights: FloatArray) -> float:
    """Return a lower bound on the inertia of any k centres of these rows; good ``centers`` help to find it.

    Parts of several sizes are tried: large ones lose less by being apart, small ones are solved to the end.
    Where rows are few, all of them are one part.
    Clusters are dealt as a whole, or in small cells, which pays for many clusters. What is left of the work
    is shared out evenly among the parts that are left.

    >>> X = np.array([[0.0], [1.0], [4.0], [5.0]])
    >>> round(bound_by_parts(X, np.array([[0.5], [4.5]]), EFFORTS["quick"], np.ones(4)), 9)
    1.0
    """
    return bound_and_work(X, centers, effort, weights)[0]


def bound_and_work(
    X: FloatArray, centers: FloatArray, effort: Effort, weights: FloatArray
) -> tuple[float, float]:
    """Return the bound, and the steps of arithmetic that it took."""
    X, w = X[weights > 0], weights[weights > 0]
    k, n = len(centers), len(X)
    if n <= k:
        return 0.0, 0.0
    labels, away = kernels.nearest(X, centers)
    with np.errstate(over="ignore", invalid="ignore"):
        cost = float(w @ away)
    if not isfinite(cost):
        raise InputError("squares of such numbers are beyond float64. Scale them")
    largest = max(effort.rows, effort.rows_per_cluster * k)
    counts = sorted({max(1, ceil(n / max(largest * share, 2 * k + 1))) for share in _SMALLER})
    work, tell = _Work(effort.work * max(1.0, n / 10_000)), progress.get()
    ways: list[_Way] = []
    if n <= _ONE * largest:
        allowed = work.left() * (1.0 if n <= largest else _FIRST)
        lower, ended = _bound_part(X, k, labels, np.ones(n, dtype=bool), effort, w, work, allowed, _WHOLE)
        if ended or lower >= _GOOD * cost:
            return sum_below([lower]), work.spent  # no parts of these rows have a higher sum
        ways.append(_Way(lower / cost, np.zeros(n, dtype=np.int32), [lower]))
    tries = [(count, fine) for count in counts for fine in (False, True) if count > 1]
    trials = work.spent + _TRIALS[work.spent > 0] * work.left()
    for number, (count, fine) in enumerate(tries):
        cells = _cells(X, labels, _PER_CELL * count) if fine else labels
        part = deal(X, int(cells.max()) + 1, cells, count, weights=w)
        left, found = _TRIED * (len(tries) - number), []
        for p in range(_TRIED):
            allowed = max(0.0, trials - work.spent) / (left - p)
            found.append(_bound_part(X, k, labels, part == p, effort, w, work, allowed)[0])
        tried = sum(float(w[part == p] @ away[part == p]) for p in range(_TRIED))
        ways.append(_Way(sum_below(found) / tried if tried > 0 else 1.0, part, found))
        if fine and max(way.share for way in ways) >= _GOOD:
            break
    highest, done = 0.0, _TRIED
    for number, way in enumerate(sorted(ways, key=lambda way: -way.share)):
        # the parts that were tried may have been better than the others: another way can be the best
        if number and (highest >= way.share * cost or work.spent > _AGAIN * work.limit):
            break
        parts = int(way.part.max()) + 1
        for p in range(len(way.bounds), parts):
            if tell is not None:
                tell(done, done + parts - p)
            done += 1
            allowed = work.left() / (parts - p)
            way.bounds.append(_bound_part(X, k, labels, way.part == p, effort, w, work, allowed)[0])
        highest = max(highest, sum_below(way.bounds))
    return highest, work.spent


class _Way(NamedTuple):
    """A way to cut rows into parts, some of which are bounded."""

    share: float  # of their cost at the given centres is below their bounds
    part: NDArray[np.int32]  # (n,)
    bounds: list[float]  # of the first parts


def _cells(X: FloatArray, labels: NDArray[np.int32], max_rows: int) -> NDArray[np.int32]:
    """(n,) cells of at most ``max_rows`` rows: clusters halved in their widest column, and halved again.

    >>> _cells(np.array([[0.0], [1.0], [2.0], [9.0], [8.0]]), np.array([0, 0, 0, 1, 1]), 2).tolist()
    [0, 1, 1, 2, 2]
    """
    cells = np.empty(len(X), dtype=np.int32)
    number = 0
    left = [np.flatnonzero(labels == j) for j in range(int(labels.max()), -1, -1)]
    while left:
        rows = left.pop()
        if len(rows) > max_rows:
            widest = int(np.ptp(X[rows], axis=0).argmax())
            rows = rows[np.argsort(X[rows, widest], kind="stable")]
            left += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
        elif len(rows):
            cells[rows] = number
            number += 1
    return cells


def _bound_part(
    X: FloatArray,
    k: int,
    labels: NDArray[np.int32],
    inside: NDArray[np.bool_],
    effort: Effort,
    w: FloatArray,
    work: _Work,
    allowed: float,
    goal: float = inf,
) -> tuple[float, bool]:
    """A lower bound for the rows of a part, by column generation, by a semidefinite programme where that does
    not end or there are many columns, by branch and bound for few rows, or where neither ends. About a fifth
    of the work allowed is for branch and bound. And did a search end, or leave the goal of the effort at
    most?"""
    rows, weights, own = X[inside], w[inside], labels[inside]
    if len(rows) <= k:
        return 0.0, True
    lower = 0.0
    if len(rows) > _FEW:
        d = rows.shape[1]
        # from the part's own best clustering column generation takes a fraction of the rounds
        own = exact(rows, k, weights=weights, warm=own, starts=_STARTS, nodes=0).labels
        turns = ((False, 0.8),) if d <= _FLAT else ((False, 0.6), (True, 0.5))
        for by_rows, share in turns if d <= FEW_COLUMNS else ((True, 0.6), (False, 0.5)):
            some = int(min(share * allowed, 2**60))
            if by_rows and (len(rows) > _LONGEST or some < _STEPS * len(rows) ** 3):
                continue
            if by_rows:
                good = exact(rows, k, weights=weights, warm=own, starts=3, nodes=0)
                relaxation = semidefinite_bound(
                    rows, k, good.labels, weights=weights, goal=effort.goal, work=some
                )
                spent, ended, lower = relaxation.work, False, max(lower, relaxation.lower)
            else:
                columns = budget_bound(
                    rows, k, own, weights=weights, goal=min(effort.goal, goal), boxes=effort.boxes, work=some
                )
                good = exact(rows, k, weights=weights, warm=columns.labels, starts=0, nodes=0)
                spent, ended, lower = columns.work, columns.converged, max(lower, columns.lower)
            own = good.labels
            work.spent += spent
            allowed -= spent
            if ended or lower >= good.value * (1 - effort.goal):
                return lower, True
        if len(rows) > _LONGEST:
            return lower, False
    a_node = 3.0 * len(rows) * k * k
    nodes = int(min(effort.nodes, max(allowed / a_node, 10 * len(rows))))
    solved = exact(rows, k, weights=weights, warm=own, starts=3, nodes=nodes)
    work.spent += (solved.nodes + solved.before + 10 * len(rows)) * a_node
    return max(lower, solved.lower), solved.complete


def not_above(lower: float, inertia: float) -> float:
    """Return the lower bound; AssertionError if it is above the cost of given centres, beyond rounding.

    >>> not_above(1.0, 2.0), not_above(2.0 + 1e-12, 2.0)
    (1.0, 2.0)
    >>> not_above(2.1, 2.0)
    Traceback (most recent call last):
    AssertionError: a lower bound of 2.1 is above an inertia of 2.0: it is false
    """
    if lower > inertia * (1 + 1e-9) + 1e-290:
        raise AssertionError(f"a lower bound of {lower!r} is above an inertia of {inertia!r}: it is false")
    return min(lower, inertia)


def sum_below(bounds: Iterable[float]) -> float:
    """Return the sum of lower bounds, rounded down, and not below 0.

    >>> sum_below([0.1, 0.2]) < 0.1 + 0.2, sum_below([])
    (True, 0.0)
    """
    return max(0.0, float(np.nextafter(fsum(bounds), -np.inf)))
