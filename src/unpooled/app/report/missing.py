"""The report's part on missing cells: how many, at which sites, and how they are treated."""

import math
from html import escape

from unpooled.app.result import ClusterResult
from unpooled.html.html import heat, listed, natural, percent, small, soft, table

_ROWS = 1000  # sites that are listed


def missing_by_site(result: ClusterResult) -> str:
    """Return the table of missing cells, and how they are treated."""
    a = result.agreement
    take = [j for j in range(len(a.columns)) if not (a.missing[:, j] == 0).all()]
    rows = [
        [
            escape(site),
            f"{a.rows[i]:,.0f}",
            *(_lacking(float(a.missing[i, j]), float(a.rows[i])) for j in take),
        ]
        for i, site in sorted(enumerate(a.sites), key=lambda pair: natural(pair[1]))[:_ROWS]
    ]
    complete = [name for j, name in enumerate(a.columns) if j not in take]
    note = small(f"Complete everywhere: {listed(complete, 20)}.") if complete else ""
    head = ["site", "rows", *(escape(a.columns[j]) for j in take)]
    return f'<h3 class="next">Missing cells by site</h3>{_treated(result)}{table(head, rows)}{note}'


def kept_cells(result: ClusterResult) -> str:
    """Return a sentence on how many cells are missing and stay missing."""
    cells = float(result.agreement.rows.sum()) * len(result.agreement.preparation.columns)
    share = percent(result.missing_cells / max(cells, 1.0))
    return f"{result.missing_cells:,} of {cells:,.0f} cells ({share}) are missing, and they stay missing."


def _treated(result: ClusterResult) -> str:
    """Return a paragraph on missing cells that stay missing, and what that means for distances."""
    if not result.keeps_missing:
        return ""
    return (
        f"<p>{kept_cells(result)} A row is compared to the centres by the columns in which it has a value: "
        "its distance is the sum over these columns, not scaled up for the others. A centre is, in every "
        "column, the mean of the rows with a value. Inertia, profiles and scales use cells with a value. On "
        "the map a missing cell lies at the centre of its cluster, and for the outlines of sites at the "
        "mean.</p>"
    )


def _lacking(cells: float, rows: float) -> str:
    if math.isnan(cells) or cells == 0:
        return "few" if cells else "&ndash;"
    share = min(cells / max(rows, 1.0), 1.0)
    return heat("nearly all" if math.isinf(cells) else f"{cells:,.0f} {soft(percent(share))}", share)
