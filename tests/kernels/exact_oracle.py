"""Brute force for the node problem: every subset of rows as every cluster, then every way to share out the
rows.

Deliberately another way than the solver's: boxes and cells are solved by trying every set of active
constraints.
"""

from itertools import combinations, product

import numpy as np
from scipy.optimize import minimize


def half_spaces(lo, hi, references=None, cell=0):
    """The box and the Voronoi cell of references[cell] as A m >= c."""
    d = len(lo)
    A, c = [*np.eye(d), *-np.eye(d)], [*lo, *-hi]
    if references is not None:
        for other in range(len(references)):
            if other != cell:
                A.append(references[cell] - references[other])
                c.append((references[cell] @ references[cell] - references[other] @ references[other]) / 2)
    return np.array(A), np.array(c)


def cheapest(a, b, A, c):
    """min a|m|^2 + b.m over A m >= c for many (a,) and (, d) at once; inf where there is no such m.

    With the active constraints B m = e, m is the projection of -b / (2 a); without curvature it is a vertex.
    """
    d, best = b.shape[1], np.full(len(a), np.inf)
    flat = a == 0
    free = -b / np.where(flat, 1.0, 2 * a)[:, None]
    for size in range(d + 1):
        for active in combinations(range(len(c)), size):
            B, e = A[list(active)], c[list(active)]
            m = free - (free @ B.T - e) @ np.linalg.pinv(B).T if size else free
            inside = (m @ A.T >= c - 1e-9).all(axis=1) & (
                ~flat | (np.linalg.matrix_rank(B) == d if size else False)
            )
            value = a * (m * m).sum(axis=1) + (b * m).sum(axis=1)
            best = np.where(inside, np.minimum(best, value), best)
    return best


def brute_force(X, w, k, prices, lo, hi, references=None, cells=None):
    """The optimum over all partitions, clusters priced and boxed one by one."""
    n = len(X)
    taken = (np.arange(2**n)[:, None] >> np.arange(n)) & 1  # (2^n, n) every subset
    mass, sums, squares = taken @ w, taken @ (w[:, None] * X), taken @ (w * (X * X).sum(axis=1))
    cost = np.empty((k, 2**n))
    for j in range(k):
        A, c = half_spaces(lo[j], hi[j], references, None if cells is None else cells[j])
        cost[j] = squares + cheapest(mass, prices[j] - 2 * sums, A, c)
    best = cost[0]
    for j in range(1, k):
        merged = np.full(2**n, np.inf)
        for mask in range(2**n):
            part = mask
            while True:  # every subset of mask
                merged[mask] = min(merged[mask], best[mask ^ part] + cost[j, part])
                if not part:
                    break
                part = (part - 1) & mask
        best = merged
    return best[-1]


def brute_force_coupled(X, k, prices, lo, hi, references, symmetry):
    """The same with centroids that constrain each other, each partition by a general solver from several
    starts."""
    d = X.shape[1]

    def slack(m):
        m = m.reshape(k, d)
        if symmetry == "pair":
            return np.array(
                [(references[a] - references[b]) @ (m[a] - m[b]) for a, b in combinations(range(k), 2)]
            )
        away = ((m[None] - references[:, None]) ** 2).sum(axis=2)  # of centroid b from reference a
        return np.array([away[a, b] - away[a, a] for a in range(k) for b in range(k) if a != b])

    best = np.inf
    bounds = list(zip(lo.ravel(), hi.ravel(), strict=True))
    rng = np.random.default_rng(0)
    for labels in product(range(k), repeat=len(X)):
        at = np.array(labels)

        def value(m, at=at):
            return ((X - m.reshape(k, d)[at]) ** 2).sum() + prices.ravel() @ m

        def slope(m, at=at):
            g = np.zeros((k, d))
            np.add.at(g, at, 2 * (m.reshape(k, d)[at] - X))
            return g.ravel() + prices.ravel()

        for start in (references.ravel(), rng.uniform(lo, hi).ravel()):
            result = minimize(
                value,
                np.clip(start, lo.ravel(), hi.ravel()),
                jac=slope,
                bounds=bounds,
                constraints={"type": "ineq", "fun": slack},
                method="SLSQP",
                options={"ftol": 1e-12, "maxiter": 200},
            )
            if slack(result.x).min() >= -1e-7:
                best = min(best, result.fun)
    return best
