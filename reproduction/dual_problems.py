"""90 benchmark problems like those of the dual decomposition paper, whose data were not published.

They have 2, 3 or 4 nodes, 2, 3 or 4 columns and 3 or 4 clusters, five problems each. Centres are uniform in
[-1, 1]^d. Every node draws five rows for every cluster, at a distance uniform in [0, 1/2] from the centre and
in a random direction. A problem is fixed by its name.

>>> problem = dual_problem("2N3D4K1")
>>> {site: X.shape for site, X in problem.items()}
{'node-1': (20, 3), 'node-2': (20, 3)}
>>> len(dual_names()), dual_names()[-1]
(90, '4N4D4K5')
"""

import re

import numpy as np

from unpooled.errors import InputError
from unpooled.typing import FloatArray

ROWS_PER_CLUSTER = 5
RADIUS = 0.5


def dual_names() -> tuple[str, ...]:
    """Return the names of all problems: nodes, dimensions, clusters, number."""
    return tuple(
        f"{N}N{d}D{k}K{i}" for N in (2, 3, 4) for d in (2, 3, 4) for k in (3, 4) for i in range(1, 6)
    )


def dual_shape(name: str) -> tuple[int, int, int, int]:
    """Return the numbers of nodes, columns and clusters of a problem, and its own number."""
    match = re.fullmatch(r"([1-9]\d*)N([1-9]\d*)D([1-9]\d*)K([1-9]\d*)", name)
    if match is None:
        raise InputError(
            f"There is no problem {name!r}. Use a name like 2N3D4K1 (nodes, dimensions, clusters, number)."
        )
    N, d, k, i = map(int, match.groups())
    return N, d, k, i


def dual_problem(name: str) -> dict[str, FloatArray]:
    """Return the rows of every node of a problem: node -> (5 k, d)."""
    N, d, k, i = dual_shape(name)
    rng = np.random.default_rng([N, d, k, i])
    centers = rng.uniform(-1, 1, (k, d))
    nodes: dict[str, FloatArray] = {}
    for node in range(1, N + 1):
        away = rng.standard_normal((k, ROWS_PER_CLUSTER, d))
        away /= np.linalg.norm(away, axis=2, keepdims=True)
        away *= RADIUS * rng.uniform(0, 1, (k, ROWS_PER_CLUSTER, 1))
        nodes[f"node-{node}"] = (centers[:, None] + away).reshape(-1, d)
    return nodes
