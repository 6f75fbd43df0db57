"""The report's charts, each a function from a result to SVG; "" if there is nothing to draw.

``sections`` calls them, and says in which section of the report each one stands.
"""

import math
from collections.abc import Sequence

import numpy as np

from unpooled.app.result import ClusterResult
from unpooled.app.traits import Trait
from unpooled.html.formatting import cluster_letter, figure, natural
from unpooled.html.svg import Plane, Point, colour, drawing, ellipse, line, path, tag, text, ticks
from unpooled.typing import FloatArray

_TICKS = 6  # on a logarithmic axis; more would touch
MAX_FITS = 40  # sites whose fit is drawn; if there are more, half as many, those that fit worst
MAX_OUTLINES = 12  # outlines of sites; more could not be distinguished


def curve(
    xs: Sequence[float],
    ys: Sequence[float],
    title: str,
    x_name: str,
    *,
    chosen: float | None = None,
    vote: int | None = None,
    low: float | None = None,
    log: bool = False,
    ranges: Sequence[tuple[float, float, float]] = (),
) -> str:
    """Return a line over k or over rounds; a ring marks the chosen k, a star the criterion's choice.

    ``ranges`` are bars (x, low, high) beside it.
    """
    known = [
        (x, math.log10(y) if log else y)
        for x, y in zip(xs, ys, strict=True)
        if math.isfinite(y) and (y > 0 or not log)
    ]
    if not known:
        return ""
    values = [*(y for _, y in known), *(y for _, *ends in ranges for y in ends)]
    floor = min(values) if low is None else min(low, min(values))
    margin = 0.08 * (max(values) - floor) or 0.1 * abs(max(values)) or 1.0
    edge = 0.05 * (max(xs) - min(xs))
    plane = Plane(
        (min(xs) - edge, max(xs) + edge),
        (floor - (0 if low is not None and floor == low else margin), max(values) + margin),
        (340, 220),
        (30, 16, 44, 52),
    )
    x_ticks = list(xs) if len(xs) <= 10 else [t for t in ticks(min(xs), max(xs), 6) if t == int(t)]
    y_ticks = ticks(*plane.y, 4)
    if len(y_ticks) < 3:
        y_ticks = ticks(*plane.y, 8)
    if log:
        y_ticks = _log_ticks(*plane.y)
    parts = plane.axes(x_ticks, y_ticks, x_name, log=log)
    for x, bottom, top in ranges:
        parts.append(path([plane.at(x, bottom), plane.at(x, top)], "range"))
    parts.append(path([plane.at(x, y) for x, y in known], "curve"))
    marks = len(known) <= 40
    for x, y in known:
        px, py = plane.at(x, y)
        is_chosen = chosen is not None and x == chosen
        if marks or is_chosen:
            value = 10**y if log else y
            dot = tag(
                "circle",
                tag("title", f"{x_name} {x:g}: {figure(value)}"),
                cx=px,
                cy=py,
                r=6.0 if is_chosen else 3.0,
                class_="dot chosen" if is_chosen else "dot",
            )
            parts.append(dot)
        if vote is not None and x == vote:
            parts.append(text(px, py - 10, "★", "star", "middle"))
    return drawing(340, 220, parts, title)


def _log_ticks(low: float, high: float) -> list[float]:
    """Return exponents of powers of ten; with 2 and 5 between them if these are few, fewer if many."""
    spacings = [(1, (1.0, 2.0, 5.0)), *((every, (1.0,)) for every in (1, 2, 3, 5, 10, 20, 50, 100))]
    for every, steps in spacings:
        powers = range(math.floor(low / every) * every, math.ceil(high) + 1, every)
        exponents = [t for e in powers for m in steps if low <= (t := e + math.log10(m)) <= high]
        if len(exponents) <= _TICKS:
            break
    return exponents


