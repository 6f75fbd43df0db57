"""Measures that are taken once, when the first copy of a site is made, and hold for every renewal of it.

Levels, spreads, rounding and the variance within groups are functions of all persons. If they were measured
anew for groups that were shown already, the difference would tell of whoever came or went.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unpooled.core.arrays import IntArray
from unpooled.data.copy import OTHER
from unpooled.data.table import CATEGORY, NUMBER, Table
from unpooled.errors import BadInput
from unpooled.privacy.copy.cells import ColumnSpread
from unpooled.privacy.copy.persons import Held


@dataclass(frozen=True)
class CopyLevels:
    """The levels of a category in the copy; a level without a place of its own goes to place ``rest``."""

    names: tuple[str, ...]
    rest: int

    def places(self, levels: tuple[str, ...]) -> IntArray:
        """The place of each of a table's levels.

        >>> CopyLevels(("f", "m", "other"), 2).places(("f", "other", "x"))
        array([0, 2, 2])
        """
        own = {level: i for i, level in enumerate(self.names) if level != OTHER}
        return np.array([own.get(level, self.rest) for level in levels], dtype=np.int64)


def frozen_levels(levels: tuple[str, ...], has: Held, g: int) -> CopyLevels:
    """The levels of the copy of a table that has these.

    A level of fewer than g persons becomes "other"; if "other" would have fewer than g, it becomes the
    commonest level, of equal ones the first by name. No level at all if fewer than g persons have a value.
    """
    holders = level_holders(levels, has)
    return levels_from(holders, persons_beside(levels, has, common_levels(holders, g)), g)


def level_holders(levels: tuple[str, ...], has: Held) -> Counter[str]:
    """The persons who have each level."""
    pairs = np.unique(has.who * len(levels) + has.level)
    counts = np.bincount(pairs % max(len(levels), 1), minlength=len(levels))
    return Counter(dict(zip(levels, counts.tolist(), strict=True)))


def common_levels(holders: Mapping[str, int], g: int) -> tuple[str, ...]:
    """The levels that are shown by name, sorted."""
    return tuple(sorted(level for level, count in holders.items() if count >= g and level != OTHER))


def persons_beside(levels: tuple[str, ...], has: Held, common: Collection[str]) -> int:
    """The persons who have a level that is not among the common ones."""
    beside = np.array([level not in common for level in levels], dtype=np.bool_)
    return len(np.unique(has.who[beside[has.level]]))


def levels_from(holders: Mapping[str, int], beside: int, g: int) -> CopyLevels:
    """The levels of the copy, by the persons who have each, and those who have one that is not common."""
    names = common_levels(holders, g)
    if beside >= g:
        return CopyLevels((*names, OTHER), len(names))
    if not names:
        return CopyLevels((), -1)
    return CopyLevels(names, names.index(max(names, key=lambda level: holders[level])))


@dataclass(frozen=True)
class Scales:
    """The measures of a site."""

    group_size: int  # g
    least: int  # persons of a group; more than g where columns have holes
    columns: tuple[tuple[str, str, str], ...]  # (column, its name in the copy, its kind)
    spreads: dict[str, ColumnSpread | None]  # by column of numbers; None: not shown
    levels: dict[str, CopyLevels]  # by category
    twins: tuple[tuple[str, ...], ...]
    inside: float = 0.0  # mean squared distance of persons from their groups' means, in the first copy
    overall: float = 0.0  # the same from the mean of all
    within: tuple[float, ...] = ()  # by column, the variance within groups; nan: not shown
    named: bool = True

    def widest(self, wider: float | None = None) -> float:
        """The mean squared distance up to which persons are put together; ``wider`` 0: as tight as at first.

        None: ten times as much as at first, but at most a tenth of the way to no groups at all. That keeps
        the clusters apart which the first groups kept apart, and most persons find company.

        >>> scales = Scales(5, 5, (), {}, {}, (), inside=1.0, overall=5.0)
        >>> scales.widest(0.25), scales.widest()
        (2.0, 1.4)
        """
        if wider is None:
            return min(10 * self.inside, self.widest(0.1))
        return self.inside + wider * (self.overall - self.inside)

    @property
    def bits(self) -> dict[str, int]:
        """The bit of each column that has cells, by its name in the copy; bit 0 is the number of persons."""
        return {shown: 2 << i for i, (_, shown, _) in enumerate(self.columns)}

    def check_fits(self, table: Table) -> None:
        """Raise BadInput if a table lacks a column, or has it of another kind."""
        kinds = dict(zip(table.names, table.kinds, strict=True))
        for name, _, kind in self.columns:
            if name not in kinds:
                raise BadInput(
                    f"there is no column {name!r}, which the copy has: a renewal needs all of them"
                )
            if kind in (NUMBER, CATEGORY) and kinds[name] not in (kind, "empty"):
                raise BadInput(
                    f"column {name} is of the kind {kinds[name]}, and was of {kind} when the copy was made; "
                    "--numbers or --categories says how it is read"
                )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "within": [None if v != v else v for v in self.within]}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> "Scales":
        return cls(
            group_size=int(given["group_size"]),
            least=int(given["least"]),
            columns=tuple((str(a), str(b), str(c)) for a, b, c in given["columns"]),
            spreads={
                name: None if spread is None else ColumnSpread(**spread)
                for name, spread in given["spreads"].items()
            },
            levels={
                name: CopyLevels(tuple(found["names"]), int(found["rest"]))
                for name, found in given["levels"].items()
            },
            twins=tuple(tuple(same) for same in given["twins"]),
            inside=float(given["inside"]),
            overall=float(given["overall"]),
            within=tuple(float("nan") if v is None else float(v) for v in given["within"]),
            named=bool(given["named"]),
        )
