"""The middle sections: which site holds what, how well the clusters fit it, and a map."""

from html import escape

import numpy as np

from unpooled.app.cluster_result import ClusterResult
from unpooled.app.report import charts
from unpooled.pages.html import chip, listed, percent, section, small, soft, table
from unpooled.pages.svg import colour

_BARS = 40  # sites that are drawn
_ROWS = 200  # sites that are listed


def places(result: ClusterResult) -> str:
    d, least, k = result.description, result.job.min_cluster_size, range(result.k)
    legend = "".join(f"<span>{chip(j)}{result.sizes[j]:,.0f} rows</span>" for j in k)
    bars = "".join(_bar(result, i) for i in range(min(len(d.sites), _BARS)))
    more = small(f"and {len(d.sites) - _BARS} more sites") if len(d.sites) > _BARS else ""
    rows = [
        [escape(site), *(f"{n:,.0f}" if n else "&ndash;" for n in d.sizes[i]), f"{d.sizes[i].sum():,.0f}"]
        for i, site in enumerate(d.sites[:_ROWS])
    ]
    none = (
        "none"
        if least == 1
        else f"none, or a group that is not shown: of fewer than {least} rows, or hiding one"
    )
    hidden = f" {result.hidden:,} rows in all are in groups that are not shown." if result.hidden > 0 else ""
    body = f'<div class="legend">{legend}</div>{bars}{more}'
    body += table(["site", *map(chip, k), "rows shown"], rows) + small(f"&ndash;: {none}.{hidden}")
    lead = "Each bar is a site, cut in proportion to its rows."
    if result.job.secure:
        lead = "All sites together: secure sums do not show which site has which."
    return section("Where the clusters are", body + _absent(result), lead, "sites")


def _bar(result: ClusterResult, i: int) -> str:
    d = result.description
    whole = max(float(d.sizes[i].sum()), 1.0)
    parts = ""
    for j in np.flatnonzero(d.sizes[i]):
        share = float(d.sizes[i, j]) / whole
        tip = f"cluster {j + 1}: {d.sizes[i, j]:,.0f} rows"
        label = percent(round(share, 2)) if share >= 0.07 else ""
        parts += f'<i class="{colour(int(j))}" style="width:{100 * share:.2f}%" title="{tip}">{label}</i>'
    return (
        f'<div class="stack"><span class="who">{escape(d.sites[i])}</span><span class="bars">{parts}</span>'
        f"{soft(f'{d.sizes[i].sum():,.0f} rows')}</div>"
    )


def _absent(result: ClusterResult) -> str:
    d = result.description
    gone = {j: [s for i, s in enumerate(d.sites) if d.sizes[i, j] == 0] for j in range(result.k)}
    said = [f"<li>{chip(j)}not seen at {listed(sites)}</li>" for j, sites in gone.items() if sites]
    if not said or len(d.sites) == 1:
        return ""
    return f'<h3 class="next">Absent</h3><ul class="plain">{"".join(said)}</ul>'


def memberships(result: ClusterResult) -> str:
    """Of fuzzy clusters: how many rows belong to none of them clearly."""
    d = result.description
    if d.borderline is None:
        return ""
    k = range(result.k)
    rows = [
        [escape(site), *("&ndash;" if np.isnan(u) else percent(float(u)) for u in d.borderline[i])]
        for i, site in enumerate(d.sites[:_ROWS])
    ]
    body = table(["site", *map(chip, k)], rows)
    body += small("&ndash;: no such rows, or too few to be shown.")
    lead = (
        "Of the rows that belong to a cluster most, the share without any membership of 0.6 or more. "
        "Many of them mean that the cluster blends into another one, or that there are fewer clusters."
    )
    return section("Rows between clusters", body, lead, "memberships")


def fit(result: ClusterResult) -> str:
    sites = len(result.description.sites)
    drawn = charts.fit(result) if 1 < sites <= _BARS else ""
    if not drawn:
        return ""
    lead = (
        "Mean squared distance to the nearest centre, in prepared columns. A site far above the line is "
        "described less well by these clusters."
    )
    return section("How well the clusters fit each site", f'<div class="wide">{drawn}</div>', lead, "fit")


def spread_map(result: ClusterResult) -> str:
    drawn = charts.spread_map(result)
    if not drawn:
        return ""
    sites = len(result.description.sites)
    dashed = "; broken outlines are sites" if 1 < sites <= charts.MOST_OUTLINES else ""
    lead = (
        "Two principal axes of all rows, from a covariance total. Numbered discs are centres, shaded "
        f"ellipses hold most of a cluster (two standard deviations){dashed}. No row is drawn, for none is "
        "known here."
    )
    ways = " &middot; ".join(filter(None, (_way(result, axis) for axis in range(2))))
    body = f'<div class="wide">{drawn}</div>{small(f"Which way the axes point: {ways}.")}'
    return section("Map", body, lead, "map")


def _way(result: ClusterResult, axis: int) -> str:
    """What grows and what falls along an axis."""
    axes = result.description.axes[:, axis]
    outputs = [
        f"{column}: {level}" if level else column for column, level in result.agreement.preparation.outputs
    ]
    top = np.argsort(-np.abs(axes), kind="stable")[:4]
    more = [outputs[j] for j in top if axes[j] > 0.1]
    less = [outputs[j] for j in top if axes[j] < -0.1]
    ways = [f"{word} {listed(names)}" for word, names in (("more", more), ("less", less)) if names]
    return f"axis {axis + 1} has {', '.join(ways)}" if ways else ""
