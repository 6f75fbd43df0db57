"""What sets a cluster apart, column by column."""

from dataclasses import dataclass

from unpooled.pages.markup import figure


@dataclass(frozen=True, eq=False)
class Trait:
    """A difference of a cluster from all rows, in one column (or one level of a category)."""

    column: str
    level: str  # "" for a number
    value: float  # the cluster's mean in the column's own unit, or the share of the level
    spread: float  # standard deviation within the cluster; nan for a level
    overall: float
    effect: float  # how many standard deviations of all rows the cluster's mean lies from theirs

    @property
    def name(self) -> str:
        return f"{self.column}: {self.level}" if self.level else self.column

    def say(self) -> str:
        """
        >>> Trait("age", "", 61.2, 5.0, 53.5, 0.8).say(), Trait("sex", "m", 0.9, 0.0, 0.5, 0.8).say()
        ('age 61.2 (all 53.5)', 'sex m 90 % (all 50 %)')
        """
        if self.level:
            value, overall = (round(share, 2) + 0.0 for share in (self.value, self.overall))  # never -0 %
            return f"{self.column} {self.level} {value:.0%} (all {overall:.0%})".replace("%", " %")
        return f"{self.column} {figure(self.value)} (all {figure(self.overall)})"


def once_a_column(traits: list[Trait]) -> list[Trait]:
    """The differences with one level per category, the one that differs most."""
    seen: dict[str, Trait] = {}
    for trait in traits:
        seen.setdefault(trait.column, trait)
    return list(seen.values())
