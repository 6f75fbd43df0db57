"""The values of the report's sections. The template ``report.html`` shows each in the section of its name."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from unpooled import __version__
from unpooled.app.outcome_cells import cells_of, name_of, note
from unpooled.app.report import charts
from unpooled.app.report.missing import kept_cells, missing
from unpooled.app.result import ClusterResult
from unpooled.app.traits import FULL, Trait, one_per_column
from unpooled.data import Number
from unpooled.html.formatting import cluster_letter, counted, figure, listed, natural, percent, sentence, size
from unpooled.html.rendering import render, script_digest

_TRAITS = 5  # columns on the card of a cluster
_NAMED, _MIN_EFFECT = 3, 0.4  # columns in the sentence of a cluster, and their least effect in deviations
_LISTED = 12  # items that are left out


def headline(result: ClusterResult) -> dict[str, Any]:
    """Return the answer."""
    first, support = result.headline()
    a, run = result.agreement, result.run
    largest = max((amount for _, amount in run.sent().values()), default=0)
    send = "sent by a site at most" if result.job.remote is not None else "a site would send at most"
    kept = f"{kept_cells(result)} Rows are compared by the cells that they have."
    left_out = left_out_items(result)
    return {
        "first": first,
        "support": support,
        "picture": charts.apart(result),
        "clusters": [_cluster(result, j) for j in range(result.k)] if result.k > 1 else [],
        "second": [text for text in (result.certified, kept if result.keeps_missing else "") if text],
        "left_out": left_out[:_LISTED],
        "more_left_out": max(len(left_out) - _LISTED, 0),
        "warnings": result.warnings,
        "figures": [
            (f"{a.used:,.0f}", result.unit),
            (str(len(result.sites)), "sites"),
            ("none" if result.choice.none else str(result.k), "clusters"),
            (str(len(a.preparation.columns)), "columns used"),
            (str(run.exchanges), "round trips"),
            (size(largest), send),
        ],
    }


_WORDS = (
    ("high", False, True),
    ("low", False, False),
    ("more often", True, True),
    ("less often", True, False),
)


def _name(result: ClusterResult, t: Trait) -> str:
    """Return the name of a trait, with the user's name of its column."""
    column = result.names.column(t.column)
    return f"{column} = {t.category}" if t.category else column


def _cluster(result: ClusterResult, j: int) -> dict[str, str]:
    """Return a cluster in one sentence: its size, and its largest differences from all rows."""
    traits = [t for t in one_per_column(result.traits(j)) if abs(t.effect) >= _MIN_EFFECT][:_NAMED]
    ways = []
    for word, category, up in _WORDS:
        some = [
            f"{_name(result, t)} ({'; '.join(filter(None, [_beside(t), t.behind]))})"
            for t in traits
            if bool(t.category) is category and (t.effect > 0) is up
        ]
        ways += [f"{word} {', '.join(some)}"] if some else []
    rows, share = _size(result, j)
    text = "; ".join(ways) or "close to the mean in every column"
    return {
        "name": result.names.clusters.get(cluster_letter(j), ""),
        "size": f"{rows} ({share})",
        "text": text,
    }


def _size(result: ClusterResult, j: int) -> tuple[str, str]:
    """Return the size of a cluster, and its share of all rows."""
    rows = float(result.sizes[j])
    return f"{rows:,.0f} {result.unit}", percent(rows / max(float(result.sizes.sum()), 1.0))


def left_out_items(result: ClusterResult) -> list[dict[str, str]]:
    """Return the sites, columns and rows that are not in the result, each with the reason."""
    items = []
    for item in result.left_out:
        site, column, rows = (item.get(name) for name in ("site", "column", "rows"))
        what = f"column {column}" if column else "" if site else f"{rows:,} {result.unit}"
        items.append({"site": site or "", "what": what, "why": item["why"]})
    return items


def profiles(result: ClusterResult) -> dict[str, Any]:
    """Return the profile of every cluster."""
    return {
        "title": "Cluster profiles" if result.k > 1 else f"Profile of all {result.unit}",
        "pairs": result.k in (2, 4),
        "cards": [_card(result, j) for j in range(result.k)],
        "columns": _every_column(result),
    }


