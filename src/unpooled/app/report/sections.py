"""The report's sections: the answer, profiles, clusters by site, the choice of k, what left each site."""

import math
from html import escape

import numpy as np

from unpooled import __version__
from unpooled.app.report import charts
from unpooled.app.report.missing import kept_cells, missing_by_site
from unpooled.app.result import ClusterResult
from unpooled.app.traits import Trait, one_per_column
from unpooled.data import Number
from unpooled.html.html import (
    FULL,
    cards,
    chip,
    colour,
    deviation,
    figure,
    heat,
    html_page,
    listed,
    natural,
    percent,
    section,
    sentence,
    size,
    small,
    soft,
    stacked,
    table,
)

_TRAITS = 5
_TOLD, _TELLS = 3, 0.4  # columns in the sentence of a cluster, and the least standard deviations that tell
_LISTED = 12  # of what is left out


def headline(result: ClusterResult) -> str:
    first, second = result.headline()
    a, run = result.agreement, result.run
    left = max((amount for _, amount in run.sent().values()), default=0)
    figures = [
        (f"{a.used:,.0f}", result.unit),
        (str(len(result.sites)), "sites"),
        ("none" if result.choice.none else str(result.k), "clusters"),
        (str(len(a.preparation.columns)), "columns used"),
        (str(run.exchanges), "exchanges"),
        (size(left), "left a site at most"),
    ]
    body = f"<p>{escape(first)}</p>"
    if result.k > 1:
        body += "".join(f'<p class="each">{chip(j)}{_sentence(result, j)}</p>' for j in range(result.k))
    body += "".join(f'<p class="second">{escape(said)}</p>' for said in (second, result.certified) if said)
    if result.keeps_missing:
        body += f'<p class="second">{kept_cells(result)} Rows are compared by the cells that they have.</p>'
    out = "".join(f"<li>{said}</li>" for said in _left_out(result))
    body += f'<div class="second">Not in this result:<ul>{out}</ul></div>' if out else ""
    body = f'<div class="answer">{body}</div>'
    if result.warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in result.warnings)
        body += f'<div class="warn" role="note"><b>Look at this first</b><ul>{items}</ul></div>'
    strip = "".join(f"<div><b>{value}</b>{name}</div>" for value, name in figures)
    return f'<section id="answer">{body}<div class="figures">{strip}</div></section>'


_WORDS = (
    ("high", False, True),
    ("low", False, False),
    ("more often", True, True),
    ("less often", True, False),
)


def _sentence(result: ClusterResult, j: int) -> str:
    """A cluster in one sentence: its size, and how it differs most from all rows."""
    rows = float(result.sizes[j])
    share = percent(rows / max(float(result.sizes.sum()), 1.0))
    traits = [t for t in one_per_column(result.traits(j)) if abs(t.effect) >= _TELLS][:_TOLD]
    ways = []
    for word, category, up in _WORDS:
        some = [
            f"{escape(f'{t.column} {t.category}'.strip())} ({_value(t)}, all {_value(t, overall=True)})"
            for t in traits
            if bool(t.category) is category and (t.effect > 0) is up
        ]
        ways += [f"{word} {', '.join(some)}"] if some else []
    said = "; ".join(ways) or "close to the mean in every column"
    return f"<b>{rows:,.0f} {result.unit} ({share}):</b> {said}."


def _left_out(result: ClusterResult, most: int = _LISTED) -> list[str]:
    """Sites, columns and rows that are not in the result, sites first; up to so many, and how many more."""
    said = []
    for item in result.left_out:
        site, column, rows = (item.get(name) for name in ("site", "column", "rows"))
        who = f"<b>site {escape(site)}</b>" if site else f"column {escape(column)}" if column else ""
        said.append(f"{who or f'{rows:,} {result.unit}'}: {escape(item['why'])}")
    more = f"and {len(said) - most} more, listed under <a href='#preparation'>Preparation</a>"
    return said[:most] + ([more] if len(said) > most else [])


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
    return section(f"What {_these(result)} look like", body, lead, "profiles")


def _these(result: ClusterResult) -> str:
    return "the clusters" if result.k > 1 else f"the {result.unit}"


def _card(result: ClusterResult, j: int) -> str:
    rows = float(result.sizes[j])
    share = percent(rows / max(float(result.sizes.sum()), 1.0))
    traits = [t for t in one_per_column(result.traits(j)) if abs(t.effect) >= 0.1][:_TRAITS]
    said = (
        "".join(deviation(t.name, _beside(t), t.effect, colour(j)) for t in traits)
        or '<p class="soft">Close to the mean in every column.</p>'
    )
    return (
        f'<div class="cluster"><h3>{chip(j)}{rows:,.0f} {result.unit} {soft(f"({share})")}</h3>{said}</div>'
    )


def _value(t: Trait, *, overall: bool = False) -> str:
    value = t.overall if overall else t.value
    return percent(value) if t.category else figure(value)


def _beside(t: Trait) -> str:
    return f"{_value(t)} {soft(f'all {_value(t, overall=True)}')}"