def convergence(result: ClusterResult) -> list[tuple[str, str]]:
    """Return (title, chart) of inertia and movement over the rounds."""
    history = result.run.history[1:-2] or result.run.history[1:]
    rounds = [float(r.round) for r in history]
    ks, several = result.ks, len(result.ks) > 1
    k = result.choice.k if result.choice.k in ks else ks[-1]
    which = f" (k = {k})" if several else ""
    inertias = result.run.state.inertias[: len(rounds), ks.index(k)].tolist()
    return [
        (
            f"Inertia after each round{which}",
            curve(rounds[: len(inertias)], inertias, "inertia by round", "round"),
        ),
        (
            "Movement of the centres (log scale)",
            curve(rounds, [r.movement for r in history], "movement by round", "round", log=True),
        ),
    ]


_APART = 6  # columns of the picture of what sets clusters apart
_PITCH, _DISC = 58, 20.0  # the height of such a column, and of a cluster in it


def apart(result: ClusterResult) -> str:
    """Return the means of the clusters in the columns that differ most; "" if there is one cluster."""
    if result.k < 2:
        return ""
    by_key: dict[tuple[str, str], list[Trait]] = {}
    for j in range(result.k):
        for t in result.traits(j):
            by_key.setdefault((t.column, t.category), []).append(t)
    # of a categorical column, the category that differs most
    widest = sorted(by_key.values(), key=lambda traits: -_range(traits))
    rows = list({traits[0].column: traits for traits in reversed(widest) if _range(traits) > 0}.values())
    rows = sorted(rows, key=lambda traits: -_range(traits))[:_APART]
    if not rows:
        return ""
    effects = [t.effect for traits in rows for t in traits]
    end = max(1.0, max(map(abs, effects))) * 1.12
    names = [_short(result, traits[0]) for traits in rows]
    height, left = 44 + _PITCH * len(rows) + 44, 30 + 8 * max(map(len, names))
    width = 520 + left
    plane = Plane((-end, end), (0.0, 1.0), (width, height), (34, 84, 44, left))
    parts: list[str] = []
    for tick in ticks(-end, end, 6):
        x = plane.at(tick, 0)[0]
        parts.append(line((x, plane.top), (x, plane.bottom), "mark" if tick == 0 else "grid"))
        parts.append(text(x, plane.bottom + 16, f"{tick:g}", "tick", "middle"))
    parts.append(text(plane.at(0, 0)[0], plane.top - 10, "all rows", "name", "middle"))
    for i, traits in enumerate(rows):
        y, first = plane.top + _PITCH / 2 + _PITCH * i, traits[0]
        parts.append(text(plane.left - 10, y + 5, names[i], "label", "end"))
        parts.append(line((plane.left, y), (plane.right, y), "grid"))
        parts.append(text(plane.right + 10, y + 5, f"all {first.shown_overall}", "value"))
        placed: list[Point] = []
        for j, t in sorted(enumerate(traits), key=lambda pair: pair[1].effect):
            x = plane.at(t.effect, 0)[0]
            offs = (0.0, -_DISC, _DISC)  # as high as a disc: of three that are nearly equal none is covered
            free = (y + off for off in offs if all(math.dist((x, y + off), p) > 0.9 * _DISC for p in placed))
            at = (x, next(free, y))
            placed.append(at)
            title = tag("title", f"cluster {cluster_letter(j)}: {t.text()}")
            parts.append(tag("circle", title, cx=at[0], cy=at[1], r=_DISC / 2, class_=f"place {colour(j)}"))
            parts.append(text(at[0], at[1] + 5, cluster_letter(j), f"inside {colour(j)}", "middle"))
    middle = (plane.left + plane.right) / 2
    caption = "mean of the cluster, in standard deviations of all rows"
    parts.append(text(middle, plane.bottom + 36, caption, "name", "middle"))
    return drawing(width, height, parts, "means of the clusters in the columns that differ most")


