"""A finished job as one HTML page that needs nothing else: no script, no request; light, dark, on paper."""

from unpooled.app.cluster_result import ClusterResult
from unpooled.app.report import clusters, method, sites
from unpooled.pages.html import whole

_SECTIONS = (
    clusters.answer,
    clusters.profiles,
    sites.places,
    sites.memberships,
    sites.fit,
    sites.spread_map,
    method.choice,
    method.convergence,
    method.preparation,
    method.left,
    method.method,
)


def page(result: ClusterResult) -> str:
    """The report. It only reads: nothing is computed from rows here, for there are none."""
    count = len(result.sites)
    title = f"{result.k} clusters over {count} {'site' if count == 1 else 'sites'}"
    return whole(title, "\n".join(make(result) for make in _SECTIONS))
