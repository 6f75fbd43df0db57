"""The settings of secure sums: the fewest sites in a sum, and the format of its numbers."""

from dataclasses import dataclass
from typing import Any

from unpooled.errors import BadInput
from unpooled.privacy.secure_sum.fixed_point import Fixed

MIN_SITES = 3
BITS = 40  # a site rounds each field of its reply to so many bits, unless a bound is declared


@dataclass(frozen=True)
class SecureSums:
    """Settings under which every ``total`` is a secure sum.

    Without a ``bound`` the first sum of a kind takes two words of 64 bits a number, for numbers up to 9e18
    over the number of sites, and later ones take one where their numbers allow it; a site rounds each field
    of its reply to 40 bits of the largest number in it. ``bound`` declares the largest absolute value in any
    site's reply: one word is then always enough, as fine as the bound allows, and fields are not rounded
    otherwise. It is public, and must not be computed from the data.
    ``min_sites`` is the fewest sites in a sum; never below 3. ``min_cluster_size`` is the fewest rows, of all
    sites together, in a cell of a sum: smaller ones are suppressed as soon as the sum is opened.

    >>> SecureSums(bound=1e6).fixed(10).step < 1e-11
    True
    """

    bound: float | None = None
    min_sites: int = MIN_SITES
    min_cluster_size: int = 1

    def __post_init__(self) -> None:
        if self.min_sites < MIN_SITES:
            raise BadInput(f"a secure sum needs at least {MIN_SITES} sites, got min_sites={self.min_sites}")
        self.fixed(MIN_SITES)

    @property
    def rounded(self) -> int:
        """Bits to which a site rounds each field of its reply; 0: not rounded."""
        return BITS if self.bound is None else 0

    def fixed(self, sites: int) -> Fixed:
        return Fixed() if self.bound is None else Fixed.within(self.bound, sites)


def secure_sums(said: Any) -> SecureSums | None:
    """The settings from an estimator's argument ``secure``: True, False, or SecureSums."""
    if isinstance(said, SecureSums):
        return said
    if not isinstance(said, bool):
        raise BadInput(f"secure must be True, False or SecureSums(...), got {said!r}")
    return SecureSums() if said else None
