"""The "bundle" step: one quadratic cut per site and evaluation.

At fixed partition a site's cost is quadratic in its prices, with curvature -1 / (2 n_k) for a centroid that
does not touch the edge of its box or cell. A model of such pieces is far closer than tangents, so a few
evaluations suffice.
"""

from dataclasses import replace

import numpy as np

from unpooled.algorithms.dual.dual_state import DualState, Evaluations
from unpooled.algorithms.dual.node_steps import conic
from unpooled.typing import FloatArray


def step(
    past: Evaluations, origin: FloatArray, cap: float, *, quadratic: bool, total: FloatArray | None = None
) -> tuple[FloatArray, float] | None:
    """Return the prices (N, k, d) that maximise the model within ``cap`` of ``origin``, and its value there.

    They sum to zero over the sites, or to ``total`` (k, d).
    """
    L, N, k, d = past.prices.shape
    p = k * d
    size = N * p + N  # prices, then a value per site
    rows: list[FloatArray] = []
    right: list[float] = []
    cones: list[int] = []

    same = np.zeros((p, size))  # prices sum to zero, or to the total, over the sites
    for i in range(N):
        same[:, i * p : (i + 1) * p] = np.eye(p)

    tangents, levels = [], []
    for i in range(N):
        own = slice(i * p, (i + 1) * p)
        for at in range(L):
            m, q0 = past.centroids[at, i].ravel(), past.prices[at, i].ravel()
            n = np.repeat(past.counts[at, i], d)
            curved = np.flatnonzero(n > 0) if quadratic else np.zeros(0, dtype=int)
            below = np.zeros(size)  # value + m . q0 - m . q <= L
            below[own], below[N * p + i] = -m, 1.0
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
    whole = np.zeros((k, d)) if total is None else total
    b = np.concatenate([whole.ravel(), levels, right, [cap], -origin.ravel()])
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
    return q - (q.sum(axis=0) - whole) / N, float(x[N * p :].sum())


def bundled(state: DualState, gap: float) -> DualState:
    """Return the next prices: the model's maximum within a cap that is halved after a step without a gain.

    The quadratic model is not an upper bound where a centroid would leave the box. So the search ends only if
    the tangents alone, which are an upper bound, also leave nothing to gain.
    """
    past = state.past
    best = int(state.lowers[-len(past) :].argmax())
    origin, height = past.prices[best], float(past.values[best].sum())
    scale = float(np.linalg.norm(origin)) or float(np.sqrt(state.n))
    cap = min(state.cap, scale)
    if best < len(past) - 1:
        cap *= 0.5
    worth = max(0.05 * gap * state.upper_bound, 1e-3 * abs(state.lower_bound))
    for quadratic in (True, False):
        candidate = step(past, origin, cap, quadratic=quadratic)
        if candidate is not None and candidate[1] - height > worth:
            return replace(state, prices=candidate[0], cap=cap)
    return replace(state, done=True)