def _every_column(result: ClusterResult) -> str:
    by_cluster = [{(t.column, t.category): t for t in result.traits(j)} for j in range(result.k)]
    rows = []
    for key in result.agreement.preparation.outputs:
        traits = [by[key] for by in by_cluster]
        spreads = ["" if t.category else soft(f"&plusmn; {figure(t.spread)}") for t in traits]
        cells = [
            heat(f"{_value(t)} {spread}", t.effect / FULL) for t, spread in zip(traits, spreads, strict=True)
        ]
        rows.append([escape(traits[0].name), *cells, _value(traits[0], overall=True)])
    head = ["column", *map(chip, range(result.k)), "all rows"]
    return table(head, rows)


_BARS = 120  # sites that are drawn
_ROWS = 1000  # sites that are listed
_WORSE = 1.5  # times the mean distance, from which on a site is described less well


def _order(result: ClusterResult) -> list[int]:
    """The sites as people count: 1, 2, 10."""
    sites = result.description.sites
    return sorted(range(len(sites)), key=lambda i: natural(sites[i]))


def places(result: ClusterResult) -> str:
    d, k = result.description, range(result.k)
    order, many = _order(result), len(d.sites) > 20
    legend = "".join(f"<span>{chip(j)}{result.sizes[j]:,.0f} {result.unit}</span>" for j in k)
    least = 0.2 if many else 0.07
    bars = "".join(stacked(d.sites[i], d.sizes[i].tolist(), result.unit, least) for i in order[:_BARS])
    more = small(f"and {len(d.sites) - _BARS} more sites") if len(d.sites) > _BARS else ""
    fits = result.fit()
    rows = [
        [
            escape(d.sites[i]),
            *(_there(result.size_at(i, j)) for j in k),
            f"{d.sizes[i].sum():,.0f}",
            f"{fits[i]:.3g}",
        ]
        for i in order[:_ROWS]
    ]
    notes = ["The last column is the mean squared distance to the centres."]
    if any(result.size_at(i, j) == 0 for i in order[:_ROWS] for j in k):
        notes.insert(0, "&ndash;: none.")
    if result.sites_with_minimum:
        notes.append("Not shown: none, or a group that is too small to be shown, or that hides such a one.")
    if result.suppressed > 0:
        notes.append(f"{result.suppressed:,} rows in all are in groups that are not shown.")
    body = _differences(result) + f'<div class="legend">{legend}</div>'
    body += f'<div class="sites{" many" if many else ""}">{bars}</div>{more}'
    head = ["site", *map(chip, k), f"{result.unit} shown", "distance"]
    body += table(head, rows) + small(" ".join(notes))
    lead = f"Each bar is a site, cut in proportion to its {result.unit}."
    if result.job.aggregate_only:
        how = "secure sums do" if result.job.secure else "the sums of federations do"
        lead = f"All sites together: {how} not show which site has which."
    return section(f"Where {_these(result)} are", body + _absent(result), lead, "places")


def _differences(result: ClusterResult) -> str:
    """The sites whose shares of clusters differ from all sites' by more than chance, largest first."""
    d = result.description
    if len(d.sites) < 2 or result.k < 2:
        return ""
    by_site: dict[str, list[str]] = {}
    for site, j, share, overall in d.differences():
        part = f"{chip(j)}{share:.0%} {soft(f'all {overall:.0%}')}".replace("%", "&thinsp;%")
        by_site.setdefault(site, []).append(f'<span class="once">{part}</span>')
    said = [f"<li><b>{escape(site)}</b>: {', '.join(parts[:2])}</li>" for site, parts in by_site.items()]
    fits, mean = result.fit(), float(d.inertias.sum() / max(d.sizes.sum(), 1.0))
    worse = [i for i in _order(result) if fits[i] > _WORSE * mean > 0]
    note = f"Described less well, by distance: {listed([d.sites[i] for i in worse], 8)}." if worse else ""
    if not said:
        return small(f"No site differs much from the others in its shares of the clusters. {note}")
    more = small(f"and {len(said) - _LISTED} more sites differ") if len(said) > _LISTED else ""
    items = f'<ul class="plain">{"".join(said[:_LISTED])}</ul>'
    return f"<h3>Sites that differ</h3>{items}{more}{small(note) if note else ''}"


def _there(rows: float) -> str:
    return soft("not shown") if math.isnan(rows) else f"{rows:,.0f}" if rows else "&ndash;"


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
        for i, site in ((i, d.sites[i]) for i in _order(result)[:_ROWS])
    ]
    body = table(["site", *map(chip, k)], rows)
    body += small("&ndash;: no such rows, or too few to be shown.")
    lead = (
        "Of the rows that belong to a cluster most, the share without any membership of 0.6 or more. "
        "Many of them mean that the cluster blends into another one, or that there are fewer clusters."
    )
    return section("Rows between clusters", body, lead, "memberships")


