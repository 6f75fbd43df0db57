"""Small pieces of HTML that all pages share, and their style."""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


FULL = 2.0  # standard deviations that fill half a bar, or give a cell its deepest colour
_LONG = 25  # rows of a table that scrolls on a screen


def style() -> str:
    """The style sheet of all pages, light and dark."""
    return (files("unpooled.html") / "style.css").read_text(encoding="utf-8")


def html_page(title: str, body: str, date: str = "", *, script: bool = False) -> str:
    """A complete page, without any network request.

    ``script`` adds the one for tables and figures; the page reads without it, and no other one may run.
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
    """A part of the page; ``lead`` and ``body`` are HTML already."""
    caption = f'<p class="soft">{lead}</p>' if lead else ""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{caption}{body}</section>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table of HTML cells, the columns ``left`` aligned to the left; a cell may be a whole <td>."""

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
    """Something that may be wider or longer than its place: keys reach it too, and scroll it."""
    return f'<div class="{kind}" tabindex="0" role="group" aria-label="{what}">{body}</div>'


def chip(cluster: int) -> str:
    """The number of a cluster on its colour."""
    return f'<span class="chip {colour(cluster)}">{cluster + 1}</span>'


def deviation(name: str, caption: str, effect: float, class_: str) -> str:
    """A name, a value, and a bar to the left or right of the middle; ``effect`` is in standard deviations."""
    width = min(abs(effect) / FULL, 1.0) * 50
    start = 50 - width if effect < 0 else 50
    way = "below" if effect < 0 else "above"
    return (
        f'<div class="trait" title="{abs(effect):.1f} standard deviations {way} the mean of all rows">'
        f'<span class="name">{escape(name)}</span><span class="said">{caption}</span>'
        f'<span class="track"><i class="{class_}" style="left:{start:.1f}%;width:{width:.1f}%"></i></span>'
        "</div>"
    )


def heat(caption: str, depth: float) -> str:
    """A cell of a table, warm above 0 and cold below; deepest at 1."""
    paint = f"rgba(var(--{'hot' if depth > 0 else 'cold'}), {0.55 * min(abs(depth), 1.0):.2f})"
    return f'<td class="heat" style="background:{paint}">{caption}</td>'


def stacked(name: str, sizes: Sequence[float], unit: str, min_size: float = 0.07) -> str:
    """A bar that is cut in proportion to the sizes of clusters, with shares from ``min_size`` on."""
    whole, parts = max(sum(sizes), 1.0), ""
    for j, size in enumerate(sizes):
        share, tip = size / whole, f"cluster {j + 1}: {size:,.0f} {unit}"
        label = percent(round(share, 2)) if share >= min_size else ""
        if size:
            parts += f'<i class="{colour(j)}" style="width:{100 * share:.2f}%" title="{tip}">{label}</i>'
    return (
        f'<div class="stack"><span class="who">{escape(name)}</span><span class="bars">{parts}</span>'
        f"{soft(f'{sum(sizes):,.0f} {unit}')}</div>"
    )


def cards(charts: Iterable[tuple[str, str, str]]) -> str:
    """A grid of charts, each with its title and a hint."""
    parts = [
        f'<div><h3>{escape(title)}</h3><div class="small soft">{escape(hint)}</div>{chart}</div>'
        for title, hint, chart in charts
        if chart
    ]
    return f'<div class="grid">{"".join(parts)}</div>' if parts else ""


def soft(caption: str) -> str:
    return f'<span class="soft">{caption}</span>'


def small(caption: str) -> str:
    return f'<p class="small soft">{caption}</p>'


def listed(names: Sequence[str], max_items: int = 6) -> str:
    """Some names, and how many more.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - max_items} more" if len(names) > max_items else ""
    return escape(", ".join(names[:max_items])) + more


def counted(count: float, noun: str) -> str:
    """
    >>> counted(1, "group"), counted(1200, "person")
    ('1 group', '1,200 persons')
    """
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """
    >>> percent(0.521), percent(0.0123)
    ('52&thinsp;%', '1.2&thinsp;%')
    """
    digits = 0 if share >= 0.095 or share == 0 else 1
    return f"{100 * share:.{digits}f}&thinsp;%"


def size(n: float) -> str:
    """
    >>> size(900), size(123_456), size(2_000_000)
    ('900 B', '123 kB', '2.0 MB')
    """
    if n < 1000:
        return f"{n:.0f} B"
    return f"{n / 1e3:.0f} kB" if n < 1e6 else f"{n / 1e6:.1f} MB"


def sentence(parts: Iterable[str]) -> str:
    """
    >>> sentence(["one blob would do", "restarts disagree"])
    'One blob would do; restarts disagree.'
    """
    joined = "; ".join(parts)
    return escape(joined[:1].upper() + joined[1:]) + "." if joined else ""


def figure(value: float) -> str:
    """A number for people: three digits, more where the whole part has them.

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
    """The key by which names sort as people count.

    >>> sorted(["site 10", "site 9", "10", "a"], key=natural)
    ['10', 'a', 'site 9', 'site 10']
    """
    parts = re.split(r"(\d+)", name)
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part.lower()) for part in parts if part
    ]


