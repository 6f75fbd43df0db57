"""The inner loops: nearest centres, Lloyd steps and whole k-means over the rows of many sites at once.

X (n, d) is C-contiguous float32 or float64 (a read-only array or a memory map will do) and never modified.
Site s owns the rows ``offsets[s]:offsets[s + 1]``, perhaps none. Weights are None or (n,) and not negative.
Whatever the number of threads, and whether a site is computed alone or stacked with others, its result is
the same to the last bit.

The compiled kernels are used where they were built. ``UNPOOLED_KERNELS=numpy`` forces the numpy ones;
``UNPOOLED_KERNELS=<instruction set>`` the compiled ones for that instruction set.
"""

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import reference
from .backend import Backend
from .compiled import Compiled
from .recall import Recall
from .reference_fuzzy import exponent
from .results import Floats, Fuzzy, KMeans, LocalSteps, MiniBatch, Nearest, Scatter, Totals

if TYPE_CHECKING:
    from .reference_rows import Rows

__all__ = [
    "BACKEND",
    "ISA",
    "Fuzzy",
    "KMeans",
    "LocalSteps",
    "MiniBatch",
    "Nearest",
    "Recall",
    "Scatter",
    "Totals",
    "fold",
    "fold_moves",
    "fuzzy",
    "kmeans",
    "local_steps",
    "memberships",
    "minibatch",
    "nearest",
    "scatter",
    "totals",
]


def _pick_backend() -> Backend:
    if os.environ.get("UNPOOLED_KERNELS") == "numpy":
        return reference
    try:
        native = importlib.import_module("._native", __name__)
    except ImportError:
        message = "unpooled runs on its numpy kernels: no compiled extension"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
        return reference
    return Compiled(native)


_backend = _pick_backend()
BACKEND: Literal["native", "numpy"] = "numpy" if _backend is reference else "native"
ISA: str = _backend.ISA


def _rows(X: ArrayLike) -> "Rows":
    array = np.asarray(X)
    if array.dtype != np.float64 and array.dtype != np.float32:
        array = array.astype(np.float64)
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(f"X must be rows by columns, not of shape {array.shape}")
    return np.ascontiguousarray(array)


def _offsets(offsets: ArrayLike, n: int) -> NDArray[np.int64]:
    array = np.ascontiguousarray(offsets, np.int64)
    if array.ndim != 1 or len(array) < 1:
        raise ValueError(f"offsets must be one list, not of shape {array.shape}")
    # the compiled kernels check the rest themselves, in a fraction of the time
    if BACKEND == "numpy" and (array[0] != 0 or array[-1] != n or (array[1:] < array[:-1]).any()):
        raise ValueError("offsets must rise from 0 to the number of rows")
    return array


def _centers(centers: ArrayLike, d: int, *dimensions: int) -> Floats:
    array = np.ascontiguousarray(centers, np.float64)
    if array.ndim not in dimensions or array.shape[-1] != d or array.shape[-2] < 1:
        raise ValueError(f"centers of shape {array.shape} do not fit rows with {d} columns")
    return array


def _weights(weights: ArrayLike | None, n: int) -> Floats | None:
    if weights is None:
        return None
    array = np.ascontiguousarray(weights, np.float64)
    if array.shape != (n,):
        raise ValueError(f"weights of shape {array.shape} do not fit {n} rows")
    return array


def _seeds(seeds: ArrayLike, sites: int) -> NDArray[np.uint64]:
    array = np.ascontiguousarray(seeds, np.uint64)
    if array.shape != (sites,):
        raise ValueError(f"seeds of shape {array.shape} do not fit {sites} sites")
    return array


def _at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} must be at least {least}, not {number}")


def totals(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    threads: int = 1,
    labels: NDArray[np.int32] | None = None,
) -> Totals:
    """What each site adds to a Lloyd step, for R sets of centres (R, k, d) in one pass over the rows.

    Every row goes to its nearest centre, ties to the lowest index. Gives sums (S, R, k, d) of residuals about
    the centre, and mass, squares and inertia (S, R, k). ``labels`` (R, n), where given, is filled with the
    nearest centre of every row.

    >>> t = totals([[0.0], [1.0], [9.0]], [0, 2, 3], [[[0.0], [10.0]]])
    >>> t.mass[:, 0].tolist(), t.sums[:, 0, :, 0].tolist()
    ([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]])
    """
    rows = _rows(X)
    n, d = rows.shape
    return _backend.totals(
        rows, _offsets(offsets, n), _centers(centers, d, 3), _weights(weights, n), threads, labels
    )


