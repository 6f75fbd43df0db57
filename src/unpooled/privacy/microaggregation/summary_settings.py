"""The settings of a copy, which the site chooses and nobody else."""

from dataclasses import dataclass

from unpooled.errors import InputError

MIN_GROUP_SIZE = 3  # persons in a group; with fewer the rule against a dominating person has no meaning
DEFAULT_GROUP_SIZE, MAX_PROPOSED = 5, 11


@dataclass(frozen=True)
class SummarySettings:
    """How a copy is made.

    >>> SummarySettings().group_size_for(200), SummarySettings().group_size_for(480), SummarySettings(min_group_size=8).group_size_for(200)
    (5, 8, 8)
    """

    min_group_size: int = 0  # persons in a group, at least; 0: proposed by the number of persons
    person: str = ""  # the column that says whose row it is; "": every row is a person
    columns: tuple[str, ...] = ()  # those that studies are about: they count three times in the grouping
    sensitive: tuple[str, ...] = ()  # these do not count in the grouping
    log: tuple[str, ...] = ()  # of these the copy holds the logarithm only
    consumption: tuple[str, ...] = ()  # of these a cell is shown if nobody dominates its total
    max_share: float = 0.15  # of the total of such a cell that one person may have

    def __post_init__(self) -> None:
        if (
            isinstance(self.min_group_size, bool)
            or not isinstance(self.min_group_size, int)
            or (self.min_group_size and self.min_group_size < MIN_GROUP_SIZE)
        ):
            raise InputError(
                f"min_group_size must be 0 (proposed) or a whole number of at least {MIN_GROUP_SIZE}, got {self.min_group_size!r}"
            )
        for name in (*self.columns, *self.log):
            if name in self.sensitive and name in self.columns:
                raise InputError(
                    f"column {name} is named both as one that studies are about and as sensitive"
                )
        for name in self.consumption:
            if name in self.log:
                raise InputError(f"column {name} is named both as consumption and for its logarithm")
        if not 0 < self.max_share <= 1:
            raise InputError(f"max_share must be above 0 and up to 1, got {self.max_share!r}")
        if self.person and self.person in (*self.columns, *self.sensitive, *self.log, *self.consumption):
            raise InputError(f"column {self.person} says whose row it is: it is in no group")

    def group_size_for(self, people: int) -> int:
        """The fewest persons of a group: as chosen, or 5, and from 300 persons on a sixtieth, up to 11."""
        return self.min_group_size or max(DEFAULT_GROUP_SIZE, min(MAX_PROPOSED, people // 60))
