"""Measures that are taken once, when the first copy of a site is made, and hold for every renewal of it.

Levels, spreads, rounding and the variance within groups are functions of all persons. If they were measured
anew for groups that were shown already, the difference would tell of whoever came or went.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unpooled.data.summary_table import OTHER
from unpooled.data.table import CATEGORY, NUMBER, Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation.group_means import ColumnSpread
from unpooled.privacy.microaggregation.people import CategoryMembership
from unpooled.typing import IntArray


@dataclass(frozen=True)
class SummaryCategories:
    """The levels of a category in the copy; a level without a place of its own goes to place ``rest``."""

    names: tuple[str, ...]
    rest: int

    def places(self, categories: tuple[str, ...]) -> IntArray:
        """The place of each of a table's levels.

        >>> SummaryCategories(("f", "m", "other"), 2).places(("f", "other", "x"))
        array([0, 2, 2])
        """
        own = {category: i for i, category in enumerate(self.names) if category != OTHER}
        return np.array([own.get(category, self.rest) for category in categories], dtype=np.int64)


def frozen_categories(
    categories: tuple[str, ...], has: CategoryMembership, min_group_size: int
) -> SummaryCategories:
    """The levels of the copy of a table that has these.

    A level of fewer than g persons becomes "other"; if "other" would have fewer than g, it becomes the
    commonest level, of equal ones the first by name. No level at all if fewer than g persons have a value.
    """
    holders = category_counts(categories, has)
    return categories_from_counts(
        holders, people_with_rare(categories, has, common_categories(holders, min_group_size)), min_group_size
    )


def category_counts(categories: tuple[str, ...], has: CategoryMembership) -> Counter[str]:
    """The persons who have each level."""
    pairs = np.unique(has.who * len(categories) + has.category)
    counts = np.bincount(pairs % max(len(categories), 1), minlength=len(categories))
    return Counter(dict(zip(categories, counts.tolist(), strict=True)))


def common_categories(holders: Mapping[str, int], min_group_size: int) -> tuple[str, ...]:
    """The levels that are shown by name, sorted."""
    return tuple(
        sorted(
            category for category, count in holders.items() if count >= min_group_size and category != OTHER
        )
    )


def people_with_rare(categories: tuple[str, ...], has: CategoryMembership, common: Collection[str]) -> int:
    """The persons who have a level that is not among the common ones."""
    beside = np.array([category not in common for category in categories], dtype=np.bool_)
    return len(np.unique(has.who[beside[has.category]]))


def categories_from_counts(holders: Mapping[str, int], beside: int, min_group_size: int) -> SummaryCategories:
    """The levels of the copy, by the persons who have each, and those who have one that is not common."""
    names = common_categories(holders, min_group_size)
    if beside >= min_group_size:
        return SummaryCategories((*names, OTHER), len(names))
    if not names:
        return SummaryCategories((), -1)
    return SummaryCategories(names, names.index(max(names, key=lambda category: holders[category])))


@dataclass(frozen=True)
class Scales:
    """The measures of a site."""

    min_group_size: int  # g
    min_size: int  # persons of a group; more than g where columns have holes
    columns: tuple[tuple[str, str, str], ...]  # (column, its name in the copy, its kind)
    spreads: dict[str, ColumnSpread | None]  # by column of numbers; None: not shown
    categories: dict[str, SummaryCategories]  # by category
    collinear: tuple[tuple[str, ...], ...]
    inside: float = 0.0  # mean squared distance of persons from their groups' means, in the first copy
    overall: float = 0.0  # the same from the mean of all
    within: tuple[float, ...] = ()  # by column, the variance within groups; nan: not shown
    named: bool = True

    def max_spread(self, extra_spread: float | None = None) -> float:
        """The mean squared distance up to which persons are put together; ``extra_spread`` 0: as tight as at first.

        None: ten times as much as at first, but at most a tenth of the way to no groups at all. That keeps
        the clusters apart which the first groups kept apart, and most persons find company.

        >>> scales = Scales(5, 5, (), {}, {}, (), inside=1.0, overall=5.0)
        >>> scales.widest(0.25), scales.widest()
        (2.0, 1.4)
        """
        if extra_spread is None:
            return min(10 * self.inside, self.max_spread(0.1))
        return self.inside + extra_spread * (self.overall - self.inside)

    @property
    def bits(self) -> dict[str, int]:
        """The bit of each column that has cells, by its name in the copy; bit 0 is the number of persons."""
        return {shown: 2 << i for i, (_, shown, _) in enumerate(self.columns)}

    def check_fits(self, table: Table) -> None:
        """Raise InputError if a table lacks a column, or has it of another kind."""
        kinds = dict(zip(table.names, table.kinds, strict=True))
        for name, _, kind in self.columns:
            if name not in kinds:
                raise InputError(
                    f"there is no column {name!r}, which the copy has: a renewal needs all of them"
                )
            if kind in (NUMBER, CATEGORY) and kinds[name] not in (kind, "empty"):
                raise InputError(
                    f"column {name} is of the kind {kinds[name]}, and was of {kind} when the copy was made; "
                    "--numbers or --categorical says how it is read"
                )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "within": [None if v != v else v for v in self.within]}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> "Scales":
        return cls(
            min_group_size=int(given["min_group_size"]),
            min_size=int(given["min_size"]),
            columns=tuple((str(a), str(b), str(c)) for a, b, c in given["columns"]),
            spreads={
                name: None if spread is None else ColumnSpread(**spread)
                for name, spread in given["spreads"].items()
            },
            categories={
                name: SummaryCategories(tuple(found["names"]), int(found["rest"]))
                for name, found in given["categories"].items()
            },
            collinear=tuple(tuple(same) for same in given["collinear"]),
            inside=float(given["inside"]),
            overall=float(given["overall"]),
            within=tuple(float("nan") if v is None else float(v) for v in given["within"]),
            named=bool(given["named"]),
        )