def _card(result: ClusterResult, j: int) -> dict[str, Any]:
    rows, share = _size(result, j)
    traits = [t for t in one_per_column(result.traits(j)) if abs(t.effect) >= 0.1][:_TRAITS]
    name = result.names.clusters.get(cluster_letter(j), "")
    return {"name": name, "size": rows, "share": share, "bars": [_bar(result, t) for t in traits]}


def _bar(result: ClusterResult, t: Trait) -> dict[str, str]:
    """Return a trait as a bar left or right of the middle."""
    width = min(abs(t.effect) / FULL, 1.0) * 50
    way = "below" if t.effect < 0 else "above"
    return {
        "name": _name(result, t),
        "value": _value(t),
        "overall": _value(t, overall=True),
        "title": f"{abs(t.effect):.1f} standard deviations {way} the mean of all rows",
        "start": f"{50 - width if t.effect < 0 else 50:.1f}",
        "width": f"{width:.1f}",
    }


def _value(t: Trait, *, overall: bool = False) -> str:
    if t.category:
        return percent(t.overall if overall else t.value)
    return t.shown_overall if overall else t.shown


def _beside(t: Trait) -> str:
    return f"{_value(t)}, all {_value(t, overall=True)}"


def _every_column(result: ClusterResult) -> list[dict[str, Any]]:
    by_cluster = [{(t.column, t.category): t for t in result.traits(j)} for j in range(result.k)]
    places = {key: j for j, key in enumerate(result.agreement.preparation.outputs)}
    rows = []
    for key in sorted(by_cluster[0], key=lambda key: places.get(key) or places.get((key[0], ""), 0)):
        traits = [by[key] for by in by_cluster]
        cells = [
            {
                "value": _value(t),
                "spread": "" if t.category else figure(t.spread),
                "known": f"{t.known:,.0f}" if t.behind else "",
                "depth": t.effect / FULL,
            }
            for t in traits
        ]
        rows.append(
            {"name": _name(result, traits[0]), "cells": cells, "overall": _value(traits[0], overall=True)}
        )
    return rows


_BARS = 120  # sites that are drawn
_ROWS = 1000  # sites that are listed
_WORSE = 1.5  # times the mean distance: beyond it, a site is described less well
_NONE = "\N{EN DASH}"


def _order(result: ClusterResult) -> list[int]:
    """Return the positions of the sites in natural order: 1, 2, 10."""
    sites = result.description.sites
    return sorted(range(len(sites)), key=lambda i: natural(sites[i]))


def places(result: ClusterResult) -> dict[str, Any]:
    """Return the clusters at every site."""
    d, k = result.description, range(result.k)
    order, many = _order(result), len(d.sites) > 20
    fits = result.fit()
    of_value = " of an observed value" if result.keeps_missing else ""
    notes = [f"The last column is the mean squared distance{of_value} to the centres."]
    if any(result.size_at(i, j) == 0 for i in order[:_ROWS] for j in k):
        notes.insert(0, f"{_NONE}: none.")
    if result.sites_with_minimum:
        notes.append(
            "Suppressed: no rows, or a group that is too small to be disclosed, or one from which such a "
            "group could be computed."
        )
    if result.suppressed > 0:
        notes.append(f"{result.suppressed:,} rows in total are in suppressed groups.")
    lead = f"Each bar is a site, divided in proportion to its {result.unit}."
    if result.job.aggregate_only:
        sums = "secure sums" if result.job.secure else "the sums of federations"
        lead = f"All sites together: {sums} do not disclose which site has which cluster."
        if result.exact_rounds:
            lead += f" Sites answered from groups of rows; {result.exact_rounds}."
    return {
        "title": "Clusters by site" if result.k > 1 else f"{result.unit.capitalize()} by site",
        "lead": lead,
        **_differences(result),
        "legend": [f"{result.sizes[j]:,.0f} {result.unit}" for j in k],
        "many": many,
        "bars": [_stacked(result, i, 0.2 if many else 0.07) for i in order[:_BARS]],
        "more_bars": max(len(d.sites) - _BARS, 0),
        "rows": [
            {
                "site": d.sites[i],
                "sizes": [_count(result.size_at(i, j)) for j in k],
                "total": f"{d.sizes[i].sum():,.0f}",
                "distance": f"{fits[i]:.3g}",
            }
            for i in order[:_ROWS]
        ],
        "notes": " ".join(notes),
        "absent": _absent(result),
        "absent_note": "Averages of groups do not show clusters of a few people: a site may have some."
        if result.agreement.from_summaries
        else "",
    }


