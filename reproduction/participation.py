"""Holzer et al., figures 4-8: EWF, DWF and k-FED when only some of the sites take part in a round.

Means are over the half of the runs that scores best, as in the paper. The paper prints the numbers of the
right ends of the figures only, where all 100 sites take part: they are tables 1-3. The synthetic set is run
with 100 sites (figure 4) and 10 (figure 7); MNIST (5 and 8) and FEMNIST (6) if their data are available, but
not in a quick run.
"""

from dataclasses import replace

import numpy as np

from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Plot, Presentation, Results, Settings
from reproduction.holzer import PAPER, best_half, perform, pooled_settings, settings_of, splits_of
from reproduction.plots import Line, lines
from reproduction.published_holzer import ACCURACY, V_MEASURE
from reproduction.result_table import Published, ResultTable, Row, row
from unpooled.typing import FloatArray

METHODS = ("EWF", "DWF", "k-FED")
SETS = (("synthetic", 100, 4), ("MNIST", 100, 5), ("FEMNIST", 100, 6), ("synthetic", 10, 7), ("MNIST", 10, 8))
PUBLISHED = {"accuracy": ACCURACY, "v-measure": V_MEASURE}
COLUMN = {"EWF": 1, "DWF": 2, "k-FED": 3}


def _counts(sites: int, quick: bool) -> tuple[int, ...]:
    """The numbers of sites that take part."""
    if sites == 10:
        return (1, 2, 5, 10) if quick else tuple(range(1, 11))
    return (5, 20, 50, 100) if quick else tuple(range(5, 101, 5))


def _sets(sources: Sources, quick: bool) -> list[tuple[str, int, int]]:
    """The sets that can be run: images take hours, and are left out of a quick run."""
    available = {
        "synthetic": True,
        "MNIST": not quick and sources.has("mnist"),
        "FEMNIST": not quick and sources.has("femnist-iid") and sources.has("femnist-half-iid"),
    }
    return [s for s in SETS if available[s[0]]]


def _configurations(sources: Sources, quick: bool) -> list[Settings]:
    out: list[Settings] = []
    for set_, sites, _ in _sets(sources, quick):
        for split in splits_of(set_):
            for method in METHODS:
                for n in _counts(sites, quick):
                    out.append(settings_of(set_, split, method, sources, sites, n))
            wanted = pooled_settings(set_, split, "k-means", sources)
            out += [wanted] if wanted not in out else []
    return out


def _best_half(results: Results, settings: Settings, name: str) -> FloatArray:
    return results.values(settings, name)[best_half(results.values(settings, "score"))]


def _present(results: Results, sources: Sources, quick: bool) -> Presentation:
    rows: list[Row] = []
    figures: list[Plot] = []
    for set_, sites, number in _sets(sources, quick):
        counts = _counts(sites, quick)
        for split in splits_of(set_):
            for name in ("score", "accuracy", "v-measure"):
                drawn = []
                for method in METHODS:
                    all_ = [
                        _best_half(results, settings_of(set_, split, method, sources, sites, n), name)
                        for n in counts
                    ]
                    means = np.array([v.mean() for v in all_])
                    drawn.append(Line(method, counts, means, np.array([v.std() for v in all_])))
                    for n, values in zip(counts, all_, strict=True):
                        known = None
                        if n == sites == 100 and name in PUBLISHED:
                            mean, _, sd = PUBLISHED[name][set_][split][COLUMN[method]]
                            known = Published(mean, sd, 50)
                        mine = row((set_, f"{n} of {sites}", split, method, name), values, known)
                        rows.append(replace(mine, unjudged="in tables 2 and 3"))
                pooled = _best_half(results, pooled_settings(set_, split, "k-means", sources), name)
                drawn.append(
                    Line("k-means", [counts[0], counts[-1]], np.full(2, float(pooled.mean())), dashed=True)
                )
                title = f"Figure {number}: {set_}, {sites} sites, {split}: {name}"
                svg = lines(title, drawn, "sites that take part in a round", name)
                figures.append(Plot(f"fig{number}-{split}-{name}", title, svg))
    heads = ("set", "sites", "split", "method", "score")
    table = ResultTable(
        "participation", "By number of participating sites (best half of the runs)", heads, tuple(rows)
    )
    notes = NOTES
    if not quick and len(_sets(sources, quick)) < len(SETS):
        notes += ("Images are included if --data has them.",)
    return Presentation((table,), tuple(figures), notes)


NOTES: tuple[str, ...] = (
    "The paper prints the numbers of the right ends of the figures only, where all 100 sites take part "
    "(tables 2 and 3).",
)


EXPERIMENTS = (
    Experiment(
        "holzer-participation",
        PAPER,
        "EWF, DWF and k-FED when only some sites take part (figures 4-8)",
        full=100,
        quick=6,
        block=2,
        configurations=_configurations,
        perform=perform,
        present=_present,
        version=2,
    ),
)
