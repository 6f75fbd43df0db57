"""The result of a job without noise, as JSON for programs."""

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled import __version__
from unpooled.app.export.json_model import plain
from unpooled.app.result_names import NO_NAMES
from unpooled.html.formatting import cluster_letter
from unpooled.typing import FloatArray

if TYPE_CHECKING:
    from unpooled.app.result import ClusterResult

_SCORES = ("k", "inertia", "calinski_harabasz", "davies_bouldin", "stability")


def _move(moves: FloatArray | None, i: int) -> float | None:
    """The largest move of a centre without site i, of the way to its border; None if it is not known."""
    known = [] if moves is None else moves[i][np.isfinite(moves[i])]
    return float(np.max(known)) if len(known) else None


def result_json(result: "ClusterResult") -> dict[str, Any]:
    """Return the result for programs; nan becomes null."""
    a, c, d = result.agreement, result.choice, result.description
    sent, exact = result.run.sent(), result.run.state.exact
    fit = "inertia_per_observed_value" if result.keeps_missing else "inertia_per_row"
    value = {
        "unpooled": __version__,
        "headline": " ".join(result.headline()),
        "k": result.k,
        "verdict": c.verdict,
        "clear": c.clear,
        "no_clusters": c.none,
        "reasons": list(c.reasons),
        "votes": c.votes,
        "scores": [
            {
                **{f: getattr(s, f) for f in _SCORES},
                "simplified_silhouette": s.silhouette,  # distances to centres in place of those to rows
                "rows_disclosed": s.mass,
                "border": s.border,
                "gain": j.replication.gain,
                "simulated_gain": j.expected,
                "simulated_deviation": j.deviation,
                "agreement_of_halves": j.replication.agreement,
                "passes": j.passes and s.k > 1,
            }
            for s, j in zip(c.scores, c.judgements, strict=True)
        ],
        "rows": a.used,
        "rows_suppressed": result.suppressed,
        "clusters": [
            {
                "label": j,
                "cluster": cluster_letter(j),
                "rows": float(result.sizes[j]),
                **({} if result.borderline is None else {"borderline_share": float(result.borderline[j])}),
                "rows_by_site": None
                if result.job.aggregate_only
                else {s: result.size_at(i, j) for i, s in enumerate(d.sites)},
                "profile": [
                    {
                        "column": t.column,
                        **({"category": t.category} if t.category else {"sd": t.spread}),
                        "n": t.known,
                        "value": t.value,
                        "overall": t.overall,
                        "effect": t.effect,
                    }
                    for t in result.traits(j)
                ],
            }
            for j in range(result.k)
        ],
        "outcomes": [
            {
                "column": o.column,
                **(
                    {"category": o.category, "cramers_v": o.explained}
                    if o.category
                    else {"eta_squared": o.explained}
                ),
                "overall": o.overall,
                "clusters": [
                    {
                        "label": j,
                        "n": float(o.known[j]),
                        "value": float(o.value[j]),
                        **({} if o.category else {"sd": float(o.deviation[j])}),
                        "difference_from_others": float(o.difference[j]),
                        "interval_95": [float(o.low[j]), float(o.high[j])],
                        "cohens_h" if o.category else "cohens_d": float(o.effect[j]),
                    }
                    for j in range(result.k)
                ],
            }
            for o in result.outcomes
        ],
        "sites": [
            {
                "site": s,
                "rows": float(a.rows[a.sites.index(s)]),
                "protection": a.protection[a.sites.index(s)][0],
                "summary_made": a.protection[a.sites.index(s)][1] or None,
                fit: None if result.job.aggregate_only else result.fit()[i],
                "centre_moves_without_it": _move(d.moves, i),
                "numbers_sent": sent[s][0],
                "bytes_sent": sent[s][1],
                "missing_cells": {
                    name: float(a.missing[a.sites.index(s), j]) for j, name in enumerate(a.columns)
                },
            }
            for i, s in enumerate(result.sites)
        ],
        "columns": [c.name for c in a.preparation.columns],
        "left_out": result.left_out,
        "merged_categories": {name: list(categories) for name, categories in a.merged},
        "warnings": list(result.warnings),
        "rounds": result.run.rounds,
        "exchanges": result.run.exchanges,
        "seed": result.job.seed,
        "method": result.job.method,
        "protect": result.job.protect,
        "min_cluster_size": result.job.minimum,
        "inertia": result.inertia,
        "inertia_estimated_for_rows": result.inertia_of_rows,
        "secure": result.job.secure,
        "exact_rounds": None
        if exact is None
        else {"rounds": exact.number, "sites": exact.sites, "inertia": exact.inertia},
        "cite": result.citation,
    }
    if result.names != NO_NAMES:
        value["names"] = result.names.to_json()
    if reading := result.facts.to_json():
        value["reading"] = reading
    if result.proof is not None:
        value |= {"certificate": result.certified, "lower_bound": result.proof.lower_bound}
    return dict(plain(value))
