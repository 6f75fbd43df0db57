"""The outcome of a comparison: a table to read, JSON for programs, and a figure."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unpooled.app.compare.measure import Comparison, MethodRun
from unpooled.html.svg import Plane, drawing, line, tag, text, ticks

HEADS = (
    "method",
    "protection",
    "inertia / pooled",
    "/ best known",
    "/ bound",
    "ceiling",
    "ARI",
    "round trips",
    "kB per site",
    "CPU s",
    "rows reconstructed",
)


def table(measured: Comparison) -> list[list[str]]:
    """Return a heading and a line for every method under every protection: means over seeds, the best first.

    "ceiling" is the lowest inertia that is known to be reached under a protection, divided by that of pooled
    k-means of the rows. A method under a protection can be as good as that, and is hardly better.
    """
    lines = []
    for protection in measured.ceiling:
        by_method = [_runs(measured, method, protection) for method in _methods(measured)]
        ran = (runs for runs in by_method if runs)
        lines += sorted(ran, key=lambda runs: _mean(runs, "inertia", last=True))
    return [list(HEADS), *(_line(measured, runs) for runs in lines)]


def notes(measured: Comparison) -> list[str]:
    """Return the sentences that belong below the table."""
    top = "" if measured.ceiling_ari is None else f", with an ARI of {measured.ceiling_ari:.3f}"
    active = ", ".join(f"{p} {hits}" for p, hits in measured.actively_reconstructed.items())
    unit = "rows" if measured.actively_reconstructed else "groups of summary files"
    out = [
        f"{measured.rows} {unit}, {measured.columns} columns, {measured.sites} sites, k = {measured.k}. The "
        f"lowest inertia known is {measured.best:.6g}{top}; no {measured.k} centres have an inertia below "
        f"{measured.bound:.6g}.",
        f"Rows reconstructed by an active attacker, whose queries isolate rows of every site: {active}."
        if measured.actively_reconstructed
        else "The files disclose these groups and no row, so there is nothing to reconstruct.",
    ]
    if any(r.examined < r.messages and not r.not_run for r in measured.runs):
        out.append(
            "Rows reconstructed: the attack reads counts, sums and means. If it does not read all messages "
            'of a method, the table shows the share that it reads. "Not examined" means that it reads none; '
            "another attack may reconstruct rows."
        )
    left_out = {r.protection: r.left_out for r in measured.runs if r.left_out}
    out += [f"Sites with too few people, which are left out ({p}): {n}." for p, n in left_out.items()]
    reasons: dict[str, dict[str, None]] = {}
    for r in measured.runs:
        if r.not_run:
            reasons.setdefault(f"{r.not_run} ({r.protection})", {})[r.method] = None
    return out + [f"Not run: {', '.join(methods)}: {reason}." for reason, methods in reasons.items()]


def to_json(all_measured: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return all measurements of every run as plain JSON; a number that is not known is null."""
    return [_plain(dataclasses.asdict(measured)) for measured in all_measured]


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _methods(measured: Comparison) -> list[str]:
    return list(dict.fromkeys(r.method for r in measured.runs))


def _runs(measured: Comparison, method: str, protection: str) -> list[MethodRun]:
    return [r for r in measured.runs if (r.method, r.protection) == (method, protection) and not r.not_run]


def _mean(runs: Sequence[MethodRun], name: str, last: bool = False) -> float:
    values = [getattr(r, name) for r in runs if getattr(r, name) is not None]
    return float(np.mean(values)) if values else (math.inf if last else math.nan)


def _line(measured: Comparison, runs: Sequence[MethodRun]) -> list[str]:
    first, inertia = runs[0], _mean(runs, "inertia")
    ceiling = measured.ceiling[first.protection] / measured.pooled
    agreement = _mean(runs, "ari")
    return [
        first.method,
        first.protection,
        f"{inertia / measured.pooled:.4f}",
        f"{inertia / measured.best:.4f}",
        f"{inertia / measured.bound:.4f}" if measured.bound > 0 else "-",
        f"{ceiling:.4f}" if math.isfinite(ceiling) else "-",
        f"{agreement:.3f}" if math.isfinite(agreement) else "-",
        f"{_mean(runs, 'exchanges'):.0f}",
        f"{_mean(runs, 'bytes_per_site') / 1000:.1f}",
        f"{_mean(runs, 'seconds'):.2f}",
        reconstructed(measured, runs),
    ]


