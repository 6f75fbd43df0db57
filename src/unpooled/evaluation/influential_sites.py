"""Sites that decide the position of a cluster alone, by a number of rows that no other site has."""

from typing import Any

import numpy as np

from unpooled.protocol.messages import SiteId
from unpooled.typing import FloatArray

_MANY = 5.0  # a site with this many times the rows of the median site is checked


def influential_sites(centers: FloatArray, sums: dict[SiteId, Any]) -> tuple[SiteId, ...]:
    """Return the sites of very many rows that alone move a mean by half the way to the next mean.

    A site that has most of a cluster decides where it lies, which is not suspicious. So only sites that
    report more than ``_MANY`` times the rows of the median site are checked.
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

    median = float(np.median([reply.mass.sum() for reply in sums.values()]))
    influential = []
    for site, reply in sums.items():
        if reply.mass.sum() <= _MANY * median:
            continue
        rest = mass - reply.mass[0]
        known_elsewhere = known - reply.known[0]
        elsewhere = means(known_elsewhere, total - reply.sums[0])
        others = np.where(known_elsewhere > 0.5, elsewhere, means(known, total))
        moved = np.sqrt(((means(known, total) - others) ** 2).sum(axis=1))
        if ((rest > 0.5) & (moved > reach)).any():
            influential.append(site)
    return tuple(influential)
