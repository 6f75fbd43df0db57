"""What sums over rows, and over groups above relays, determine: ``python -m tests.attacks sums``."""

import numpy as np

from attacks.test_relay_attacks import groups_above_relays
from attacks.test_sums_of_rows import Opened, apart, cells, inertia, overlapping, polished
from unpooled.algorithms import Lloyd
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.site.audit.posterior import determined

SIZES = [(n, d, k) for n in (150, 600, 3000) for d in (2, 8) for k in (3, 8)]
HEAD = f"{'equations':>9} {'inertia':>8}"


def print_sums() -> None:
    """Print the rows, pairs and equations that an attacker who knows all assignments has after a run."""
    print(f"{'raw rows of three sites in secure sums':50} {'rows':>5} {'pairs':>5} {HEAD}")
    for make in (apart, overlapping):
        for n, d, k in SIZES:
            rows = make(0, n, d)
            X = np.concatenate(list(rows.values()))
            pooled = inertia(X, run(Lloyd(k=k), Simulation.from_rows({"all": X}), seed=0).state.centers)
            name = f"{make.__name__}, {n} rows, d {d}, k {k}"
            if n == 600:
                federation = Opened(rows)
                state = run(Lloyd(k=k), federation, seed=0).state
                line(f"{name}: every round", federation.sets, n, inertia(X, state.centers) / pooled)
            exact, state = polished(rows, k)
            sets = [cells(X, exact.sets[0])]
            line(f"{name}: one exact round", sets, n, inertia(X, state.centers) / pooled)
    print(f"{'groups of eight hospitals above two relays':50} {'found':>5} {'of':>5} {HEAD}")
    for kind in ("shared", "regional", "own"):
        for exact in (True, False):
            found, equations, groups, ratio = groups_above_relays(kind, exact)
            name = f"{kind} clusters, {'exact sums' if exact else 'summary'}"
            print(f"{name:50} {found:5} {groups:5} {equations:9} {ratio:8.3f}", flush=True)


def line(name: str, sets: list, n: int, ratio: float) -> None:
    found = determined(sets, n)
    print(f"{name:50} {len(found.rows):5} {len(found.pairs):5} {found.equations:9} {ratio:8.3f}", flush=True)
