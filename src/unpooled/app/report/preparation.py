"""The report's section on the preparation: scales, levels, and missing cells by site."""

import math
from html import escape

from unpooled.app.result import ClusterResult
from unpooled.data import Number
from unpooled.pages.markup import figure, heat, listed, natural, percent, section, small, soft, table

_ROWS = 1000  # sites that are listed


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
    if result.kept:
        fills = "mean of the cells, or commonest level"
    notes = [
        f"rare levels of {escape(name)} are merged into other: {listed(levels)}" for name, levels in a.merged
    ]
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
            *(_lacking(float(a.missing[i, j]), float(a.rows[i])) for j in take),
        ]
        for i, site in sorted(enumerate(a.sites), key=lambda pair: natural(pair[1]))[:_ROWS]
    ]
    whole = [name for j, name in enumerate(a.columns) if j not in take]
    note = small(f"Complete everywhere: {listed(whole, 20)}.") if whole else ""
    head = ["site", "rows", *(escape(a.columns[j]) for j in take)]
    return f'<h3 class="next">Missing cells by site</h3>{_treated(result)}{table(head, rows)}{note}'


def kept_cells(result: ClusterResult) -> str:
    """How many cells are missing and stay so, in a sentence."""
    cells = float(result.agreement.rows.sum()) * len(result.agreement.preparation.columns)
    share = percent(result.missing_cells / max(cells, 1.0))
    return f"{result.missing_cells:,} of {cells:,.0f} cells ({share}) are missing, and they stay missing."


def _treated(result: ClusterResult) -> str:
    """Missing cells that are kept, and what that means for distances, in a paragraph."""
    if not result.kept:
        return ""
    return (
        f"<p>{kept_cells(result)} A row is compared to the centres by the columns that it has: its distance "
        "is the sum over these, not scaled up for the others. A centre is, in every column, the mean of the "
        "rows that have it, and inertia is the sum over all cells that there are. Profiles and scales are of "
        "these cells too. On the map a missing cell lies at the centre of its cluster, and for the outlines "
        "of sites at the mean.</p>"
    )


def _lacking(cells: float, rows: float) -> str:
    if math.isnan(cells) or cells == 0:
        return "few" if cells else "&ndash;"
    share = min(cells / max(rows, 1.0), 1.0)
    return heat("nearly all" if math.isinf(cells) else f"{cells:,.0f} {soft(percent(share))}", share)
