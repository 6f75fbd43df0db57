"""Scores of centres against rows and true labels, for comparisons and for the papers in ``reproduction``."""

from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.typing import FloatArray, IntArray


def labels_of(X: npt.NDArray[Any], centers: FloatArray) -> IntArray:
    """Return (n,) the number of the nearest centre of every row.

    >>> labels_of(np.array([[0.0], [9.0], [1.0]]), np.array([[0.0], [8.0]])).tolist()
    [0, 1, 0]
    """
    return kernels.nearest(X, centers).labels.astype(np.int64)


def ari(truth: IntArray, labels: IntArray) -> float:
    """Return the adjusted Rand index of two labellings.

    >>> ari(np.array([0, 0, 1, 1]), np.array([5, 5, 2, 2]))
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(truth, labels))
