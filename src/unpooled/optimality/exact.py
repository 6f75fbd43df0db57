"""``exact_kmeans``: the optimal clustering, with a proof, for the few dozen rows for which that is feasible.

Branch and bound over partitions (kernels/exact_solver.py). A search that runs out of time still gives a lower
bound on every clustering, so the result always states its largest possible distance from the optimum. Bounds
are rounded down and inertias up: they hold for the float64 rows as given, exactly.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpooled import kernels
from unpooled.data import validation as inputs
from unpooled.errors import InputError
from unpooled.kernels.exact_solver import (
    NEEDS_COMPILED,
    Exact,
    available,
    budget_bound,
    check_room,
    deal,
    exact,
    semidefinite_bound,
)
from unpooled.optimality.parts import FEW_COLUMNS, not_above, sum_below
from unpooled.typing import FloatArray

MAX_ROWS = 2000  # the search keeps n^2 k numbers
_FIRST = 20_000  # nodes of branch and bound before column generation
_BOXES = 2_000_000  # of column generation
_CASES = 2000  # that column generation tells apart
_MAX_GENERATED = 250  # rows of its linear programme
_STEPS = 10**11  # of the semidefinite programme: less than a minute
_PROBE = 2.0  # seconds after which an unlimited search estimates its remaining time
_LONGEST = 600.0  # expected seconds beyond which it stops unless a limit is given
_PROVED = 1e-9  # the largest gap that counts as none


@dataclass(frozen=True, eq=False)
class ExactKMeans:
    """The result of ``exact_kmeans``."""

    centers: FloatArray  # (k, d) the means of the clusters, as near as float64 comes
    labels: NDArray[np.int32]  # (n,)
    inertia: float  # of these clusters about their exact means, rounded up
    lower_bound: float  # no k centres have a lower inertia; rounded down
    proved: bool  # the gap is at most 1e-9: no clustering is better by a larger share of its inertia

    @property
    def gap(self) -> float:
        """The largest possible distance of the inertia from the optimum: 1 - lower_bound / inertia."""
        return relative_gap(self.lower_bound, self.inertia)


def relative_gap(lower: float, upper: float) -> float:
    """Return the relative gap 1 - lower / upper, and 0 where both are zero.

    >>> relative_gap(3.0, 4.0), relative_gap(0.0, 0.0)
    (0.25, 0.0)
    """
    if lower >= upper:
        return 0.0
    return float(1 - lower / upper) if upper > 0 else float("inf")


def exact_kmeans(X: Any, k: int, *, time_limit: float | None = None) -> ExactKMeans:
    """Return the k-means optimum, proved by branch and bound.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows.
    k : int
        The number of clusters.
    time_limit : float or None
        Seconds after which the best clustering so far and its lower bound are returned. Without a limit the
        search runs to the end if a short probe expects that within ten minutes, and is refused with that
        estimate if not.

    Returns
    -------
    ExactKMeans
        Labels, centres and inertia, a lower bound of the inertia, and whether the optimum is proved.

    Raises
    ------
    InputError
        If the rows cannot be used, or the search would take too long.

    Examples
    --------
    >>> X = np.array([[0.0], [0.1], [0.2], [4.0], [4.2], [9.0]])
    >>> best = exact_kmeans(X, 3)
    >>> best.labels.tolist(), round(best.inertia, 3), best.proved
    ([0, 0, 0, 1, 1, 2], 0.04, True)
    """
    rows = check_rows(X, k)
    check_reach(len(rows), rows.shape[1], k)
    if time_limit is not None and not time_limit > 0:
        raise InputError(f"time_limit must be above 0 seconds, got {time_limit}")
    limit = np.inf if time_limit is None else float(time_limit)
    end = time.monotonic() + limit

    def left(share: float) -> float:
        """This share of the seconds that are left, because a search may leave time for the next one; at least
        some, even if an earlier search took too long."""
        return max(0.15 * limit, share * (end - time.monotonic()))

    solved = exact(rows, k, warm=_heuristic(rows, k), nodes=_FIRST, seconds=left(0.2))
    if solved.complete:
        return _result(solved, solved.lower)
    lower, warm = solved.lower, solved.labels
    for by_rows in (False, True) if rows.shape[1] <= FEW_COLUMNS else (True, False):
        if len(rows) > _MAX_GENERATED or lower >= solved.value * (1 - _PROVED):
            break
        if by_rows:
            relaxation = semidefinite_bound(rows, k, warm, goal=0.1 * _PROVED, work=_STEPS, seconds=left(0.6))
            lower = max(lower, relaxation.lower)
        else:
            columns = budget_bound(rows, k, warm, goal=1e-11, boxes=_BOXES, seconds=left(0.6), nodes=_CASES)
            lower = max(lower, columns.lower)
            found = exact(rows, k, warm=columns.labels, starts=0, nodes=0)
            solved = found if found.value < solved.value else solved
            warm = solved.labels
    if lower >= solved.value * (1 - _PROVED):
        return _result(solved, lower)
    if time_limit is not None:
        again = exact(rows, k, warm=warm, seconds=left(0.4))
        solved, lower = (again if again.value < solved.value else solved), max(lower, again.lower)
        if not again.complete:
            lower = max(lower, by_blocks(rows, k, warm, left(1.0)))
        return _result(solved, lower)
    solved = exact(rows, k, warm=warm, seconds=_PROBE)
    if solved.complete:
        return _result(solved, max(lower, solved.lower))
    expected = _expected_seconds(rows, k, warm)
    if expected > _LONGEST:
        raise InputError(
            f"k={k} clusters of {len(rows)} rows: a probe expects {_duration(expected)}, more than "
            f"{_duration(_LONGEST)}. Pass time_limit= for the best clustering and bound within that time"
        )
    return exact_kmeans(rows, k, time_limit=10 * _LONGEST)


def check_rows(X: Any, k: int) -> FloatArray:
    """Return X as finite float64 rows; InputError unless at least k of them are distinct."""
    inputs.check_text(X)
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 1:
        raise InputError(f"X must be rows by columns, got shape {rows.shape}")
    inputs.check_finite(rows, "X")
    if not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number >= 1, got {k!r}")
    inputs.check_enough({"X": rows}, None, int(k))
    half = 0.5 * rows.max(axis=0) - 0.5 * rows.min(axis=0)
    with np.errstate(over="ignore"):
        if not len(rows) * float(half @ half) < 1e308:  # what all rows about one centre can cost
            raise InputError(
                f"rows differ by up to {2 * half.max():.0e}: squares of such numbers are beyond float64. "
                "Scale them"
            )
    return np.ascontiguousarray(rows)


def check_reach(n: int, d: int, k: int) -> None:
    """Raise InputError beyond the solver's limits on rows, clusters and columns."""
    if not available():
        raise InputError(NEEDS_COMPILED)
    if n > MAX_ROWS:
        raise InputError(f"{n} rows: exact solving is out of reach beyond {MAX_ROWS}")
    check_room(d, k)


