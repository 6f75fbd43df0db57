"""The plan of a summary table that is made in parts: what a part must know of the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import fsum
from typing import NamedTuple

import numpy as np

from unpooled.data.column_kinds import CATEGORY, has_mean
from unpooled.data.summary_table import SummaryTable
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
    """Facts about the groups of one part, to be combined with those of the others."""

    number: int  # of the part
    digest: str  # of its groups
    inside: tuple[WithinGroupSquares, ...]  # by column
    disclosed: tuple[bool, ...]  # by column: some group discloses it
    sums: tuple[tuple[float, float], ...]  # by column: people with a value, and their sum


@dataclass(frozen=True)
class SummaryPlan:
    """The scales of the whole."""

    settings: SummarySettings
    scales: Scales
    rows: Mapping[
        str, tuple[int, ...]
    ]  # by categorical column: the rows of each category of the summary table
    made: str
    disclosed: tuple[bool, ...] = ()  # by column: some group of the whole discloses it
    means: tuple[float, ...] = ()  # by column: over all groups that disclose it
    digests: tuple[str, ...] = ()  # of the groups of every part

    def grouped(self, part: SummaryPart) -> tuple[SummaryTable, PartGroups]:
        """Return the groups of a part, and the facts that complete them once all parts are known."""
        table, people, scales = part.table, part.people, self.scales
        people.link_missing(scales.collinear)
        Z = points(table, people, scales, self.settings, self._holders)
        labels = groups(Z, scales.min_size)
        del Z
        disclosed, inside = disclosed_groups(table, people, scales, self.settings, labels)
        summary = assemble_summary(scales, disclosed, self.made)
        means = [summary.means.get(name, np.zeros(len(summary))) for name in summary.names]
        sums = tuple((float(n.sum()), float(n @ x)) for n, x in zip(summary.known.T, means, strict=True))
        there = tuple(name in summary.means or name in summary.counts for name in summary.names)
        return summary, PartGroups(part.number, _digest(summary), inside, there, sums)

    def completed_by(self, parts: Sequence[PartGroups]) -> "SummaryPlan":
        """Return the plan with the variance within the groups of all parts, and the disclosed columns."""
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
        """Raise InputError if a part has other groups than before: their difference could be one person."""
        if again.digest != self.digests[again.number]:
            raise InputError(
                "its rows are not those of which the summary table was made. Make the summary table again."
            )

    def complete(self, summary: SummaryTable) -> SummaryTable:
        """Return the groups of a part as a table with the columns, categories and variances of the whole."""
        kinds, means, counts = list(summary.kinds), dict(summary.means), dict(summary.counts)
        categories, values = dict(summary.categories), dict(summary.values)
        for j, (name, column, kind) in enumerate(self.scales.columns):
            if self.disclosed[j] and column not in means and column not in counts:
                kinds[j] = kind
                if has_mean(kind):
                    means[column] = np.zeros(len(summary))
                    if (spread := self.scales.spreads[name]) is not None and spread.values:
                        values[column] = spread.values
                elif kind == CATEGORY:
                    categories[column] = self.scales.categories[name].names
                    counts[column] = np.zeros((len(summary), len(categories[column])))
        within = np.array(self.scales.within)
        return replace(
            summary,
            kinds=tuple(kinds),
            means=means,
            counts=counts,
            categories=categories,
            within=within,
            values=values,
        )

    def matrix(self, summary: SummaryTable) -> FloatArray:
        """Return (groups, columns) the means of a part of an array, a column's mean in suppressed cells."""
        lacking = [
            name for name, disclosed in zip(summary.names, self.disclosed, strict=True) if not disclosed
        ]
        if lacking:
            raise InputError(f"column {lacking[0]} has too few values for a summary table")
        X = np.stack([summary.means.get(name, np.zeros(len(summary))) for name in summary.names], axis=1)
        return np.where(summary.known > 0, X, np.array(self.means))

    def _holders(self, name: str) -> IntArray:
        """The rows of every category of a column of the summary table, in the whole."""
        return np.array(self.rows[name], dtype=np.int64)


def _digest(summary: SummaryTable) -> str:
    """A digest of groups, from their numbers in memory: the text of many groups would take long."""
    digest = sha256(repr((summary.names, summary.kinds, summary.categories)).encode())
    for values in (summary.people, summary.known, *summary.means.values(), *summary.counts.values()):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
