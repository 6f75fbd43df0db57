"""Discrete Gaussian noise on whole numbers, from the system's entropy.

Sums of floating-point numbers depend on their order, and so does the effect of one row; and floating-point
noise has gaps that can disclose a value (Mironov, CCS 2012). So a row's contribution is cut to whole steps
before it is summed, sums are exact, and the noise is a whole number of steps too (Canonne, Kamath, Steinke:
The discrete Gaussian for differential privacy, NeurIPS 2020). A step is 2^-30 of the noise or less: far too
fine to matter for accuracy, and so fine that discrete and continuous noise differ in delta by less than
1e-100.

No seed reaches this module: noise that can be reproduced protects nothing. There is no noise without a
charge: only a ``BudgetAccountant`` creates a ``Noise``, for its privacy cost, and nothing else here draws.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn, final

import numpy as np

from unpooled.errors import InputError
from unpooled.privacy.dp.discrete_gaussian import discrete_gaussian
from unpooled.typing import FloatArray, IntArray

_FINE = 30  # a step is 2^-30 of the noise's standard deviation, rounded down to a power of two
_ROOM = 2.0**62


def step_for(sd: float) -> float:
    """The step of fixed-point numbers whose noise has standard deviation ``sd``: a power of two.

    >>> step_for(3.0) == 2.0 ** (1 - 30)
    True
    """
    return 2.0 ** (math.floor(math.log2(sd)) - _FINE)


def whole_steps(values: FloatArray, step: float) -> FloatArray:
    """Values in whole steps, cut towards zero, so that nothing grows: still floats, but whole numbers."""
    return np.trunc(values / step)


def check_room(rows: int, largest: float, step: float) -> None:
    """Sums of ``rows`` values up to ``largest`` must fit in 64 bits with room for the noise."""
    if rows * (largest / step) >= _ROOM:
        raise InputError(f"{rows} rows are too many for noise this small: sums would not fit in 64 bits")


_CHARGED = object()  # only BudgetAccountant.spend passes it


@final
class Noise:
    """The generator that adds the noise of one reply. Only ``BudgetAccountant.spend`` creates it.

    It cannot be copied, pickled or subclassed, so there is one for every charge. ``share`` is the part of the
    noise that this site adds if sites of a secure sum add it together. ``rows`` is the declared upper bound
    on the site's rows; None if nobody declared it.
    """

    def __init__(self, token: object, share: float, rows: int | None) -> None:
        if token is not _CHARGED:
            raise TypeError("only BudgetAccountant.spend creates noise")
        self.share, self.rows = share, rows
        self._used = False

    def __init_subclass__(cls) -> None:
        raise TypeError("Noise cannot be subclassed: only BudgetAccountant.spend creates noise")

    def __reduce__(self) -> NoReturn:  # also asked by copy and deepcopy
        raise TypeError("Noise cannot be copied: only BudgetAccountant.spend creates noise")

    def used(self) -> None:
        """Draw nothing more: the reply that was charged is complete."""
        self._used = True

    def added(self, sums: IntArray, step: float, sd: float) -> FloatArray:
        """Whole sums, in steps, to sums with this site's share of noise of standard deviation ``sd``.

        Any shape; the result is in the sums' own unit.
        """
        if self._used:
            raise TypeError("the noise of this reply was already used")
        whole, sd = np.ascontiguousarray(sums, dtype=np.int64), sd * self.share
        if not (math.isfinite(sd) and sd > 0 and sd / step >= 2.0**10):
            raise InputError(f"noise of standard deviation {sd:g} does not fit steps of {step:g}")
        drawn = discrete_gaussian(whole.size, sd / step).reshape(whole.shape)
        return (whole + drawn).astype(np.float64) * step


class BudgetAccountant(ABC):
    """A privacy budget to which noise is charged."""

    rows: int | None = None  # the declared upper bound on the site's rows

    def __init_subclass__(cls) -> None:
        if "spend" in vars(cls):
            raise TypeError(f"{cls.__name__} must not override spend, which charges before it creates noise")

    @final
    def spend(self, prices: Sequence[float], shares: Sequence[float]) -> tuple[Noise, ...]:
        """Charge the costs (mu^2) of several replies at once, all or none, and return their noise."""
        self._charge(float(sum(prices)))
        return tuple(Noise(_CHARGED, share, self.rows) for _, share in zip(prices, shares, strict=True))

    @abstractmethod
    def _charge(self, price: float) -> None:
        """Charge the budget, durably; QueryRefusedError if it does not allow it."""


@final
class SimulatedAccountant(BudgetAccountant):
    """The accountant of a simulation without a budget: all rows are in one process."""

    def _charge(self, price: float) -> None:
        pass