def nearest(X: ArrayLike, centers: ArrayLike, *, threads: int = 1) -> Nearest:
    """Labels (n,) int32 and squared distances (n,) of the nearest of the centres (k, d).

    >>> labels, sqdist = nearest([[0.0], [1.0], [9.0]], [[0.0], [10.0]])
    >>> labels.tolist(), sqdist.tolist()
    ([0, 0, 1], [0.0, 1.0, 1.0])
    """
    rows = _rows(X)
    return _backend.nearest(rows, _centers(centers, rows.shape[1], 2), threads)


def local_steps(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    steps: int = 1,
    recount: bool = False,
    threads: int = 1,
    recall: Recall | None = None,
) -> LocalSteps:
    """At each site by itself, up to ``steps`` Lloyd steps from the centres (k, d), or its own of (S, k, d).

    A cluster that is empty keeps its centre. mass, squares and inertia (S, k) are under the received centres;
    support is the effective number of rows in the final centre, (sum w)^2 / sum w^2 of the assignment that
    produced it, and 0 where it is still the received one. With ``recount`` the rows are counted again under
    the final centres, leaving out those without support. A ``recall`` that is kept from call to call saves
    time where the centres move little, and changes nothing else.

    >>> step = local_steps([[0.0], [1.0], [9.0]], [0, 2, 3], [[0.0], [10.0]])
    >>> step.centers[..., 0].tolist(), step.support.tolist()
    ([[0.5, 10.0], [0.0, 9.0]], [[2.0, 0.0], [0.0, 1.0]])
    """
    _at_least(0, steps=steps)
    rows = _rows(X)
    n, d = rows.shape
    sites, start = _offsets(offsets, n), _centers(centers, d, 2, 3)
    if start.ndim == 3 and len(start) != len(sites) - 1:
        raise ValueError(f"centers of shape {start.shape} do not fit {len(sites) - 1} sites")
    return _backend.local_steps(rows, sites, start, _weights(weights, n), steps, recount, threads, recall)


def kmeans(
    X: ArrayLike,
    offsets: ArrayLike,
    k: int,
    seeds: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    n_init: int = 1,
    max_iter: int = 300,
    swaps: int = 0,
    threads: int = 1,
) -> KMeans:
    """A whole k-means at each site: greedy k-means++, Lloyd, the best of ``n_init``, then random swaps.

    Site s draws from ``seeds[s]`` alone. With ``max_iter`` 0 the centres are the seeds, otherwise the means
    of the very assignment that mass counts. A site with fewer distinct rows than k leaves the other centres
    0, with mass 0.

    >>> found = kmeans([[0.0], [1.0], [9.0]], [0, 3], 2, [7])
    >>> sorted(found.centers[0, :, 0].tolist()), found.inertia.tolist()
    ([0.5, 9.0], [0.5])
    """
    _at_least(1, k=k, n_init=n_init)
    _at_least(0, max_iter=max_iter, swaps=swaps)
    rows = _rows(X)
    n = len(rows)
    sites = _offsets(offsets, n)
    return _backend.kmeans(
        rows,
        sites,
        k,
        _seeds(seeds, len(sites) - 1),
        _weights(weights, n),
        n_init,
        max_iter,
        swaps,
        threads,
    )


def minibatch(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    seeds: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    epochs: int = 1,
    batch: int = 0,
    rate: float = 1.0,
    threads: int = 1,
) -> MiniBatch:
    """At each site by itself, mini-batch k-means from the centres (k, d).

    The rows are split in order into batches (0: one batch with all rows), whose order is shuffled in every
    epoch. Counts start at 0 in each epoch; each batch moves a centre towards the mean of its rows by the
    batch's share of the count, times ``rate``. mass and squares (S, k) are those of the last epoch.

    >>> step = minibatch([[0.0], [1.0], [9.0]], [0, 3], [[0.0], [10.0]], [7])
    >>> step.centers[0, :, 0].tolist(), step.mass.tolist()
    ([0.5, 9.0], [[2.0, 1.0]])
    """
    _at_least(0, epochs=epochs, batch=batch)
    rows = _rows(X)
    n, d = rows.shape
    sites = _offsets(offsets, n)
    return _backend.minibatch(
        rows,
        sites,
        _centers(centers, d, 2),
        _seeds(seeds, len(sites) - 1),
        _weights(weights, n),
        epochs,
        batch,
        rate,
        threads,
    )


