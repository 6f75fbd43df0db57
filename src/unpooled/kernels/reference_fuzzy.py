"""Fuzzy c-means in plain numpy: memberships, and the sums of one step.

Only ratios to the smallest squared distance of a row are raised to a power: they lie between 0 and 1, so that
neither an m near 1 nor distances over many orders of magnitude overflow, and a centre on the row has ratio 1
while all others have 0. With s the ratio to the power 1 / (m - 1) and S their sum, u = s / S, and
u^m = u ratio S^(1 - m): one power per row and centre, none where m is 2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .reference_rows import Rows, chunks
from .results import Floats, FuzzyTotals

FARTHEST = float(np.finfo(np.float64).max)  #: squared distances stop here, so that 0 times them is 0


class Weights(NamedTuple):
    sqdist: Floats  #: (n, k)
    u: Floats  #: (n, k) memberships
    um: Floats  #: (n, k) memberships to the power m


def exponent(m: float) -> float:
    """1 / (m - 1), as a whole number where it is one but for rounding: m = 1.1 means 10."""
    power = 1 / (m - 1)
    whole = float(round(power))
    return whole if whole >= 1 and abs(power - whole) <= 1e-12 * power else power


def weights_of(rows: Floats, centers: Floats, m: float, power: float) -> Weights:
    """Of a chunk of rows."""
    sqdist = np.empty((len(rows), len(centers)))
    with np.errstate(over="ignore"):
        for j, center in enumerate(centers):
            residual = rows - center
            np.einsum("ij,ij->i", residual, residual, out=sqdist[:, j])
    np.minimum(sqdist, FARTHEST, out=sqdist)
    lowest = sqdist.min(axis=1, keepdims=True)
    ratio = np.ones_like(sqdist)
    np.divide(lowest, sqdist, out=ratio, where=sqdist > lowest)
    share = ratio if power == 1 else ratio**power
    total = share.sum(axis=1, keepdims=True)
    u = share / total
    return Weights(sqdist, u, u * ratio * total ** (1 - m))


def fuzzy(
    X: Rows,
    offsets: NDArray[np.int64],
    centers: Floats,
    m: float,
    power: float,
    weights: Floats | None,
    threads: int,
) -> FuzzyTotals:
    S, (R, k, d) = len(offsets) - 1, centers.shape
    out = FuzzyTotals(np.zeros((S, R, k, d)), *(np.zeros((S, R, k)) for _ in range(4)))
    for s in range(S):
        for part in chunks(offsets[s], offsets[s + 1], max(k, d)):
            rows = X[part].astype(np.float64)
            w = np.ones((len(rows), 1)) if weights is None else weights[part, None]
            for r in range(R):
                got = weights_of(rows, centers[r], m, power)
                heavy = w * got.um
                for j in range(k):
                    out.sums[s, r, j] += heavy[:, j] @ (rows - centers[r, j])
                out.mass[s, r] += heavy.sum(axis=0)
                out.rows[s, r] += (w * got.u).sum(axis=0)
                out.squares[s, r] += (heavy * heavy).sum(axis=0)
                out.inertia[s, r] += (heavy * got.sqdist).sum(axis=0)
    return out


def memberships(X: Rows, centers: Floats, m: float, power: float, threads: int) -> Floats:
    out = np.empty((len(X), len(centers)))
    for part in chunks(0, len(X), max(centers.shape)):
        out[part] = weights_of(X[part].astype(np.float64), centers, m, power).u
    return out
