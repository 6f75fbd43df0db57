"""``certify`` over a federation: a bound on the distance of centres from the optimum, from totals only."""

import time
from collections.abc import Callable
from math import comb, inf

import numpy as np
import numpy.typing as npt

from unpooled.errors import InputError
from unpooled.optimality.bounds import PartsBound
from unpooled.optimality.box import check_box, check_squares, enclosing, hull
from unpooled.optimality.certificate import (
    MAX_CLASSES,
    TOLERANCE,
    UNCONDITIONAL,
    Certificate,
    PriceSearchResult,
    bound_parts,
    inertia_above,
    search_prices,
    true_bound,
)
from unpooled.optimality.exact import check_reach, relative_gap
from unpooled.optimality.parts import EFFORTS, progress
from unpooled.protocol.algorithm import Steps, transformed
from unpooled.protocol.exchange import Federation, RoundLog, run_protocol
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray

_BOXES = {"quick": 0, "normal": 3000, "thorough": 30_000}  # of centroids, in the search with prices
_SEARCHED = {"quick": 0, "normal": 200, "thorough": 1000}  # rows in all, up to which prices are tried


def certify(
    federation: Federation,
    centers: npt.ArrayLike,
    *,
    effort: str = "normal",
    box: npt.ArrayLike | None = None,
    transform: Transform | None = None,
    tolerance: float = TOLERANCE,
    time_limit: float | None = None,
    quorum: float = 1.0,
    report: Callable[[str], None] = lambda text: None,
) -> Certificate:
    """Bound the inertia of any k centres from below: how much better than ``centers`` could others be?

    Every site bounds parts of its rows. For few rows in all a search with prices follows, until the gap is at
    most ``tolerance``.

    Parameters
    ----------
    federation : Federation
        The sites.
    centers : array (k, d)
        The centres to judge.
    effort : {"quick", "normal", "thorough"}
        More effort takes longer and gives a tighter bound.
    tolerance : float
        The relative gap that counts as proved.
    box : array (2, d) or None
        A public range that encloses every row, for the search with prices. None asks the sites for theirs;
        the search is left out if a site does not disclose it.
    time_limit : float or None
        Seconds after which the search with prices stops; the bound may then differ from run to run.
    quorum : float
        The share of the sites that must answer. The certificate is about the rows of those that did.
    transform : Transform or None
        The preparation of the rows for these centres.
    report : callable
        Called with lines of progress.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> from unpooled.federation import Simulation
    >>> rows = {"a": np.array([[0.0], [0.2], [5.0]]), "b": np.array([[0.1], [5.2], [5.4]])}
    >>> proof = certify(Simulation.from_rows(rows), [[0.1], [5.2]])
    >>> proof.proved, proof.condition, round(proof.inertia, 3), round(proof.lower_bound, 3)
    (True, 'unconditional', 0.1, 0.1)
    """
    given = _centers(centers)
    check_reach(1, given.shape[1], len(given))
    if effort not in EFFORTS:
        raise InputError(f"effort must be one of {', '.join(EFFORTS)}, got {effort!r}")
    if not 0 < tolerance < 1 or not (time_limit is None or time_limit > 0):
        raise InputError(
            f"tolerance must be within 0..1 and time_limit above 0, got {tolerance} and {time_limit}"
        )
    public = None if box is None else check_box(box)
    if public is not None:
        check_squares(public)
    started, k = time.monotonic(), len(given)
    sites, round_log = tuple(sorted(federation.sites)), RoundLog()

    def alone() -> Steps[PartsBound]:
        if public is not None:
            yield from enclosing(sites, public)
        return (yield from bound_parts(sites, given, effort))

    report(f"every site bounds parts of its rows ({effort})")
    reset = progress.set(
        lambda done, parts: report(f"{done} of {parts} parts of a site's rows are bounded ({effort})")
    )
    try:
        parts = run_protocol(
            transformed(transform, alone()), federation, run="certify", quorum=quorum, round_log=round_log
        )
    finally:
        progress.reset(reset)
    inertia = inertia_above(float(parts.inertia[0]))
    found = PriceSearchResult(given, inertia, true_bound(parts), 0)
    boxes = _BOXES[effort] if uses_price_search(effort, len(sites), float(parts.mass[0]), k) else 0
    if round_log.silent:
        boxes = 0  # a bound by prices needs every site
    seconds = inf if time_limit is None else time_limit - (time.monotonic() - started)
    if boxes and seconds > 0 and relative_gap(found.lower, inertia) > tolerance:

        def steps() -> Steps[PriceSearchResult]:
            around, undisclosed = (yield from hull(sites)) if public is None else (public, [])
            if undisclosed:
                return found
            check_squares(around)
            return (
                yield from search_prices(
                    sites,
                    given,
                    around,
                    parts,
                    tolerance=tolerance,
                    boxes=boxes,
                    seconds=seconds,
                    report=report,
                )
            )

        # prices are about all rows: without a site the bound would be false
        found = run_protocol(
            transformed(transform, steps()), federation, run="certify with prices", quorum=1.0
        )
    return Certificate(
        centers=found.centers,
        inertia=found.inertia,
        input_inertia=inertia,
        lower_bound=found.lower,
        condition=UNCONDITIONAL,
        proved=bool(relative_gap(found.lower, found.inertia) <= tolerance),
        boxes=found.boxes,
        seconds=float(time.monotonic() - started),
        sites=tuple(site for site in sites if site not in round_log.silent),
        missing=tuple(site for site in sites if site in round_log.silent),
    )


def uses_price_search(effort: str, sites: int, rows: float, k: int) -> bool:
    """Return whether a search with prices follows, given the numbers of sites, rows and clusters."""
    return sites > 1 and rows <= _SEARCHED[effort] and comb(2 * k - 1, k) <= MAX_CLASSES


def _centers(centers: npt.ArrayLike) -> FloatArray:
    """The centres as an array (k, d); InputError unless they are finite numbers."""
    try:
        given: FloatArray = np.array(centers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"centers must be numbers, (k, d): {error}") from error
    if given.ndim != 2 or not given.size or not np.isfinite(given).all():
        raise InputError(f"centers must be finite, (k, d), at least one, got shape {given.shape}")
    return given
