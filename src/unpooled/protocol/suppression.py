"""The sites behind every cell of a sum, and the sum without the cells that too few sites have rows of.

A cluster that one site alone has rows of would be that site's own numbers in the sum of its region. So a cell
with fewer sites than the rule asks for is left out, its count and the sums that belong to it alike. Where
cells divide the rows, their total is known from elsewhere, and what is left out follows from it: then cells
are left out until those that are missing have enough sites together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.protocol.declarations import Count, Figure
from unpooled.protocol.declarations import figures as figures_of
from unpooled.typing import BoolArray


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
