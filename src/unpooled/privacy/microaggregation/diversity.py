"""Diversity of sensitive columns: in a group no value is much more frequent than in the table.

Its share in a group exceeds its share in the table at most by a bound. A numeric column counts by fifths of
its values. A person with several rows counts with the most frequent category. Shares and borders are kept in
the scales of the first table. If a value's share and the bound add up to 1 or more, it may fill a group.

Someone who was in several groups is described by all of them. By Bayes' rule the probability of a value is
proportional to the product of its shares in the groups, over its share in the table for all but one of them.
This probability keeps the bound, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unpooled.kernels.grouping import ClassLimits
from unpooled.privacy.microaggregation.group_history import History
from unpooled.privacy.microaggregation.people import CategoryMembership
from unpooled.typing import FloatArray, IntArray

_FIFTHS = (0.2, 0.4, 0.6, 0.8)
_RAREST = 1e-6  # share of a class that nobody had in the first table


@dataclass(frozen=True)
class ValueLimits:
    """The classes of a column, and the largest share of each in a group."""

    borders: tuple[float, ...]  # of a numeric column; (): the classes are categories
    limits: tuple[float, ...]  # by class

    def classes(self, x: FloatArray) -> IntArray:
        """Return the class of every number, -1 for a missing one. A number at a border is a class of its own.

        >>> ValueLimits((1.0, 2.0), (0.5,) * 5).classes(np.array([0.0, 1.0, 1.5, 2.0, 9.0, np.nan]))
        array([ 0,  1,  2,  3,  4, -1])
        """
        borders = np.array(self.borders)
        of = np.searchsorted(borders, x, side="left") + np.searchsorted(borders, x, side="right")
        return np.where(np.isnan(x), -1, of)

    def count(self, of: IntArray) -> list[int]:
        """Return the people of every class; -1 is not a class."""
        counts: list[int] = np.bincount(of[of >= 0], minlength=len(self.limits)).tolist()
        return counts


def number_limits(x: FloatArray, by: float) -> ValueLimits:
    """Return the limits of a numeric column: of its fifths.

    >>> number_limits(np.array([0.0, 0.0, 0.0, 0.0, 1.0]), 0.25)
    ValueLimits(borders=(0.0, 0.2), limits=(0.25, 1.05, 0.25, 0.25, 0.45))
    """
    there = x[~np.isnan(x)]
    borders = tuple(float(f"{b:.12g}") for b in np.unique(np.quantile(there, _FIFTHS)))
    counted = ValueLimits(borders, ()).classes(there)
    return ValueLimits(borders, _limits(counted, 2 * len(borders) + 1, by))


def category_limits(of: IntArray, categories: int, by: float) -> ValueLimits:
    """Return the limits of a categorical column, by the category of every person; -1: none.

    >>> category_limits(np.array([0, 0, 1, -1, 1]), 2, 0.25)
    ValueLimits(borders=(), limits=(0.75, 0.75))
    """
    return ValueLimits((), _limits(of[of >= 0], categories, by))


def _limits(classes: IntArray, count: int, by: float) -> tuple[float, ...]:
    shares = np.bincount(classes, minlength=count) / len(classes)
    return tuple((shares + by).tolist())


def one_category(has: CategoryMembership, place: IntArray, categories: int, people: int) -> IntArray:
    """Return (people,) the most frequent category of everybody, among equals the first; -1: none.

    >>> has = CategoryMembership(np.array([0, 0, 0, 2]), np.array([0, 1, 1, 0]), np.array([1, 1, 1, 3]) / 3)
    >>> one_category(has, np.array([0, 1]), 2, 3)
    array([ 1, -1,  0])
    """
    at = has.who * categories + place[has.category]
    shares = np.round(np.bincount(at, has.share, people * categories), 9).reshape(people, categories)
    return np.where(shares.any(axis=1), shares.argmax(axis=1), -1)


def class_limits(limits: Mapping[str, ValueLimits], classes: Mapping[str, IntArray]) -> ClassLimits | None:
    """Return the limits of all columns for the grouping; None if there is no column."""
    if not limits:
        return None
    first = np.cumsum([0, *(len(one.limits) for one in limits.values())])
    codes = [
        np.where(classes[name] >= 0, classes[name] + begin, -1)
        for name, begin in zip(limits, first[:-1], strict=True)
    ]
    return ClassLimits(
        np.ascontiguousarray(np.stack(codes, axis=1), np.int32),
        first.astype(np.int32),
        np.concatenate([one.limits for one in limits.values()]),
    )


def earlier_odds(
    history: History, people: Sequence[str], limits: Mapping[str, ValueLimits], by: float
) -> FloatArray | None:
    """Return (n, classes) what the earlier groups of people say about their classes; None without classes.

    It is the product of a class's shares in these groups, each over its share in the table: 1 for somebody
    new, nan if a group was erased.
    """
    if not limits:
        return None
    shares = np.concatenate([np.array(one.limits) - by for one in limits.values()])
    odds = np.ones((len(people), len(shares)))
    by_group: dict[int, FloatArray] = {}
    for i, person in enumerate(people):
        for number in history.groups_of(person):
            if number not in by_group:
                counts = history.groups[number].classes
                by_group[number] = np.full(len(shares), np.nan)
                if counts is not None:
                    here = [np.array(counts[name]) / max(sum(counts[name]), 1) for name in limits]
                    by_group[number] = np.concatenate(here) / np.maximum(shares, _RAREST)
            odds[i] *= by_group[number]
    return odds
