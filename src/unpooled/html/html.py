"""HTML elements that all pages share, and their style sheet."""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PALETTE = 8  # colours of clusters; clusters beyond these repeat the colours and differ by their number
FULL = 2.0  # standard deviations that fill half a bar, or give a cell its deepest colour
_LONG = 25  # rows of a table that scrolls on a screen


def style() -> str:
    """Return the style sheet of all pages, light and dark."""
    return (files("unpooled.html") / "style.css").read_text(encoding="utf-8")


def html_page(title: str, body: str, date: str = "", *, script: bool = False) -> str:
    """Return a complete page that makes no network request.

    ``script`` adds the script for tables and figures. The page can be read without it, and the page's
    content security policy admits no other script.
    """
    policy, code = _POLICY, ""
    if script:
        code = (files("unpooled.html") / "report.js").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        policy, code = f"{_POLICY}; script-src 'sha256-{digest}'", f"<script>{code}</script>\n"
    made = f'<p class="date"><time datetime="{escape(date)}">{escape(date)}</time></p>\n' if date else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style()}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{made}{body}
<footer>Made by unpooled: clusters of data that cannot be pooled.</footer>
</main>
{code}</body>
</html>
"""


def section(title: str, body: str, lead: str = "", anchor: str = "") -> str:
    """Return a section of a page; ``lead`` and ``body`` are HTML."""
    caption = f'<p class="soft">{lead}</p>' if lead else ""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{caption}{body}</section>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Return a table of HTML cells with the columns ``left`` aligned to the left; a cell may be a <td>."""

    def cell(j: int, caption: str, name: str) -> str:
        if caption.startswith("<td"):
            return caption
        return f'<{name} class="left">{caption}</{name}>' if j in left else f"<{name}>{caption}</{name}>"

    rows = list(rows)
    top = "".join(cell(j, caption, "th") for j, caption in enumerate(head))
    body = "".join(
        "<tr>" + "".join(cell(j, caption, "td") for j, caption in enumerate(row)) + "</tr>" for row in rows
    )
    kind = "scroll long" if len(rows) > _LONG else "scroll"
    whole = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return scrolled(f"<table>{whole}</table>", kind, "table")


def scrolled(body: str, kind: str, what: str) -> str:
    """Return a box that scrolls if its content is too wide or too long; the keyboard reaches it too."""
    return f'<div class="{kind}" tabindex="0" role="group" aria-label="{what}">{body}</div>'


def colour(cluster: int) -> str:
    """Return the CSS class with the colour of a cluster."""
    return f"c{cluster % _PALETTE}"


def chip(cluster: int) -> str:
    """Return the number of a cluster on its colour."""
    return f'<span class="chip {colour(cluster)}">{cluster + 1}</span>'


def deviation(name: str, caption: str, effect: float, class_: str) -> str:
    """Return a name, a value, and a bar left or right of the middle; ``effect`` is in standard deviations."""
    width = min(abs(effect) / FULL, 1.0) * 50
    start = 50 - width if effect < 0 else 50
    way = "below" if effect < 0 else "above"
    return (
        f'<div class="trait" title="{abs(effect):.1f} standard deviations {way} the mean of all rows">'
        f'<span class="name">{escape(name)}</span><span class="value">{caption}</span>'
        f'<span class="track"><i class="{class_}" style="left:{start:.1f}%;width:{width:.1f}%"></i></span>'
        "</div>"
    )


def heat(caption: str, depth: float) -> str:
    """Return a cell of a table with a warm colour above 0 and a cold one below, deepest at 1 and -1."""
    paint = f"rgba(var(--{'hot' if depth > 0 else 'cold'}), {0.55 * min(abs(depth), 1.0):.2f})"
    return f'<td class="heat" style="background:{paint}">{caption}</td>'


