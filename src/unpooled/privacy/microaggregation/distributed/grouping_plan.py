"""The plan of a copy that is made in parts: all that a part must know of the whole to make its groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import fsum
from typing import NamedTuple

import numpy as np

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import CATEGORY, NUMBER
from unpooled.errors import InputError
from unpooled.kernels.grouping import groups
from unpooled.privacy.microaggregation.distance import points
from unpooled.privacy.microaggregation.distributed.worker_part import SummaryPart
from unpooled.privacy.microaggregation.group_means import WithinGroupSquares
from unpooled.privacy.microaggregation.scales import Scales
from unpooled.privacy.microaggregation.summarize import assemble_summary, disclosed_groups
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.typing import FloatArray, IntArray


class PartGroups(NamedTuple):
    """Facts about the groups of one part, which those of the others are added to."""

    number: int  # of the part
    digest: str  # of its groups
    inside: tuple[WithinGroupSquares, ...]  # by column
    disclosed: tuple[bool, ...]  # by column: some group shows it
    sums: tuple[tuple[float, float], ...]  # by column: persons with a value, and their sum


@dataclass(frozen=True)
class SummaryPlan:
    """The scales of the whole."""

    settings: SummarySettings
    scales: Scales
    rows: Mapping[str, tuple[int, ...]]  # of every category: of each level that the copy has
    made: str
    disclosed: tuple[bool, ...] = ()  # by column: some group of the whole shows it
    means: tuple[float, ...] = ()  # by column: over all groups that show it
    digests: tuple[str, ...] = ()  # of the groups of every part

    def grouped(self, part: SummaryPart) -> tuple[SummaryTable, PartGroups]:
        """The groups of a part, and what must be known of those of all parts to complete them."""
        table, people, scales = part.table, part.people, self.scales
        people.link_missing(scales.collinear)
        Z = points(table, people, scales, self.settings, self._holders)
        labels = groups(Z, scales.min_size)
        del Z
        disclosed, inside = disclosed_groups(table, people, scales, self.settings, labels)
        copy = assemble_summary(scales, disclosed, self.made)
        means = [copy.means.get(name, np.zeros(len(copy))) for name in copy.names]
        sums = tuple((float(n.sum()), float(n @ x)) for n, x in zip(copy.known.T, means, strict=True))
        there = tuple(name in copy.means or name in copy.counts for name in copy.names)
        return copy, PartGroups(part.number, _digest(copy), inside, there, sums)

    def completed_by(self, parts: Sequence[PartGroups]) -> "SummaryPlan":
        """The plan with the variance within the groups of all parts, and the columns that are shown."""
        within = [
            WithinGroupSquares.together(of).variance
            for of in zip(*(part.inside for part in parts), strict=True)
        ]
        sums = zip(*(part.sums for part in parts), strict=True)
        return replace(
            self,
            scales=replace(self.scales, within=tuple(within)),
            disclosed=tuple(any(of) for of in zip(*(part.disclosed for part in parts), strict=True)),
            means=tuple(fsum(x for _, x in of) / max(fsum(n for n, _ in of), 1.0) for of in sums),
            digests=tuple(part.digest for part in sorted(parts, key=lambda part: part.number)),
        )

    def check_same(self, again: PartGroups) -> None:
        """InputError if a part has other groups than at first: their difference could be one person."""
        if again.digest != self.digests[again.number]:
            raise InputError("its rows are not those of which the copy was made: a copy must be made anew")

    def complete(self, copy: SummaryTable) -> SummaryTable:
        """The groups of a part as a copy that has the columns, levels and variances of the whole."""
        kinds, means, counts = list(copy.kinds), dict(copy.means), dict(copy.counts)
        categories = dict(copy.categories)
        for j, (name, column, kind) in enumerate(self.scales.columns):
            if self.disclosed[j] and column not in means and column not in counts:
                kinds[j] = kind
                if kind == NUMBER:
                    means[column] = np.zeros(len(copy))
                elif kind == CATEGORY:
                    categories[column] = self.scales.categories[name].names
                    counts[column] = np.zeros((len(copy), len(categories[column])))
        within = np.array(self.scales.within)
        return replace(
            copy, kinds=tuple(kinds), means=means, counts=counts, categories=categories, within=within
        )

    def matrix(self, copy: SummaryTable) -> FloatArray:
        """(groups, columns) the means of a part of an array; a cell that is not shown has its column's."""
        lacking = [name for name, disclosed in zip(copy.names, self.disclosed, strict=True) if not disclosed]
        if lacking:
            raise InputError(f"column {lacking[0]} has too few values for a copy")
        X = np.stack([copy.means.get(name, np.zeros(len(copy))) for name in copy.names], axis=1)
        return np.where(copy.known > 0, X, np.array(self.means))

    def _holders(self, name: str) -> IntArray:
        """The rows of every level that the copy has of a category, in the whole."""
        return np.array(self.rows[name], dtype=np.int64)


def _digest(copy: SummaryTable) -> str:
    """A digest of groups, from their numbers as they are in memory: a text of many groups would take long."""
    found = sha256(repr((copy.names, copy.kinds, copy.categories)).encode())
    for values in (copy.people, copy.known, *copy.means.values(), *copy.counts.values()):
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()
