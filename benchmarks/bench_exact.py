"""A node's priced clustering problem, n = 20 and k = 4: our branch and bound against Gurobi and SCIP, one
thread.

The peers get the paper's model (14) with the box and tight big-M; ours includes what it prepares once per
node (suffix bounds). Times are the process's own CPU seconds. A peer that has not finished at its limit
counts with the limit, so ratios are at least what is shown; ours must then lie between its bound and its
best solution. ``python -m benchmarks.bench_exact [problems] [seconds]``.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
from reproduction.dual_problems import dual_problem

from benchmarks.bench_rounds import Row
from unpooled.kernels.exact_solver import exact
from unpooled.optimality.exact import exact_kmeans

PROBLEMS = tuple(f"2N{d}D4K{i}" for i in (1, 2, 3) for d in (2, 3, 4))
LIMIT = 60.0


def node(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a problem's first node, the prices of the optimum's multipliers, and the box of all rows."""
    nodes = dual_problem(name)
    X, pooled = nodes["node-1"], np.concatenate(list(nodes.values()))
    found = exact_kmeans(pooled, 4)
    labels = found.labels[: len(X)]
    prices = np.array([2 * (X[labels == j] - found.centers[j]).sum(axis=0) for j in range(4)])
    return X, prices, pooled.min(axis=0), pooled.max(axis=0)


def big_m(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(n,) the largest squared distance of a row from a point of the box."""
    return np.maximum((X - low) ** 2, (X - high) ** 2).sum(axis=1)


Solved = tuple[float, float, float]  # CPU seconds, best value, lower bound


def ours(X: np.ndarray, q: np.ndarray, low: np.ndarray, high: np.ndarray) -> Solved:
    times = []
    for _ in range(5):
        before = time.process_time()
        solution = exact(X, 4, prices=q, lower=low, upper=high)
        times.append(time.process_time() - before)
    return float(np.median(times)), solution.value, solution.lower


def gurobi(X: np.ndarray, q: np.ndarray, low: np.ndarray, high: np.ndarray, limit: float) -> Solved:
    import gurobipy as gp

    n, d, k, M = len(X), X.shape[1], len(q), big_m(X, low, high)
    environment = gp.Env(params={"OutputFlag": 0, "Threads": 1, "TimeLimit": limit, "MIPGap": 1e-6})
    before = time.process_time()
    model = gp.Model(env=environment)
    w = model.addVars(n, k, vtype="B")
    away = model.addVars(n, k)
    m = model.addVars(k, d, lb=float("-inf"))
    for j in range(k):
        for i in range(d):
            m[j, i].LB, m[j, i].UB = low[i], high[i]
    for r in range(n):
        model.addConstr(gp.quicksum(w[r, j] for j in range(k)) == 1)
        for j in range(k):
            square = gp.quicksum((X[r, i] - m[j, i]) * (X[r, i] - m[j, i]) for i in range(d))
            model.addConstr(square <= away[r, j] + M[r] * (1 - w[r, j]))
    prices = gp.quicksum(q[j, i] * m[j, i] for j in range(k) for i in range(d))
    model.setObjective(gp.quicksum(away.values()) + prices)
    model.optimize()
    return time.process_time() - before, model.ObjVal, model.ObjBound


def scip(X: np.ndarray, q: np.ndarray, low: np.ndarray, high: np.ndarray, limit: float) -> Solved:
    from pyscipopt import Model, quicksum

    n, d, k, M = len(X), X.shape[1], len(q), big_m(X, low, high)
    before = time.process_time()
    model = Model()
    model.hideOutput()
    model.setParam("limits/time", limit)
    model.setParam("timing/clocktype", 1)  # CPU time
    w = {(r, j): model.addVar(vtype="B") for r in range(n) for j in range(k)}
    away = {(r, j): model.addVar(lb=0) for r in range(n) for j in range(k)}
    m = {(j, i): model.addVar(lb=float(low[i]), ub=float(high[i])) for j in range(k) for i in range(d)}
    for r in range(n):
        model.addCons(quicksum(w[r, j] for j in range(k)) == 1)
        for j in range(k):
            square = quicksum((X[r, i] - m[j, i]) * (X[r, i] - m[j, i]) for i in range(d))
            model.addCons(square <= away[r, j] + M[r] * (1 - w[r, j]))
    prices = quicksum(q[j, i] * m[j, i] for j in range(k) for i in range(d))
    model.setObjective(quicksum(away.values()) + prices)
    model.optimize()
    return time.process_time() - before, model.getObjVal(), model.getDualbound()


PEERS: dict[str, Callable[..., Solved]] = {"Gurobi": gurobi, "SCIP": scip}


def compare(
    names: tuple[str, ...], limit: float, report: Callable[[str], None] = print
) -> dict[str, list[float]]:
    """The ratios to every peer. Values must agree, or the comparison would mean nothing."""
    ratios: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for name in names:
        task = node(name)
        mine, value, lower = ours(*task)
        for peer, solve in PEERS.items():
            took, best, bound = solve(*task, limit)
            if best < lower - 1e-4 * (1 + abs(value)) or bound > value + 1e-4 * (1 + abs(value)):
                raise AssertionError(f"{name}: {value} here, {bound} to {best} by {peer}")
            done = best - bound <= 1e-4 * (1 + abs(best))
            ratios[peer].append(took / mine)
            unfinished = "" if done else f", not finished: {bound:.3f} to {best:.3f}"
            report(f"  {name}: {1000 * mine:.2f} ms, {peer} {took:.1f} s{unfinished}; value {value:.5f}")
    return ratios


def rows(names: tuple[str, ...] = PROBLEMS, limit: float = LIMIT) -> list[Row]:
    """(what, target, measured): median ratios to the peers."""
    try:
        import gurobipy  # noqa: F401
        import pyscipopt  # noqa: F401
    except ImportError:
        print("  Gurobi or SCIP is not installed: pip install gurobipy pyscipopt")
        return []
    found = compare(names, limit)
    return [
        (f"node solve, n 20, k 4, against {p}, median", 1000, float(np.median(r))) for p, r in found.items()
    ]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else len(PROBLEMS)
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else LIMIT
    for what, target, measured in rows(PROBLEMS[:count], limit):
        print(f"{what:55} target {target:8.1f}   measured {measured:8.1f}")


if __name__ == "__main__":
    main()