def _short(result: ClusterResult, trait: Trait) -> str:
    name = result.names.column(trait.column) + (f" = {trait.category}" if trait.category else "")
    return name if len(name) < 26 else name[:24] + "…"


def _range(traits: list[Trait]) -> float:
    effects = [t.effect for t in traits]
    return max(effects) - min(effects)


def choice(result: ClusterResult) -> list[tuple[str, str, str]]:
    """Return (title, how to read it, chart) of every criterion over k."""
    c = result.choice
    ks = [float(s.k) for s in c.scores]
    votes = c.votes
    criteria = [
        (
            "Inertia per row",
            "lower is more compact; it always falls",
            [s.per_row for s in c.scores],
            None,
            0.0,
        ),
        (
            "Gain in the other half",
            "line: the clusters of one half of the rows, in the other half; bars: simulated tables without "
            "clusters, 3 deviations up and down",
            [j.replication.gain for j in c.judgements],
            None,
            None,
        ),
        (
            "Agreement of the two halves",
            "1: both halves give the same clusters. They start from those of all rows, which helps them "
            "agree: a high agreement alone proves nothing",
            [j.replication.agreement for j in c.judgements],
            None,
            0.0,
        ),
        (
            "Rows at the borders",
            "0: clusters are separate; 1: they are parts of one",
            [s.border for s in c.scores],
            None,
            0.0,
        ),
        (
            "Silhouette (simplified)",
            "higher is better",
            [s.silhouette for s in c.scores],
            votes.get("simplified-silhouette"),
            None,
        ),
        (
            "Calinski-Harabasz",
            "higher is better",
            [s.calinski_harabasz for s in c.scores],
            votes.get("calinski-harabasz"),
            None,
        ),
        (
            "Davies-Bouldin",
            "lower is better",
            [s.davies_bouldin for s in c.scores],
            votes.get("davies-bouldin"),
            None,
        ),
        ("Stability over restarts", "1: all good restarts agree", [s.stability for s in c.scores], None, 0.0),
    ]
    bars = [
        (float(j.k), j.expected - 3 * j.deviation, j.expected + 3 * j.deviation)
        for j in c.judgements
        if math.isfinite(j.expected)
    ]
    drawn = []
    for title, hint, ys, vote, low in criteria:
        ranges = bars if title == "Gain in the other half" else ()
        chart = curve(ks, ys, f"{title} by k", "k", chosen=float(result.k), vote=vote, low=low, ranges=ranges)
        drawn += [(title, hint, chart)] if chart else []
    return drawn


def spread_map(result: ClusterResult) -> str:
    """Return clusters and sites on two axes: outlines only, no rows."""
    d = result.description
    groups = [e for e in (*d.clusters, *d.outlines) if np.isfinite(e).all()]
    if not groups:
        return ""
    outlines = [ellipse((e[1], e[2]), (e[3], e[4], e[5]), 2.0) for e in groups]
    everything = np.array([p for o in outlines for p in o])
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.04 * np.maximum(high - low, 1e-9)
    plane = Plane(
        (low[0] - margin[0], high[0] + margin[0]),
        (low[1] - margin[1], high[1] + margin[1]),
        (760, 480),
        (30, 14, 44, 46),
    )
    share = [f"{v:.0%}" for v in d.explained]
    parts = plane.axes(
        ticks(*plane.x, 8),
        ticks(*plane.y, 6),
        f"axis 1 ({share[0]} of the variance)",
        f"axis 2 ({share[1]})",
    )
    for j, e in enumerate(d.clusters):
        if np.isfinite(e).all():
            points = [plane.at(*p) for p in ellipse((e[1], e[2]), (e[3], e[4], e[5]), 2.0)]
            parts.append(path(points, f"cloud {colour(j)}"))
    parts += _sites(result, plane)
    largest = max(float(result.sizes.max()), 1.0)
    for j, place in enumerate(d.places):
        x, y = plane.at(float(place[0]), float(place[1]))
        title = f"cluster {cluster_letter(j)}: {result.sizes[j]:.0f} {result.unit}"
        radius = 10 + 12 * math.sqrt(float(result.sizes[j]) / largest)
        parts.append(tag("circle", tag("title", title), cx=x, cy=y, r=radius, class_=f"place {colour(j)}"))
        parts.append(text(x, y + 5, cluster_letter(j), f"inside {colour(j)}", "middle"))
    return drawing(760, 480, parts, "map of clusters and sites on two principal axes")


