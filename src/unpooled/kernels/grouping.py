"""Microaggregation: rows in groups of ``min_size`` to 2 ``min_size`` - 1 that lie close.

Rows are cut in two across their principal axis until no part can be cut. Then, for up to 10 rounds, a group
is split anew together with its one or two nearest, and every row makes the best move to a near group or the
best swap with a row of one, as long as the squared distances to the groups' means fall. One column is solved
exactly. Domingo-Ferrer and Mateo-Sanz (2002) is the usual reference; their MDAV compares all pairs.

``native/grouping`` and ``reference_grouping`` add up in the same order: they give the same groups while
there are at most 512, and the compiled one gives the same groups on every machine.
"""

import importlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unpooled import kernels

from . import reference_grouping
from .reference_rows import Rows

LARGEST = 1e40  # products of six numbers of this size are still finite


def groups(Z: Rows, min_size: int, *, progress: Callable[[float], object] | None = None) -> NDArray[np.int64]:
    """(n,) labels 0, 1, .. of groups of ``min_size`` to 2 ``min_size`` - 1 rows; of fewer rows, one group.

    Z (n, w) is finite and already scaled: columns count as they are. ``progress`` is called now and then
    with the share that is done; what it raises ends the grouping.

    >>> labels = groups(np.array([[0.0, 1.0], [9.0, 1.0], [0.1, 1.0], [9.1, 1.0]]), 2)
    >>> bool(labels[0] == labels[2] != labels[1] == labels[3])
    True
    """
    rows = kernels._rows(Z)
    kernels._check_min(1, min_size=min_size)
    n = len(rows)
    if n >= 2**31:
        raise ValueError(f"{n} rows are too many to be grouped at once")
    if n and not (float(rows.min()) >= -LARGEST and float(rows.max()) <= LARGEST):
        raise ValueError(f"rows to be grouped must be finite, and not larger than {LARGEST:g}")
    tell = progress or (lambda share: None)
    tell(0.0)
    if n < 2 * min_size:
        labels = np.zeros(n, np.int64)
    elif min_size == 1:
        labels = np.arange(n)
    elif kernels.BACKEND == "native":
        labels = np.empty(n, np.int64)
        importlib.import_module("._native", __package__).groups(rows, min_size, progress, labels)
    else:
        labels = reference_grouping.groups(rows, min_size, tell)
    tell(1.0)
    return labels
