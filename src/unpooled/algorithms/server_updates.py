"""Server update rules. Two papers call two different things momentum; here each has its own function."""

import math

import numpy as np

from unpooled.typing import FloatArray


def heavy_ball(
    centers: FloatArray, previous: FloatArray, target: FloatArray, learning_rate: float, momentum: float
) -> FloatArray:
    """Heavy ball (Holzer et al., eq. 6): C + eta (D - C) + mu (C - C_old).

    >>> heavy_ball(np.array([1.0]), np.array([0.0]), np.array([3.0]), 0.5, 0.1)
    array([2.1])
    """
    return centers + learning_rate * (target - centers) + momentum * (centers - previous)


def ema(velocity: FloatArray, update: FloatArray, learning_rate: float, momentum: float) -> FloatArray:
    """Exponential mean (Triebe & Rajagopal's code): v <- m v + (1 - m) lr u; the caller then adds v.

    >>> ema(np.array([1.0]), np.array([2.0]), 1.0, 0.5)
    array([1.5])
    """
    return momentum * velocity + (1 - momentum) * learning_rate * update


def movement(before: FloatArray, after: FloatArray) -> float:
    """Return the movement of the centres: the Frobenius norm of the difference."""
    moved = (after - before).ravel()
    return math.sqrt(float(moved @ moved))


def share_or_zero(sums: FloatArray, weights: FloatArray) -> FloatArray:
    """Return sums / weights per cluster, 0 where there is no weight: (k, d), (k,) -> (k, d)."""
    full = weights > 0
    return np.asarray(np.where(full, 1 / np.where(full, weights, 1.0), 0.0)[:, None] * sums)
