"""The inner loops: nearest centres, Lloyd steps and whole k-means over the rows of many sites at once.

X (n, d) is C-contiguous float32 or float64 (a read-only array or a memory map will do) and never modified.
Site s owns the rows ``offsets[s]:offsets[s + 1]``, perhaps none. Weights are None or (n,) and not negative.
Whatever the number of threads, and whether a site is computed alone or in a batch with others, its result is
the same to the last bit.

The compiled kernels are used where they were built. ``UNPOOLED_KERNELS=numpy`` forces the numpy ones;
``UNPOOLED_KERNELS=<instruction set>`` the compiled ones for that instruction set.
"""

import importlib
import os
import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import reference
from .backend import Backend
from .label_cache import LabelCache
from .reference_rows import Rows
from .results import (
    Floats,
    FuzzyTotals,
    KMeans,
    LocalSteps,
    MiniBatchSteps,
    Nearest,
    PlainNumbers,
    ScatterTotals,
    Totals,
)

__all__ = [
    "BACKEND",
    "ISA",
    "FuzzyTotals",
    "KMeans",
    "LabelCache",
    "LocalSteps",
    "MiniBatchSteps",
    "Nearest",
    "ScatterTotals",
    "Totals",
    "fold",
    "fold_moves",
    "fuzzy",
    "kmeans",
    "local_steps",
    "memberships",
    "minibatch",
    "nearest",
    "plain_numbers",
    "scatter",
    "totals",
]


class Compiled:
    """The functions of ``Backend`` over the extension module."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.ISA: str = native.isa()

    def totals(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        weights: Floats | None,
        threads: int,
        labels: NDArray[np.int32] | None = None,
    ) -> Totals:
        S, (R, k, d) = len(offsets) - 1, centers.shape
        sums, mass, inertia = np.empty((S, R, k, d)), np.empty((S, R, k)), np.empty((S, R, k))
        squares = mass if weights is None else np.empty((S, R, k))
        self._native.totals(X, offsets, centers, weights, sums, mass, squares, inertia, labels, threads)
        return Totals(sums, mass, squares, inertia)

    def nearest(self, X: Rows, centers: Floats, threads: int) -> Nearest:
        labels, sqdist = np.empty(len(X), np.int32), np.empty(len(X))
        self._native.nearest(X, centers, labels, sqdist, threads)
        return Nearest(labels, sqdist)

    def local_steps(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        weights: Floats | None,
        steps: int,
        recount: bool,
        threads: int,
        cache: LabelCache | None = None,
    ) -> LocalSteps:
        S, (k, d) = len(offsets) - 1, centers.shape[-2:]
        moved, counts = np.empty((S, k, d)), np.empty((6, S, k))
        kept = None
        if cache is not None and weights is None and centers.ndim == 2 and d > self._native.FEW_DIMENSIONS:
            kept = cache.at(X, offsets, centers, steps)
        self._native.local_steps(X, offsets, centers, weights, moved, counts, steps, recount, kept, threads)
        return LocalSteps(moved, *counts)

    def kmeans(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        k: int,
        seeds: NDArray[np.uint64],
        weights: Floats | None,
        n_init: int,
        max_iter: int,
        swaps: int,
        threads: int,
    ) -> KMeans:
        S, d = len(offsets) - 1, X.shape[1]
        out = KMeans(np.empty((S, k, d)), np.empty((S, k)), np.empty((S, k)), np.empty(S))
        self._native.kmeans(X, offsets, seeds, weights, *out, n_init, max_iter, swaps, threads)
        return out

    def minibatch(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        seeds: NDArray[np.uint64],
        weights: Floats | None,
        epochs: int,
        batch: int,
        rate: float,
        threads: int,
    ) -> MiniBatchSteps:
        S, (k, d) = len(offsets) - 1, centers.shape
        out = MiniBatchSteps(np.empty((S, k, d)), np.empty((S, k)), np.empty((S, k)))
        self._native.minibatch(X, offsets, centers, seeds, weights, *out, epochs, batch, rate, threads)
        return out

    def scatter(
        self, X: Rows, offsets: NDArray[np.int64], centers: Floats, weights: Floats | None, threads: int
    ) -> ScatterTotals:
        sums = np.empty((5, len(offsets) - 1, len(centers)))
        self._native.scatter(X, offsets, centers, weights, sums, threads)
        return ScatterTotals(*sums)

    def fuzzy(
        self,
        X: Rows,
        offsets: NDArray[np.int64],
        centers: Floats,
        m: float,
        power: float,
        weights: Floats | None,
        threads: int,
    ) -> FuzzyTotals:
        S, (R, k, d) = len(offsets) - 1, centers.shape
        sums, counts = np.empty((S, R, k, d)), np.empty((4, S, R, k))
        self._native.fuzzy(X, offsets, centers, weights, sums, counts, m, power, threads)
        return FuzzyTotals(sums, *counts)

    def memberships(self, X: Rows, centers: Floats, m: float, power: float, threads: int) -> Floats:
        out = np.empty((len(X), len(centers)))
        self._native.memberships(X, centers, out, m, power, threads)
        return out

    def fold(self, total: Floats, block: Floats) -> None:
        self._native.fold(total, block)

    def fold_moves(
        self, centers: Floats, received: Floats, weight: Floats, weighted: Floats, plain: Floats
    ) -> None:
        self._native.fold_moves(centers, received, weight, weighted, plain)


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


def _rows(X: ArrayLike) -> Rows:
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


def _check_min(least: int, /, **numbers: int) -> None:
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
    """The part of each site in a Lloyd step, for R sets of centres (R, k, d) in one pass over the rows.

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
    _check_min(1, k=k, n_init=n_init)
    _check_min(0, max_iter=max_iter, swaps=swaps)
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


def scatter(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    threads: int = 1,
) -> ScatterTotals:
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


def plain_numbers(text: bytes, delimiter: str, width: int) -> PlainNumbers | None:
    """The cells of whole lines; None if any is not a plain number, or without compiled kernels.

    A plain number is made of digits, with a sign, a point and an exponent or without; there are no spaces, no
    quotes, no zero before another digit, and each line has ``width`` cells.

    >>> plain_numbers(b"1,x\\n", ",", 2), plain_numbers(b"007\\n", ",", 1), plain_numbers(b"1\\n\\n", ",", 1)
    (None, None, None)
    """
    if BACKEND != "native":
        return None
    native = importlib.import_module("._native", __name__)
    values = np.empty((int((np.frombuffer(text, np.uint8) == 10).sum()) + 1, width))  # bytes.count is slow
    rows, pointed, sure = native.plain_numbers(text, delimiter, values)
    return None if rows < 0 else PlainNumbers(values[:rows], pointed, sure)


from .steps import fuzzy, local_steps, memberships, minibatch  # noqa: E402  they use what is above
