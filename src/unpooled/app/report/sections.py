"""The report's sections: the answer, profiles, clusters by site, the choice of k, what left each site."""

import math
from html import escape

import numpy as np

from unpooled import __version__
from unpooled.app.report import charts
from unpooled.app.result import ClusterResult, Trait, figure, once_a_column
from unpooled.data import Number
from unpooled.pages.markup import (
    chip,
    colour,
    listed,
    percent,
    section,
    sentence,
    size,
    small,
    soft,
    table,
    whole,
)

_TRAITS = 5
_FULL = 2.0  # standard deviations that fill half a bar, or give a cell its deepest colour


def answer(result: ClusterResult) -> str:
    first, second = result.answer()
    a, run = result.agreement, result.run
    left = max((amount for _, amount in run.left().values()), default=0)
    figures = [
        (f"{a.used:,.0f}", "rows"),
        (str(len(result.sites)), "sites"),
        (str(result.k), "clusters"),
        (str(len(a.preparation.columns)), "columns used"),
        (str(run.exchanges), "exchanges"),
        (size(left), "left a site at most"),
    ]
    body = f'<div class="answer"><p>{escape(first)}</p><p class="second">{escape(second)}</p></div>'
    if result.warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in result.warnings)
        body += f'<div class="warn" role="note"><b>Look at this first</b><ul>{items}</ul></div>'
    strip = "".join(f"<div><b>{value}</b>{name}</div>" for value, name in figures)
    return f'<section id="answer">{body}<div class="figures">{strip}</div></section>'


def profiles(result: ClusterResult) -> str:
    cards = "".join(_card(result, j) for j in range(result.k))
    lead = (
        "Means in the columns&rsquo; own units, the columns that set a cluster apart most first. A bar shows "
        "how far the cluster&rsquo;s mean lies from the mean of all rows: to the left below it, to the right "
        "above. The full half is two standard deviations."
    )
    heading = f'<h3 class="next">Every column {soft("(mean &plusmn; sd, or share)")}</h3>'
    pairs = " two" if result.k in (2, 4) else ""
    body = f'<div class="grid{pairs}">{cards}</div>{heading}{_every_column(result)}'
    return section("What the clusters look like", body, lead, "profiles")


def _card(result: ClusterResult, j: int) -> str:
    rows = float(result.sizes[j])
    share = percent(rows / max(float(result.sizes.sum()), 1.0))
    traits = [t for t in once_a_column(result.traits(j)) if abs(t.effect) >= 0.1][:_TRAITS]
    said = "".join(_trait(t, j) for t in traits) or '<p class="soft">Close to the mean in every column.</p>'
    return f'<div class="cluster"><h3>{chip(j)}{rows:,.0f} rows {soft(f"({share})")}</h3>{said}</div>'


def _trait(t: Trait, j: int) -> str:
    width = min(abs(t.effect) / _FULL, 1.0) * 50
    start = 50 - width if t.effect < 0 else 50
    value, overall = (
        (percent(t.value), percent(t.overall)) if t.level else (figure(t.value), figure(t.overall))
    )
    way = "below" if t.effect < 0 else "above"
    return (
        f'<div class="trait" title="{abs(t.effect):.1f} standard deviations {way} the mean of all rows">'
        f'<span class="name">{escape(t.name)}</span>'
        f'<span class="said">{value} {soft(f"all {overall}")}</span>'
        f'<span class="track"><i class="{colour(j)}" style="left:{start:.1f}%;width:{width:.1f}%"></i></span>'
        "</div>"
    )


def _every_column(result: ClusterResult) -> str:
    by_cluster = [{(t.column, t.level): t for t in result.traits(j)} for j in range(result.k)]
    rows = []
    for key in result.agreement.preparation.outputs:
        traits = [by[key] for by in by_cluster]
        overall = percent(traits[0].overall) if key[1] else figure(traits[0].overall)
        rows.append([escape(traits[0].name), *map(_heat, traits), overall])
    head = ["column", *map(chip, range(result.k)), "all rows"]
    return table(head, rows)


def _heat(t: Trait) -> str:
    depth = 0.55 * min(abs(t.effect) / _FULL, 1.0)
    paint = f"rgba(var(--{'hot' if t.effect > 0 else 'cold'}), {depth:.2f})"
    spread = soft(f"&plusmn; {figure(t.spread)}")
    said = percent(t.value) if t.level else f"{figure(t.value)} {spread}"
    return f'<td class="heat" style="background:{paint}">{said}</td>'


_BARS = 40  # sites that are drawn
_ROWS = 200  # sites that are listed


