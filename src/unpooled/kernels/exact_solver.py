"""The exact node solver: k-means with a price on every centroid, by branch and bound in C++.

    minimise  sum_j w_j min_k |y_j - m_k|^2 + sum_k q_k . m_k

over centroids m_k in boxes and, if asked, cells.

``lower`` is a valid lower bound whatever stopped the search: it is rounded down, for the numbers as given.
"""

import importlib
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unpooled.errors import InputError

from .results import Floats

SYMMETRIES = {"none": 0, "cell": 1, "pair": 2, "published": 3}
MAX_CLUSTERS, MAX_COLUMNS = 32, 64  # what the solver has room for


NEEDS_COMPILED = (
    "exact solving and its bounds need the compiled package, and this is the one for any machine. "
    "Install a wheel for your system, or from source with a C++ compiler"
)


class Exact(NamedTuple):
    """A solved node."""

    centers: Floats  # (k, d) of the best partition found
    labels: NDArray[np.int32]  # (n,)
    value: float  # its cost, rounded up; with cells or couplings its dual bound
    lower: float  # no partition costs less; rounded down
    nodes: int  # visited by the search
    complete: bool  # the search ran to its end
    proved: bool  # and, without prices, boxes and cells, lower >= value (1 - 1e-9)
    before: int = 0  # nodes of the searches for the remaining rows, which come before it


def available() -> bool:
    """Return whether the extension was built."""
    try:
        importlib.import_module("._native", __package__)
    except ImportError:
        return False
    return True


def _compiled() -> Any:
    """The extension module; InputError where the package has none."""
    try:
        return importlib.import_module("._native", __package__)
    except ImportError:
        raise InputError(NEEDS_COMPILED) from None


def check_room(d: int, k: int) -> None:
    """Raise InputError beyond the numbers of clusters and columns that the solver has room for."""
    for what, number, most in (("clusters", k, MAX_CLUSTERS), ("columns", d, MAX_COLUMNS)):
        if number > most:
            raise InputError(f"{number} {what}: exact solving is out of reach beyond {most}")


def exact(
    X: Floats,
    k: int,
    *,
    weights: Floats | None = None,
    prices: Floats | None = None,
    lower: Floats | None = None,
    upper: Floats | None = None,
    symmetry: str = "none",
    references: Floats | None = None,
    cells: NDArray[Any] | None = None,
    warm: NDArray[np.int32] | None = None,
    starts: int = 10,
    nodes: int = 2**62,
    seconds: float = np.inf,
    memory: dict[str, Any] | None = None,
) -> Exact:
    """Solve a node: rows (n, d), prices (k, d), a box from ``lower`` to ``upper`` (k, d) per centroid.

    Without a box the rows' own is taken, which is right where there are no prices. ``symmetry`` "cell" keeps
    centroid j in the Voronoi cell of ``references[cells[j]]``; "pair" and "published" couple centroid j to
    ``references[j]``. ``memory`` keeps what depends on the rows alone for the next call.

    >>> solved = exact(np.array([[0.0], [0.2], [5.0], [5.4]]), 2)
    >>> sorted(solved.centers.ravel().round(6).tolist()), round(solved.value, 3), solved.proved
    ([0.1, 5.2], 0.1, True)
    """
    native = _compiled()
    X = np.ascontiguousarray(X, np.float64)
    n, d = X.shape
    check_room(d, k)
    w = np.ones(n) if weights is None else np.ascontiguousarray(weights, np.float64)
    kept = w > 0
    if not kept.all():
        warm = None if warm is None else warm[kept]
        inner = exact(
            X[kept], k, weights=w[kept], prices=prices, lower=lower, upper=upper, symmetry=symmetry,
            references=references, cells=cells, warm=warm, starts=starts, nodes=nodes, seconds=seconds,
            memory=memory,
        )  # fmt: skip
        labels = np.zeros(n, np.int32)
        labels[kept] = inner.labels
        return inner._replace(labels=labels)
    if not n:
        return _without_rows(k, d, prices, lower, upper)
    low = np.broadcast_to(X.min(axis=0) if lower is None else lower, (k, d))
    high = np.broadcast_to(X.max(axis=0) if upper is None else upper, (k, d))
    r = np.zeros((0, d)) if references is None else np.ascontiguousarray(references, np.float64)
    at = np.arange(k) if cells is None else cells
    cache = {} if memory is None else memory
    rows = f"suffix {k} {blake2b(X.tobytes() + w.tobytes(), digest_size=16).hexdigest()}"
    known = rows in cache
    suffix = cache[rows] if known else np.zeros(n + 1)
    out = Exact(np.empty((k, d)), np.zeros(n, np.int32), 0.0, 0.0, 0, False, False)
    value, bound, visited, before, complete, proved = native.exact(
        X,
        w,
        None if prices is None else np.ascontiguousarray(prices, np.float64),
        np.ascontiguousarray(low, np.float64),
        np.ascontiguousarray(high, np.float64),
        SYMMETRIES[symmetry],
        r,
        np.ascontiguousarray(at, np.int32),
        None if warm is None else np.ascontiguousarray(warm, np.int32),
        starts,
        nodes,
        seconds,
        suffix,
        known,
        out.centers,
        out.labels,
    )
    cache[rows] = suffix
    return out._replace(
        value=value, lower=bound, nodes=visited, complete=complete, proved=proved, before=before
    )


