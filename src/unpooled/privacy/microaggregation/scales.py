"""Measures that are taken once, for the first summary table of a site, and hold for every update of it.

Categories, spreads, rounding and the variance within groups are functions of all people. If they were
measured again for disclosed groups, the difference would reveal the people who came or left.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from unpooled.data.column_kinds import has_cells
from unpooled.data.summary_table import OTHER
from unpooled.data.table import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation.diversity import ValueLimits
from unpooled.privacy.microaggregation.group_means import ColumnSpread
from unpooled.privacy.microaggregation.people import CategoryMembership
from unpooled.typing import IntArray


@dataclass(frozen=True)
class SummaryCategories:
    """The categories of a column in the summary table; others count at position ``rest``."""

    names: tuple[str, ...]
    rest: int

    def places(self, categories: tuple[str, ...]) -> IntArray:
        """Return the position of each of a table's categories.

        >>> SummaryCategories(("f", "m", "other"), 2).places(("f", "other", "x"))
        array([0, 2, 2])
        """
        own = {category: i for i, category in enumerate(self.names) if category != OTHER}
        return np.array([own.get(category, self.rest) for category in categories], dtype=np.int64)


def frozen_categories(
    categories: tuple[str, ...], has: CategoryMembership, min_group_size: int
) -> SummaryCategories:
    """Return the categories of the summary table for these categories of a table.

    A category of fewer than g people becomes "other"; if "other" would have fewer than g, it becomes the most
    frequent category, among equals the first by name. None is left if fewer than g people have a value.
    """
    holders = category_counts(categories, has)
    return categories_from_counts(
        holders, people_with_rare(categories, has, common_categories(holders, min_group_size)), min_group_size
    )


def category_counts(categories: tuple[str, ...], has: CategoryMembership) -> Counter[str]:
    """Return the number of people who have each category."""
    pairs = np.unique(has.who * len(categories) + has.category)
    counts = np.bincount(pairs % max(len(categories), 1), minlength=len(categories))
    return Counter(dict(zip(categories, counts.tolist(), strict=True)))


def common_categories(holders: Mapping[str, int], min_group_size: int) -> tuple[str, ...]:
    """Return the categories that are disclosed by name, sorted."""
    return tuple(
        sorted(
            category for category, count in holders.items() if count >= min_group_size and category != OTHER
        )
    )


def people_with_rare(categories: tuple[str, ...], has: CategoryMembership, common: Collection[str]) -> int:
    """Return the number of people who have a category that is not among the common ones."""
    rare = np.array([category not in common for category in categories], dtype=np.bool_)
    return len(np.unique(has.who[rare[has.category]]))


def categories_from_counts(holders: Mapping[str, int], rare: int, min_group_size: int) -> SummaryCategories:
    """Return the categories of the summary table, by the people who have each, and those with a rare one."""
    names = common_categories(holders, min_group_size)
    if rare >= min_group_size:
        return SummaryCategories((*names, OTHER), len(names))
    if not names:
        return SummaryCategories((), -1)
    return SummaryCategories(names, names.index(max(names, key=lambda category: holders[category])))


@dataclass(frozen=True)
class Scales:
    """The measures of a site."""

    min_group_size: int  # g
    min_size: int  # people in a group; more than g if columns have missing values
    columns: tuple[tuple[str, str, str], ...]  # (column, its name in the summary table, its kind)
    spreads: dict[str, ColumnSpread | None]  # by numeric column; None: suppressed
    categories: dict[str, SummaryCategories]  # by categorical column
    collinear: tuple[tuple[str, ...], ...]
    inside: float = 0.0  # mean squared distance of people from their groups' means, in the first table
    overall: float = 0.0  # the same from the mean of all
    within: tuple[float, ...] = ()  # by column, the variance within groups; nan: suppressed
    named: bool = True
    diverse: dict[str, ValueLimits] = field(default_factory=dict)  # by column whose values are diverse

    def max_spread(self, extra_spread: float | None = None) -> float:
        """Return the largest mean squared distance within a new group; 0: as in the first groups.

        None: ten times as much as in the first groups, but at most a tenth of the way to a single group. That
        keeps the clusters apart which the first groups kept apart, and most people find a group.

        >>> scales = Scales(5, 5, (), {}, {}, (), inside=1.0, overall=5.0)
        >>> scales.max_spread(0.25), scales.max_spread()
        (2.0, 1.4)
        """
        if extra_spread is None:
            return min(10 * self.inside, self.max_spread(0.1))
        return self.inside + extra_spread * (self.overall - self.inside)

    @property
    def bits(self) -> dict[str, int]:
        """The bit of each column, by its name in the summary table; bit 0 is the number of people."""
        return {released: 2 << i for i, (_, released, _) in enumerate(self.columns)}

    def check_fits(self, table: Table) -> None:
        """Raise InputError if a table lacks a column, or has it of another kind."""
        kinds = dict(zip(table.names, table.kinds, strict=True))
        for name, _, kind in self.columns:
            if name not in kinds:
                raise InputError(
                    f"there is no column {name!r}. An update needs all columns of the summary table."
                )
            if has_cells(kind) and kinds[name] not in (kind, "empty"):
                raise InputError(
                    f"column {name} is a {kinds[name]} column, and was a {kind} column in the summary table. "
                    "Choose its kind with --numbers or --categorical."
                )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "within": [None if v != v else v for v in self.within]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Scales":
        return cls(
            min_group_size=int(values["min_group_size"]),
            min_size=int(values["min_size"]),
            columns=tuple((str(a), str(b), str(c)) for a, b, c in values["columns"]),
            spreads={
                name: None
                if spread is None
                else ColumnSpread(**{**spread, "values": tuple(spread["values"])})
                for name, spread in values["spreads"].items()
            },
            categories={
                name: SummaryCategories(tuple(own["names"]), int(own["rest"]))
                for name, own in values["categories"].items()
            },
            collinear=tuple(tuple(same) for same in values["collinear"]),
            inside=float(values["inside"]),
            overall=float(values["overall"]),
            within=tuple(float("nan") if v is None else float(v) for v in values["within"]),
            named=bool(values["named"]),
            diverse={
                name: ValueLimits(tuple(own["borders"]), tuple(own["limits"]))
                for name, own in values["diverse"].items()
            },
        )
