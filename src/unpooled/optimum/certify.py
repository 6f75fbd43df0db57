"""``certify`` over a federation: a bound on the distance of centres from the optimum, from totals only."""

import time
from collections.abc import Callable
from math import comb, inf
from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.exchange import Federation, Trace, conduct
from unpooled.core.protocol import Steps, View, viewed
from unpooled.errors import BadInput
from unpooled.optimum.bounds import PartsBound
from unpooled.optimum.box import check_box, check_squares, enclosing, hull
from unpooled.optimum.certificate import (
    MOST_CLASSES,
    TOLERANCE,
    UNCONDITIONAL,
    Certificate,
    Found,
    bound_parts,
    inertia_above,
    search_prices,
    true_bound,
)
from unpooled.optimum.exact import check_reach, relative_gap
from unpooled.optimum.parts import EFFORTS, progress

_BOXES = {"quick": 0, "normal": 3000, "thorough": 30_000}  # of centroids, in the search with prices
_SEARCHED = {"quick": 0, "normal": 200, "thorough": 1000}  # rows in all, up to which prices are tried


def certify(
    federation: Federation,
    centers: Any,
    *,
    effort: str = "normal",
    box: Any = None,
    view: View | None = None,
    tolerance: float = TOLERANCE,
    time_limit: float | None = None,
    quorum: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> Certificate:
    """Bound the inertia of any k centres from below: how much better than ``centers`` could others be?

    ``effort`` (quick, normal or thorough) is time against tightness. Every site bounds parts of its rows; for
    few rows in all a search with prices follows, until the gap is at most ``tolerance``. That search needs
    ``box`` (2, d), a public range that encloses every row, or asks the sites for theirs, and is left out
    where they do not show it. ``time_limit`` (seconds) stops that search early; the bound may then differ
    from run to run.
    ``quorum`` is the share of the sites that must answer, and the certificate is about the rows of those that
    did. ``view`` is the preparation of the rows for these centres. ``say`` gets lines of progress.

    >>> from unpooled import InProcess
    >>> rows = {"a": np.array([[0.0], [0.2], [5.0]]), "b": np.array([[0.1], [5.2], [5.4]])}
    >>> proof = certify(InProcess.of(rows), [[0.1], [5.2]])
    >>> proof.proved, proof.condition, round(proof.inertia, 3), round(proof.lower_bound, 3)
    (True, 'unconditional', 0.1, 0.1)
    """
    given = _centers(centers)
    check_reach(1, given.shape[1], len(given))
    if effort not in EFFORTS:
        raise BadInput(f"effort must be one of {', '.join(EFFORTS)}, got {effort!r}")
    if not 0 < tolerance < 1 or not (time_limit is None or time_limit > 0):
        raise BadInput(
            f"tolerance must be within 0..1 and time_limit above 0, got {tolerance} and {time_limit}"
        )
    public = None if box is None else check_box(box)
    if public is not None:
        check_squares(public)
    started, k = time.monotonic(), len(given)
    sites, trace = tuple(sorted(federation.sites)), Trace()

    def alone() -> Steps[PartsBound]:
        if public is not None:
            yield from enclosing(sites, public)
        return (yield from bound_parts(sites, given, effort))

    say(f"every site bounds parts of its rows ({effort})")
    heard = progress.set(
        lambda done, of: say(f"{done} of {of} parts of a site's rows are bounded ({effort})")
    )
    try:
        parts = conduct(viewed(view, alone()), federation, run="certify", quorum=quorum, trace=trace)
    finally:
        progress.reset(heard)
    inertia = inertia_above(float(parts.inertia[0]))
    found = Found(given, inertia, true_bound(parts), 0)
    boxes = _BOXES[effort] if priced(effort, len(sites), float(parts.mass[0]), k) else 0
    if trace.silent:
        boxes = 0  # a bound by prices needs every site
    seconds = inf if time_limit is None else time_limit - (time.monotonic() - started)
    if boxes and seconds > 0 and relative_gap(found.lower, inertia) > tolerance:

        def steps() -> Steps[Found]:
            around, hidden = (yield from hull(sites)) if public is None else (public, [])
            if hidden:
                return found
            check_squares(around)
            return (
                yield from search_prices(
                    sites, given, around, parts, tolerance=tolerance, boxes=boxes, seconds=seconds, say=say
                )
            )

        # prices are about all rows: without a site the bound would be false
        found = conduct(viewed(view, steps()), federation, run="certify with prices", quorum=1.0)
    return Certificate(
        centers=found.centers,
        inertia=found.inertia,
        given_inertia=inertia,
        lower_bound=found.lower,
        condition=UNCONDITIONAL,
        proved=bool(relative_gap(found.lower, found.inertia) <= tolerance),
        boxes=found.boxes,
        seconds=float(time.monotonic() - started),
        sites=tuple(site for site in sites if site not in trace.silent),
        missing=tuple(site for site in sites if site in trace.silent),
    )


def priced(effort: str, sites: int, rows: float, k: int) -> bool:
    """Does a search with prices follow, of so many rows and clusters?"""
    return sites > 1 and rows <= _SEARCHED[effort] and comb(2 * k - 1, k) <= MOST_CLASSES


def _centers(centers: Any) -> FloatArray:
    """The centres as an array (k, d); BadInput unless they are finite numbers."""
    try:
        given: FloatArray = np.array(centers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"centers must be numbers, (k, d): {error}") from error
    if given.ndim != 2 or not given.size or not np.isfinite(given).all():
        raise BadInput(f"centers must be finite, (k, d), at least one, got shape {given.shape}")
    return given
