"""The reconstruction attack of an attacker who knows which rows are in which cells (TAR, arXiv 2511.07073).

Every cell of a sum is a linear equation about rows. Of rows with independent normal values, the posterior
variance given all equations is 0 for a row that they determine, and above 0 for any other, whatever the
values are. The attacker needs no search, so the count is an upper bound for the search in search.py, as far
as linear algebra goes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from unpooled.typing import BoolArray, FloatArray, IntArray

_KNOWN = 1e-4  # of the prior variance


@dataclass(frozen=True, eq=False)
class Determined:
    """What sums over cells determine."""

    rows: IntArray  # (m,) indices of the rows whose values follow
    pairs: IntArray  # (p, 2) indices of two other rows of which the sum follows
    equations: int  # independent ones


def determined(sets: Iterable[IntArray], n: int) -> Determined:
    """Return what the sums over the cells of some sets determine about n rows.

    Parameters
    ----------
    sets
        Of every set of cells that was opened: the cell of each row (n,), -1 for a row in none.

    Examples
    --------
    >>> found = determined([np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])], 4)
    >>> found.rows.tolist(), found.pairs.tolist(), found.equations
    ([2, 3], [[0, 1]], 3)
    """
    indicators = [_indicators(cells, n) for cells in sets]
    A = np.unique(np.concatenate([np.zeros((0, n)), *indicators]), axis=0)
    values, vectors = np.linalg.eigh(A @ A.T)
    kept = values > 1e-9 * max(float(values.max(initial=0.0)), 1.0)
    basis = (vectors[:, kept] / np.sqrt(values[kept])).T @ A  # (rank, n), orthonormal rows
    unknown = 1.0 - (basis**2).sum(axis=0)  # posterior variance, over the prior's
    known = unknown < _KNOWN
    return Determined(np.flatnonzero(known), _pairs(basis, unknown, known), int(kept.sum()))


def _indicators(cells: IntArray, n: int) -> FloatArray:
    """(k, n): 1 where the row is in the cell; cells without rows are left out."""
    indicators: FloatArray = (cells[None, :] == np.unique(cells[cells >= 0])[:, None]).astype(np.float64)
    return indicators.reshape(-1, n)


def _pairs(basis: FloatArray, unknown: FloatArray, known: BoolArray) -> IntArray:
    """The pairs of rows that are not determined while their sum is: x and y vary by the same, oppositely."""
    rest = np.flatnonzero(~known)
    if not len(rest):
        return np.zeros((0, 2), dtype=np.int64)
    covariance = -(basis[:, rest].T @ basis[:, rest])
    np.fill_diagonal(covariance, unknown[rest])
    sums = unknown[rest][:, None] + unknown[rest][None, :] + 2 * covariance
    i, j = np.nonzero(np.triu(sums < _KNOWN, 1))
    return np.column_stack([rest[i], rest[j]])