def _stacked(result: ClusterResult, i: int, min_share: float) -> dict[str, Any]:
    """Return a site's bar, divided into its clusters; shares from ``min_share`` on are named."""
    d, unit = result.description, result.unit
    sizes: list[float] = d.sizes[i].tolist()
    whole = max(sum(sizes), 1.0)
    parts = [
        {
            "cluster": j,
            "width": f"{100 * amount / whole:.2f}",
            "title": f"cluster {cluster_letter(j)}: {amount:,.0f} {unit}",
            "label": percent(round(amount / whole, 2)) if amount / whole >= min_share else "",
        }
        for j, amount in enumerate(sizes)
        if amount
    ]
    return {"name": d.sites[i], "parts": parts, "size": f"{sum(sizes):,.0f} {unit}"}


def _differences(result: ClusterResult) -> dict[str, Any]:
    """Return the sites whose shares of clusters differ from those of all sites, the largest first."""
    d = result.description
    if len(d.sites) < 2 or result.k < 2:
        return {"differ": None}
    by_site: dict[str, list[dict[str, Any]]] = {}
    for site, j, share, overall in d.differences():
        part = {"cluster": j, "share": f"{share:.0%}", "overall": f"{overall:.0%}"}
        by_site.setdefault(site, []).append(part)
    fits, mean = result.fit(), result.mean_fit
    worse = [d.sites[i] for i in _order(result) if fits[i] > _WORSE * mean > 0]
    differ = [{"name": site, "parts": parts[:2]} for site, parts in by_site.items()]
    return {
        "differ": differ[:_LISTED],
        "more_differ": max(len(differ) - _LISTED, 0),
        "worse": f"Described less well, by distance: {listed(worse, 8)}." if worse else "",
        "without": _without_one_site(result),
    }


def _without_one_site(result: ClusterResult) -> str:
    """Return in words which centre moves most if one site is left out; "" if that is not known."""
    d = result.description
    if d.moves is None or not np.isfinite(d.moves).any():
        return ""
    i, j = np.unravel_index(np.argmax(np.where(np.isfinite(d.moves), d.moves, -1.0)), d.moves.shape)
    return (
        f"Leave one site out: without {d.sites[i]}, the centre of cluster {cluster_letter(int(j))} moves "
        f"{percent(float(d.moves[i, j]))} of the way to its border in one step. No other site moves a centre "
        "further, apart from clusters that one site has alone."
    )


def _count(rows: float) -> str | None:
    """Return a number of rows; None if it is suppressed."""
    return None if math.isnan(rows) else f"{rows:,.0f}" if rows else _NONE


def _absent(result: ClusterResult) -> list[tuple[int, str]]:
    """Return the clusters that some site has no rows of, with these sites."""
    d = result.description
    if len(d.sites) == 1:
        return []
    absent = ((j, [s for i, s in enumerate(d.sites) if result.size_at(i, j) == 0]) for j in range(result.k))
    return [(j, listed(sites)) for j, sites in absent if sites]


def outcomes(result: ClusterResult) -> dict[str, Any] | None:
    """Return the outcomes by cluster; None if the job names none."""
    if not result.outcomes:
        return None
    rows = []
    for o in result.outcomes:
        named = replace(o, column=result.names.column(o.column))
        rows.append({"name": name_of(named), "clusters": [cells_of(o, j) for j in range(result.k)]})
    return {"rows": rows, "note": note(result.outcomes_estimated)}


