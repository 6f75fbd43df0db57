"""The report's sections: headline, profiles, clusters by site, choice of k, numbers sent by each site."""

import math
from html import escape

import numpy as np

from unpooled import __version__
from unpooled.app.report import charts
from unpooled.app.report.missing import kept_cells, missing_by_site
from unpooled.app.result import ClusterResult
from unpooled.app.traits import Trait, one_per_column
from unpooled.data import Number
from unpooled.data.transforms import Binary
from unpooled.html.html import (
    FULL,
    cards,
    chip,
    colour,
    counted,
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

_TRAITS = 5  # columns on the card of a cluster
_NAMED, _MIN_EFFECT = 3, 0.4  # columns in the sentence of a cluster, and their least effect in deviations
_LISTED = 12  # items that are left out


def headline(result: ClusterResult) -> str:
    """Return the section with the answer."""
    first, second = result.headline()
    a, run = result.agreement, result.run
    largest = max((amount for _, amount in run.sent().values()), default=0)
    figures = [
        (f"{a.used:,.0f}", result.unit),
        (str(len(result.sites)), "sites"),
        ("none" if result.choice.none else str(result.k), "clusters"),
        (str(len(a.preparation.columns)), "columns used"),
        (str(run.exchanges), "round trips"),
        (size(largest), "sent by a site at most"),
    ]
    body = f"<p>{escape(first)}</p>"
    if result.k > 1:
        body += "".join(f'<p class="each">{chip(j)}{_sentence(result, j)}</p>' for j in range(result.k))
    body += "".join(f'<p class="second">{escape(text)}</p>' for text in (second, result.certified) if text)
    if result.keeps_missing:
        body += f'<p class="second">{kept_cells(result)} Rows are compared by the cells that they have.</p>'
    omitted = "".join(f"<li>{item}</li>" for item in _left_out(result))
    body += f'<div class="second">Not in this result:<ul>{omitted}</ul></div>' if omitted else ""
    body = f'<div class="answer">{body}</div>'
    if result.warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in result.warnings)
        body += f'<div class="warn" role="note"><b>Check this first</b><ul>{items}</ul></div>'
    strip = "".join(f"<div><b>{value}</b>{name}</div>" for value, name in figures)
    return f'<section id="answer">{body}<div class="figures">{strip}</div></section>'


_WORDS = (
    ("high", False, True),
    ("low", False, False),
    ("more often", True, True),
    ("less often", True, False),
)


def _sentence(result: ClusterResult, j: int) -> str:
    """Return a cluster in one sentence: its size, and its largest differences from all rows."""
    rows = float(result.sizes[j])
    share = percent(rows / max(float(result.sizes.sum()), 1.0))
    traits = [t for t in one_per_column(result.traits(j)) if abs(t.effect) >= _MIN_EFFECT][:_NAMED]
    ways = []
    for word, category, up in _WORDS:
        some = [
            f"{escape(t.name)} ({_value(t)}, all {_value(t, overall=True)})"
            for t in traits
            if bool(t.category) is category and (t.effect > 0) is up
        ]
        ways += [f"{word} {', '.join(some)}"] if some else []
    text = "; ".join(ways) or "close to the mean in every column"
    return f"<b>{rows:,.0f} {result.unit} ({share}):</b> {text}."


def _left_out(result: ClusterResult, max_items: int = _LISTED) -> list[str]:
    """Return the first sites, columns and rows that are not in the result, and how many more there are."""
    texts = []
    for item in result.left_out:
        site, column, rows = (item.get(name) for name in ("site", "column", "rows"))
        name = f"<b>site {escape(site)}</b>" if site else f"column {escape(column)}" if column else ""
        texts.append(f"{name or f'{rows:,} {result.unit}'}: {escape(item['why'])}")
    more = f"and {len(texts) - max_items} more, listed under <a href='#preparation'>Preparation</a>"
    return texts[:max_items] + ([more] if len(texts) > max_items else [])


def profiles(result: ClusterResult) -> str:
    """Return the section with the profile of every cluster."""
    cards = "".join(_card(result, j) for j in range(result.k))
    lead = (
        "Means in the columns&rsquo; own units, the most distinctive columns first. A bar shows how far the "
        "cluster&rsquo;s mean lies from the mean of all rows: to the left if it is lower, to the right if it "
        "is higher. Half the width is two standard deviations."
    )
    heading = f'<h3 class="next">Every column {soft("(mean &plusmn; sd, or share)")}</h3>'
    pairs = " two" if result.k in (2, 4) else ""
    body = f'<div class="grid{pairs}">{cards}</div>{heading}{_every_column(result)}'
    title = "Cluster profiles" if result.k > 1 else f"Profile of all {result.unit}"
    return section(title, body, lead, "profiles")


