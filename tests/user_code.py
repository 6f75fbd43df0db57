"""Code of a user of unpooled, which ``make lint`` checks with ``mypy --strict``; nothing runs it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unpooled import FederatedKMeans, certify, cluster, exact_kmeans
from unpooled.algorithms import DWF
from unpooled.federation import Simulation
from unpooled.protocol import run


def use(tables: dict[str, NDArray[np.float64]]) -> None:
    """Call what most users call, with the types that they rely on."""
    result = cluster(
        tables, 2, scale="robust", n_init=3, random_state=1, recode={"sex": {"M": "male"}}, na=-9
    )
    k: int = result.k
    headline: str = result.headline
    page: Path = result.report("report.html", overwrite=True)
    values: dict[str, object] = result.to_dict()
    model = FederatedKMeans(n_clusters=2, method=DWF(momentum=0.8), random_state=0).fit(tables)
    score: float = model.score(tables["north"])
    done = run(DWF(k=2), Simulation.from_rows(tables), seed=3)
    rounds: int = done.rounds
    print(certify, exact_kmeans, k, headline, page, values, score, rounds)
