"""Triebe & Rajagopal, figures 6 and 7: the centres over the rounds of central and federated k-means.

The figures have one run each and no number. The caption of figure 7 does not give C: it is 0.1, as in the
name of the picture's file (ourownstory/federated_kmeans, results/stats_progress_C0-1_T200_E1_lrc1.png). The
first run is drawn, and the mean distance of a row to its centre after some rounds is recorded over ten runs.
"""

from collections.abc import Iterator

import numpy as np

from reproduction.common import round_by_round, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.plots import Line, lines
from reproduction.result_table import ResultTable, row
from reproduction.triebe import PAPER, READINGS, K
from unpooled import kernels
from unpooled.data.examples import synthetic
from unpooled.data.examples.synthetic import PartitionedData
from unpooled.typing import FloatArray

FRACTION = 0.1
FIGURES = {"6": 20, "7 a": 200, "7 b": 200}  # rounds
FEDERATED = {"7 a": (1, 1.0), "7 b": (10, 0.1)}  # epochs, client rate
AT = (1, 2, 5, 10, 20, 50, 100, 200)  # rounds of the table


def centres(figure: str, data: PartitionedData, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield the centres at the start and after every round."""
    if figure == "6":
        now = rng.uniform(0.0, K + 1.0, (K, 1))
        yield now
        for _ in range(FIGURES[figure]):
            now = kernels.local_steps(data.X, np.array([0, len(data.X)]), now, steps=1).centers[0]
            yield now
        return
    epochs, rate = FEDERATED[figure]
    method = READINGS["decay"](
        k=K, participation=FRACTION, epochs=epochs, client_rate=rate, rounds=FIGURES[figure]
    )
    yield from round_by_round(method, data.sites(), seed_from(rng))


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the distance after some rounds, and every centre after every round."""
    out: Numbers = {}
    for number in runs:
        data = synthetic.triebe(seed=seed_of({"set": "triebe"}, number))
        rng = np.random.default_rng(seed_of(settings, number))
        for t, now in enumerate(centres(settings["figure"], data, rng)):
            if t in AT:
                distance = float(np.sqrt(kernels.nearest(data.X, now).sqdist).mean())
                out.setdefault(f"distance {t}", []).append(distance)
            for j, value in enumerate(now[:, 0].tolist()):
                out.setdefault(f"centre {j} {t}", []).append(value)
    return out


def _configurations(sources: Sources, quick: bool) -> list[Settings]:
    return [{"figure": figure} for figure in FIGURES]


def _present(results: Results, sources: Sources, quick: bool) -> Presentation:
    rows, drawn = [], []
    for figure, rounds in FIGURES.items():
        settings: Settings = {"figure": figure}
        for t in (t for t in AT if t <= rounds):
            rows.append(
                row((figure, str(t), "distance"), results.values(settings, f"distance {t}"), digits=3)
            )
        x = range(rounds + 1)
        curves = [
            Line(f"centre {j + 1}", x, np.array([results.values(settings, f"centre {j} {t}")[0] for t in x]))
            for j in range(K)
        ]
        svg = lines(f"centres, figure {figure}", curves, "round", "centre")
        title = f"Figure {figure}: the centres of one run; the true ones are 1 to {K}"
        drawn.append(Plot(f"progress-{figure.replace(' ', '')}", title, svg))
    table = ResultTable("progress", "Mean distance by round", ("figure", "round", "score"), tuple(rows))
    return Presentation((table,), tuple(drawn), NOTES)


NOTES = (
    "The figures have no number. The caption of figure 7 does not give the share of sites in a round: C is "
    "0.1, as in the name of the picture's file in the authors' repository.",
)

EXPERIMENTS = (
    Experiment(
        "triebe-progress",
        PAPER,
        "the centres over the rounds (figures 6 and 7)",
        full=10,
        quick=2,
        block=10,
        configurations=_configurations,
        perform=perform,
        present=_present,
    ),
)