def natural_order(names: Sequence[str]) -> list[int]:
    """The places of names in the order in which people count.

    >>> natural_order(["site-1", "site-10", "site-2"])
    [0, 2, 1]
    """
    return sorted(range(len(names)), key=lambda i: natural(names[i]))


Point = tuple[float, float]


_PALETTE = 8  # colours of clusters; further clusters repeat them and differ by their number


def colour(cluster: int) -> str:
    """The CSS class with the colour of a cluster."""
    return f"c{cluster % _PALETTE}"


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element. ``class_`` is class, an underscore is a hyphen.

    >>> tag("text", "a < b", x=1.50001, text_anchor="end")
    '<text x="1.5" text-anchor="end">a < b</text>'
    """
    caption = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{caption}>{content}</{name}>" if content else f"<{name}{caption}/>"


def _value(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else escape(str(value))


def text(x: float, y: float, caption: str, class_: str = "", anchor: str = "start", **more: object) -> str:
    return tag(
        "text", escape(caption), x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor, **more
    )


def line(a: Point, b: Point, class_: str) -> str:
    return tag("line", x1=float(a[0]), y1=float(a[1]), x2=float(b[0]), y2=float(b[1]), class_=class_)


def path(points: Sequence[Point], class_: str) -> str:
    caption = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return tag("path", d=caption, class_=class_)


def drawing(width: float, height: float, content: str, label: str) -> str:
    """A chart that fills the available width; ``label`` is the text for screen readers."""
    return tag(
        "svg",
        content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that span a range.

    >>> ticks(0.0, 9.3), ticks(2.0, 10.0, 8)
    ([0.0, 2.0, 4.0, 6.0, 8.0], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next((m for m in (1, 2, 5, 10) if rough <= m * power * 1.0001), 10)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number on an axis.

    >>> short(0.25), short(12000.0), short(3.0), short(2500000.0), short(0.0004)
    ('0.25', '12k', '3', '2.5M', '0.0004')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1000 if unit == 'k' else size):g}{unit}"
    return f"{value:.4g}"


class Plane:
    """Two axes, and the position of a point between them."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        size: tuple[float, float],
        margin: tuple[float, ...],
    ) -> None:
        self.x, self.y = _wide(x), _wide(y)
        self.left, self.top = margin[3], margin[0]
        self.right, self.bottom = size[0] - margin[1], size[1] - margin[2]

    def at(self, x: float, y: float) -> Point:
        return (
            self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left),
            self.bottom - (y - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top),
        )

    def axes(
        self, xs: Sequence[float], ys: Sequence[float], x_name: str, y_name: str = "", log: bool = False
    ) -> str:
        """Grid, ticks and names; ``log``: y holds powers of ten."""
        parts = []
        for v in ys:
            y = self.at(self.x[0], v)[1]
            caption = short(10**v) if log else short(v)
            parts += [
                line((self.left, y), (self.right, y), "grid"),
                text(self.left - 6, y + 4, caption, "tick", "end"),
            ]
        for v in xs:
            x = self.at(v, self.y[0])[0]
            parts.append(text(x, self.bottom + 17, short(v), "tick", "middle"))
        parts.append(line((self.left, self.bottom), (self.right, self.bottom), "axis"))
        parts.append(text((self.left + self.right) / 2, self.bottom + 36, x_name, "name", "middle"))
        if y_name:
            parts.append(text(self.left, self.top - 10, y_name, "name", "start"))
        return "".join(parts)


def _wide(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def ellipse(
    mean: Point, covariance: tuple[float, float, float], radius: float, points: int = 60
) -> list[Point]:
    """The outline of a group: the ellipse at ``radius`` standard deviations about its mean."""
    a, b, c = covariance
    middle, half = (a + c) / 2, math.hypot((a - c) / 2, b)
    angle = 0.5 * math.atan2(2 * b, a - c)
    first, second = math.sqrt(max(middle + half, 0.0)) * radius, math.sqrt(max(middle - half, 0.0)) * radius
    outline = []
    for i in range(points + 1):
        t = 2 * math.pi * i / points
        x, y = first * math.cos(t), second * math.sin(t)
        outline.append(
            (
                mean[0] + x * math.cos(angle) - y * math.sin(angle),
                mean[1] + x * math.sin(angle) + y * math.cos(angle),
            )
        )
    return outline
