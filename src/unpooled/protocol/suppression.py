"""Statistical disclosure control: the cells of a reply that a site, or a relay, leaves out.

Minimum size
    A site leaves out a cell of fewer rows than its minimum. The other cells and the site's total would reveal
    it by subtraction. So the site leaves out further cells (``complementary_suppression``), or rows of a
    large cell (``rows_to_suppress``), until the suppressed rows are none or at least the minimum.
Contributor threshold
    A cell to which one site alone contributes would disclose that site's numbers in the sum of its relay. A
    relay leaves out a cell with fewer than ``min_contributors`` contributing sites, and cells that would
    reveal it (``ContributorCounts``).

For example, with a minimum of 5 and cells of 1, 7 and 9 rows, a site discloses only the cell of 9 rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.protocol.declarations import Count, Figure, Mean, Sum
from unpooled.protocol.declarations import figures as figures_of
from unpooled.typing import BoolArray, FloatArray

if TYPE_CHECKING:
    from unpooled.protocol.messages import Summable
    from unpooled.protocol.site_batch import SiteBatch

# ---------------------------------------------------------------- minimum size


def complementary_suppression(
    disclosed: BoolArray, mass: FloatArray, squares: FloatArray, min_size: float
) -> BoolArray:
    """Suppress the smallest disclosed cell until the suppressed rows are none or at least ``min_size``.

    Parameters
    ----------
    disclosed : mask of the cells that are large enough; the cells of the last axis divide the rows
    mass, squares : sums of the rows' weights, and of their squares, in each cell
    min_size : smallest effective number of rows that may be suppressed

    Returns
    -------
    The mask of the cells that may be disclosed.

    Examples
    --------
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
    """Return the values of disclosed cells, and zeros elsewhere.

    A product with the mask would keep the sign of a suppressed value.

    >>> zero_suppressed(np.array([True, False]), np.array([[-1.0], [-2.0]]))
    array([[-1.],
           [ 0.]])
    """
    return np.where(disclosed.reshape(disclosed.shape + (1,) * (values.ndim - disclosed.ndim)), values, 0.0)


def effective_size(mass: FloatArray, squares: FloatArray) -> FloatArray:
    """Return Kish's effective number of rows, (sum w)^2 / sum w^2; 0 where there is no weight.

    >>> effective_size(np.array([4.0, 1001.0, 0.0]), np.array([4.0, 1000001.0, 0.0])).round(3)
    array([4.   , 1.002, 0.   ])
    """
    return np.divide(mass * mass, squares, out=np.zeros_like(mass), where=squares > 0)


def disclosed_cells(batch: "SiteBatch", mass: FloatArray, squares: FloatArray | None = None) -> BoolArray:
    """Return the mask (m,) of the cells that one site may disclose, of cells that divide its rows.

    ``squares`` are sums of squared weights in each cell; None where rows have no weights.
    """
    if not len(mass):
        return np.zeros(0, dtype=np.bool_)
    disclosed: BoolArray = batch.disclosed(mass[None], (mass if squares is None else squares)[None])[0]
    return disclosed


def too_few_suppressed(
    batch: "SiteBatch", large: BoolArray, mass: FloatArray, squares: FloatArray
) -> BoolArray:
    """Return a mask of the sets of cells that suppress fewer rows than the minimum: (..., k) -> (...).

    The site's total is known, so the sum of the suppressed cells follows by subtraction. That is harmless
    where at least the minimum number of rows is suppressed, or none.
    """
    small = ~large & (mass > 0)
    suppressed = np.where(small, mass, 0.0).sum(axis=-1)
    suppressed_squares = np.where(small, squares, 0.0).sum(axis=-1)
    some_disclosed = (large & (mass > 0)).any(axis=-1)
    few: BoolArray = (suppressed > 0) & some_disclosed & ~batch.large(suppressed, suppressed_squares)
    return few


@dataclass(frozen=True, eq=False)
class SuppressedRows:
    """Rows that a site leaves out of one of its cells, so that it never suppresses only a few rows."""

    cell: int
    rows: FloatArray  # (m, d)
    weights: FloatArray  # (m,)
    sqdist: FloatArray  # (m,) to the cell's centre


def rows_to_suppress(local: "SiteBatch", centers: FloatArray, large: BoolArray) -> SuppressedRows | None:
    """Return at least the minimum number of rows of the largest cell, or None if no cell can spare them.

    The rows nearest to the cell's centre are taken, because they change its mean least.
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
    """Return the names of the figures that count rows."""
    return tuple(name for name, figure in figures.items() if isinstance(figure, Count))


def belonging(figures: Mapping[str, Figure], count: str) -> tuple[str, ...]:
    """Return the names of the sums and means that belong to a count."""
    sums = {name: figure for name, figure in figures.items() if isinstance(figure, Sum | Mean)}
    return tuple(name for name, figure in sums.items() if figure.rows == count)


@dataclass(eq=False)
class ContributorCounts:
    """The sites that contribute to each cell, over the replies to one question.

    A cell is disclosed only if at least ``min_contributors`` sites contribute to it. Where cells divide the
    rows, their total is known from elsewhere and reveals what is suppressed: then further cells are
    suppressed until the suppressed ones have enough contributors together. A member that is a federation
    counts in a cell as the number of sites that its own threshold guarantees.
    """

    min_contributors: int
    _kind: "type[Summable] | None" = None
    _present: dict[str, list[BoolArray]] = field(default_factory=dict)  # by count: (S, *cells), in blocks
    _weights: list[npt.NDArray[np.int64]] = field(default_factory=list)  # (S,) sites behind each entry

    def add(
        self, kind: "type[Summable]", arrays: Mapping[str, npt.NDArray[np.float64]], weight: int = 1
    ) -> None:
        """Add replies, each field with a leading axis of members; a member stands for ``weight`` sites."""
        self._kind, figures = kind, figures_of(kind)
        for name in counts_in(figures):
            there: BoolArray = arrays[name] > 0
            sums = [f for f in belonging(figures, name) if arrays[f].shape[: there.ndim] == there.shape]
            if sums:  # a site that counts rows and adds nothing to any sum does not contribute
                axes = (tuple(range(there.ndim, arrays[f].ndim)) for f in sums)
                adds = [(arrays[f] != 0).any(axis=axis) for f, axis in zip(sums, axes, strict=True)]
                there = there & np.logical_or.reduce(adds)
            self._present.setdefault(name, []).append(there)
        self._weights.append(np.full(len(next(iter(arrays.values()))), weight))

    def disclosed(self, mass: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, BoolArray]:
        """Return, by count, the mask of its disclosed cells; ``mass`` are the counts in the sum."""
        weights = np.concatenate(self._weights)
        assert self._kind is not None, "no replies were added"
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
        """Return the number of sites that contribute to a count with one cell."""
        return int(np.concatenate(self._weights) @ np.concatenate(self._present[name])[:, 0])


def _suppress_for_contributors(
    disclosed: BoolArray,
    there: BoolArray,
    weights: npt.NDArray[np.int64],
    mass: npt.NDArray[np.float64],
    min_contributors: int,
) -> BoolArray:
    """Suppress the smallest disclosed cell until all suppressed ones have ``min_contributors`` together."""
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
