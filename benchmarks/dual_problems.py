"""The 90 benchmark problems: every bound against the proved optimum, every method's gap, every certificate.

``python -m benchmarks.dual_problems [problems of each kind] [seconds per certificate]``; all 90 take about
ten minutes on one core. It ends with an error if an unconditional bound lies above the optimum.
"""

import sys
from dataclasses import replace

import numpy as np
from reproduction.dual_problems import dual_names, dual_problem, dual_shape

from unpooled import certify, exact_kmeans
from unpooled.algorithms import Dual
from unpooled.federation import Simulation
from unpooled.protocol import run

TABLE_1 = {"gap": 0.0025, "residual": 1e-2}
METHODS = {
    "sg": Dual(update="sg", **TABLE_1),
    "btm": Dual(update="btm", **TABLE_1),
    "qnda": Dual(update="qnda", **TABLE_1),
    "bundle": Dual(),
    "bundle, pairs": Dual(symmetry="pair", max_rounds=10, nodes=20_000),
}


def main(each: int = 5, seconds: float = 10.0) -> None:
    names = [name for name in dual_names() if dual_shape(name)[3] <= each]
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in METHODS}
    above: list[tuple[str, str, str, float]] = []
    proved = certified = 0
    for name in names:
        rows, k = dual_problem(name), dual_shape(name)[2]
        X = np.concatenate(list(rows.values()))
        best = exact_kmeans(X, k, time_limit=60)
        proved += best.proved
        for label, method in METHODS.items():
            state = run(replace(method, k=k), Simulation.from_rows(rows, n_threads=1), seed=0).state
            ratio = state.lower_bound / best.inertia
            found[label].append((state.rounds, 100 * state.gap, ratio))
            if ratio > 1 + 1e-9:
                above.append((name, label, state.bound_condition, ratio))
        federation = Simulation.from_rows(rows, n_threads=1)
        box = np.array([X.min(axis=0), X.max(axis=0)])
        proof = certify(federation, best.centers, box=box, time_limit=seconds)
        certified += proof.proved
        if proof.lower_bound > best.inertia * (1 + 1e-9):
            above.append((name, "certify", proof.condition, proof.lower_bound / best.inertia))
    print(f"{len(names)} problems, pooled optimum proved for {proved}")
    for label, figures in found.items():
        rounds, gap, ratio = np.array(figures).T
        means = f"rounds {rounds.mean():6.1f}   gap {gap.mean():5.2f}%"
        print(f"  {label:14} {means}   bound / optimum <= {ratio.max():.6f}")
    print(f"  certified to 0.01% in {seconds:g} seconds, unconditionally: {certified} of {len(names)}")
    for name, label, condition, ratio in above:
        print(f"  above the optimum: {name}, {label}, {condition}: {ratio:.6f}")
    if any(condition == "unconditional" for _, _, condition, _ in above):
        raise SystemExit("an unconditional bound lies above the optimum")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 5,
        float(sys.argv[2]) if len(sys.argv) > 2 else 10.0,
    )
