"""Who takes part in a round."""

import numpy as np

from unpooled.core.messages import SiteId
from unpooled.errors import BadInput


def check_participation(participation: float) -> None:
    """A share in (0, 1], or a whole number of sites of at least 1."""
    share = isinstance(participation, float) and 0 < participation <= 1
    number = isinstance(participation, int) and not isinstance(participation, bool) and participation >= 1
    if not (share or number):
        raise BadInput(
            f"participation must be a share in (0, 1] or a number of sites >= 1, got {participation!r}"
        )


def check_number(participation: float, sites: int) -> None:
    """Refuse the number 1 where the share 1.0 was probably meant."""
    if isinstance(participation, int) and participation == 1 and sites > 1:
        raise BadInput(
            f"participation=1 is one site of {sites} a round, 1.0 is all of them: say 1.0, or a share "
            f"such as {1 / sites:.2g} for one site"
        )


def choose(sites: tuple[SiteId, ...], participation: float, rng: np.random.Generator) -> tuple[SiteId, ...]:
    """A random part of the sites, in site order: a share of them (float) or so many of them (int).

    >>> choose(("a", "b", "c", "d"), 0.5, np.random.default_rng(1))
    ('b', 'c')
    >>> choose(("a", "b", "c", "d"), 1.0, np.random.default_rng(1))
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
    """Does every site take part in every round?"""
    return participation == 1.0 if isinstance(participation, float) else participation >= len(sites)