def places(result: ClusterResult) -> str:
    d, k = result.description, range(result.k)
    legend = "".join(f"<span>{chip(j)}{result.sizes[j]:,.0f} {result.unit}</span>" for j in k)
    bars = "".join(_bar(result, i) for i in range(min(len(d.sites), _BARS)))
    more = small(f"and {len(d.sites) - _BARS} more sites") if len(d.sites) > _BARS else ""
    rows = [
        [escape(site), *(_there(result.size_at(i, j)) for j in k), f"{d.sizes[i].sum():,.0f}"]
        for i, site in enumerate(d.sites[:_ROWS])
    ]
    notes = ["&ndash;: none."]
    if result.unsure:
        notes.append("Not shown: none, or a group that is too small to be shown, or that hides such a one.")
    if result.hidden > 0:
        notes.append(f"{result.hidden:,} rows in all are in groups that are not shown.")
    body = f'<div class="legend">{legend}</div>{bars}{more}'
    body += table(["site", *map(chip, k), f"{result.unit} shown"], rows) + small(" ".join(notes))
    lead = f"Each bar is a site, cut in proportion to its {result.unit}."
    if result.job.secure:
        lead = "All sites together: secure sums do not show which site has which."
    return section("Where the clusters are", body + _absent(result), lead, "sites")


def _there(rows: float) -> str:
    return soft("not shown") if math.isnan(rows) else f"{rows:,.0f}" if rows else "&ndash;"


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
    gone = {j: [s for i, s in enumerate(d.sites) if result.size_at(i, j) == 0] for j in range(result.k)}
    said = [f"<li>{chip(j)}not at {listed(sites)}</li>" for j, sites in gone.items() if sites]
    if not said or len(d.sites) == 1:
        return ""
    return f'<h3 class="next">Absent</h3><ul class="plain">{"".join(said)}</ul>'


def memberships(result: ClusterResult) -> str:
    """The share of rows that belong clearly to no cluster, for fuzzy clusters."""
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
    """The columns that grow and those that fall along an axis."""
    axes = result.description.axes[:, axis]
    outputs = [
        f"{column}: {level}" if level else column for column, level in result.agreement.preparation.outputs
    ]
    top = np.argsort(-np.abs(axes), kind="stable")[:4]
    more = [outputs[j] for j in top if axes[j] > 0.1]
    less = [outputs[j] for j in top if axes[j] < -0.1]
    ways = [f"{word} {listed(names)}" for word, names in (("more", more), ("less", less)) if names]
    return f"axis {axis + 1} has {', '.join(ways)}" if ways else ""


_ROWS = 200  # sites that are listed


def choice(result: ClusterResult) -> str:
    c = result.choice
    if len(c.scores) == 1:
        return _given(result)
    drawn = "".join(
        f'<div><h3>{escape(title)}</h3><div class="small soft">{escape(hint)}</div>{chart}</div>'
        for title, hint, chart in charts.choice(result)
    )
    unclear = "No clusters were found." if c.none else f"No clear k; {c.k} was taken."
    verdict = f"k = {c.k} is recommended." if c.clear else unclear
    lead = (
        f"<b>{verdict}</b> {sentence(c.reasons)} The star marks what a criterion would take, "
        "the ring what was taken."
    )
    return section("Choice of k", f'<div class="grid">{drawn}</div>', lead, "choice")


def _given(result: ClusterResult) -> str:
    s, c = result.choice.scores[0], result.choice
    items = [
        ("silhouette (simplified)", f"{s.silhouette:.3f}"),
        ("Calinski-Harabasz", f"{s.calinski_harabasz:.1f}"),
        ("Davies-Bouldin", f"{s.davies_bouldin:.3f}"),
        ("gain over one blob", figure(float(c.gains[0]))),
        ("rows at the borders", figure(s.border)),
        ("stability over restarts", f"{s.stability:.2f}"),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in items if value not in ("nan", "-"))
    lead = f"k = {result.k} was asked for; <code>-k 2..10</code> would compare. {sentence(c.reasons)}"
    return section("Number of clusters", f"<dl>{rows}</dl>", lead, "choice")


def convergence(result: ClusterResult) -> str:
    drawn = "".join(
        f"<div><h3>{escape(t)}</h3>{chart}</div>" for t, chart in charts.convergence(result) if chart
    )
    every = "every restart and every k travel" if len(result.job.ks) > 1 else "all restarts travel"
    lead = (
        f"{result.run.rounds} rounds after the start, {result.run.exchanges} exchanges in all; "
        f"{every} in the same ones."
    )
    return section("Convergence", f'<div class="grid">{drawn}</div>', lead, "convergence")