def stacked(name: str, sizes: Sequence[float], unit: str, min_size: float = 0.07) -> str:
    """Return a bar divided in proportion to the sizes of clusters; shares from ``min_size`` on are named."""
    whole, parts = max(sum(sizes), 1.0), ""
    for j, size in enumerate(sizes):
        share, tip = size / whole, f"cluster {j + 1}: {size:,.0f} {unit}"
        label = percent(round(share, 2)) if share >= min_size else ""
        if size:
            parts += f'<i class="{colour(j)}" style="width:{100 * share:.2f}%" title="{tip}">{label}</i>'
    return (
        f'<div class="stacked"><span class="site">{escape(name)}</span><span class="bars">{parts}</span>'
        f"{soft(f'{sum(sizes):,.0f} {unit}')}</div>"
    )


def cards(charts: Iterable[tuple[str, str, str]]) -> str:
    """Return a grid of charts, each with its title and a hint."""
    parts = [
        f'<div><h3>{escape(title)}</h3><div class="small soft">{escape(hint)}</div>{chart}</div>'
        for title, hint, chart in charts
        if chart
    ]
    return f'<div class="grid">{"".join(parts)}</div>' if parts else ""


def soft(caption: str) -> str:
    """Return text in a softer colour."""
    return f'<span class="soft">{caption}</span>'


def small(caption: str) -> str:
    """Return a paragraph in smaller type."""
    return f'<p class="small soft">{caption}</p>'


def listed(names: Sequence[str], max_items: int = 6) -> str:
    """Return the first names, escaped, and how many more there are.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - max_items} more" if len(names) > max_items else ""
    return escape(", ".join(names[:max_items])) + more


def counted(count: float, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> counted(1, "group"), counted(1200, "group"), counted(1200, "person")
    ('1 group', '1,200 groups', '1,200 people')
    """
    if count != 1:
        noun = "people" if noun == "person" else f"{noun}s"
    return f"{count:,.0f} {noun}"


def percent(share: float) -> str:
    """Return a share as a percentage; below 9.5% with one decimal.

    >>> percent(0.521), percent(0.0123)
    ('52%', '1.2%')
    """
    digits = 0 if share >= 0.095 or share == 0 else 1
    return f"{100 * share:.{digits}f}%"


def size(n: float) -> str:
    """Return a number of bytes in a unit that people read.

    >>> size(900), size(123_456), size(2_000_000)
    ('900 B', '123 kB', '2.0 MB')
    """
    if n < 1000:
        return f"{n:.0f} B"
    return f"{n / 1e3:.0f} kB" if n < 1e6 else f"{n / 1e6:.1f} MB"


def sentence(parts: Iterable[str]) -> str:
    """Return parts as one escaped sentence.

    >>> sentence(["one cluster is enough", "restarts disagree"])
    'One cluster is enough; restarts disagree.'
    """
    joined = "; ".join(parts)
    return escape(joined[:1].upper() + joined[1:]) + "." if joined else ""


def figure(value: float) -> str:
    """Return a number with three digits, or with all digits of its whole part if these are more.

    >>> figure(61.234), figure(4207.4), figure(0.01234), figure(float("nan"))
    ('61.2', '4207', '0.0123', '-')
    >>> figure(-1.2345e120), figure(123456789012345.0)
    ('-1.23e+120', '123456789012345')
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    if abs(value) >= 1000 or value == 0:
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits, 0), 6)}f}"


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return the key of natural sorting: numbers within names sort by value.

    >>> sorted(["site 10", "site 9", "10", "a"], key=natural)
    ['10', 'a', 'site 9', 'site 10']
    """
    parts = re.split(r"(\d+)", name)
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part.lower()) for part in parts if part
    ]


def natural_order(names: Sequence[str]) -> list[int]:
    """Return the positions of names in natural order.

    >>> natural_order(["site-1", "site-10", "site-2"])
    [0, 2, 1]
    """
    return sorted(range(len(names)), key=lambda i: natural(names[i]))