def direction(result: ClusterResult, axis: int) -> str:
    """Return the columns that grow and those that fall along an axis."""
    axes = result.description.axes[:, axis]
    outputs = [
        f"{column} = {category}" if category else column
        for column, category in result.agreement.preparation.outputs
    ]
    top = np.argsort(-np.abs(axes), kind="stable")[:4]
    more = [outputs[j] for j in top if axes[j] > 0.1]
    less = [outputs[j] for j in top if axes[j] < -0.1]
    ways = [f"{word} {', '.join(names)}" for word, names in (("more", more), ("less", less)) if names]
    return f"axis {axis + 1}: {', '.join(ways)}" if ways else ""


def _sites(result: ClusterResult, plane: Plane) -> list[str]:
    """Return dashed outlines of the sites, with their names where they do not cover each other."""
    d = result.description
    parts: list[str] = []
    if len(d.sites) > MAX_OUTLINES:
        return []
    taken = [plane.at(float(x), float(y)) for x, y in d.places]
    for i, (name, e) in enumerate(zip(d.sites, d.outlines, strict=True)):
        if not np.isfinite(e).all():
            continue
        points = [plane.at(*p) for p in ellipse((e[1], e[2]), (e[3], e[4], e[5]), 2.0)]
        parts.append(path(points, f"outline o{i % 5}"))
        start = (7 + 13 * i) % 60
        for step in range(60):
            x, y = points[(start + step) % 60]
            if (
                all(abs(x - a) > 110 or abs(y - b) > 18 for a, b in taken)
                and plane.left + 60 < x < plane.right - 60
            ):
                break
        taken.append((x, y))
        parts.append(text(x, y - 4, name, "site", "middle"))
    return parts


