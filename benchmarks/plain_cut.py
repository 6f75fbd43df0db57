"""Groups by the plain principal-axis cut, the baseline of the grouping kernel."""

import numpy as np

from unpooled.typing import FloatArray, IntArray

_TURNS = 8  # of the power iteration for a principal axis


def plain_cut(X: FloatArray, least: int) -> IntArray:
    """(n,) labels of groups of ``least`` to 2 least - 1 rows that lie close; one group if there are fewer.

    >>> labels = plain_cut(np.array([[0.0], [9.0], [0.1], [9.1]]), 2)
    >>> bool(labels[0] == labels[2] != labels[1] == labels[3])
    True
    """
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    labels = np.zeros(len(X), dtype=np.int64)
    waiting, count = [np.arange(len(X))], 0
    while waiting:
        rows = waiting.pop()
        if len(rows) < 2 * least:
            labels[rows] = count
            count += 1
            continue
        left, right = _cut(Z[rows], least)
        waiting += [rows[right], rows[left]]
    return labels


def _cut(Z: FloatArray, least: int) -> tuple[IntArray, IntArray]:
    """Two parts of at least ``least`` rows, next to each other along the principal axis."""
    Z = Z - Z.mean(axis=0)
    axis = Z[int((Z * Z).sum(axis=1).argmax())]
    for _ in range(_TURNS):
        longer = (Z @ axis) @ Z
        size = float(np.linalg.norm(longer))
        if not size > 0:
            break
        axis = longer / size
    order = np.argsort(Z @ axis, kind="stable")
    n = len(Z)
    first = np.arange(least, n - least + 1)  # possible sizes of the first part
    sums = np.cumsum(Z[order], axis=0)[first - 1]  # the other part's sums are the negatives: Z is centred
    gain = (sums * sums).sum(axis=1) * (1 / first + 1 / (n - first))
    cut = int(first[gain.argmax()])
    return order[:cut], order[cut:]
