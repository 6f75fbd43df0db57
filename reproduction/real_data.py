"""FKM and federated fuzzy c-means on real tables, which both papers leave to future work.

Penguins by island and heart disease by hospital, the tables that are shipped with the package, prepared as in
``unpooled compare``: columns are standardised, rows with a missing number are left out. The labels, species
and diagnosis, judge a clustering and never make one. Nothing is published to compare with.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from reproduction import garst_runs, stallmann
from reproduction.common import ari_by_site, final_centers, inertia_per_row, pooled_kmeans, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Presentation, Results, Settings, seed_of
from reproduction.result_table import ResultTable, row
from unpooled.algorithms import FKM, KFed, Lloyd
from unpooled.app.compare import Problem, suite
from unpooled.app.compare.scores import ari, labels_of
from unpooled.data.partitions import natural_id
from unpooled.evaluation.metrics import outside_sse, within_sse
from unpooled.protocol.algorithm import Algorithm
from unpooled.typing import FloatArray, IntArray

SETS = ("penguins", "heart disease")
KMEANS = ("central, n_init 10", "FKM, means only", "FKM, our default", "k-FED", "unpooled")
FUZZY = ("central", "avg1", "avg2", "unpooled")
ROUNDS = 100


@lru_cache(maxsize=1)
def problems() -> dict[str, Problem]:
    """Return the tables by name."""
    return {problem.name: problem for problem in suite("tabular") if problem.name in SETS}


def labels_and_sites(problem: Problem) -> tuple[IntArray, IntArray]:
    """Return (n,) the true label and (n,) the site of every row."""
    assert problem.y is not None
    assert problem.site is not None
    return problem.y, natural_id(problem.site)


def perform_kmeans(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the scores of FKM, k-FED and k-means of all rows, as in figures 1 and 3."""
    problem, method = problems()[settings["set"]], settings["method"]
    y, site = labels_and_sites(problem)
    algorithms: dict[str, Algorithm[Any]] = {
        "FKM, means only": FKM.as_published(k=problem.k, rounds=ROUNDS),
        "FKM, our default": FKM(k=problem.k),
        "k-FED": KFed.as_published_code(k=problem.k),
        "unpooled": Lloyd(k=problem.k),
    }

    def centers_of(rng: np.random.Generator) -> FloatArray:
        if method not in algorithms:
            return pooled_kmeans(problem.X, problem.k, rng)
        return final_centers(algorithms[method], problem.sites(), seed_from(rng))

    def scores(centers: FloatArray) -> dict[str, float]:
        labels = labels_of(problem.X, centers)
        return {
            "ARI, all rows": ari(y, labels),
            "ARI, by site": ari_by_site(y, labels, site),
            "score": inertia_per_row(problem.X, centers),
        }

    return _performed(settings, runs, centers_of, scores)


def perform_fuzzy(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the SSEs of fuzzy c-means, as in tables 2 to 4, and the ARI of the nearest centres."""
    problem, method = problems()[settings["set"]], settings["method"]
    y, _ = labels_and_sites(problem)

    def centers_of(rng: np.random.Generator) -> FloatArray:
        return stallmann.final_centers(problem.sites(), problem.k, 2.0, method, seed_from(rng), ROUNDS)

    def scores(centers: FloatArray) -> dict[str, float]:
        return {
            "within SSE, all rows": within_sse(problem.X, centers),
            "outside SSE, all rows": outside_sse(problem.X, centers),
            "ARI, all rows": ari(y, labels_of(problem.X, centers)),
        }

    return _performed(settings, runs, centers_of, scores)


def _performed(
    settings: Settings,
    runs: range,
    centers_of: Callable[[np.random.Generator], FloatArray],
    scores: Callable[[FloatArray], dict[str, float]],
) -> Numbers:
    out: Numbers = {}
    for number in runs:
        for name, value in scores(centers_of(np.random.default_rng(seed_of(settings, number)))).items():
            out.setdefault(name, []).append(value)
    return out


def _experiment(
    name: str, paper: str, title: str, methods: tuple[str, ...], names: tuple[str, ...], perform: Any
) -> Experiment:
    def configurations(sources: Sources, quick: bool) -> list[Settings]:
        return [{"set": s, "method": m} for s in SETS for m in methods]

    def present(results: Results, sources: Sources, quick: bool) -> Presentation:
        rows = tuple(
            row((s["set"], s["method"], which), results.values(s, which))
            for s in configurations(sources, quick)
            for which in names
        )
        return Presentation((ResultTable("real", title, ("set", "method", "score"), rows),), (), NOTES)

    return Experiment(
        name,
        paper,
        title,
        full=20,
        quick=2,
        block=20,
        configurations=configurations,
        perform=perform,
        present=present,
        data="shipped with the package",
    )


NOTES = (
    "The paper leaves real data to future work: nothing is published to compare with. Penguins have three "
    "islands and k = 3, heart disease four hospitals and k = 2.",
)

EXPERIMENTS = (
    _experiment(
        "garst-real",
        garst_runs.PAPER,
        "FKM and k-FED on penguins by island and heart disease by hospital",
        KMEANS,
        ("ARI, all rows", "ARI, by site", "score"),
        perform_kmeans,
    ),
    _experiment(
        "stallmann-real",
        stallmann.PAPER,
        "fuzzy c-means on penguins by island and heart disease by hospital",
        FUZZY,
        ("within SSE, all rows", "outside SSE, all rows", "ARI, all rows"),
        perform_fuzzy,
    ),
)