def fit(result: ClusterResult) -> str:
    """Return the distance of rows to their centres at every site, compared with all sites."""
    d, values = result.description, result.fit()
    overall = result.mean_fit
    known = [(s, float(v)) for s, v in zip(d.sites, values, strict=True) if math.isfinite(v)]
    if not known or overall <= 0:
        return ""
    worst = sorted(known, key=lambda pair: -pair[1])[: MAX_FITS // 2]
    known = sorted(known, key=lambda pair: natural(pair[0])) if len(known) <= MAX_FITS else worst
    height = 46 + 30 * len(known) + 36
    end = max(max(v for _, v in known), overall) * 1.08
    plane = Plane((0.0, end), (0.0, 1.0), (760, height), (28, 110, 40, 150))
    parts, labels = [], []
    for t in ticks(0.0, end, 6):
        x = plane.at(t, 0)[0]
        parts += [
            line((x, plane.top), (x, plane.bottom), "grid"),
            text(x, plane.bottom + 16, f"{t:g}", "tick", "middle"),
        ]
    for i, (name, v) in enumerate(known):
        y = plane.top + 8 + 30 * i
        x = plane.at(v, 0)[0]
        parts.append(
            tag("rect", x=plane.left, y=float(y), width=x - plane.left, height=18.0, rx=3, class_="bar")
        )
        parts.append(
            text(plane.left - 8, y + 14, name if len(name) < 22 else name[:20] + "…", "label", "end")
        )
        labels.append(text(plane.right + 10, y + 14, f"{v:.3g} ({v / overall:.2f}\u00d7)", "value"))
    x = plane.at(overall, 0)[0]
    parts += [
        line((x, plane.top - 6), (x, plane.bottom), "mark"),
        text(x, plane.top - 10, "all sites", "name", "middle"),
        *labels,
    ]
    parts.append(
        text(
            (plane.left + plane.right) / 2,
            plane.bottom + 34,
            f"mean squared distance of a {'value' if result.keeps_missing else 'row'} to its centre",
            "name",
            "middle",
        )
    )
    return drawing(760, height, parts, "fit of the clusters at each site")


def ward(means: FloatArray, sizes: FloatArray) -> list[tuple[int, int, float]]:
    """Return Ward's tree: which two groups merge, and how much inertia that adds. Merge i makes group k + i.

    >>> ward(np.array([[0.0], [1.0], [9.0]]), np.array([1.0, 1.0, 2.0]))
    [(0, 1, 0.5), (2, 3, 72.25)]
    """
    groups = {j: (means[j], float(sizes[j])) for j in range(len(means))}
    merges = []
    for new in range(len(means), 2 * len(means) - 1):
        grown = {
            (a, b): n * m / max(n + m, 1e-300) * float(((x - y) ** 2).sum())
            for a, (x, n) in groups.items()
            for b, (y, m) in groups.items()
            if a < b
        }
        a, b = min(grown, key=lambda pair: (grown[pair], pair))
        (x, n), (y, m) = groups.pop(a), groups.pop(b)
        groups[new] = ((n * x + m * y) / max(n + m, 1e-300), n + m)
        merges.append((a, b, grown[a, b]))
    return merges


def tree(result: ClusterResult) -> str:
    """Return Ward's tree of the clusters: which are nearest, and how much inertia merging them would add."""
    k, d = result.k, result.description
    if k < 2:
        return ""
    merges = ward(d.means, result.sizes)
    share = max(sum(cost for _, _, cost in merges) + float(d.inertias.sum()), 1e-300)
    costs = np.cumsum([100 * cost / share for _, _, cost in merges])
    children = {k + i: (a, b) for i, (a, b, _) in enumerate(merges)}

    def leaves(group: int) -> list[int]:
        return [group] if group < k else [j for child in children[group] for j in leaves(child)]

    order = leaves(2 * k - 2)
    plane = Plane((0.0, float(costs[-1]) * 1.05), (0.0, 1.0), (340, 60.0 + 26 * k), (14, 12, 44, 40))
    xs = ticks(*plane.x, 5)
    across = [plane.at(v, 0)[0] for v in xs]
    parts = [
        text(x, plane.bottom + 17, f"{v:g}%", "tick", "middle" if x < 315 else "end")
        for x, v in zip(across, xs, strict=True)
    ]
    parts += [line((plane.at(v, 0)[0], plane.top), (plane.at(v, 0)[0], plane.bottom), "grid") for v in xs]
    at = {j: (plane.left, plane.top + 13 + 26.0 * i) for i, j in enumerate(order)}
    for i, (a, b, _) in enumerate(merges):
        x, ends = plane.at(float(costs[i]), 0)[0], sorted((at[a], at[b]), key=lambda point: point[1])
        (x1, y1), (x2, y2) = ends
        parts.append(path([(x1, y1), (x, y1), (x, y2), (x2, y2)], "curve"))
        at[k + i] = (x, (y1 + y2) / 2)
    for j in order:
        x, y = at[j]
        parts.append(tag("circle", cx=x - 14, cy=y, r=11.0, class_=f"place {colour(j)}"))
        parts.append(text(x - 14, y + 4.5, cluster_letter(j), f"inside {colour(j)}", "middle"))
    parts.append(
        text(
            (plane.left + plane.right) / 2,
            plane.bottom + 36,
            "share of the variance that is lost",
            "name",
            "middle",
        )
    )
    return drawing(340, 60 + 26 * k, parts, "which clusters are nearest: Ward's tree")
