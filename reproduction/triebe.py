"""Triebe & Rajagopal: Federated K-Means: clustering algorithm and proof of concept. Figures 1-5.

50 sites of ten rows each, one column, five clusters at 1, ..., 5; 50 more sites to test on; 200 rounds,
full batches. The paper prints no number. ``triebe_readings.csv`` has every point of figures 1 to 5, read by
pixels from the pictures of the authors' repository (ourownstory/federated_kmeans, e8e6f89): the mean distance
of a training row to its centre and the Davies-Bouldin index, with the standard deviation over ten seeds that
the band shows. A point above the picture's frame has no line.

The captions' alpha = (1, 0.5) is read in two ways: "decay" is ``MiniBatch.as_published``, a server rate of
t^-0.5; "momentum" is ``MiniBatch.as_published_code``, as in the repository, which is older than the pictures.
The pictures are compared with "decay"; "momentum" is shown beside it, and the notes have the distance of both
from all points. "central" is k-means from a random start. k-means++ with ten restarts is shown beside it.
"""

import csv
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reproduction.common import final_centers, pooled_kmeans, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.plots import Line, lines
from reproduction.result_table import PICTURE, Published, ResultTable, Row, row
from unpooled import kernels
from unpooled.algorithms import Lloyd, MiniBatch
from unpooled.data.examples import synthetic
from unpooled.evaluation.metrics import davies_bouldin
from unpooled.federation import Simulation
from unpooled.protocol.exchange import run_protocol
from unpooled.typing import FloatArray

PAPER = "Triebe, Rajagopal: Federated K-Means: clustering algorithm and proof of concept. 2019."
K, ROUNDS = 5, 200
FRACTIONS = (0.01, 0.03, 0.1, 0.3, 1.0)
EPOCHS = (1, 2, 5, 10, 20, 50)
RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
READINGS = {"decay": MiniBatch.as_published, "momentum": MiniBatch.as_published_code}
SEEDS = 10  # of a point in the pictures
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
    algorithm = READINGS[settings["alpha"]](
        k=K,
        participation=float(settings["fraction"]),
        epochs=settings["epochs"],
        client_rate=settings["rate"],
        rounds=ROUNDS,
    )
    return final_centers(algorithm, sites, seed_from(rng))


def _federated(alpha: str, fraction: float, epochs: int, rate: float) -> Settings:
    return {"method": "federated", "alpha": alpha, "fraction": fraction, "epochs": epochs, "rate": rate}


BASELINES = ("central", "central, n_init 10", "unpooled")
# the figure of a line, its epochs, its client learning rate
BY_FRACTION = (("1", 1, 1.0), ("2 a", 10, 1.0), ("2 b", 10, 0.1), ("3 a", 5, 1.0), ("3 b", 5, 0.2))


class Point(NamedTuple):
    """A point of a figure."""

    figure: str
    line: str  # the settings of all points of its line
    x: float
    fraction: float
    epochs: int
    rate: float


def points(name: str) -> list[Point]:
    """Return the points of an experiment's figures."""
    if name == "fraction":
        return [
            Point(figure, f"E = {e}, beta = {b:g}", f, f, e, b)
            for figure, e, b in BY_FRACTION
            for f in FRACTIONS
        ]
    if name == "epochs":
        lines_ = (("4 a", 1.0), ("4 b", 0.1))
        return [Point(fig, f"C = 0.1, beta = {b:g}", e, 0.1, e, b) for fig, b in lines_ for e in EPOCHS]
    return [
        Point(fig, f"C = 0.1, E = {e}", b, 0.1, e, b) for fig, e in (("5 a", 1), ("5 b", 10)) for b in RATES
    ]


