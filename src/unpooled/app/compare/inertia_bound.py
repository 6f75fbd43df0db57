"""A lower bound on the inertia of any k centres, for the column "/ bound" of a comparison.

It is the highest of three bounds, each rounded down: the optimum of few rows, the sum of the optima of parts
of the rows, and the scatter that k - 1 principal components do not explain.
"""

import numpy as np

from unpooled.kernels.exact_solver import MAX_CLUSTERS, MAX_COLUMNS, available
from unpooled.optimality.exact import exact_kmeans
from unpooled.optimality.parts import EFFORTS, bound_by_parts
from unpooled.typing import FloatArray

_EXACT = 150  # rows up to which the optimum is searched for
_U = 2.0**-53


def lower_bound(
    X: FloatArray, k: int, centers: FloatArray, seconds: float, weights: FloatArray | None = None
) -> tuple[FloatArray | None, float]:
    """Return the optimal centres, if they are found, and a lower bound on the inertia of any k centres.

    ``centers`` are good centres, which help to find the bound. ``weights`` are those of the rows (n,).

    >>> X = np.array([[0.0, 0.0], [0.0, 2.0], [9.0, 0.0], [9.0, 2.0]])
    >>> round(lower_bound(X, 2, np.array([[0.0, 1.0], [9.0, 1.0]]), 1.0)[1], 6)
    4.0
    """
    bound = principal_bound(X, k) if weights is None else 0.0
    if not available() or X.shape[1] > MAX_COLUMNS or k > MAX_CLUSTERS:
        return None, bound
    if weights is not None:
        return None, bound_by_parts(X, centers, EFFORTS["quick"], weights)
    if len(X) > _EXACT:
        return None, max(bound, bound_by_parts(X, centers, EFFORTS["quick"], np.ones(len(X))))
    solved = exact_kmeans(X, k, time_limit=seconds)
    return solved.centers, max(bound, solved.lower_bound)


def principal_bound(X: FloatArray, k: int) -> float:
    """Return the scatter that the k - 1 largest principal components do not explain, rounded down.

    k centres explain no more than these components do (Ding, He: K-means Clustering via Principal Component
    Analysis, ICML 2004). The eigenvalues l of the scatter matrix S are taken from V, nearly orthogonal, and
    T = V' S V, nearly diagonal: by Ostrowski's theorem the i-th eigenvalue of S is at most (T_ii + |T - diag
    T|) / (1 - |V'V - I|), whatever method found V. All sums are moved by a bound on their rounding.

    >>> principal_bound(np.array([[0.0, 0.0], [0.0, 2.0], [9.0, 0.0], [9.0, 2.0]]), 2) < 4.0
    True
    """
    if k > X.shape[1]:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        return _unexplained(X, k)


def _unexplained(X: FloatArray, k: int) -> float:
    n, d = X.shape
    about = X - X.mean(axis=0)
    shift = np.abs(about.mean(axis=0)) + 2 * n * _U * np.abs(about).mean(axis=0)  # from the true mean
    size = float((about * about).sum()) * (1 + 2 * (n + d) * _U)
    if not 1e-280 < size < 1e290:  # squares of such rows are not float64 numbers
        return 0.0
    S = about.T @ about
    V = np.linalg.eigh(S)[1][:, ::-1]
    T = V.T @ S @ V
    # rows are rounded by _U of themselves, products of n or d terms by n or d _U of their sizes
    doubt = 4 * (n + 4 * d + 16) * _U * size * d
    off = float(np.linalg.norm(T - np.diag(np.diag(T)))) + doubt
    skew = float(np.linalg.norm(V.T @ V - np.eye(d))) + 4 * d * d * _U
    if not skew < 0.1 or not np.isfinite(off):
        return 0.0
    largest = np.sort(np.diag(T))[::-1][: k - 1]
    explained = float(((largest + off) / (1 - skew)).sum()) * (1 + 4 * d * _U)
    left = size * (1 - 8 * (n + d) * _U) - n * float(shift @ shift) * (1 + 1e-9)
    bound = left - explained - 4 * _U * (size + explained)
    return bound if bound > 1e-280 else 0.0