def _card(result: ClusterResult, j: int) -> str:
    rows = float(result.sizes[j])
    share = percent(rows / max(float(result.sizes.sum()), 1.0))
    traits = [t for t in one_per_column(result.traits(j)) if abs(t.effect) >= 0.1][:_TRAITS]
    bars = (
        "".join(deviation(t.name, _beside(t), t.effect, colour(j)) for t in traits)
        or '<p class="soft">Close to the mean in every column.</p>'
    )
    return (
        f'<div class="cluster"><h3>{chip(j)}{rows:,.0f} {result.unit} {soft(f"({share})")}</h3>{bars}</div>'
    )


def _value(t: Trait, *, overall: bool = False) -> str:
    value = t.overall if overall else t.value
    return percent(value) if t.category else figure(value)


def _beside(t: Trait) -> str:
    return f"{_value(t)} {soft(f'all {_value(t, overall=True)}')}"


def _every_column(result: ClusterResult) -> str:
    by_cluster = [{(t.column, t.category): t for t in result.traits(j)} for j in range(result.k)]
    places = {key: j for j, key in enumerate(result.agreement.preparation.outputs)}
    rows = []
    for key in sorted(by_cluster[0], key=lambda key: places.get(key) or places.get((key[0], ""), 0)):
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
_WORSE = 1.5  # times the mean distance: beyond it, a site is described less well


def _order(result: ClusterResult) -> list[int]:
    """Return the positions of the sites in natural order: 1, 2, 10."""
    sites = result.description.sites
    return sorted(range(len(sites)), key=lambda i: natural(sites[i]))


def places(result: ClusterResult) -> str:
    """Return the section on the clusters at every site."""
    d, k = result.description, range(result.k)
    order, many = _order(result), len(d.sites) > 20
    legend = "".join(f"<span>{chip(j)}{result.sizes[j]:,.0f} {result.unit}</span>" for j in k)
    min_share = 0.2 if many else 0.07
    bars = "".join(stacked(d.sites[i], d.sizes[i].tolist(), result.unit, min_share) for i in order[:_BARS])
    more = small(f"and {len(d.sites) - _BARS} more sites") if len(d.sites) > _BARS else ""
    fits = result.fit()
    rows = [
        [
            escape(d.sites[i]),
            *(_count(result.size_at(i, j)) for j in k),
            f"{d.sizes[i].sum():,.0f}",
            f"{fits[i]:.3g}",
        ]
        for i in order[:_ROWS]
    ]
    notes = ["The last column is the mean squared distance to the centres."]
    if any(result.size_at(i, j) == 0 for i in order[:_ROWS] for j in k):
        notes.insert(0, "&ndash;: none.")
    if result.sites_with_minimum:
        notes.append(
            "Suppressed: no rows, or a group that is too small to be disclosed, or one from which such a "
            "group could be computed."
        )
    if result.suppressed > 0:
        notes.append(f"{result.suppressed:,} rows in total are in suppressed groups.")
    body = _differences(result) + f'<div class="legend">{legend}</div>'
    body += f'<div class="sites{" many" if many else ""}">{bars}</div>{more}'
    head = ["site", *map(chip, k), f"{result.unit} disclosed", "distance"]
    body += table(head, rows) + small(" ".join(notes))
    lead = f"Each bar is a site, divided in proportion to its {result.unit}."
    if result.job.aggregate_only:
        sums = "secure sums" if result.job.secure else "the sums of federations"
        lead = f"All sites together: {sums} do not disclose which site has which cluster."
    title = "Clusters by site" if result.k > 1 else f"{result.unit.capitalize()} by site"
    return section(title, body + _absent(result), lead, "places")


