"""A finished job as one HTML page that needs nothing else: no script, no request; light, dark, on paper."""

from unpooled.app.report import clusters as what
from unpooled.app.report import method as how
from unpooled.app.report import sites as where
from unpooled.app.report.html import whole
from unpooled.app.result import Outcome

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