@lru_cache(maxsize=1)
def readings() -> dict[tuple[str, str, str], Published]:
    """Return what was read from the pictures: (figure, value on the x axis, score) -> number."""
    column = {"fraction": "C", "epochs": "E", "rate": "beta"}
    found = {}
    with Path(__file__).with_name("triebe_readings.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            sd = float(line["sd"] or 0)
            read = Published(float(line["value"]), sd, SEEDS if sd else 0, 3, PICTURE)
            found[line["figure"], line[column[line["axis"]]], line["score"]] = read
    return found


def _configurations(name: str) -> Any:
    def configurations(sources: Sources, quick: bool) -> list[Settings]:
        grid = [_federated(alpha, p.fraction, p.epochs, p.rate) for p in points(name) for alpha in READINGS]
        unique = [s for i, s in enumerate(grid) if s not in grid[:i]]
        return unique + [{"method": m} for m in BASELINES]

    return configurations


SCORES = ("distance", "Davies-Bouldin")


def _present(name: str, symbol: str, heading: str) -> Any:
    def present(results: Results, sources: Sources, quick: bool) -> Presentation:
        rows: list[Row] = []
        for p in points(name):
            for which in SCORES:
                known = readings().get((p.figure, f"{p.x:g}", which))
                for alpha in READINGS:
                    values = results.values(_federated(alpha, p.fraction, p.epochs, p.rate), which)
                    mine = row((p.figure, p.line, f"{p.x:g}", which, alpha), values, known, note=1, digits=3)
                    again = "" if alpha == "decay" or known is None else "another reading of alpha"
                    rows.append(replace(mine, unjudged=again, known=False))
        for method in BASELINES:
            for which in SCORES:
                values = results.values({"method": method}, which)
                of_panels = (
                    [f for f, *_ in BY_FRACTION] if name == "fraction" and method == "central" else ["none"]
                )
                for figure in of_panels:
                    known = readings().get((figure, "central", which))
                    rows.append(row((figure, method, "central", which, "none"), values, known, digits=3))
        table = ResultTable(name, heading, ("figure", "settings", symbol, "score", "alpha"), tuple(rows))
        figures = [_figure(results, name, symbol, which) for which in SCORES]
        return Presentation((table,), tuple(figures), _notes(results, rows))

    return present


def distance_from(rows: Sequence[Row], alpha: str) -> float:
    """Return the root of the mean squared difference of a reading's mean distances from the pictures."""
    found = [
        r.ours - r.published.value
        for r in rows
        if r.published is not None and r.what[3:] == ("distance", alpha)
    ]
    return float(np.sqrt(np.mean(np.square(found))))


def _figure(results: Results, name: str, symbol: str, which: str) -> Plot:
    grid = points(name)
    values = list(dict.fromkeys(p.x for p in grid))
    drawn: list[Line] = []
    for figure, label in dict.fromkeys((p.figure, p.line) for p in grid):
        of_line = [p for p in grid if p.figure == figure]
        xs = [float(values.index(p.x)) for p in of_line]
        means = [
            float(results.values(_federated("decay", p.fraction, p.epochs, p.rate), which).mean())
            for p in of_line
        ]
        read = [readings().get((figure, f"{p.x:g}", which)) for p in of_line]
        theirs = np.array([np.nan if r is None else r.value for r in read])
        drawn.append(Line(label, xs, np.array(means)))
        drawn.append(Line(f"{label}, published", xs, theirs, dashed=True))
    svg = lines(f"{which} by {symbol}", drawn, symbol, which, places=[f"{v:g}" for v in values])
    return Plot(f"{name}-{which.lower()}", f"{which} by {symbol}", svg)


def _notes(results: Results, rows: Sequence[Row]) -> tuple[str, ...]:
    random, fair = (float(results.values({"method": m}, "distance").mean()) for m in BASELINES[:2])
    decay, momentum = (distance_from(rows, alpha) for alpha in READINGS)
    return (
        "The root mean squared difference of the mean distance from the points of the pictures is "
        f"{decay:.3f} if alpha is a decaying rate, and {momentum:.3f} if it is a rate and a momentum. "
        "The cause is open: the program that drew the pictures is not in the authors' repository.",
        "Federated k-means is better than central k-means only if the latter starts at random "
        f"({random:.3f}): k-means++ with ten restarts reaches {fair:.3f}.",
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
        version=2,
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
