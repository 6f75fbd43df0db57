"""xoshiro256** seeded by splitmix64: the generator of the kernels, the same as in ``random.hpp``.

One 64-bit seed gives one stream. A uniform number is the upper 53 bits of a draw, times 2^-53.
"""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1


def _rotl(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & _MASK


def _splitmix(state: int) -> int:
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Xoshiro256:
    """A stream of random numbers.

    >>> rng = Xoshiro256(0)
    >>> hex(rng.draw())
    '0x99ec5f36cb75f2b4'
    >>> 0 <= rng.uniform() < 1
    True
    """

    def __init__(self, seed: int) -> None:
        golden = 0x9E3779B97F4A7C15
        states = accumulate(range(4), lambda z, _: (z + golden) & _MASK, initial=int(seed) & _MASK)
        self._s = [_splitmix(z) for z in list(states)[1:]]

    def draw(self) -> int:
        """The next 64 bits."""
        s = self._s
        result = (_rotl((s[1] * 5) & _MASK, 7) * 9) & _MASK
        t = (s[1] << 17) & _MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = _rotl(s[3], 45)
        return result

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        return (self.draw() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """The next integer in 0..n-1."""
        return int(self.uniform() * n)


def uniform(seed: int, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number in [0, 1) for every key, by splitmix64 of key and seed: the same whatever comes before it.

    >>> uniform(7, np.arange(3, dtype=np.uint64)).round(3)
    array([0.717, 0.524, 0.302])
    """
    z = keys * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(_splitmix(seed & _MASK))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
