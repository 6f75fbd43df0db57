"""Figures: lines with a band, bars beside published marks, and rows of two columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unpooled.html.svg import Plane, drawing, line, tag, text, ticks
from unpooled.typing import FloatArray, IntArray

_WIDTH, _HEIGHT = 460.0, 300.0


@dataclass(frozen=True)
class Line:
    """Means over x, with a band of ``spread`` about them; ``dashed`` for published numbers."""

    name: str
    x: Sequence[float]
    y: FloatArray
    spread: FloatArray | None = None
    dashed: bool = False


def lines(
    title: str,
    given: Sequence[Line],
    x_name: str,
    y_name: str,
    *,
    places: Sequence[str] | None = None,
    low: float | None = None,
) -> str:
    """Return lines over x as SVG. With ``places`` x is 0, 1, ... and these are its names."""
    known = [(ln, np.isfinite(ln.y)) for ln in given]
    xs = np.concatenate([np.asarray(ln.x, float)[ok] for ln, ok in known])
    ys = np.concatenate(
        [
            np.concatenate([ln.y[ok] - s[ok], ln.y[ok] + s[ok]])
            for ln, ok in known
            for s in [np.zeros(len(ln.y)) if ln.spread is None else ln.spread]
        ]
    )
    if not len(xs):
        return ""
    bottom = float(ys.min()) if low is None else min(low, float(ys.min()))
    margin = 0.06 * (float(ys.max()) - bottom) or 0.1 * abs(bottom) or 1.0
    edge = 0.03 * (float(xs.max()) - float(xs.min())) or 0.5
    below = 62 + 16 * ((len(given) + 2) // 3)
    plane = Plane(
        (float(xs.min()) - edge, float(xs.max()) + edge),
        (bottom - (0 if bottom == low else margin), float(ys.max()) + margin),
        (_WIDTH, _HEIGHT + below),
        (34, 16, below, 58),
    )
    named = places is not None
    parts = plane.axes([] if named else ticks(*plane.x, 7), ticks(*plane.y, 5), x_name, y_name)
    for i, place in enumerate(places or ()):
        parts.append(text(plane.at(i, plane.y[0])[0], plane.bottom + 17, place, "tick", "middle"))
    for i, (ln, ok) in enumerate(known):
        where = [int(j) for j in np.flatnonzero(ok)]
        if ln.spread is not None and len(where) > 1:
            up = [plane.at(ln.x[j], float(ln.y[j] + ln.spread[j])) for j in where]
            down = [plane.at(ln.x[j], float(ln.y[j] - ln.spread[j])) for j in where[::-1]]
            parts.append(tag("path", d=_area(up + down), class_=f"cloud c{i % 8}", style="stroke:none"))
        points = [plane.at(ln.x[j], float(ln.y[j])) for j in where]
        if len(points) > 1 and bool(ok.all()):  # no line if a point is missing: values between are unknown
            parts.append(_stroke(points, i, ln.dashed))
        for (x, y), j in zip(points, where, strict=True):
            title_ = tag("title", f"{ln.name}, {ln.x[j]:g}: {ln.y[j]:.4g}")
            parts.append(tag("circle", title_, cx=x, cy=y, r=3.0, class_=f"c{i % 8}"))
    return drawing(_WIDTH, _HEIGHT + below, [*parts, *_legend(given, plane.bottom + 54)], title)


def scatter(title: str, X: FloatArray, group: IntArray, centers: FloatArray | None = None) -> str:
    """Return rows of two columns as SVG, in the colour of their group, with a cross at each centre."""
    shown = X if centers is None else np.concatenate([X, centers])
    low, high = shown.min(axis=0), shown.max(axis=0)
    edge = 0.03 * (high - low)
    spans = [(float(a), float(b)) for a, b in zip(low - edge, high + edge, strict=True)]
    plane = Plane(spans[0], spans[1], (_WIDTH, _WIDTH), (34, 16, 46, 48))
    parts = plane.axes(ticks(*plane.x, 6), ticks(*plane.y, 6), "")
    for i in np.unique(group).tolist():
        rows = "".join(f"M{x:.1f},{y:.1f}h0" for x, y in (plane.at(*at) for at in X[group == i].tolist()))
        style = "fill:none;stroke-width:3;stroke-linecap:round"
        parts.append(tag("path", d=rows, class_=f"c{i % 8}", style=style))
    for at in [] if centers is None else centers.tolist():
        x, y = plane.at(*at)
        cross = f"M{x - 7:.1f},{y - 7:.1f}l14,14m0,-14l-14,14"
        parts.append(tag("path", d=cross, class_="axis", style="fill:none;stroke-width:3"))
    return drawing(_WIDTH, _WIDTH, parts, title)


PUBLISHED = "bar: ours, with one standard error; dashed: published"


def counts(title: str, names: Sequence[str], values: IntArray) -> str:
    """Return a bar for each name as long as its number of rows, as SVG."""
    nothing = np.zeros(len(values))
    return bars(title, names, values.astype(np.float64), nothing, nothing + np.nan, note="number of rows")


def bars(
    title: str,
    names: Sequence[str],
    values: FloatArray,
    errors: FloatArray,
    published: FloatArray,
    note: str = PUBLISHED,
) -> str:
    """Return a bar for each name with its error, and a mark at the published number (nan: none), as SVG."""
    height = 40 + 26 * len(names) + 40
    ends = np.concatenate([values + errors, published[np.isfinite(published)], [0.0]])
    plane = Plane((0.0, float(ends.max()) * 1.08), (0.0, 1.0), (_WIDTH, height), (20, 60, 40, 185))
    parts = []
    for t in ticks(*plane.x, 5):
        x = plane.at(t, 0)[0]
        parts += [
            line((x, plane.top), (x, plane.bottom), "grid"),
            text(x, plane.bottom + 16, f"{t:g}", "tick", "middle"),
        ]
    for i, name in enumerate(names):
        y = plane.top + 6 + 26 * i
        x = plane.at(float(values[i]), 0)[0]
        parts.append(
            tag("rect", x=plane.left, y=y, width=max(x - plane.left, 0.0), height=16.0, class_="bar")
        )
        parts.append(text(plane.left - 8, y + 13, name, "label", "end"))
        low, high = (plane.at(float(values[i] + s * errors[i]), 0)[0] for s in (-1, 1))
        parts.append(line((low, y + 8), (high, y + 8), "axis"))
        parts.append(text(plane.right + 6, y + 13, f"{values[i]:.4g}", "value"))
        if np.isfinite(published[i]):
            at = plane.at(float(published[i]), 0)[0]
            parts.append(line((at, y - 3), (at, y + 19), "mark"))
    parts.append(text((plane.left + plane.right) / 2, plane.bottom + 34, note, "name", "middle"))
    return drawing(_WIDTH, height, parts, title)


def _area(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points) + "Z"


def _stroke(points: Sequence[tuple[float, float]], i: int, dashed: bool) -> str:
    d = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f"fill:none;stroke-width:2{';stroke-dasharray:5 4' if dashed else ''}"
    return tag("path", d=d, class_=f"c{i % 8}", style=style)


def _legend(given: Sequence[Line], top: float) -> list[str]:
    parts: list[str] = []
    for i, ln in enumerate(given):
        x, y = 20 + 150 * (i % 3), top + 16 * (i // 3)
        parts.append(_stroke([(x, y - 4), (x + 22, y - 4)], i, ln.dashed))
        parts.append(text(x + 28, y, ln.name, "tick"))
    return parts


def ranks(title: str, found: Mapping[str, FloatArray]) -> str:
    """Return methods on one axis by their mean rank, with one standard error, the best on top, as SVG."""
    ordered = sorted(found, key=lambda name: float(found[name].mean()))
    height = 30.0 + 26 * len(ordered) + 44
    plane = Plane((1.0, float(len(found))), (0.0, 1.0), (_WIDTH, height), (20, 40, 44, 150))
    parts = []
    for t in range(1, len(found) + 1):
        x = plane.at(t, 0)[0]
        parts.append(line((x, plane.top), (x, plane.bottom), "grid"))
        parts.append(text(x, plane.bottom + 16, str(t), "tick", "middle"))
    for i, name in enumerate(ordered):
        values, y = found[name], plane.top + 14 + 26 * i
        mean, error = float(values.mean()), float(values.std()) / np.sqrt(len(values))
        low, x, high = (plane.at(mean + s * error, 0)[0] for s in (-1, 0, 1))
        parts.append(text(plane.left - 8, y + 4, name, "label", "end"))
        parts.append(line((low, y), (high, y), "axis"))
        parts.append(tag("circle", tag("title", f"{name}: {mean:.2f}"), cx=x, cy=y, r=4.0, class_="dot"))
        parts.append(text(plane.right + 8, y + 4, f"{mean:.1f}", "value"))
    middle = (plane.left + plane.right) / 2
    parts.append(text(middle, plane.bottom + 34, "mean rank, with one standard error", "name", "middle"))
    return drawing(_WIDTH, height, parts, title)