def preparation(result: ClusterResult) -> str:
    a = result.agreement
    rows = []
    for c in a.preparation.columns:
        if isinstance(c, Number):
            moved = (c.shift, c.scale) != (0.0, 1.0)
            how = f"(x &minus; {figure(c.shift)}) / {figure(c.scale)}" if moved else "as it is"
            rows.append([escape(c.name), "number", how, figure(c.fill)])
        else:
            rows.append([escape(c.name), "category", listed(c.places, 12), escape(c.places[c.fill])])
    fills = "if a value were missing" if a.preparation.drop else "missing values filled with"
    notes = [f"{escape(name)} is left out: {escape(why)}" for name, why in a.left_out]
    notes += [
        f"rare levels of {escape(name)} are merged into other: {listed(levels)}" for name, levels in a.merged
    ]
    if a.preparation.drop:
        notes.append(f"{a.rows.sum() - a.used:,.0f} rows lack a value and are left out")
    body = table(["column", "kind", "scaling, or levels", fills], rows, left=(0, 1, 2, 3))
    body += f"<ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul>" if notes else ""
    lead = (
        "The same for every site, agreed from totals: no site is scaled by its own mean. Categories are "
        "one-hot, and weighted so that a whole column counts as one."
    )
    return section("Preparation", body + _missing(result), lead, "preparation")


def _missing(result: ClusterResult) -> str:
    a = result.agreement
    take = [j for j in range(len(a.columns)) if not (a.missing[:, j] == 0).all()]
    if not take:
        return '<h3 class="next">Missing values</h3><p>None in any column.</p>'
    rows = [
        [
            escape(site),
            f"{a.rows[i]:,.0f}",
            *(_missing_cell(float(a.missing[i, j]), float(a.rows[i])) for j in take),
        ]
        for i, site in enumerate(a.sites[:_ROWS])
    ]
    whole = [name for j, name in enumerate(a.columns) if j not in take]
    note = small(f"Complete everywhere: {listed(whole, 20)}.") if whole else ""
    head = ["site", "rows", *(escape(a.columns[j]) for j in take)]
    return f'<h3 class="next">Missing cells by site</h3>{table(head, rows)}{note}'


def _missing_cell(cells: float, rows: float) -> str:
    if math.isnan(cells):
        return "few"
    if cells == 0:
        return "&ndash;"
    share = min(cells / max(rows, 1.0), 1.0)
    said = "nearly all" if math.isinf(cells) else f"{cells:,.0f} {soft(percent(share))}"
    return f'<td class="heat" style="background:rgba(var(--hot), {0.5 * share:.2f})">{said}</td>'


def left(result: ClusterResult) -> str:
    a, sent = result.agreement, result.run.left()
    rows = []
    for i, site in enumerate(a.sites[:_ROWS]):
        numbers, amount = sent.get(site, (0, 0))
        mode, made = a.protection[i]
        answers_from = {"copy": f"its copy of {made}", "trusted": "its rows, trusted"}.get(mode, "its rows")
        rows.append([escape(site), f"{a.rows[i]:,.0f}", answers_from, f"{numbers:,}", size(amount)])
    lead = (
        "Counts, sums and squared distances over groups. "
        + _protected(result)
        + (
            "Here all sites were files on one machine, and nothing left it; between machines, this is what "
            "would travel."
            if result.job.between is None
            else "Every site has all of it, word for word, in its own log."
        )
    )
    body = table(
        ["site", f"{result.unit} held", "answers from", "numbers sent", "bytes sent"], rows, left=(0, 2)
    )
    return section("What left each site", body, lead, "left")


def _protected(result: ClusterResult) -> str:
    """Sentences on how the sites are protected."""
    modes = {mode for mode, _ in result.agreement.protection}
    said = []
    if "copy" in modes:
        said.append(
            "A site with a copy answers from means of groups of persons only: its copy is the most that "
            "anybody can learn, however much is asked."
        )
    if "trusted" in modes:
        said.append(
            "A trusted site answers from its rows, but for groups that are too small: who reads all messages "
            "can take sums apart into rows."
        )
    if "none" in modes:
        said.append("Sites without protection answer from their rows: who reads all messages can find rows.")
    return " ".join(said) + " "


def method(result: ClusterResult) -> str:
    job = result.job
    items = [
        ("method", job.method),
        ("please cite", result.citation),
        ("k", ", ".join(map(str, job.ks)) if len(job.ks) < 4 else f"{job.ks[0]} to {job.ks[-1]}"),
        ("restarts", str(job.n_init)),
        ("protection", ", ".join(sorted({mode for mode, _ in result.agreement.protection}))),
        ("seed", str(job.seed)),
        ("run", result.run.id),
        ("program", f"unpooled {__version__}"),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in items)
    body = f"<dl>{rows}</dl><h3>To run it again</h3><pre>{escape(job.command())}</pre>"
    return section("Method, and how to reproduce", body, "", "method")


_SECTIONS = (
    answer,
    profiles,
    places,
    memberships,
    fit,
    spread_map,
    choice,
    convergence,
    preparation,
    left,
    method,
)


def page(result: ClusterResult) -> str:
    """The report. It uses the result only; no rows are available here."""
    count = len(result.sites)
    title = f"{result.k} clusters over {count} {'site' if count == 1 else 'sites'}"
    return whole(title, "\n".join(make(result) for make in _SECTIONS))
