"""The distance by which people are grouped: robust, so that a few extreme people do not distort it."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from unpooled.data.column_kinds import CATEGORY, has_mean
from unpooled.data.table import Table
from unpooled.privacy.microaggregation.group_means import ColumnSpread
from unpooled.privacy.microaggregation.people import CategoryMembership, People
from unpooled.privacy.microaggregation.scales import Scales
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.typing import FloatArray, IntArray

Column = npt.NDArray[np.float32]
_FARTHEST = 8.0  # deviations, to which a value is clipped
_STUDIED = 3.0  # weight of the columns that studies are about, and of consumption
_MISSING = 0.5  # distance of a missing value from a present one
_MAX_CATEGORIES = 32  # of a column; the others count as one


class PointMatrix:
    """People as points: numbers in deviations, categories as 0 or 1 / sqrt 2, missing values as a mark."""

    def __init__(self, people: int, min_group_size: int, settings: SummarySettings) -> None:
        self._people, self._g, self._settings = people, min_group_size, settings
        self._columns: list[Column] = []

    def add_number(self, name: str, x: FloatArray, spread: ColumnSpread | None) -> None:
        weight = self._weight(name)
        if spread is None or not weight:
            return
        missing = np.isnan(x)
        if spread.deviation > 0 and spread.typical > 0:
            z = np.clip((x - spread.mean) / spread.deviation, -_FARTHEST, _FARTHEST)
            self._columns.append((weight * np.where(missing, 0.0, z)).astype(np.float32))
        self._mark(missing, weight)

    def add_category(
        self,
        name: str,
        has: CategoryMembership,
        categories: tuple[str, ...],
        place: IntArray,
        holders: IntArray | None = None,
    ) -> None:
        """Add a categorical column; ``holders`` has the rows by category, by default those of ``has``."""
        weight = self._weight(name)
        if not categories or not weight:
            return
        at = place[has.category]
        holders = np.bincount(at, minlength=len(categories)) if holders is None else holders
        for category in sorted(np.argsort(-holders, kind="stable")[:_MAX_CATEGORIES]):
            mine = at == category
            share = np.bincount(has.who[mine], has.share[mine], self._people)
            self._columns.append((weight / np.sqrt(2.0) * share).astype(np.float32))
        missing = np.ones(self._people, dtype=np.bool_)
        missing[has.who] = False
        self._mark(missing, weight)

    def matrix(self) -> npt.NDArray[np.float32]:
        """Return the points (people, width), and release the columns, to keep memory low."""
        Z = np.zeros((self._people, max(1, len(self._columns))), dtype=np.float32)
        for j in range(len(self._columns)):
            Z[:, j] = self._columns[j]
            self._columns[j] = np.zeros(0, dtype=np.float32)
        return Z

    def _weight(self, name: str) -> float:
        if name in self._settings.ungrouped:
            return 0.0
        return _STUDIED if name in (*self._settings.study_columns, *self._settings.consumption) else 1.0

    def _mark(self, missing: npt.NDArray[np.bool_], weight: float) -> None:
        if missing.any():
            self._columns.append((weight * _MISSING * missing).astype(np.float32))


def points(
    table: Table,
    people: People,
    scales: Scales,
    settings: SummarySettings,
    holders: Callable[[str], IntArray | None] = lambda name: None,
) -> npt.NDArray[np.float32]:
    """Return the people as points (people, width), by the scales of the site.

    ``holders`` gives the rows of every category of a column; None: those of the table.
    """
    distance = PointMatrix(people.count, scales.min_group_size, settings)
    for name, _, kind in scales.columns:
        if has_mean(kind):
            distance.add_number(name, people.number(name), scales.spreads[name])
        elif kind == CATEGORY:
            categories, has = scales.categories[name], people.category(name)
            place = categories.places(table.categories.get(name, ()))
            distance.add_category(name, has, categories.names, place, holders(name))
    return distance.matrix()
