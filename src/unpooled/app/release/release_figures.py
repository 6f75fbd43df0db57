"""The figures of a release as SVG files, drawn from the released tables alone."""

import math
from collections.abc import Sequence

from unpooled.app.release.release_tables import ReleaseContents
from unpooled.app.release.released_counts import REDACTED
from unpooled.app.traits import FULL
from unpooled.html.formatting import cluster_letter
from unpooled.html.svg import colour, drawing, tag, text

_STYLE = """
svg { background: #fff; font: 13px system-ui, "Segoe UI", Roboto, Arial, sans-serif; } text { fill: #1d232b; }
.soft { fill: #5b6673; } .on { fill: #fff; font-weight: 600; } .dark { fill: #14181d; font-weight: 600; }
.line { stroke: #e2e0db; } .c0 { fill: #0072b2; } .c1 { fill: #e69f00; } .c2 { fill: #009e73; }
.c3 { fill: #d55e00; }
.c4 { fill: #cc79a7; } .c5 { fill: #56b4e9; } .c6 { fill: #b3a100; } .c7 { fill: #6b6b6b; }
"""
_WIDTH, _LEFT, _ROW = 760.0, 150.0, 30.0
_MAX_ROWS = 60  # sites or columns that are drawn


def figures(released: ReleaseContents, unit: str) -> dict[str, str]:
    """Return the figures by file name."""
    return {"clusters_by_site.svg": _sites(released, unit), "profiles.svg": _means(released)}


def _figure(height: float, parts: Sequence[str], label: str) -> str:
    return drawing(_WIDTH, height, [tag("style", _STYLE), *parts], label) + "\n"


def _sites(released: ReleaseContents, unit: str) -> str:
    values, parts = released.by_site.values, []
    drawn = sorted(range(len(released.sites)), key=lambda i: released.sites[i])[:_MAX_ROWS]
    largest = max(float(values.sum(axis=1).max()), 1.0)
    full = _WIDTH - _LEFT - 110
    parts.append(text(_LEFT, 20, f"{unit} by cluster, rounded; redacted counts are left out", "soft"))
    for line, i in enumerate(drawn):
        y, x = 36 + _ROW * line, _LEFT
        parts.append(text(_LEFT - 10, y + 16, released.sites[i][:22], anchor="end"))
        for j in range(values.shape[1]):
            width = full * float(values[i, j]) / largest
            if not width:
                continue
            parts.append(tag("rect", x=x, y=y, width=width, height=22.0, class_=colour(j)))
            if width > 30:
                ink = "dark" if j % 8 in (1, 5, 6) else "on"
                parts.append(text(x + width / 2, y + 16, f"{values[i, j]:.0f}", ink, "middle"))
            x += width
        parts.append(text(x + 8, y + 16, f"{values[i].sum():.0f}", "soft"))
    y = 36 + _ROW * len(drawn) + 8
    for j in range(values.shape[1]):
        at = _LEFT + 95 * (j % 6)
        parts.append(tag("rect", x=at, y=y + 20.0 * (j // 6), width=12.0, height=12.0, class_=colour(j)))
        parts.append(text(at + 18, y + 11 + 20 * (j // 6), f"cluster {cluster_letter(j)}", "soft"))
    height = y + 20 * math.ceil(values.shape[1] / 6) + 12
    return _figure(height, parts, f"{unit} of each site by cluster")


def _means(released: ReleaseContents) -> str:
    """Return a table of means, shaded by their distance from the mean of all, as they are released."""
    k = released.by_site.values.shape[1]
    wide, parts = (_WIDTH - _LEFT - 20) / max(k, 1), []
    for j in range(k):
        parts.append(text(_LEFT + wide * (j + 0.5), 20, f"cluster {cluster_letter(j)}", "soft", "middle"))
    for line, (name, means, effects) in enumerate(released.means[:_MAX_ROWS]):
        y = 32 + _ROW * line
        parts.append(text(_LEFT - 10, y + 19, name[:22], anchor="end"))
        for j, mean in enumerate(means):
            redacted = mean == REDACTED
            effect = 0.0 if redacted or not effects else effects[j]
            paint = "#d55e00" if effect > 0 else "#0072b2"
            depth = round(0.55 * min(abs(effect) / FULL, 1.0), 2)
            parts.append(
                tag(
                    "rect",
                    x=_LEFT + wide * j,
                    y=y,
                    width=wide - 2,
                    height=_ROW - 2,
                    fill=paint,
                    fill_opacity=depth,
                )
            )
            label, ink = ("redacted", "soft") if redacted else (mean, "")
            parts.append(text(_LEFT + wide * (j + 0.5), y + 19, label, ink, "middle"))
    return _figure(44 + _ROW * min(len(released.means), _MAX_ROWS), parts, "Means of each cluster")
