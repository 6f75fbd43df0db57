"""The better step: one quadratic cut per site and evaluation, which knows how far a partition reaches.

At fixed partition a site's cost is quadratic in its prices, with curvature -1 / (2 n_k) for a centroid that does
not touch its region's edge. A model of such pieces is far closer than tangents, so a few evaluations suffice.
"""

from dataclasses import dataclass

import numpy as np

from unpooled.algorithms.dual.steps import conic
from unpooled.codec import FloatArray


@dataclass(frozen=True, eq=False)
class Evaluations:
    """What the sites answered at L sets of prices."""

    prices: FloatArray  # (L, N, k, d)
    centroids: FloatArray  # (L, N, k, d)
    values: FloatArray  # (L, N)
    counts: FloatArray  # (L, N, k) 0 where the cost is linear in the price: no count, or at the edge


def step(
    past: Evaluations, origin: FloatArray, cap: float, *, quadratic: bool
) -> tuple[FloatArray, float] | None:
    """The prices (N, k, d) at which the model is highest within ``cap`` of ``origin``, and its height there."""
    L, N, k, d = past.prices.shape
    p = k * d
    size = N * p + N  # prices, then a value per site
    rows: list[FloatArray] = []
    right: list[float] = []
    cones: list[int] = []

    same = np.zeros((p, size))  # prices sum to zero over the sites
    for i in range(N):
        same[:, i * p : (i + 1) * p] = np.eye(p)

    tangents, levels = [], []
    for i in range(N):
        mine = slice(i * p, (i + 1) * p)
        for at in range(L):
            m, q0 = past.centroids[at, i].ravel(), past.prices[at, i].ravel()
            n = np.repeat(past.counts[at, i], d)
            curved = np.flatnonzero(n > 0) if quadratic else np.zeros(0, dtype=int)
            below = np.zeros(size)  # value + m . q0 - m . q <= L
            below[mine], below[N * p + i] = -m, 1.0
            level = past.values[at, i] - float(m @ q0)
            if not len(curved):
                tangents.append(below)
                levels.append(level)
                continue
            # |u|^2 <= t with u = (q - q0) / (2 sqrt n) and t = level - below . x, as |(2 u, t - 1)| <= t + 1
            rows += [below, below]
            right += [level + 1, level - 1]
            for j in curved:
                row = np.zeros(size)
                row[i * p + j] = -1 / np.sqrt(n[j])
                rows.append(row)
                right.append(-q0[j] / np.sqrt(n[j]))
            cones.append(2 + len(curved))
    ball = np.zeros((1 + N * p, size))
    ball[1:, : N * p] = -np.eye(N * p)
    parts = [same, *([np.array(tangents)] if tangents else []), *([np.array(rows)] if rows else []), ball]
    b = np.concatenate([np.zeros(p), levels, right, [cap], -origin.ravel()])
    goal = np.concatenate([np.zeros(N * p), -np.ones(N)])
    x = conic(
        np.zeros((size, size)),
        goal,
        np.concatenate(parts),
        b,
        equal=p,
        linear=len(tangents),
        cones=[*cones, 1 + N * p],
    )
    if x is None:
        return None
    q = x[: N * p].reshape(N, k, d)
    return q - q.mean(axis=0), float(x[N * p :].sum())
