"""Statistical disclosure control: the cells of a reply that a site, or a relay, leaves out.

Minimum size
    A site leaves out a cell of fewer rows than its minimum. The other cells and the site's total would reveal
    it by subtraction. So the site leaves out further cells (``complementary_suppression``), or rows of a large
    cell (``rows_to_suppress``), until the suppressed rows are none or at least the minimum.
Contributor threshold
    A cell to which one site alone contributes would disclose that site's numbers in the sum of its relay. A
    relay leaves out a cell with fewer than ``min_contributors`` contributing sites, and cells that would
    reveal it (``ContributorCounts``).

For example, with a minimum of 5 and cells of 1, 7 and 9 rows, a site discloses only the cell of 9 rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.protocol.declarations import Count, Figure
from unpooled.protocol.declarations import figures as figures_of
from unpooled.typing import BoolArray, FloatArray

if TYPE_CHECKING:
    from unpooled.protocol.site_batch import SiteBatch

# ---------------------------------------------------------------- minimum size


def complementary_suppression(
    disclosed: BoolArray, mass: FloatArray, squares: FloatArray, min_size: float
) -> BoolArray:
    """Hide the smallest shown cell repeatedly until the hidden rows are none or at least ``min_size``.

    >>> sizes = np.array([1.0, 7.0, 9.0])
    >>> complementary_suppression(sizes >= 5, sizes, sizes, 5.0)
    array([False, False,  True])
    """
    if min_size <= 1:
        return disclosed
    disclosed = disclosed.copy()
    size = effective_size(mass, squares)
    while True:
        suppressed_mass = np.where(disclosed, 0.0, mass).sum(axis=-1)
        suppressed = effective_size(suppressed_mass, np.where(disclosed, 0.0, squares).sum(axis=-1))
        candidates = np.where(disclosed & (mass > 0), size, np.inf)
        open_sets = (suppressed_mass > 0) & (suppressed < min_size) & np.isfinite(candidates).any(axis=-1)
        if not open_sets.any():
            return disclosed
        smallest = np.arange(mass.shape[-1]) == candidates.argmin(axis=-1)[..., None]
        disclosed &= ~(open_sets[..., None] & smallest)


def zero_suppressed(disclosed: BoolArray, values: FloatArray) -> FloatArray:
    """The values of shown cells, zeros elsewhere; multiplying by the mask would keep a hidden value's sign.

    >>> only(np.array([True, False]), np.array([[-1.0], [-2.0]]))
    array([[-1.],
           [ 0.]])
    """
    return np.where(disclosed.reshape(disclosed.shape + (1,) * (values.ndim - disclosed.ndim)), values, 0.0)


def effective_size(mass: FloatArray, squares: FloatArray) -> FloatArray:
    """Kish's effective number of rows, 0 where there is no weight.

    >>> effective_size(np.array([4.0, 1001.0, 0.0]), np.array([4.0, 1000001.0, 0.0])).round(3)
    array([4.   , 1.002, 0.   ])
    """
    return np.divide(mass * mass, squares, out=np.zeros_like(mass), where=squares > 0)


def disclosed_cells(batch: "SiteBatch", mass: FloatArray, squares: FloatArray | None = None) -> BoolArray:
    """(m,) mask of the cells that may be shown, of those that divide one site's rows.

    ``squares``: of the weights in each cell; None where rows have no weights, and so ``mass`` counts them.
    """
    if not len(mass):
        return np.zeros(0, dtype=np.bool_)
    disclosed: BoolArray = batch.disclosed(mass[None], (mass if squares is None else squares)[None])[0]
    return disclosed


def too_few_suppressed(
    batch: "SiteBatch", large: BoolArray, mass: FloatArray, squares: FloatArray
) -> BoolArray:
    """Mask of the sets of cells that show some rows and hide fewer than the minimum: (..., k) -> (...).

    The site's total is known, so the sum of the hidden cells follows by subtraction. That is harmless where
    many rows are hidden, or none.
    """
    small = ~large & (mass > 0)
    suppressed = np.where(small, mass, 0.0).sum(axis=-1)
    suppressed_squares = np.where(small, squares, 0.0).sum(axis=-1)
    shows = (large & (mass > 0)).any(axis=-1)
    few: BoolArray = (suppressed > 0) & shows & ~batch.large(suppressed, suppressed_squares)
    return few


@dataclass(frozen=True, eq=False)
class SuppressedRows:
    """Rows that a site leaves out of one of its cells, so that it never hides only a few rows."""

    cell: int
    rows: FloatArray  # (m, d)
    weights: FloatArray  # (m,)
    sqdist: FloatArray  # (m,) to the cell's centre


def rows_to_suppress(local: "SiteBatch", centers: FloatArray, large: BoolArray) -> SuppressedRows | None:
    """At least the minimum number of rows of the largest cell: those nearest its centre, which move it least.

    None if no cell is large enough to spare them.
    """
    labels, sqdist = kernels.nearest(local.X, centers)
    w = np.ones(len(labels)) if local.weights is None else local.weights
    mass = np.where(large, np.bincount(labels, w, len(centers)), 0.0)
    cell = int(mass.argmax())
    members = np.flatnonzero((labels == cell) & (w > 0))
    members = members[np.argsort(sqdist[members], kind="stable")]
    sums, squares = np.cumsum(w[members]), np.cumsum(w[members] ** 2)
    enough = local.large(sums, squares) & local.large(sums[-1] - sums, np.maximum(squares[-1] - squares, 0.0))
    if not enough.any():
        return None
    rows = members[: int(enough.argmax()) + 1]
    return SuppressedRows(cell, np.asarray(local.X[rows], dtype=np.float64), w[rows], sqdist[rows])


# ---------------------------------------------------------------- contributor threshold


def counts_in(figures: Mapping[str, Figure]) -> tuple[str, ...]:
    """The names of the figures that count rows."""
    return tuple(name for name, figure in figures.items() if isinstance(figure, Count))


def belonging(figures: Mapping[str, Figure], count: str) -> tuple[str, ...]:
    """The names of the sums and means that belong to a count."""
    return tuple(name for name, figure in figures.items() if getattr(figure, "rows", "") == count)


@dataclass(eq=False)
class ContributorCounts:
    """Who has rows of which cell, over the replies to one question. ``min_contributors``: the sites that a cell needs.

    A member that is a federation counts in a cell as the number of sites that its own rule asks for.
    """

    min_contributors: int
    _kind: Any = None
    _present: dict[str, list[BoolArray]] = field(
        default_factory=dict
    )  # by count: (S, *cells), block by block
    _weights: list[npt.NDArray[np.int64]] = field(default_factory=list)  # (S,) sites behind each entry

    def add(self, kind: Any, arrays: Mapping[str, npt.NDArray[np.float64]], weight: int = 1) -> None:
        """Add replies, each field with a leading axis of members; a member stands for ``weight`` sites."""
        self._kind, figures = kind, figures_of(kind)
        for name in counts_in(figures):
            there: BoolArray = arrays[name] > 0
            tied = [t for t in belonging(figures, name) if arrays[t].shape[: there.ndim] == there.shape]
            if tied:  # a site that counts, and adds nothing, stands behind nothing
                axes = (tuple(range(there.ndim, arrays[t].ndim)) for t in tied)
                moved = [(arrays[t] != 0).any(axis=axis) for t, axis in zip(tied, axes, strict=True)]
                there = there & np.logical_or.reduce(moved)
            self._present.setdefault(name, []).append(there)
        self._weights.append(np.full(len(next(iter(arrays.values()))), weight))

    def disclosed(self, mass: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, BoolArray]:
        """By count: the mask of its cells that may be shown; ``mass`` are the counts in the sum."""
        weights = np.concatenate(self._weights)
        cells, out = self._kind.cells, dict[str, BoolArray]()
        for name, blocks in self._present.items():
            there = np.concatenate(blocks)
            enough = np.tensordot(weights, there, axes=1) >= self.min_contributors
            out[name] = enough | (mass[name] <= 0)
            if name == cells and self._kind.divided:
                out[name] = _suppress_for_contributors(
                    out[name], there, weights, mass[name], self.min_contributors
                )
        for name in out:  # cells of cluster and column are within those of the cluster
            whole = out.get(cells)
            if whole is not None and name != cells and out[name].shape[: whole.ndim] == whole.shape:
                out[name] &= whole.reshape(whole.shape + (1,) * (out[name].ndim - whole.ndim))
        return out

    def contributors(self, name: str) -> int:
        """The number of sites with rows of a count that has one cell."""
        return int(np.concatenate(self._weights) @ np.concatenate(self._present[name])[:, 0])


def _suppress_for_contributors(
    disclosed: BoolArray,
    there: BoolArray,
    weights: npt.NDArray[np.int64],
    mass: npt.NDArray[np.float64],
    min_contributors: int,
) -> BoolArray:
    """Hide the smallest shown cell until the hidden ones have ``min_contributors`` sites together, or there are none."""
    disclosed = disclosed.copy()
    for at in np.ndindex(disclosed.shape[:-1]):
        own, size = there[(slice(None), *at)], mass[at]
        while (suppressed := ~disclosed[at] & (size > 0)).any():
            if weights @ own[:, suppressed].any(axis=1) >= min_contributors:
                break
            left = np.flatnonzero(disclosed[at] & (size > 0))
            if not len(left):
                break
            disclosed[(*at, left[size[left].argmin()])] = False
    return disclosed
