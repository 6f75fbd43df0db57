"""Suppression: which cells are too small to be shown, and which others would give them away."""

import numpy as np

from unpooled.core.arrays import BoolArray, FloatArray


def hide_enough(shown: BoolArray, mass: FloatArray, squares: FloatArray, least: float) -> BoolArray:
    """Hide the smallest shown cell, and again, until what is hidden is nothing or of at least ``least`` rows.

    >>> sizes = np.array([1.0, 7.0, 9.0])
    >>> hide_enough(sizes >= 5, sizes, sizes, 5.0)
    array([False, False,  True])
    """
    if least <= 1:
        return shown
    shown = shown.copy()
    size = effective_size(mass, squares)
    while True:
        hidden_mass = np.where(shown, 0.0, mass).sum(axis=-1)
        hidden = effective_size(hidden_mass, np.where(shown, 0.0, squares).sum(axis=-1))
        candidates = np.where(shown & (mass > 0), size, np.inf)
        open_sets = (hidden_mass > 0) & (hidden < least) & np.isfinite(candidates).any(axis=-1)
        if not open_sets.any():
            return shown
        smallest = np.arange(mass.shape[-1]) == candidates.argmin(axis=-1)[..., None]
        shown &= ~(open_sets[..., None] & smallest)


def only(shown: BoolArray, values: FloatArray) -> FloatArray:
    """The values of the cells that are shown, else plain zeros; a product would keep the sign of the hidden.

    >>> only(np.array([True, False]), np.array([[-1.0], [-2.0]]))
    array([[-1.],
           [ 0.]])
    """
    return np.where(shown.reshape(shown.shape + (1,) * (values.ndim - shown.ndim)), values, 0.0)


def effective_size(mass: FloatArray, squares: FloatArray) -> FloatArray:
    """Kish's effective number of rows, 0 where there is no weight.

    >>> effective_size(np.array([4.0, 1001.0, 0.0]), np.array([4.0, 1000001.0, 0.0])).round(3)
    array([4.   , 1.002, 0.   ])
    """
    return np.divide(mass * mass, squares, out=np.zeros_like(mass), where=squares > 0)
