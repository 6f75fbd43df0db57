"""Functions for all papers: a run to its end or round by round, pooled k-means, and scores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.app.compare.scores import ari
from unpooled.federation import Simulation
from unpooled.protocol.algorithm import Algorithm
from unpooled.protocol.exchange import round_rng, run_protocol
from unpooled.protocol.run_loop import run
from unpooled.typing import FloatArray, IntArray

Rows = npt.NDArray[Any]


def seed_from(rng: np.random.Generator) -> int:
    """Return an integer seed for a run."""
    return int(rng.integers(0, 2**31))


def final_centers(algorithm: Algorithm[Any], sites: Mapping[str, Rows], seed: int) -> FloatArray:
    """Return the centres at the end of a run over these sites, on one thread."""
    centers: FloatArray = run(algorithm, Simulation.from_rows(sites, n_threads=1), seed=seed).state.centers
    return centers


def states(algorithm: Algorithm[Any], federation: Simulation, seed: int) -> Iterator[Any]:
    """Yield the state after the start and after every round, as in ``run``."""
    names, number = tuple(sorted(federation.sites)), 0
    state = None
    while state is None or not algorithm.finished(state):
        rng = round_rng(seed, number)
        steps = algorithm.start(names, rng) if state is None else algorithm.round(state, names, rng)
        state = run_protocol(steps, federation, run="reproduce", seed=seed, number=number)
        yield state
        number += 1


def round_by_round(algorithm: Algorithm[Any], sites: Mapping[str, Rows], seed: int) -> Iterator[FloatArray]:
    """Yield the centres after the start and after every round."""
    for state in states(algorithm, Simulation.from_rows(sites, n_threads=1), seed):
        yield state.centers


def pooled_kmeans(
    X: Rows, k: int, rng: np.random.Generator, *, n_init: int = 10, max_iter: int = 300
) -> FloatArray:
    """Return the centres of k-means on the pooled rows: k-means++, and the best of ``n_init``."""
    seed = rng.integers(0, 2**63, size=1, dtype=np.uint64)
    result = kernels.kmeans(X, np.array([0, len(X)]), k, seed, n_init=n_init, max_iter=max_iter)
    centers: FloatArray = result.centers[0]
    return centers


def inertia_per_row(X: Rows, centers: FloatArray) -> float:
    """Return the mean squared distance of a row to its nearest centre."""
    return float(kernels.nearest(X, centers).sqdist.mean())


def ari_by_site(
    truth: IntArray, labels: IntArray, site: IntArray, weights: Sequence[float] | None = None
) -> float:
    """Return the mean over sites of the site's own ARI, weighted by its rows, as Garst & Reinders score.

    ``weights``, one for each site in sorted order, replaces the numbers of rows.
    """
    sites = [site == s for s in np.unique(site)]
    scores = [ari(truth[at_site], labels[at_site]) for at_site in sites]
    return float(
        np.average(scores, weights=[at_site.sum() for at_site in sites] if weights is None else weights)
    )