def scatter(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    threads: int = 1,
) -> Scatter:
    """Per site and cluster of the centres (k, d): sums (S, k) of w, w^2, w |x - c|, w |x - c|^2 and w s.

    s is the simplified silhouette (b - a) / max(a, b), from the distance a to the nearest centre and b to the
    second nearest; 0 where k is 1 or both are 0.

    >>> scatter([[0.0], [1.0], [9.0]], [0, 3], [[0.0], [10.0]]).distance.tolist()
    [[1.0, 1.0]]
    """
    rows = _rows(X)
    n, d = rows.shape
    return _backend.scatter(
        rows, _offsets(offsets, n), _centers(centers, d, 2), _weights(weights, n), threads
    )


def _fuzzifier(m: float) -> float:
    m = float(m)
    if not 1 < m < np.inf:
        raise ValueError(f"m must be a finite number above 1, not {m}")
    return m


def fuzzy(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    m: float = 2.0,
    weights: ArrayLike | None = None,
    *,
    threads: int = 1,
) -> Fuzzy:
    """What each site adds to a step of fuzzy c-means, for R sets of centres (R, k, d) in one pass.

    u is a row's membership: the squared distances to the power -1 / (m - 1), divided by their sum; 1 for a
    centre on the row, shared equally if there are several. Gives sums (S, R, k, d) of w u^m (x - c), and sums
    (S, R, k) of w u^m, w u, (w u^m)^2 and w u^m |x - c|^2.

    >>> step = fuzzy([[0.0], [1.0], [3.0]], [0, 2, 3], [[[0.0], [4.0]]])
    >>> step.rows[:, 0].round(3).tolist()
    [[1.9, 0.1], [0.1, 0.9]]
    """
    rows, m = _rows(X), _fuzzifier(m)
    n, d = rows.shape
    return _backend.fuzzy(
        rows, _offsets(offsets, n), _centers(centers, d, 3), m, exponent(m), _weights(weights, n), threads
    )


def memberships(X: ArrayLike, centers: ArrayLike, m: float = 2.0, *, threads: int = 1) -> Floats:
    """(n, k) memberships of the rows in the clusters of the centres (k, d); every row of it sums to 1.

    >>> memberships([[0.0], [1.0], [2.0]], [[0.0], [4.0]]).round(2).tolist()
    [[1.0, 0.0], [0.9, 0.1], [0.5, 0.5]]
    """
    rows, m = _rows(X), _fuzzifier(m)
    return _backend.memberships(rows, _centers(centers, rows.shape[1], 2), m, exponent(m), threads)


def fold(total: Floats, block: Floats) -> Floats:
    """Add the rows of block (S, m) to total (m,), in place and strictly in order; gives total.

    >>> fold(np.array([1.0, 2.0]), np.array([[1.0, 1.0], [0.5, 0.0]])).tolist()
    [2.5, 3.0]
    """
    if block.ndim != 2 or total.shape != block.shape[1:]:
        raise ValueError(f"a block of shape {block.shape} does not fold into a total of shape {total.shape}")
    if total.dtype != np.float64 or not total.flags.c_contiguous:
        raise ValueError("total must be a contiguous float64 array: it is added to in place")
    _backend.fold(total, np.ascontiguousarray(block, np.float64))
    return total


def fold_moves(
    centers: ArrayLike, received: ArrayLike, weight: ArrayLike, weighted: Floats, plain: Floats
) -> None:
    """Add to ``plain`` (k, d) how each site's centers (S, k, d) differ from those received (k, d), and to
    ``weighted`` (k, d) the same times the site's weight (S, k): in place, strictly in order of sites.

    >>> weighted, plain = np.zeros((1, 1)), np.zeros((1, 1))
    >>> fold_moves([[[3.0]], [[5.0]]], [[1.0]], [[10.0], [1.0]], weighted, plain)
    >>> weighted.tolist(), plain.tolist()
    ([[24.0]], [[6.0]])
    """
    own = np.ascontiguousarray(centers, np.float64)
    start, w = np.ascontiguousarray(received, np.float64), np.ascontiguousarray(weight, np.float64)
    if (
        own.ndim != 3
        or {start.shape, weighted.shape, plain.shape} != {own.shape[1:]}
        or w.shape != own.shape[:2]
    ):
        raise ValueError(
            f"centers {own.shape}, received {start.shape}, weight {w.shape} do not fit each other"
        )
    for total in (weighted, plain):
        if total.dtype != np.float64 or not total.flags.c_contiguous:
            raise ValueError("totals must be contiguous float64 arrays: they are added to in place")
    _backend.fold_moves(own, start, w, weighted, plain)