def _differences(result: ClusterResult) -> str:
    """Return the sites whose shares of clusters differ from those of all sites, the largest first."""
    d = result.description
    if len(d.sites) < 2 or result.k < 2:
        return ""
    by_site: dict[str, list[str]] = {}
    for site, j, share, overall in d.differences():
        part = f"{chip(j)}{share:.0%} {soft(f'all {overall:.0%}')}"
        by_site.setdefault(site, []).append(f'<span class="once">{part}</span>')
    items = [f"<li><b>{escape(site)}</b>: {', '.join(parts[:2])}</li>" for site, parts in by_site.items()]
    fits, mean = result.fit(), float(d.inertias.sum() / max(d.sizes.sum(), 1.0))
    worse = [i for i in _order(result) if fits[i] > _WORSE * mean > 0]
    note = f"Described less well, by distance: {listed([d.sites[i] for i in worse], 8)}." if worse else ""
    if not items:
        return small(f"No site differs much from the others in its shares of the clusters. {note}")
    more = small(f"and {len(items) - _LISTED} more sites differ") if len(items) > _LISTED else ""
    sites = f'<ul class="plain">{"".join(items[:_LISTED])}</ul>'
    return f"<h3>Sites that differ</h3>{sites}{more}{small(note) if note else ''}"


def _count(rows: float) -> str:
    return soft("suppressed") if math.isnan(rows) else f"{rows:,.0f}" if rows else "&ndash;"


def _absent(result: ClusterResult) -> str:
    d = result.description
    absent = {j: [s for i, s in enumerate(d.sites) if result.size_at(i, j) == 0] for j in range(result.k)}
    items = [f"<li>{chip(j)}not at {listed(sites)}</li>" for j, sites in absent.items() if sites]
    if not items or len(d.sites) == 1:
        return ""
    return f'<h3 class="next">Absent</h3><ul class="plain">{"".join(items)}</ul>'


def memberships(result: ClusterResult) -> str:
    """Return the section on borderline rows of fuzzy clusters; "" for other methods."""
    d = result.description
    if d.borderline is None:
        return ""
    k = range(result.k)
    rows = [
        [escape(site), *("&ndash;" if np.isnan(u) else percent(float(u)) for u in d.borderline[i])]
        for i, site in ((i, d.sites[i]) for i in _order(result)[:_ROWS])
    ]
    body = table(["site", *map(chip, k)], rows)
    body += small("&ndash;: no such rows, or too few to be disclosed.")
    lead = (
        "The share of a cluster&rsquo;s rows without a membership of 0.6 or more. A large share means that "
        "the cluster blends into another one, or that there are fewer clusters."
    )
    return section("Borderline rows", body, lead, "memberships")


def choice(result: ClusterResult) -> str:
    """Return the section on the number of clusters."""
    c = result.choice
    if len(c.scores) == 1:
        return _fixed_k(result)
    drawn = cards([*charts.choice(result), _tree(result)])
    verdict = {
        "clear": f"k = {c.k} is recommended.",
        "unclear": f"k = {c.k} is the best supported, and it is not clear.",
        "none": "k-means finds no clusters.",
        "not judged": f"Whether there are clusters was not judged; k = {c.k} is used.",
    }[c.verdict]
    lead = (
        f"<b>{verdict}</b> {sentence(c.reasons)} The star marks the k that a criterion prefers, "
        "the ring the k that is used."
    )
    return section("Choice of k", drawn, lead, "choice")


def _tree(result: ClusterResult) -> tuple[str, str, str]:
    hint = "Ward's tree: the share of the variance that is lost if clusters merge"
    return "Nearest clusters", hint, charts.tree(result)


def _fixed_k(result: ClusterResult) -> str:
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
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in items if value not in ("nan", "-"))
    lead = f"The job asked for k = {c.k}; <code>-k auto</code> compares. {sentence(c.reasons)}"
    return section("Number of clusters", f"<dl>{rows}</dl>{cards([_tree(result)])}", lead, "choice")


def convergence(result: ClusterResult) -> str:
    """Return the section on the rounds."""
    drawn = cards((title, "", chart) for title, chart in charts.convergence(result))
    every = "every restart and every k share" if len(result.ks) > 1 else "all restarts share"
    lead = f"{result.run.rounds} rounds after the start, {result.run.exchanges} round trips; {every} them."
    return section("Convergence", drawn, lead, "convergence")


