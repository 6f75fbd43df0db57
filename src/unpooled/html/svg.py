"""SVG elements, and axes for charts.

A chart is computed, so it is built here and not in a template. ``tag`` escapes every text and every value,
and marks its result as markup, which the templates then include as it is. ``make lint`` admits ``Markup`` in
no other file.
"""

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup

Point = tuple[float, float]
_PALETTE = 8  # colours of clusters; clusters beyond these repeat the colours and differ by their letter


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """Return an element; children that are not elements are text.

    ``class_`` stands for class, an underscore for a hyphen.

    >>> print(tag("text", "a < b", x=1.50001, text_anchor="end"))
    <text x="1.5" text-anchor="end">a &lt; b</text>
    """
    written = Markup().join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    content = Markup().join(children)
    if not content:
        return Markup("<{}{}/>").format(name, written)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, content)


def _value(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else str(value)


def colour(cluster: int) -> str:
    """Return the CSS class with the colour of a cluster."""
    return f"c{cluster % _PALETTE}"


def text(x: float, y: float, caption: str, class_: str = "", anchor: str = "start", **more: object) -> Markup:
    """Return a text at a position."""
    return tag("text", caption, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor, **more)


def line(a: Point, b: Point, class_: str) -> Markup:
    """Return a straight line between two points."""
    return tag("line", x1=float(a[0]), y1=float(a[1]), x2=float(b[0]), y2=float(b[1]), class_=class_)


def path(points: Sequence[Point], class_: str) -> Markup:
    """Return a line through all points."""
    commands = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return tag("path", d=commands, class_=class_)


def drawing(width: float, height: float, content: Iterable[str], label: str) -> Markup:
    """Return a chart that fills the available width; ``label`` is the text for screen readers."""
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about as many round numbers within a range.

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
    """Return a number as an axis shows it.

    >>> short(0.25), short(12000.0), short(3.0), short(2500000.0), short(0.0004)
    ('0.25', '12k', '3', '2.5M', '0.0004')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1000 if unit == 'k' else size):g}{unit}"
    return f"{value:.4g}"


class Plane:
    """Two axes, and the positions of points between them."""

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
        """Return the position of a point in the drawing."""
        return (
            self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left),
            self.bottom - (y - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top),
        )

    def axes(
        self, xs: Sequence[float], ys: Sequence[float], x_name: str, y_name: str = "", log: bool = False
    ) -> list[str]:
        """Return grid, ticks and names; with ``log`` y holds powers of ten."""
        parts: list[str] = []
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
        return parts


def _wide(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def ellipse(
    mean: Point, covariance: tuple[float, float, float], radius: float, points: int = 60
) -> list[Point]:
    """Return the outline of a group: the ellipse at ``radius`` standard deviations about its mean."""
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
