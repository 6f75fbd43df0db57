"""Stallmann & Wilbik, case 4: fuzzy c-means on the G2 sets. Table 5 and figure 4.

Two clusters in 2 to 1024 columns, ten similar clients. A set is Fränti's own if it is available; the others
are generated in the same way, anew in every run.
"""

from dataclasses import replace

import numpy as np

from reproduction.common import seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.plots import Line, lines
from reproduction.result_table import Published, ResultTable, row
from reproduction.stallmann import METHODS, PAPER, final_centers
from unpooled.data.examples import synthetic
from unpooled.data.examples.synthetic import G2_DEVIATIONS
from unpooled.data.partitions import iid, split_rows
from unpooled.evaluation.metrics import knowledge_gap, nearest_gap, outside_sse
from unpooled.typing import FloatArray

PUBLISHED_G2 = {  # quantiles of the normalised gap: 25%, 50%, 75%, minimum, maximum
    "central": (2.42, 9.01, 30.98, 0.98, 99.80),
    "avg1": (2.43, 8.87, 30.33, 0.98, 99.24),
    "avg2": (2.41, 8.94, 30.38, 0.97, 95.55),
}


def _g2(columns: int, sd: int, method: str, origin: str) -> Settings:
    return {"columns": columns, "sd": sd, "method": method, "data": origin}


def _sets(quick: bool) -> list[tuple[int, int]]:
    wide = 64 if quick else 1024
    return [(d, sd) for d, sd in synthetic.g2_all() if d <= wide]


def _origin(sources: Sources, columns: int) -> str:
    own = sources.has("g2") and f"g2_{columns}_{G2_DEVIATIONS[0]}" in sources.arrays("g2")
    return sources.origin("g2") if own else "generated"


def _g2_settings(sources: Sources, quick: bool) -> list[Settings]:
    return [_g2(d, sd, m, _origin(sources, d)) for d, sd in _sets(quick) for m in METHODS]


def perform_g2(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the gaps and the outside SSE of a set."""
    d, sd = settings["columns"], settings["sd"]
    own = settings["data"] != "generated"
    stored = np.asarray(sources.arrays("g2")[f"g2_{d}_{sd}"], dtype=float) if own else None
    true = synthetic.g2_true(d)
    out: Numbers = {"gap": [], "matched gap": [], "outside SSE": []}
    for number in runs:
        X = stored if stored is not None else synthetic.g2(d, sd, seed=[d, sd, number])
        sites = split_rows(X, iid(len(X), 10, seed=[d, sd, number]))
        seed = seed_from(np.random.default_rng(seed_of(settings, number)))
        centers = final_centers(sites, 2, 2.0, settings["method"], seed, rounds=30)
        out["gap"].append(nearest_gap(centers, true) / np.sqrt(d))
        out["matched gap"].append(knowledge_gap(centers, true) / np.sqrt(d))
        out["outside SSE"].append(outside_sse(X, centers))
    return out


def _present_g2(results: Results, sources: Sources, quick: bool) -> Presentation:
    rows, sets = [], _sets(quick)

    def values_of(method: str, name: str, some: list[tuple[int, int]]) -> FloatArray:
        return np.concatenate(
            [results.values(_g2(d, sd, method, _origin(sources, d)), name) for d, sd in some]
        )

    for method in METHODS:
        by_run = np.array([values_of(method, "gap", [one]) for one in sets])  # (sets, runs)
        for i, which in enumerate(("25%", "50%", "75%", "min", "max")):
            share = {"min": 0.0, "max": 1.0}.get(which)
            values = np.quantile(by_run, int(which[:2]) / 100 if share is None else share, axis=0)
            # with fewer sets than in the paper the quantiles are not comparable
            known = None if quick else Published(PUBLISHED_G2[method][i], digits=2)
            mine = row((method, which), values, known, one_draw=True, digits=2, note=1)
            rows.append(replace(mine, unjudged="" if share is None else "an extreme"))
    table = ResultTable("g2", "G2: normalised gap over all sets", ("method", "quantile"), tuple(rows))
    deviations, columns = sorted({sd for _, sd in sets}), sorted({d for d, _ in sets})
    by_sd = [
        Line(
            m,
            deviations,
            np.array([values_of(m, "gap", [s for s in sets if s[1] == sd]).mean() for sd in deviations]),
        )
        for m in METHODS
    ]
    by_d = [
        Line(
            m,
            range(len(columns)),
            np.array([values_of(m, "outside SSE", [s for s in sets if s[0] == d]).mean() for d in columns]),
        )
        for m in METHODS
    ]
    figure_4 = [
        row((which, str(at), m, name), values_of(m, quantity, of_point), digits=2)
        for which, name, quantity, xs, column in (
            ("4 a", "normalised gap", "gap", deviations, 1),
            ("4 b", "outside SSE", "outside SSE", columns, 0),
        )
        for at in xs
        for of_point in ([s for s in sets if s[column] == at],)
        for m in METHODS
    ]
    heads = ("figure", "standard deviation or columns", "method", "score")
    by_point = ResultTable("figure4", "G2: by standard deviation and columns", heads, tuple(figure_4))
    figures = (
        Plot(
            "g2-deviation",
            "Figure 4 a: the gap grows with the overlap",
            lines("gap by standard deviation", by_sd, "standard deviation", "normalised gap"),
        ),
        Plot(
            "g2-columns",
            "Figure 4 b: separation falls with the columns",
            lines("outside SSE by columns", by_d, "columns", "outside SSE", places=[str(d) for d in columns]),
        ),
    )
    notes = NOTES
    if quick:
        notes += ("Quick: only the sets of up to 64 columns, whose quantiles are not those of the paper.",)
    return Presentation((table, by_point), figures, notes)


NOTES: tuple[str, ...] = (
    "The published sets are truncated to whole numbers, not rounded: means are half a unit below the true "
    "centres, which is most of the smallest gaps. Generated sets are truncated too.",
    "A quantile is over the 100 sets; its mean and spread are over runs. Every run draws the sets anew, "
    "except those of which Fränti's own are available. The published quantile is of one draw. A minimum or "
    "maximum is not judged.",
)


EXPERIMENTS = (
    Experiment(
        "stallmann-g2",
        PAPER,
        "fuzzy c-means on the G2 sets (table 5, figure 4)",
        full=10,
        quick=2,
        block=10,
        configurations=_g2_settings,
        perform=perform_g2,
        present=_present_g2,
        version=3,
    ),
)
