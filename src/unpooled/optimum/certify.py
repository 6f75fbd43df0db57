"""``certify`` over a federation: a bound on the distance of centres from the optimum, from totals only."""

from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.exchange import Federation, conduct
from unpooled.core.protocol import Steps, View, viewed
from unpooled.errors import BadInput
from unpooled.optimum.box import check_box, check_squares, enclosing
from unpooled.optimum.certificate import Certificate
from unpooled.optimum.certificate import certify as certifying
from unpooled.optimum.exact import check_reach


def certify(
    federation: Federation,
    centers: Any,
    *,
    box: Any = None,
    view: View | None = None,
    tolerance: float = 1e-4,
    time_limit: float = 60.0,
) -> Certificate:
    """Bound the inertia of any k centres from below, until it is within ``tolerance`` of that of ``centers``.

    ``box`` (2, d) is a public range that encloses every row; without one the sites are asked for theirs,
    which those with a minimum cluster size above 1 do not show. ``view`` is the preparation of the rows for
    these centres.

    >>> from unpooled import InProcess
    >>> rows = {"a": np.array([[0.0], [0.2], [5.0]]), "b": np.array([[0.1], [5.2], [5.4]])}
    >>> proof = certify(InProcess.of(rows), [[0.1], [5.2]])
    >>> proof.proved, proof.condition, round(proof.inertia, 3), round(proof.lower_bound, 3)
    (True, 'unconditional', 0.1, 0.1)
    """
    given: FloatArray = np.array(centers, dtype=np.float64)
    if given.ndim != 2 or not np.isfinite(given).all():
        raise BadInput(f"centers must be finite, (k, d), got shape {given.shape}")
    check_reach(1, given.shape[1], len(given))
    if not 0 < tolerance < 1 or not time_limit > 0:
        raise BadInput(
            f"tolerance must be within 0..1 and time_limit above 0, got {tolerance} and {time_limit}"
        )
    public = None if box is None else check_box(box)
    sites = tuple(sorted(federation.sites))

    def steps() -> Steps[Certificate]:
        around = yield from enclosing(sites, public)
        check_squares(around)
        return (yield from certifying(sites, given, around, tolerance=tolerance, time_limit=time_limit))

    # a certificate is about all rows: without a site its inertia would be too low
    return conduct(viewed(view, steps()), federation, run="certify", quorum=1.0)
