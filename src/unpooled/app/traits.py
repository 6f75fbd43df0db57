"""Traits of a cluster: how it differs from all rows, column by column."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unpooled.data import AgreedSchema
from unpooled.data.transforms import Binary, Number
from unpooled.evaluation import Description
from unpooled.html.formatting import figure

_NEARLY_ALL = 0.9  # share of rows with a value from which the number behind a figure is not worth a word
FULL = 2.0  # standard deviations that fill half a bar, or give a cell its deepest colour


@dataclass(frozen=True, eq=False)
class Trait:
    """The difference of a cluster from all rows in one number, or in one category of a categorical column."""

    column: str
    category: str  # "" for a number
    value: float  # the cluster's mean in the column's own unit, or the share of the category
    spread: float  # standard deviation within the cluster; nan for a category
    overall: float  # the mean or the share over all rows
    effect: float  # how many standard deviations of all rows the cluster's mean lies from theirs
    known: float  # rows of the cluster with a value, on which the figures rest
    rows: float  # of the cluster
    show: Callable[[float], str] = figure  # how a number of the column is printed

    @property
    def name(self) -> str:
        return f"{self.column} = {self.category}" if self.category else self.column

    @property
    def shown(self) -> str:
        """The value, a share as a percentage."""
        return f"{self.value:.0%}" if self.category else self.show(self.value)

    @property
    def shown_overall(self) -> str:
        """The mean or the share over all rows, as ``shown``."""
        return f"{self.overall:.0%}" if self.category else self.show(self.overall)

    def text(self) -> str:
        """Return the trait in words, with the rows behind it if many others lack a value.

        >>> Trait("age", "", 61.2, 5.0, 53.5, 0.8, 70, 70).text()
        'age 61.2 (all 53.5)'
        >>> Trait("sex", "m", 0.9, 0.0, 0.5, 0.8, 60, 70).text()
        '90% sex = m (all 50%; 60 of 70 have a value)'
        """
        behind = f"; {self.behind}" if self.behind else ""
        if self.category:
            value, overall = (round(share, 2) + 0.0 for share in (self.value, self.overall))  # never -0%
            return f"{value:.0%} {self.name} (all {overall:.0%}{behind})"
        return f"{self.column} {self.shown} (all {self.shown_overall}{behind})"

    @property
    def behind(self) -> str:
        """The number of rows behind the figures, in words; "" if nine of ten rows have a value, or more."""
        few = self.known < _NEARLY_ALL * self.rows
        return f"{self.known:,.0f} of {self.rows:,.0f} have a value" if few else ""


def cluster_traits(description: Description, agreement: AgreedSchema, cluster: int) -> list[Trait]:
    """Return the traits of a cluster, the largest differences first.

    A number that has two values is described as a category, by the share of the higher one.
    """
    binary = {c.label: c for c in agreement.preparation.columns if isinstance(c, Binary)}
    traits = [
        replace(
            trait,
            category=column.category,
            value=column.share(trait.value),
            spread=float("nan"),
            overall=column.share(trait.overall),
        )
        if (column := binary.get(trait.column))
        else trait
        for trait in column_means(description, agreement, cluster)
    ]
    return sorted(traits, key=lambda trait: -abs(trait.effect))


def column_means(description: Description, agreement: AgreedSchema, cluster: int) -> list[Trait]:
    """Return the traits of a cluster in the order of the prepared columns, of all numbers their means."""
    d, transform = description, agreement.preparation
    values, overall = transform.undo(d.means), transform.undo(d.mean[None])[0]
    one, zero = np.ones((1, transform.width)), np.zeros((1, transform.width))
    scales = transform.undo(one)[0] - transform.undo(zero)[0]
    within_groups = dict(zip((c.label for c in transform.columns), agreement.within, strict=True))
    shown = {c.label: c.shown for c in transform.columns if isinstance(c, Number)}
    traits = []
    rows = float(d.sizes[:, cluster].sum())
    for j, (column, category) in enumerate(transform.outputs):
        gap = d.means[cluster, j] - d.mean[j]
        # a summary table holds means of groups: the variance within its groups comes back here
        within = 0.0 if category else within_groups[column]
        deviation, own = (
            math.hypot(v, math.sqrt(within)) for v in (d.deviation[j], d.deviations[cluster, j])
        )
        effect = float(gap / deviation) if deviation > 0 else 0.0
        spread = float("nan") if category else float(own * scales[j])
        known = rows if d.known is None else float(d.known[cluster, j])
        value, everywhere = float(values[cluster, j]), float(overall[j])
        show = figure if category else shown[column]
        traits.append(Trait(column, category, value, spread, everywhere, effect, known, rows, show))
    return traits


def one_per_column(traits: list[Trait]) -> list[Trait]:
    """Return the first trait of every column: of a categorical column, the category that differs most."""
    first: dict[str, Trait] = {}
    for trait in traits:
        first.setdefault(trait.column, trait)
    return list(first.values())


def distinctive(traits: list[Trait]) -> str:
    """Return the three largest traits in words; traits must be sorted, the largest first."""
    largest = [t for t in one_per_column(traits)[:3] if abs(t.effect) >= 0.2]
    return ", ".join(t.text() for t in largest) or "close to the mean in every column"