def choice(result: ClusterResult) -> str:
    c = result.choice
    if len(c.scores) == 1:
        return _given(result)
    drawn = cards([*charts.choice(result), _tree(result)])
    unclear = "k-means finds no clusters." if c.none else f"No clear k; {c.k} was taken."
    verdict = f"k = {c.k} is recommended." if c.clear else unclear
    lead = (
        f"<b>{verdict}</b> {sentence(c.reasons)} The star marks what a criterion would take, "
        "the ring what was taken."
    )
    return section("Choice of k", drawn, lead, "choice")


def _tree(result: ClusterResult) -> tuple[str, str, str]:
    hint = "Ward's tree: how much of the spread is lost if clusters merge"
    return "Which clusters are nearest", hint, charts.tree(result)


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
    lead = f"k = {c.k} was asked for; <code>-k auto</code> would compare. {sentence(c.reasons[c.clear :])}"
    return section("Number of clusters", f"<dl>{rows}</dl>{cards([_tree(result)])}", lead, "choice")


def convergence(result: ClusterResult) -> str:
    drawn = cards((title, "", chart) for title, chart in charts.convergence(result))
    every = "every restart and every k travel" if len(result.job.ks) > 1 else "all restarts travel"
    lead = (
        f"{result.run.rounds} rounds after the start, {result.run.exchanges} exchanges in all; "
        f"{every} in the same ones."
    )
    return section("Convergence", drawn, lead, "convergence")


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
    if result.keeps_missing:
        fills = "mean of the cells, or commonest level"
    notes = [
        f"rare levels of {escape(name)} are merged into other: {listed(categories)}"
        for name, categories in a.merged
    ]
    everything = _left_out(result, len(result.left_out))
    notes += [f"not in this result: {said}" for said in everything] if len(everything) > _LISTED else []
    body = table(["column", "kind", "scaling, or levels", fills], rows, left=(0, 1, 2, 3))
    body += f"<ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul>" if notes else ""
    lead = (
        "The same for every site, agreed from totals: no site is scaled by its own mean. Categories are "
        "one-hot, and weighted so that a whole column counts as one."
    )
    none = '<h3 class="next">Missing values</h3><p>None in any column.</p>'
    body += missing_by_site(result) if a.missing.any() else none
    return section("Preparation", body, lead, "preparation")


def sent_section(result: ClusterResult) -> str:
    a, sent = result.agreement, result.run.sent()
    rows = []
    for i, site in sorted(enumerate(a.sites), key=lambda pair: natural(pair[1]))[:_ROWS]:
        numbers, amount = sent.get(site, (0, 0))
        mode, made = a.protection[i]
        answers_from = {"summary": f"its copy of {made}", "raw": "its rows, trusted"}.get(mode, "its rows")
        rows.append(
            [
                escape(site),
                f"{a.rows[i]:,.0f}",
                answers_from,
                f"{numbers:,}",
                f'<td data-v="{amount}">{size(amount)}</td>',
            ]
        )
    modes = {mode for mode, _ in a.protection}
    lead = "Counts, sums and squared distances over groups. "
    lead += "".join(said for mode, said in _PROTECTED.items() if mode in modes)
    lead += _HERE if result.job.remote is None else "Every site has all of it, word for word, in its log."
    body = table(
        ["site", f"{result.unit} held", "answers from", "numbers sent", "bytes sent"], rows, left=(0, 2)
    )
    return section("What left each site", body, lead, "left")


_HERE = "Here all sites were on one machine, and nothing left it; between machines, this would travel."
_PROTECTED = {
    "summary": "A site with a copy answers from means of groups of persons only: its copy is the most that "
    "anybody can learn, however much is asked. ",
    "raw": "A trusted site answers from its rows, but for groups that are too small: who reads all "
    "messages can take sums apart into rows. ",
    "none": "Sites without protection answer from their rows: who reads all messages can find rows. ",
}


def method(result: ClusterResult) -> str:
    job = result.job
    items = [
        ("method", job.method),
        ("please cite", result.citation),
        ("k", ", ".join(map(str, job.ks)) if len(job.ks) < 4 else f"{job.ks[0]} to {job.ks[-1]}"),
        ("restarts", str(job.n_init)),
        ("protection", ", ".join(sorted({mode for mode, _ in result.agreement.protection}))),
        ("seed", str(job.seed)),
        ("program", f"unpooled {__version__}"),
        *([("run", result.run.id)] if job.remote is not None else []),  # as the sites' logs name it
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in items)
    again = "To run it again" + (", with the sites' data for their names" if job.remote is None else "")
    body = f"<dl>{rows}</dl><h3>{again}</h3><pre>{escape(job.command(result.agreement.sites))}</pre>"
    return section("Method, and how to reproduce", body, "", "method")


def page(result: ClusterResult) -> str:
    """The report. It uses the result only; no rows are available here."""
    count = len(result.sites)
    many = "No clusters" if result.choice.none else f"{result.k} cluster{'' if result.k == 1 else 's'}"
    title = f"{many} over {count} {'site' if count == 1 else 'sites'}"
    parts = [headline, profiles, places, memberships, charts.fit, charts.spread_map]
    parts += [choice, convergence, preparation, sent_section, method]
    return html_page(title, "\n".join(make(result) for make in parts), result.job.begun, script=True)
