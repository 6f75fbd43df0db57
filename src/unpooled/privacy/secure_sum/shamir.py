"""Shamir: How to share a secret. Communications of the ACM 22 (1979).

A secret of 16 bytes is the value at 0 of a random polynomial of degree t - 1 over the integers modulo
2^130 - 5; site i holds its value at i + 1. Any t of them give the secret, any t - 1 say nothing about it.
"""

import secrets
from collections.abc import Sequence

from unpooled.privacy.secure_sum import sizes

PRIME = 2**130 - 5


def share(secret: bytes, threshold: int, count: int) -> list[int]:
    """``count`` shares of a secret, any ``threshold`` of which restore it.

    >>> shares = share(b"sixteen bytes ab", 2, 3)
    >>> restore([shares[2], shares[0]], weights([2, 0]))
    b'sixteen bytes ab'
    """
    terms = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    terms.append(int.from_bytes(secret, "little"))
    shares = []
    for x in range(1, count + 1):
        value = 0
        for term in terms:
            value = (value * x + term) % PRIME
        shares.append(value)
    return shares


def weights(indices: Sequence[int]) -> list[int]:
    """Lagrange's weights for the value at 0, from the shares of these sites."""
    points = [i + 1 for i in indices]
    found = []
    for a in points:
        above = below = 1
        for b in points:
            if b != a:
                above = above * b % PRIME
                below = below * (b - a) % PRIME
        found.append(above * pow(below, -1, PRIME) % PRIME)
    return found


def restore(shares: Sequence[int], weights: Sequence[int]) -> bytes | None:
    """The secret behind some shares; None if no secret of ours has such shares."""
    value = sum(s * w for s, w in zip(shares, weights, strict=True)) % PRIME
    return value.to_bytes(sizes.SEED, "little") if value < 2 ** (8 * sizes.SEED) else None