def memberships(result: ClusterResult) -> list[tuple[str, list[str]]]:
    """Return the shares of borderline rows of fuzzy clusters at every site; none for other methods."""
    d = result.description
    if d.borderline is None:
        return []
    return [
        (d.sites[i], [_NONE if math.isnan(u) else percent(u) for u in d.borderline[i].tolist()])
        for i in _order(result)[:_ROWS]
    ]


def fit(result: ClusterResult) -> dict[str, str] | None:
    """Return the fit at each site; None if there is one site."""
    sites = len(result.description.sites)
    chart = charts.fit(result) if sites > 1 else ""
    some = f"The {charts.MAX_FITS // 2} sites that fit worst. " if sites > charts.MAX_FITS else ""
    return {"chart": chart, "some": some} if chart else None


def spread_map(result: ClusterResult) -> dict[str, Any] | None:
    """Return the map of clusters and sites; None if nothing can be drawn."""
    chart = charts.spread_map(result)
    directions = "; ".join(filter(None, (charts.direction(result, axis) for axis in range(2))))
    outlines = 1 < len(result.description.sites) <= charts.MAX_OUTLINES
    return {"chart": chart, "directions": directions, "outlines": outlines} if chart else None


def choice(result: ClusterResult) -> dict[str, Any]:
    """Return the choice of k, or what speaks for and against a number that was asked for."""
    c = result.choice
    hint = "Ward's tree: the share of the variance that is lost if clusters merge"
    tree = [("Nearest clusters", hint, chart)] if (chart := charts.tree(result)) else []
    if len(c.scores) == 1:
        figures = _figures_of_one_k(result)
        return {"verdict": "", "reasons": sentence(c.reasons), "k": c.k, "figures": figures, "charts": tree}
    verdict = {
        "clear": f"k = {c.k} is recommended.",
        "unclear": f"k = {c.k} is the best supported, and it is not clear.",
        "none": "k-means finds no clusters.",
        "not judged": f"Whether there are clusters was not judged; k = {c.k} is used.",
    }[c.verdict]
    return {"verdict": verdict, "reasons": sentence(c.reasons), "charts": [*charts.choice(result), *tree]}


def _figures_of_one_k(result: ClusterResult) -> list[tuple[str, str]]:
    s, c = result.choice.scores[0], result.choice
    items = [
        ("silhouette (simplified)", f"{s.silhouette:.3f}"),
        ("Calinski-Harabasz", f"{s.calinski_harabasz:.1f}"),
        ("Davies-Bouldin", f"{s.davies_bouldin:.3f}"),
        ("gain in the other half", figure(c.judgement.replication.gain)),
        ("gain of simulated tables", figure(c.judgement.expected)),
        ("agreement of the two halves", figure(c.judgement.replication.agreement)),
        ("rows at the borders", figure(s.border)),
        ("stability over restarts", f"{s.stability:.2f}"),
    ]
    return [(name, value) for name, value in items if value not in ("nan", "-")]


def convergence(result: ClusterResult) -> dict[str, Any]:
    """Return the rounds."""
    every = "every restart and every k share" if len(result.ks) > 1 else "all restarts share"
    trips = counted(result.run.exchanges, "round trip")
    return {
        "lead": f"{result.run.rounds} rounds after the start, {trips}; {every} them.",
        "charts": [(title, "", chart) for title, chart in charts.convergence(result) if chart],
    }


def preparation(result: ClusterResult) -> dict[str, Any]:
    """Return the preparation of columns."""
    a = result.agreement
    rows = []
    for c in a.preparation.columns:
        if isinstance(c, Number):
            moved = (c.shift, c.scale) != (0.0, 1.0)
            how = f"(x \N{MINUS SIGN} {figure(c.shift)}) / {figure(c.scale)}" if moved else "unchanged"
            rows.append([c.name, c.described, how, c.shown(c.fill)])
        else:
            rows.append([c.name, c.described, listed(c.places, 12), c.places[c.fill]])
    fills = "a missing value would become" if a.preparation.drop else "missing values filled with"
    if result.keeps_missing:
        fills = "mean, or most frequent category"
    left_out = left_out_items(result)
    return {
        "columns": rows,
        "fills": fills,
        "merged": [(name, listed(categories)) for name, categories in a.merged],
        "left_out": left_out if len(left_out) > _LISTED else [],
    }


