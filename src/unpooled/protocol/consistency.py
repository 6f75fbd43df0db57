"""Totals that sites report about their rows, and the check that later replies do not contradict them.

A site reports its number of rows (in its schema, or its moments) and where its rows lie (by its moments). No
count can be above its rows. No mean of m of its n rows can lie further from the mean of all than
sd sqrt(n / m - 1). The check does not detect a site whose false replies are consistent with each other.
"""

from dataclasses import dataclass, field

import numpy as np

from unpooled.errors import ReplyError
from unpooled.protocol.declarations import Count
from unpooled.protocol.exchange import Request
from unpooled.protocol.messages import MaskedElsewhere, Question, Refusal, Reply, SiteId, Summable
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray

_SLACK = 1e-6  # relative: sums are added in another order


@dataclass(frozen=True, eq=False)
class ReportedTotals:
    """The totals over all rows of a site that one reply reports."""

    rows: float
    mean: FloatArray | None = None  # (d,) of the transformed rows
    variance: FloatArray | None = None  # (d,)
    known: FloatArray | None = None  # (d,) rows that have a value, where cells are missing


@dataclass(eq=False)
class _Site:
    """The totals that one site reported: its rows, and moments after every transform, which may drop rows."""

    rows: float = np.inf
    # by transform, which is kept alive
    moments: dict[int, tuple[Transform | None, ReportedTotals]] = field(default_factory=dict)


class ConsistencyCheck:
    """The totals that all sites reported in one run, and the check of replies against them."""

    def __init__(self) -> None:
        self._run = ""
        self._sites: dict[SiteId, _Site] = {}

    def check(self, site: SiteId, request: Request, replies: tuple[Reply, ...]) -> None:
        """Raise ReplyError if a reply contradicts an earlier one of the site; remember what it reports."""
        if request.request_id.run != self._run:
            self._run, self._sites = request.request_id.run, {}
        known = self._sites.setdefault(site, _Site())
        for part, reply in zip(request.parts, replies, strict=True):
            if isinstance(reply, Refusal | MaskedElsewhere | PartialSum):
                continue  # a partial sum may be over other sites than before; its federation checked each one
            reported = reply.reported_totals(part.question)
            _, moments = known.moments.get(id(part.transform), (None, None))
            rows = known.rows if moments is None else min(known.rows, moments.rows)
            if reported is not None and reported.rows > rows * (1 + _SLACK):
                raise ReplyError(f"{reported.rows:g} rows, where the site stated {rows:g}")
            _check_counts(part.question, reply, rows)
            if reported is None:
                if moments is not None:
                    _check_means(part.question, reply, moments)
                continue
            if part.transform is None:
                known.rows = min(known.rows, reported.rows)
            if reported.mean is not None:
                known.moments.setdefault(id(part.transform), (part.transform, reported))


def _check_counts(question: Question[Reply], reply: Reply, rows: float) -> None:
    if not np.isfinite(rows):
        return
    for name, figure in question.figures().items():
        if not isinstance(figure, Count):
            continue
        counts = np.where(np.isfinite(value := getattr(reply, name)), value, 0.0)
        if isinstance(reply, Summable) and name == reply.cells:
            if not reply.divided:
                continue
            counts = counts.sum(axis=-1)
        largest = float(counts.max(initial=0.0))
        if largest > rows * (1 + _SLACK) + figure.extra:
            raise ReplyError(f"{name} of {largest:g}, where the site stated {rows:g} rows")


def _check_means(question: Question[Reply], reply: Reply, stated: ReportedTotals) -> None:
    cells = reply.cell_means(question)
    if cells is None or stated.mean is None or stated.variance is None:
        return
    means, mass = cells
    there = mass > 0
    if means.shape[-1] != len(stated.mean) or not there.any():
        return
    if mass.shape == means.shape:  # cells of cluster and column, each of the rows that have the column
        share = np.maximum(
            (stated.rows if stated.known is None else stated.known) / np.where(there, mass, 1.0) - 1, 0.0
        )
    else:
        means, share = means[there], np.maximum(stated.rows / mass[there] - 1.0, 0.0)[:, None]
        there = np.ones_like(means, dtype=np.bool_)
    apart = np.abs(means - stated.mean)
    allowed = np.sqrt(stated.variance * share) * (1 + 1e-3)
    allowed = allowed + _SLACK * (np.abs(stated.mean) + np.sqrt(stated.variance)) + 1e-12
    if (there & (apart > allowed)).any():
        raise ReplyError("the mean of a cluster lies where no rows can be that have the moments it stated")
