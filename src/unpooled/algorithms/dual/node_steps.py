"""Steps of the multipliers: the paper's subgradient, bundle trust and quasi-Newton steps. Pure functions.

A step is a vector s (p,) in the space of the links between sites; ``cuts`` are earlier evaluations of the
dual function, which lies below each of their tangents.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Cuts:
    """Tangents of the dual function at the present point: d(s) <= slopes[l] . s + heights[l]."""

    slopes: FloatArray  # (L, p)
    heights: FloatArray  # (L,)


def links(sites: int, topology: str) -> FloatArray:
    """Return (N, p): the change of each site's prices by a step along each link; every column sums to zero.

    >>> links(3, "line").tolist()
    [[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]]
    """
    if topology == "line":
        ends = np.eye(sites)
        return ends[:, :-1] - ends[:, 1:]
    return np.eye(sites) - 1 / sites  # each site linked to the mean of all


def subgradient(slope: FloatArray, alpha: float) -> FloatArray:
    """Eq. 17."""
    return alpha * slope


def bundle_trust(cuts: Cuts, alpha: float) -> FloatArray:
    """Eq. 24: the highest point of the cutting-plane model within |s|^2 <= alpha."""
    L, p = cuts.slopes.shape
    A = np.zeros((L + 1 + p, p + 1))
    A[:L, :p], A[:L, p] = -cuts.slopes, 1
    A[L + 1 :, :p] = -np.eye(p)
    b = np.concatenate([cuts.heights - cuts.heights[-1], [np.sqrt(alpha)], np.zeros(p)])
    x = conic(np.zeros((p + 1, p + 1)), np.concatenate([np.zeros(p), [-1.0]]), A, b, linear=L, cones=[p + 1])
    return x[:p] if x is not None else np.sqrt(alpha) * _unit(cuts.slopes[-1])


def quasi_newton(curve: FloatArray, cuts: Cuts, alpha: float) -> FloatArray:
    """Eq. 32: the highest point of the quadratic model within the ball and under the cuts.

    ``curve`` (p, p) is -B, positive definite; the last cut is at the present point. A cut above a concave
    model is a reverse-convex constraint; the model's tangent, which lies above the model, stands in for it.
    """
    L, p = cuts.slopes.shape
    gradient, s = cuts.slopes[-1], np.zeros(p)
    heights = cuts.heights - cuts.heights[-1]
    for _ in range(2):
        slope = gradient - curve @ s  # of the model at s
        height = gradient @ s - 0.5 * s @ curve @ s - slope @ s
        A = np.concatenate([slope - cuts.slopes, np.zeros((1, p)), -np.eye(p)])
        b = np.concatenate([np.maximum(heights - height, 0.0), [np.sqrt(alpha)], np.zeros(p)])
        after = conic(curve, -gradient, A, b, linear=L, cones=[p + 1])
        if after is None:
            break
        s = after
    return s


def damped_bfgs(curve: FloatArray, s: FloatArray, y: FloatArray) -> FloatArray:
    """Eq. 27 for -B, damped as Powell does, so that it stays positive definite where slopes jump."""
    y, Hs = -y, curve @ s
    sHs, sy = float(s @ Hs), float(s @ y)
    if sHs <= 1e-14:
        return curve
    if sy < 0.2 * sHs:
        share = 0.8 * sHs / (sHs - sy)
        y = share * y + (1 - share) * Hs
        sy = float(s @ y)
    after: FloatArray = curve + np.outer(y, y) / sy - np.outer(Hs, Hs) / sHs
    after = 0.5 * (after + after.T)
    return after + 1e-12 * float(np.trace(after)) * np.eye(len(s))  # against rounding


def conic(
    P: FloatArray,
    c: FloatArray,
    A: FloatArray,
    b: FloatArray,
    *,
    linear: int,
    cones: list[int],
    equal: int = 0,
) -> FloatArray | None:
    """min x.P x / 2 + c.x where b - A x is zero in ``equal`` rows, >= 0 in ``linear``, then in ``cones``."""
    import clarabel
    from scipy import sparse

    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    kinds = [clarabel.ZeroConeT(equal)] if equal else []
    kinds += [clarabel.NonnegativeConeT(linear)] if linear else []
    kinds += [clarabel.SecondOrderConeT(size) for size in cones]
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(P)), c, sparse.csc_matrix(A), b, kinds, settings
    )
    solution = solver.solve()
    x = np.array(solution.x)
    solved = str(solution.status) in ("Solved", "AlmostSolved") and bool(np.isfinite(x).all())
    return x if solved else None


def _unit(v: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(v))
    return v / length if length > 0 else v
