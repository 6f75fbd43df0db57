"""Triebe & Rajagopal: Federated K-Means: clustering algorithm and proof of concept. Figures 1-5.

50 sites of ten rows each, one column, five clusters at 1, ..., 5; 50 more sites to test on; 200 rounds,
alpha = (1, 0.5), full batches. The paper has figures and no numbers in text: the mean distance of a row to
its centre is 0.16 to 0.18 with suitable settings, and 0.19 to 0.205 for "central", which is k-means from a
random start. k-means++ with ten restarts is shown beside it.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from reproduction.common import final_centers, pooled_kmeans, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.plots import Line, lines
from reproduction.result_table import Published, ResultTable, Row, row
from unpooled import kernels
from unpooled.algorithms import Lloyd, MiniBatch
from unpooled.data.examples import synthetic
from unpooled.evaluation.metrics import davies_bouldin
from unpooled.federation import Simulation
from unpooled.protocol.exchange import run_protocol
from unpooled.typing import FloatArray

PAPER = "Triebe, Rajagopal: Federated K-Means: clustering algorithm and proof of concept. 2019."
K, ROUNDS = 5, 200
FRACTIONS = (0.02, 0.1, 0.3, 1.0)
EPOCHS = (1, 2, 5, 10, 20)
RATES = (0.05, 0.1, 0.2, 0.5, 1.0)
# read from the figures: between 0.16 and 0.18 with suitable settings, and between 0.19 and 0.205
FEDERATED = Published(0.17, 0.02 / np.sqrt(12), 1, 2)
CENTRAL = Published(0.1975, 0.015 / np.sqrt(12), 1)
RIGHT = 0.3  # the share of sites in all settings of figures 1-3
NAMES = ("distance", "distance, test", "Davies-Bouldin", "Davies-Bouldin, test")


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the mean distance to the nearest centre and the Davies-Bouldin index, of sites and test rows."""
    out: Numbers = {name: [] for name in NAMES}
    for number in runs:
        data = synthetic.triebe(seed=seed_of({"set": "triebe"}, number))
        test = synthetic.triebe(seed=seed_of({"set": "triebe"}, number, 1))
        rng = np.random.default_rng(seed_of(settings, number))
        centers = _centers(settings, data.sites(), data.X, rng)
        for X, suffix in ((data.X, ""), (test.X, ", test")):
            out[f"distance{suffix}"].append(float(np.sqrt(kernels.nearest(X, centers).sqdist).mean()))
            everything = Simulation.from_rows({"all": X}, n_threads=1)
            index = run_protocol(davies_bouldin(everything.sites, centers), everything)
            out[f"Davies-Bouldin{suffix}"].append(index)
    return out


def _centers(
    settings: Settings, sites: dict[str, Any], X: FloatArray, rng: np.random.Generator
) -> FloatArray:
    method = settings["method"]
    if method == "central, n_init 10":
        return pooled_kmeans(X, K, rng)
    if method == "unpooled":
        return final_centers(Lloyd(k=K), sites, seed_from(rng))
    if method == "central":
        # as in the paper: the same uniform start as the federated ones, 20 rounds, no k-means++
        start = rng.uniform(0.0, K + 1.0, (K, 1))
        result = kernels.local_steps(X, np.array([0, len(X)]), start, steps=20)
        centers: FloatArray = result.centers[0]
        return centers
    algorithm = MiniBatch.as_published(
        k=K,
        participation=float(settings["fraction"]),
        epochs=settings["epochs"],
        client_rate=settings["rate"],
        rounds=ROUNDS,
    )
    return final_centers(algorithm, sites, seed_from(rng))


def _federated(fraction: float, epochs: int, rate: float) -> Settings:
    return {"method": "federated", "fraction": fraction, "epochs": epochs, "rate": rate}


BASELINES = ("central", "central, n_init 10", "unpooled")
# figure 1; 2 a, b; 3 a, b: (epochs, client learning rate)
BY_FRACTION = ((1, 1.0), (10, 1.0), (10, 0.1), (5, 1.0), (5, 0.2))