def preparation(result: ClusterResult) -> str:
    """Return the section on the preparation of columns and on missing values."""
    a = result.agreement
    rows = []
    for c in a.preparation.columns:
        if isinstance(c, Number):
            moved = (c.shift, c.scale) != (0.0, 1.0)
            how = f"(x &minus; {figure(c.shift)}) / {figure(c.scale)}" if moved else "unchanged"
            kind = f"category ({figure(c.low)} or {figure(c.high)})" if isinstance(c, Binary) else "number"
            rows.append([escape(c.name), kind, how, figure(c.fill)])
        else:
            rows.append([escape(c.name), "category", listed(c.places, 12), escape(c.places[c.fill])])
    fills = "a missing value would become" if a.preparation.drop else "missing values filled with"
    if result.keeps_missing:
        fills = "mean, or most frequent category"
    notes = [
        f"rare categories of {escape(name)} are merged into other: {listed(categories)}"
        for name, categories in a.merged
    ]
    everything = _left_out(result, len(result.left_out))
    notes += [f"not in this result: {item}" for item in everything] if len(everything) > _LISTED else []
    body = table(["column", "kind", "scaling, or categories", fills], rows, left=(0, 1, 2, 3))
    body += f"<ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul>" if notes else ""
    lead = (
        "All sites use the same preparation, computed from totals: no site is scaled by its own mean. "
        "Categorical columns are one-hot encoded and weighted so that a column counts as one number."
    )
    none = '<h3 class="next">Missing values</h3><p>None in any column.</p>'
    body += missing_by_site(result) if a.missing.any() else none
    return section("Preparation", body, lead, "preparation")


def sent_section(result: ClusterResult) -> str:
    """Return the section on the numbers and bytes that every site sent."""
    a, sent = result.agreement, result.run.sent()
    rows = []
    for i, site in sorted(enumerate(a.sites), key=lambda pair: natural(pair[1]))[:_ROWS]:
        numbers, amount = sent.get(site, (0, 0))
        mode, made = a.protection[i]
        answers_from = {"summary": f"its summary table of {made}", "raw": "raw rows, with a minimum"}
        rows.append(
            [
                escape(site),
                f"{a.rows[i]:,.0f}",
                answers_from.get(mode, "raw rows"),
                f"{numbers:,}",
                f'<td data-v="{amount}">{size(amount)}</td>',
            ]
        )
    modes = {mode for mode, _ in a.protection}
    lead = "Counts, sums and squared distances over groups. "
    lead += "".join(text for mode, text in _PROTECTED.items() if mode in modes)
    lead += _SIMULATED if result.job.remote is None else "The log of every site records its answers verbatim."
    body = table(["site", result.unit, "answers from", "numbers sent", "bytes sent"], rows, left=(0, 2))
    return section("Numbers sent by each site", body, lead, "sent")


_SIMULATED = "All sites of this run were on one machine. Sites on separate machines would send these numbers."
_PROTECTED = {
    "summary": "A site with a summary table (microaggregation) answers from means of groups of people only: "
    "no number of queries discloses more than the table. ",
    "raw": "A site in raw mode answers from its rows and suppresses groups that are too small: someone who "
    "reads all messages can reconstruct rows from sums. ",
    "none": "Sites without protection answer from their rows: someone who reads all messages can reconstruct "
    "rows. ",
}


def provenance(result: ClusterResult) -> str:
    """Return the section on the summary files that the run used."""
    files = result.facts.summary_files
    rows = [
        [
            escape(file.site),
            escape(file.file),
            escape(file.exported[:10]),
            escape(file.protection),
            "encrypted" if file.encrypted else "not encrypted",
            f"<code>{escape(file.fingerprint)}</code>",
            f"<code>{escape(file.digest[:16])}</code>",
        ]
        for file in files
    ]
    head = ["site", "file", "exported", "protection", "on its way", "fingerprint of the site", "digest"]
    study = files[0]
    lead = (
        f"This run asked no site. It was computed here from signed summary files, for the study "
        f"{escape(study.title)}: {sentence([study.purpose])} The study expires on "
        f"{escape(study.expires)}. Limits on the use of the files hold by agreement."
    )
    return section("Provenance", table(head, rows, left=tuple(range(len(head)))), lead, "provenance")


def method(result: ClusterResult) -> str:
    """Return the section on the method, and the command that repeats the run."""
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
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in items)
    again = "Command" + (", with the names of the sites in place of their data" if job.remote is None else "")
    body = f"<dl>{rows}</dl><h3>{again}</h3><pre>{escape(job.command(result.agreement.sites))}</pre>"
    return section("Method and reproduction", body, "", "method")


def page(result: ClusterResult) -> str:
    """Return the report. It uses the result only, which holds no rows."""
    clusters = "No clusters" if result.choice.none else counted(result.k, "cluster")
    title = f"{clusters} over {counted(len(result.sites), 'site')}"
    parts = [headline, profiles, places, memberships, charts.fit, charts.spread_map]
    parts += [choice, convergence, preparation, sent_section]
    parts += [provenance, method] if result.facts.summary_files else [method]
    return html_page(title, "\n".join(make(result) for make in parts), result.job.begun, script=True)
