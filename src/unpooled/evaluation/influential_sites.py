"""Leave-one-site-out, by one step: how far each centre would move without the rows of one site.

It needs the sums that a report asks for anyway. Further steps without a site would be further questions
about nearly equal clusters, whose differences are single rows.
"""

from typing import Any

import numpy as np

from unpooled.protocol.messages import SiteId
from unpooled.typing import FloatArray

_MANY = 5.0  # a site with this many times the rows of the median site is checked


def moves_without(centers: FloatArray, sums: dict[SiteId, Any]) -> FloatArray:
    """Return (S, k): how far the mean of each cluster moves without a site, of the way to its border.

    The border is half-way to the nearest other centre. inf: no other site has rows of the cluster. nan: no
    site has any.
    """
    if len(sums) < 2 or len(centers) < 2:
        return np.zeros((len(sums), len(centers)))
    apart = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2))
    reach = np.where(np.eye(len(centers), dtype=np.bool_), np.inf, apart).min(axis=1) / 2
    mass = sum(reply.mass[0] for reply in sums.values())
    known = sum(reply.known[0] for reply in sums.values())  # (k, 1), or (k, d) where cells are missing
    total = sum(reply.sums[0] for reply in sums.values())

    def means(n: FloatArray, s: FloatArray) -> FloatArray:
        return s / np.where(n > 0.5, n, 1.0)

    moves = []
    for reply in sums.values():
        known_elsewhere = known - reply.known[0]
        elsewhere = means(known_elsewhere, total - reply.sums[0])
        others = np.where(known_elsewhere > 0.5, elsewhere, means(known, total))
        moved = np.sqrt(((means(known, total) - others) ** 2).sum(axis=1)) / np.maximum(reach, 1e-300)
        moved[mass - reply.mass[0] <= 0.5] = np.inf
        moved[mass <= 0.5] = np.nan
        moves.append(moved)
    return np.array(moves)


def influential_sites(sums: dict[SiteId, Any], moves: FloatArray) -> tuple[SiteId, ...]:
    """Return the sites of very many rows that alone move a mean by half the way to the next mean.

    A site that has most of a cluster decides where it lies, which is not suspicious. So only sites that
    report more than ``_MANY`` times the rows of the median site are checked.
    """
    if len(sums) < 3:
        return ()
    rows = np.array([reply.mass.sum() for reply in sums.values()])
    far = (np.isfinite(moves) & (moves > 1)).any(axis=1)
    many = rows > _MANY * np.median(rows)
    return tuple(site for site, both in zip(sums, far & many, strict=True) if both)
