"""The checks of the sites that a federation of this process is made of."""

from collections.abc import Mapping, Sequence

import numpy as np

from unpooled.errors import InputError
from unpooled.protocol.messages import SiteId


def check_sites(names: Sequence[SiteId], rows: Mapping[SiteId, object]) -> tuple[SiteId, ...]:
    """Return the sorted names; raise InputError if there are none, equal ones, or different columns.

    ``rows`` are those of the sites that have any; only the columns of arrays must agree.
    """
    if not names:
        raise InputError("a federation needs at least one site, got 0")
    different = tuple(sorted(set(names)))
    if len(different) < len(names):
        raise InputError(f"site names must differ: {len(names)} sites, {len(different)} names")
    widths = {name: X.shape[1] for name in different if isinstance(X := rows.get(name), np.ndarray)}
    for name, width in widths.items():
        if width != widths[first := next(iter(widths))]:
            raise InputError(f"sites with different columns: {first} has {widths[first]}, {name} has {width}")
    return different
