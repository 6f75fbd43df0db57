"""Sites that alone decide where a cluster lies, by numbers of rows that no other site has."""

from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.messages import SiteId

_HEAVY = 5.0


def moved_alone(centers: FloatArray, sums: dict[SiteId, Any]) -> tuple[SiteId, ...]:
    """Sites of many more rows than usual, without which a mean lies elsewhere by half the way to the next.

    A site that has most of a cluster decides where it lies, which is no reason for suspicion; so only sites
    that claim more than ``_HEAVY`` times the rows of the median site are looked at.
    """
    if len(sums) < 3 or len(centers) < 2:
        return ()
    apart = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2))
    reach = np.where(np.eye(len(centers), dtype=np.bool_), np.inf, apart).min(axis=1) / 2
    mass = sum(reply.mass[0] for reply in sums.values())
    known = sum(reply.known[0] for reply in sums.values())  # (k, 1), or (k, d) where cells are missing
    total = sum(reply.sums[0] for reply in sums.values())

    def means(n: FloatArray, s: FloatArray) -> FloatArray:
        return s / np.where(n > 0.5, n, 1.0)

    usual = float(np.median([reply.mass.sum() for reply in sums.values()]))
    found = []
    for site, reply in sums.items():
        if reply.mass.sum() <= _HEAVY * usual:
            continue
        rest = mass - reply.mass[0]
        left = known - reply.known[0]
        others = np.where(left > 0.5, means(left, total - reply.sums[0]), means(known, total))
        moved = np.sqrt(((means(known, total) - others) ** 2).sum(axis=1))
        if ((rest > 0.5) & (moved > reach)).any():
            found.append(site)
    return tuple(found)
