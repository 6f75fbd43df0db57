"""Participation: the part of the sites that is asked in a round."""

import numpy as np

from unpooled.errors import InputError
from unpooled.protocol.messages import SiteId


def check_participation(participation: float) -> None:
    """Raise InputError unless it is a share in (0, 1], or a whole number of sites of at least 1."""
    share = isinstance(participation, float) and 0 < participation <= 1
    number = isinstance(participation, int) and not isinstance(participation, bool) and participation >= 1
    if not (share or number):
        raise InputError(
            f"participation must be a share in (0, 1] or a number of sites >= 1, got {participation!r}"
        )


def check_number(participation: float, sites: int) -> None:
    """Refuse the number 1 where the share 1.0 was probably meant."""
    if isinstance(participation, int) and participation == 1 and sites > 1:
        raise InputError(
            f"participation=1 is one site of {sites} a round, 1.0 is all of them. Use 1.0, or a share "
            f"such as {1 / sites:.2g} for one site"
        )


def sample_sites(
    sites: tuple[SiteId, ...], participation: float, rng: np.random.Generator
) -> tuple[SiteId, ...]:
    """Return a random part of the sites, in site order: a share of them (float) or a number of them (int).

    >>> sample_sites(("a", "b", "c", "d"), 0.5, np.random.default_rng(1))
    ('b', 'c')
    >>> sample_sites(("a", "b", "c", "d"), 1.0, np.random.default_rng(1))
    ('a', 'b', 'c', 'd')
    """
    check_number(participation, len(sites))
    if isinstance(participation, float):
        number = max(1, int(participation * len(sites) + 1e-9))
    else:
        number = min(participation, len(sites))
    if number == len(sites):
        return sites
    return tuple(sites[i] for i in sorted(rng.choice(len(sites), number, replace=False)))


def is_full(participation: float, sites: tuple[SiteId, ...]) -> bool:
    """Return whether every site takes part in every round."""
    return participation == 1.0 if isinstance(participation, float) else participation >= len(sites)
