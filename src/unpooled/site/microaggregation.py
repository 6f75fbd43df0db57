"""Microaggregation: rows in groups of similar ones, each seen only as the mean of its group.

Minimum sizes bound what one answer shows; groups bound what all answers show together. Groups are made once,
from the first rows that a question about clusters sees, and kept in the ledger. From then on such questions
see every row as its group's mean, so any number of questions can tell apart the means of groups, but no rows
within a group. The sum over a group is that of its rows; the cost is that its rows all go to one cluster.

Domingo-Ferrer and Mateo-Sanz (2002) is the usual reference. Their MDAV compares all pairs; here groups are
made by cutting, which takes n log n: across the principal axis, where the squared distances to the means of
the two parts become least.
"""

from hashlib import sha256
from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray, IntArray
from unpooled.errors import Refused
from unpooled.site.ledger import Ledger

_TURNS = 8  # of the power iteration for a principal axis; an approximate axis is enough


class Grouping:
    """The groups of one site, of at least ``least`` rows each."""

    def __init__(self, ledger: Ledger, least: int) -> None:
        self._ledger, self._least = ledger, least

    def __call__(self, X: FloatArray, weights: FloatArray | None, chosen: bytes) -> FloatArray:
        """Rows (n, d), each as the mean of its group. ``chosen`` identifies the rows within the site."""
        which = f"{self._least}:{len(X)}:{sha256(chosen).hexdigest()[:32]}"
        known = self._ledger.groups()
        if known is None:
            known = (which, groups(np.asarray(X, dtype=np.float64), self._least).astype("<i8").tobytes())
            self._ledger.keep_groups(*known)
        if known[0] != which:
            raise Refused(
                "the site shows its rows in groups, which are made once: not of other rows, nor of another "
                "size, for groups that overlap could be told apart"
            )
        return averaged(X, np.frombuffer(known[1], dtype="<i8").astype(np.int64), weights)


def averaged(X: Any, labels: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """(n, d) every row as the mean of its group, weighted where rows have weights.

    >>> averaged(np.array([[0.0], [2.0], [7.0]]), np.array([0, 0, 1])).tolist()
    [[1.0], [1.0], [7.0]]
    """
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    w = np.where((np.bincount(labels, w) > 0)[labels], w, 1.0)  # weights all 0: the plain mean
    total = np.bincount(labels, w)
    out = np.empty(X.shape)
    for j in range(X.shape[1]):
        out[:, j] = (np.bincount(labels, w * X[:, j]) / total)[labels]
    return out


def groups(X: FloatArray, least: int) -> IntArray:
    """(n,) labels of groups of ``least`` to 2 least - 1 rows that lie close; one group if there are fewer.

    >>> labels = groups(np.array([[0.0], [9.0], [0.1], [9.1]]), 2)
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
