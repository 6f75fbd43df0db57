"""Discrete Gaussian noise on whole numbers, by OpenDP from the system's entropy.

Sums of floating-point numbers depend on their order, and so does the effect of one row; and floating-point
noise has gaps that can disclose a value (Mironov, CCS 2012). So a row's contribution is cut to whole steps
before it is summed, sums are exact, and the noise is a whole number of steps too (Canonne, Kamath, Steinke:
The discrete Gaussian for differential privacy, NeurIPS 2020). A step is 2^-30 of the noise or less: far too
fine to matter for accuracy, and so fine that discrete and continuous noise differ in delta by less than
1e-100.

No seed reaches this module: noise that can be reproduced protects nothing.
"""

import functools
import math
from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray, IntArray
from unpooled.errors import BadInput, MissingExtra

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
        raise BadInput(f"{rows} rows are too many for noise this small: sums would not fit in 64 bits")


def noisy(sums: IntArray, step: float, sd: float) -> FloatArray:
    """Whole sums, in steps, to sums with noise of standard deviation ``sd``, in their own unit. Any shape."""
    whole = np.ascontiguousarray(sums, dtype=np.int64)
    if not (math.isfinite(sd) and sd > 0 and sd / step >= 2.0**10):
        raise BadInput(f"noise of standard deviation {sd:g} does not fit steps of {step:g}")
    drawn = _mechanism(sd / step)(whole.ravel().tolist())
    return np.array(drawn, dtype=np.int64).reshape(whole.shape).astype(np.float64) * step


@functools.lru_cache(maxsize=64)
def _mechanism(scale: float) -> Any:
    """OpenDP's discrete Gaussian on vectors of whole numbers."""
    dp = library()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=scale)


@functools.lru_cache(maxsize=1)
def library() -> Any:
    """OpenDP, or an error that says how to get it."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise MissingExtra(
            "differential privacy needs opendp, which is not installed: pip install 'unpooled[dp]'"
        ) from None
    dp.enable_features("contrib")
    return dp