def _grid(name: str) -> list[tuple[str, float, list[Settings]]]:
    """Points of a figure: (name of the line, value on the x axis, settings)."""
    if name == "fraction":
        return [
            (f"E = {e}, beta = {b:g}", f, [_federated(f, e, b)]) for e, b in BY_FRACTION for f in FRACTIONS
        ]
    if name == "epochs":
        return [(f"C = 0.1, beta = {b:g}", e, [_federated(0.1, e, b)]) for b in (1.0, 0.1) for e in EPOCHS]
    return [(f"C = 0.1, E = {e}", b, [_federated(0.1, e, b)]) for e in (1, 10) for b in RATES]


def _configurations(name: str) -> Any:
    def configurations(sources: Sources, quick: bool) -> list[Settings]:
        grid = [s for _, _, some in _grid(name) for s in some]
        unique = [s for i, s in enumerate(grid) if s not in grid[:i]]
        return unique + [{"method": m} for m in BASELINES]

    return configurations


def _present(name: str, symbol: str, heading: str) -> Any:
    def present(results: Results, sources: Sources, quick: bool) -> Presentation:
        rows: list[Row] = []
        for label, value, (settings,) in _grid(name):
            for which in ("distance", "distance, test", "Davies-Bouldin"):
                known = FEDERATED if (name, value, which) == ("fraction", RIGHT, "distance") else None
                rows.append(
                    row((label, f"{value:g}", which), results.values(settings, which), known, digits=4)
                )
        for method in BASELINES:
            for which in ("distance", "distance, test", "Davies-Bouldin"):
                known = CENTRAL if (method, which) == ("central", "distance") else None
                mine = row((method, "-", which), results.values({"method": method}, which), known)
                again = "" if name == "fraction" or known is None else "in triebe-fraction"
                rows.append(replace(mine, unjudged=again))
        table = ResultTable(name, heading, ("settings", symbol, "score"), tuple(rows))
        figures = [_figure(results, name, symbol, which) for which in ("distance", "Davies-Bouldin")]
        return Presentation((table,), tuple(figures), (_note(results),))

    return present


def _figure(results: Results, name: str, symbol: str, which: str) -> Plot:
    grid = _grid(name)
    values = sorted({value for _, value, _ in grid})
    drawn: list[Line] = []
    for label in dict.fromkeys(label for label, _, _ in grid):
        of_label = [(value, results.values(s, which)) for at, value, (s,) in grid if at == label]
        xs = [float(values.index(value)) for value, _ in of_label]
        drawn.append(Line(label, xs, np.array([float(np.mean(sample)) for _, sample in of_label])))
    for method in ("central", "central, n_init 10"):
        level = float(results.values({"method": method}, which).mean())
        drawn.append(Line(method, [0.0, len(values) - 1.0], np.full(2, level), dashed=True))
    svg = lines(f"{which} by {symbol}", drawn, symbol, which, places=[f"{v:g}" for v in values])
    return Plot(f"{name}-{which.lower()}", f"{which} by {symbol}", svg)


def _note(results: Results) -> str:
    random, fair = (float(results.values({"method": m}, "distance").mean()) for m in BASELINES[:2])
    return (
        "The paper prints no numbers. Ours are compared with values read from its figures; the width of "
        "the range that they span is their error. Federated k-means is better than central k-means only if "
        f"the latter starts at random ({random:.3f}): k-means++ with ten restarts reaches {fair:.3f}."
    )


def _experiment(name: str, title: str, symbol: str, heading: str) -> Experiment:
    return Experiment(
        f"triebe-{name}",
        PAPER,
        title,
        full=100,
        quick=10,
        block=10,
        configurations=_configurations(name),
        perform=perform,
        present=_present(name, symbol, heading),
    )


EXPERIMENTS = (
    _experiment(
        "fraction",
        "mini-batch federated k-means by the share of sites (figures 1-3)",
        "C",
        "By the share C of sites in a round",
    ),
    _experiment(
        "epochs", "mini-batch federated k-means by local epochs (figure 4)", "E", "By local epochs E"
    ),
    _experiment(
        "rate",
        "mini-batch federated k-means by the client learning rate (figure 5)",
        "beta",
        "By the client learning rate beta",
    ),
)
