"""The settings of secure sums: the fewest sites in a sum, and the fewest rows in one of its cells."""

from dataclasses import dataclass
from typing import Any

from unpooled.errors import InputError

MIN_SITES = 3


@dataclass(frozen=True)
class SecureSums:
    """Settings under which every ``total`` is a secure sum. The format of numbers is the same in every sum.

    Parameters
    ----------
    min_sites : int
        The fewest sites in a sum, at least 3.
    min_cluster_size : int
        The fewest rows, of all sites together, in a cell of a sum. Smaller cells are suppressed as soon as
        the sum is unmasked.

    Examples
    --------
    >>> from unpooled.privacy import SecureSums
    >>> SecureSums(min_sites=5)
    SecureSums(min_sites=5, min_cluster_size=1)
    """

    min_sites: int = MIN_SITES
    min_cluster_size: int = 1

    def __post_init__(self) -> None:
        if self.min_sites < MIN_SITES:
            raise InputError(f"a secure sum needs at least {MIN_SITES} sites, got min_sites={self.min_sites}")

    def check_sites(self, count: int) -> None:
        """Raise InputError if there are too few sites for a secure sum."""
        if count < self.min_sites:
            raise InputError(f"secure sums need at least {self.min_sites} sites, got {count}")


def secure_sums(secure: Any) -> SecureSums | None:
    """Return the settings of an estimator's argument ``secure``: True, False, or SecureSums."""
    if isinstance(secure, SecureSums):
        return secure
    if not isinstance(secure, bool):
        raise InputError(f"secure must be True, False or SecureSums(...), got {secure!r}")
    return SecureSums() if secure else None
