"""A finished job as one HTML page that needs nothing else: no script, no request; light, dark, on paper."""

from unpooled.outcome import Outcome
from unpooled.report import how, what, where
from unpooled.report.html import whole

_SECTIONS = (
    what.answer,
    what.profiles,
    where.places,
    where.memberships,
    where.fit,
    where.spread_map,
    how.choice,
    how.convergence,
    how.preparation,
    how.left,
    how.method,
)


def page(outcome: Outcome) -> str:
    """The report. It only reads: nothing is computed from rows here, for there are none."""
    sites = len(outcome.sites)
    title = f"{outcome.k} clusters over {sites} {'site' if sites == 1 else 'sites'}"
    return whole(title, "\n".join(make(outcome) for make in _SECTIONS))
