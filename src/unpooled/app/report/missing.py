"""The report's part on missing cells: how many, at which sites, and how they are treated."""

import math
from typing import Any

from unpooled.app.result import ClusterResult
from unpooled.html.formatting import listed, natural, percent

_ROWS = 1000  # sites that are listed


def missing(result: ClusterResult) -> dict[str, Any] | None:
    """Return the missing cells by site, and how they are treated; None if there are none."""
    a = result.agreement
    if not a.missing.any():
        return None
    take = [j for j in range(len(a.columns)) if not (a.missing[:, j] == 0).all()]
    rows = [
        {
            "site": site,
            "size": f"{a.rows[i]:,.0f}",
            "cells": [_cell(float(a.missing[i, j]), float(a.rows[i])) for j in take],
        }
        for i, site in sorted(enumerate(a.sites), key=lambda pair: natural(pair[1]))[:_ROWS]
    ]
    return {
        "kept": kept_cells(result) if result.keeps_missing else "",
        "columns": [a.columns[j] for j in take],
        "rows": rows,
        "complete": listed([name for j, name in enumerate(a.columns) if j not in take], 20),
    }


def kept_cells(result: ClusterResult) -> str:
    """Return a sentence on how many cells are missing and stay missing."""
    cells = float(result.agreement.rows.sum()) * len(result.agreement.preparation.columns)
    share = percent(result.missing_cells / max(cells, 1.0))
    return f"{result.missing_cells:,} of {cells:,.0f} cells ({share}) are missing, and they stay missing."


def _cell(cells: float, rows: float) -> dict[str, Any]:
    """Return a number of missing cells, and their share of the rows; None: too few to disclose, or none."""
    if math.isnan(cells) or cells == 0:
        return {"text": "few" if cells else "\N{EN DASH}", "share": None}
    return {
        "text": "nearly all" if math.isinf(cells) else f"{cells:,.0f}",
        "share": min(cells / max(rows, 1.0), 1.0),
    }