def reconstructed(measured: Comparison, runs: Sequence[MethodRun]) -> str:
    """Return how many of all rows the attack reconstructs, and the share of the messages that it reads."""
    examined, messages = (sum(getattr(r, name) for r in runs) for name in ("examined", "messages"))
    if not examined:
        return "not examined"
    part = "" if examined == messages else f", reads {100 * examined / messages:.0f}%"
    return f"{_mean(runs, 'reconstructed'):.0f} of {measured.rows}{part}"


# ---------------------------------------------------------------- figure

_WIDTH, _HEIGHT = 560.0, 380.0
_COLOURS = {"none": 1, "raw": 3, "summary": 2, "dp": 4}


def figure(measured: Comparison) -> str:
    """Return an SVG of inertia against the share of rows that an attack reconstructs: lower left is best."""
    points = [
        (runs[0].method, runs[0].protection, _mean(runs, "inertia") / measured.pooled, _share(measured, runs))
        for protection in measured.ceiling
        for method in _methods(measured)
        for runs in [_runs(measured, method, protection)]
        if runs and sum(r.examined for r in runs)
    ]
    if not points:
        return ""
    xs, ys = [x for _, _, x, _ in points], [y for _, _, _, y in points]
    low, high = min(1.0, *xs), max(1.05, *xs)
    edge = 0.05 * (high - low)
    plane = Plane(
        (low - edge, high + edge), (-3.0, max(10.0, 1.08 * max(ys))), (_WIDTH, _HEIGHT), (24, 90, 76, 58)
    )
    names = ("inertia / pooled k-means", "rows reconstructed, %")
    parts = plane.axes(ticks(*plane.x, 6), ticks(0.0, plane.y[1], 5), *names)
    for method, protection, x, y in points:
        at = plane.at(x, y)
        title = tag("title", f"{method}, {protection}: {x:.3f} of pooled, {y:.1f}% reconstructed")
        colour = f"c{_COLOURS[protection]}"
        parts.append(tag("circle", title, cx=float(at[0]), cy=float(at[1]), r=4.5, class_=colour))
    for x, y, label in _labels(plane, points):
        parts.append(text(x, y, label, "tick"))
    for i, protection in enumerate(measured.ceiling):
        x, y = 64.0 + 120 * i, _HEIGHT - 12
        parts.append(tag("circle", cx=x, cy=y - 4, r=4.5, class_=f"c{_COLOURS[protection]}"))
        parts.append(text(x + 10, y, protection, "tick"))
    base = plane.at(1.0, 0.0)[0]
    parts.append(line((base, plane.top), (base, plane.bottom), "grid"))
    label = f"inertia and rows reconstructed, {measured.problem}"
    return drawing(_WIDTH, _HEIGHT, parts, label)


def _share(measured: Comparison, runs: Sequence[MethodRun]) -> float:
    return 100 * _mean(runs, "reconstructed") / measured.rows


def _labels(plane: Plane, points: Sequence[tuple[str, str, float, float]]) -> list[tuple[float, float, str]]:
    """Names beside the dots, those of one place together, so that none covers another."""
    places: dict[tuple[int, int], list[str]] = {}
    for method, _, x, y in points:
        at = plane.at(x, y)
        key = (round(at[0] / 60), round(at[1] / 12))
        names = places.setdefault(key, [])
        if method not in names:
            names.append(method)
    out = []
    for (column, row), names in sorted(places.items()):
        label = ", ".join(names[:3]) + (f" +{len(names) - 3}" if len(names) > 3 else "")
        out.append((60.0 * column + 8, 12.0 * row - 6, label))
    return out