def sent(result: ClusterResult) -> dict[str, Any]:
    """Return the numbers and bytes that every site sent."""
    a, amounts = result.agreement, result.run.sent()
    rows = []
    for i, site in sorted(enumerate(a.sites), key=lambda pair: natural(pair[1]))[:_ROWS]:
        numbers, amount = amounts.get(site, (0, 0))
        mode, made = a.protection[i]
        sources = {"summary": f"its summary table of {made}", "raw": "raw rows, with a minimum"}
        rows.append(
            {
                "site": site,
                "size": f"{a.rows[i]:,.0f}",
                "source": sources.get(mode, "raw rows"),
                "numbers": f"{numbers:,}",
                "bytes": amount,
            }
        )
    modes = {mode for mode, _ in a.protection}
    lead = _TRANSFERRED if result.job.transfers else "Counts, sums and squared distances over groups. "
    lead += "".join(text for mode, text in _PROTECTED.items() if mode in modes)
    lead += _SIMULATED if result.job.remote is None else "The log of every site records its answers verbatim."
    return {"lead": lead, "rows": rows}


_TRANSFERRED = (
    "A site with a summary table sent the study's columns of it once, and the rest was computed from it: the "
    "limits of the study hold by agreement from then on. "
)
_SIMULATED = "All sites of this run were on one machine. Sites on separate machines would send these numbers."
_PROTECTED = {
    "summary": "A site with a summary table (microaggregation) answers from means of groups of people only: "
    "no number of queries discloses more than the table. ",
    "raw": "A site in raw mode answers from its rows and suppresses groups that are too small: someone who "
    "reads all messages can reconstruct rows from sums. ",
    "none": "Sites without protection answer from their rows: someone who reads all messages can reconstruct "
    "rows. ",
}


def provenance(result: ClusterResult) -> dict[str, Any] | None:
    """Return the summary files that the run used; None if it asked sites."""
    files = result.facts.summary_files
    if not files:
        return None
    study = files[0]
    return {
        "files": files,
        "title": study.title,
        "purpose": sentence([study.purpose]),
        "expires": study.expires,
    }


def method(result: ClusterResult) -> dict[str, Any]:
    """Return the method, and the command that repeats the run."""
    job, ks = result.job, result.ks
    items = [
        ("method", job.method),
        ("please cite", result.citation),
        ("k", ", ".join(map(str, ks)) if len(ks) < 4 else f"{ks[0]} to {ks[-1]}"),
        ("restarts", str(job.n_init)),
        ("protection", ", ".join(sorted({mode for mode, _ in result.agreement.protection}))),
        ("seed", str(job.seed)),
        ("program", f"unpooled {__version__}"),
        *([("run", result.run.id)] if job.remote is not None else []),  # as the sites' logs name it
    ]
    return {
        "facts": items,
        "names_only": job.remote is None,
        "command": job.command(result.agreement.sites),
    }


def page(result: ClusterResult) -> str:
    """Return the report. It uses the result only, which holds no rows."""
    clusters = "No clusters" if result.choice.none else counted(result.k, "cluster")
    return render(
        "report.html",
        title=f"{clusters} over {counted(len(result.sites), 'site')}",
        date=result.job.begun,
        script_digest=script_digest(),
        k=result.k,
        unit=result.unit,
        headline=headline(result),
        profiles=profiles(result),
        places=places(result),
        outcomes=outcomes(result),
        memberships=memberships(result),
        fit=fit(result),
        map=spread_map(result),
        choice=choice(result),
        convergence=convergence(result),
        preparation=preparation(result),
        missing=missing(result),
        sent=sent(result),
        provenance=provenance(result),
        method=method(result),
    )
