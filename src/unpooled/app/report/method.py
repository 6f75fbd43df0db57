"""The last sections: why so many clusters, convergence, preparation, what left, what was run."""

import math
from html import escape

from unpooled import __version__
from unpooled.app.cluster_result import ClusterResult
from unpooled.app.report import charts
from unpooled.app.result import figure
from unpooled.data import Number
from unpooled.pages.html import listed, percent, section, sentence, size, small, soft, table

_ROWS = 200  # sites that are listed


def choice(result: ClusterResult) -> str:
    c = result.choice
    if len(c.scores) == 1:
        return _given(result)
    drawn = "".join(
        f'<div><h3>{escape(title)}</h3><div class="small soft">{escape(hint)}</div>{chart}</div>'
        for title, hint, chart in charts.choice(result)
    )
    verdict = f"k = {c.k} is recommended." if c.clear else f"No clear k; {c.k} was taken."
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
        ("gap to one blob", figure(float(c.gaps[0]))),
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
    a, least = result.agreement, result.job.min_cluster_size
    take = [j for j in range(len(a.columns)) if not (a.missing[:, j] == 0).all()]
    if not take:
        return '<h3 class="next">Missing values</h3><p>None in any column.</p>'
    rows = [
        [
            escape(site),
            f"{a.rows[i]:,.0f}",
            *(_missing_cell(float(a.missing[i, j]), float(a.rows[i]), least) for j in take),
        ]
        for i, site in enumerate(a.sites[:_ROWS])
    ]
    whole = [name for j, name in enumerate(a.columns) if j not in take]
    note = small(f"Complete everywhere: {listed(whole, 20)}.") if whole else ""
    head = ["site", "rows", *(escape(a.columns[j]) for j in take)]
    return f'<h3 class="next">Missing cells by site</h3>{table(head, rows)}{note}'


def _missing_cell(cells: float, rows: float, least: int) -> str:
    if math.isnan(cells):
        return f"&lt;&thinsp;{least}"
    if cells == 0:
        return "&ndash;"
    share = min(cells / max(rows, 1.0), 1.0)
    said = f"all but &lt;&thinsp;{least}" if math.isinf(cells) else f"{cells:,.0f} {soft(percent(share))}"
    return f'<td class="heat" style="background:rgba(var(--hot), {0.5 * share:.2f})">{said}</td>'


def left(result: ClusterResult) -> str:
    a, sent, least = result.agreement, result.run.left(), result.job.min_cluster_size
    rows = []
    for i, site in enumerate(a.sites[:_ROWS]):
        numbers, amount = sent.get(site, (0, 0))
        rows.append([escape(site), f"{a.rows[i]:,.0f}", f"{numbers:,}", size(amount)])
    hidden = (
        f"none of fewer than {least} rows"
        if least > 1
        else "none hidden (minimum size 1: a group of one row is that row)"
    )
    lead = (
        f"Counts, sums and squared distances over groups of rows, {hidden}. No row and no label is among "
        "them. "
        + (
            "Here all sites were files on one machine, and nothing left it; between machines, this is what "
            "would travel."
            if result.job.between is None
            else "Every site has all of it, word for word, in its own log."
        )
    )
    note = small(
        "Many of these numbers are zeros of empty or hidden cells. Overlapping sums can still tell something "
        "about rows; docs/privacy.md says what is guarded against and what is not."
    )
    body = table(["site", "rows held", "numbers sent", "bytes sent"], rows)
    return section("What left each site", body + note, lead, "left")


def method(result: ClusterResult) -> str:
    job = result.job
    items = [
        ("method", job.method),
        ("please cite", result.citation),
        ("k", ", ".join(map(str, job.ks)) if len(job.ks) < 4 else f"{job.ks[0]} to {job.ks[-1]}"),
        ("restarts", str(job.n_init)),
        ("smallest group shown", str(job.min_cluster_size)),
        ("seed", str(job.seed)),
        ("run", result.run.id),
        ("program", f"unpooled {__version__}"),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in items)
    body = f"<dl>{rows}</dl><h3>To run it again</h3><pre>{escape(job.command())}</pre>"
    return section("Method, and how to reproduce", body, "", "method")