def _heuristic(X: FloatArray, k: int) -> NDArray[np.int32]:
    """Labels of a good clustering to start from; a fixed seed makes it repeatable."""
    size = np.abs(X).max()
    if not 1e-100 < size < 1e100 and size > 0:
        X = np.ldexp(X, -int(np.frexp(size)[1]))  # where squares neither overflow nor vanish
    clustering = kernels.kmeans(
        X, np.array([0, len(X)]), k, np.array([1], dtype=np.uint64), n_init=20, swaps=10
    )
    return kernels.nearest(X, clustering.centers[0]).labels


def _result(solved: Exact, lower: float) -> ExactKMeans:
    """The result with clusters numbered by first appearance, so that equal clusterings have equal labels."""
    order = list(dict.fromkeys(solved.labels.tolist()))
    order += [j for j in range(len(solved.centers)) if j not in order]
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    inertia = solved.value
    bound = float(max(0.0, not_above(lower, inertia)))
    proved = bound >= inertia * (1 - _PROVED)
    return ExactKMeans(solved.centers[order], rank[solved.labels], inertia, bound, proved)


def by_blocks(X: FloatArray, k: int, labels: NDArray[np.int32], seconds: float) -> float:
    """Return the sum of the optima of blocks that resemble the whole: a lower bound on the optimum of all."""
    end = time.monotonic() + seconds
    best, size = 0.0, max(2 * k, 12)
    while size < len(X):
        count = -(-len(X) // size)
        block = deal(X, k, labels, count)
        bounds: list[float] = []
        for number in range(count):
            left = end - time.monotonic()
            if left <= 0:
                return max(best, sum_below(bounds))
            bounds.append(max(0.0, exact(X[block == number], k, starts=3, seconds=left).lower))
        best, size = max(best, sum_below(bounds)), int(1.5 * size) + 1
    return best


def _expected_seconds(X: FloatArray, k: int, warm: NDArray[np.int32]) -> float:
    """The expected time, extrapolated from the further rows that the search solves in twice the time."""
    rows = []
    for seconds in (_PROBE, 2 * _PROBE):
        memory: dict[str, Any] = {}
        if exact(X, k, warm=warm, seconds=seconds, memory=memory).complete:
            return seconds
        (suffix,) = memory.values()
        rows.append(len(X) - int(np.flatnonzero(suffix == suffix[0]).max()))
    gained = max(rows[1] - rows[0], 0.5)
    doublings = (len(X) - rows[1]) / gained
    return float(2 * _PROBE * 2.0 ** min(doublings, 200.0))


def _duration(seconds: float) -> str:
    """A time span in words.

    >>> _duration(90.0), _duration(1e5), _duration(1e12)
    ('90 seconds', '28 hours', 'years')
    """
    if seconds < 600:
        return f"{seconds:.0f} seconds"
    if seconds < 36000:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 3e6 else "years"