class BudgetBound(NamedTuple):
    """A lower bound from budgets of rows."""

    lower: float  # no k clusters cost less; rounded down
    labels: NDArray[np.int32]  # (n,) the clustering of the linear programme, often the best one
    rounds: int
    boxes: int
    work: int  # steps of arithmetic, counted roughly
    nodes: int  # cases that were distinguished
    converged: bool  # budgets cannot do better, without such cases


def budget_bound(
    X: Floats,
    k: int,
    labels: NDArray[Any],
    *,
    weights: Floats | None = None,
    goal: float = 1e-3,
    rounds: int = 300,
    boxes: int = 200_000,
    work: int = 2**62,
    seconds: float = np.inf,
    nodes: int = 0,
) -> BudgetBound:
    """A lower bound on the inertia of any k clusters of the rows (n, d), by column generation.

    ``labels`` is a good clustering to start from. The search ends when the bound is within the share ``goal``
    of the best that budgets can give, or when ``rounds`` of the linear programme, ``boxes`` of centroids or
    ``work`` (steps of arithmetic) are spent, or ``seconds``; the bound holds in any case. In few columns it
    is mostly the optimum; where it is not, up to ``nodes`` cases are distinguished, in which two rows are in
    one cluster or not.

    >>> X = np.array([[0.0], [0.2], [5.0], [5.4]])
    >>> round(budget_bound(X, 2, np.array([0, 0, 1, 1]), goal=1e-9).lower, 6)
    0.1
    """
    native = _compiled()
    X = np.ascontiguousarray(X, np.float64)
    check_room(X.shape[1], k)
    w = np.ones(len(X)) if weights is None else np.ascontiguousarray(weights, np.float64)
    own = np.array(labels, dtype=np.int32)
    lower, took, bounded, spent, cases, converged = native.budget_bound(
        X, w, k, own, goal, rounds, boxes, work, seconds, nodes
    )
    return BudgetBound(lower, own, took, bounded, spent, cases, converged)


class SemidefiniteBound(NamedTuple):
    """A lower bound from a semidefinite programme."""

    lower: float  # no k clusters cost less; rounded down
    work: int  # steps of arithmetic, counted roughly
    rounds: int
    unique: bool  # no clustering is better than the given one: the bound is its cost


def semidefinite_bound(
    X: Floats,
    k: int,
    labels: NDArray[Any],
    *,
    weights: Floats | None = None,
    goal: float = 1e-3,
    work: int = 2**62,
    seconds: float = np.inf,
) -> SemidefiniteBound:
    """A lower bound on the inertia of any k clusters of the rows (n, d), by a semidefinite programme.

    The number of columns does not matter, that of rows does: a step takes n^3, and there are some hundreds to
    thousands. ``labels`` is a good clustering, near whose cost the bound ends; where the programme shows that
    no other is better, the bound is that cost. The search ends when the bound is within the share ``goal`` of
    it, no longer rises, or ``work`` (steps of arithmetic) or ``seconds`` are spent; it holds in any case.

    >>> X = np.array([[0.0], [0.2], [5.0], [5.4]])
    >>> bound = semidefinite_bound(X, 2, np.array([0, 0, 1, 1]))
    >>> round(bound.lower, 6), bound.unique
    (0.1, True)
    """
    native = _compiled()
    X = np.ascontiguousarray(X, np.float64)
    check_room(X.shape[1], k)
    w = np.ones(len(X)) if weights is None else np.ascontiguousarray(weights, np.float64)
    own = np.ascontiguousarray(labels, np.int32)
    return SemidefiniteBound(*native.semidefinite_bound(X, w, k, own, goal, work, seconds))


def deal(
    X: Floats, k: int, labels: NDArray[Any], parts: int, *, weights: Floats | None = None, sweeps: int = 3
) -> NDArray[np.int32]:
    """(n,) the number of the part that each row is dealt to, such that every part looks like the whole.

    Rows go round robin by cluster and distance to its mean. Then ``sweeps`` times, rows of a cluster swap
    parts where that brings the cluster's means in both parts nearer to its mean over all rows.

    >>> deal(np.array([[0.0], [1.0], [2.0], [3.0]]), 1, np.zeros(4), 2).tolist()
    [1, 0, 0, 1]
    """
    native = _compiled()
    X = np.ascontiguousarray(X, np.float64)
    w = np.ones(len(X)) if weights is None else np.ascontiguousarray(weights, np.float64)
    part = np.zeros(len(X), np.int32)
    native.deal(X, w, k, np.ascontiguousarray(labels, np.int32), parts, sweeps, part)
    return part


def _without_rows(k: int, d: int, prices: Floats | None, lower: Floats | None, upper: Floats | None) -> Exact:
    """A node without rows pays for prices alone, over the boxes; its cells would only raise the bound."""
    q = np.zeros((k, d)) if prices is None else prices
    low = np.broadcast_to(0.0 if lower is None else lower, (k, d))
    high = np.broadcast_to(0.0 if upper is None else upper, (k, d))
    at = np.where(q > 0, low, high)
    paid = q * at
    value, error = float(paid.sum()), 2.0**-52 * (k * d + 2) * float(np.abs(paid).sum())
    return Exact(np.array(at), np.zeros(0, np.int32), value + error, value - error, 0, True, True)
