"""The settings of a copy, which the site chooses and nobody else."""

from dataclasses import dataclass

from unpooled.errors import BadInput

LEAST = 3  # persons in a group; with fewer the rule against a dominating person has no meaning
USUAL, MOST_PROPOSED = 5, 11


@dataclass(frozen=True)
class CopySettings:
    """How a copy is made.

    >>> CopySettings().group_size(200), CopySettings().group_size(480), CopySettings(g=8).group_size(200)
    (5, 8, 8)
    """

    g: int = 0  # persons in a group, at least; 0: proposed by the number of persons
    person: str = ""  # the column that says whose row it is; "": every row is a person
    columns: tuple[str, ...] = ()  # those that studies are about: they count three times in the grouping
    sensitive: tuple[str, ...] = ()  # these do not count in the grouping
    log: tuple[str, ...] = ()  # of these the copy holds the logarithm only
    consumption: tuple[str, ...] = ()  # of these a cell is shown if nobody dominates its total
    largest_share: float = 0.15  # of the total of such a cell that one person may have

    def __post_init__(self) -> None:
        if isinstance(self.g, bool) or not isinstance(self.g, int) or (self.g and self.g < LEAST):
            raise BadInput(f"g must be 0 (proposed) or a whole number of at least {LEAST}, got {self.g!r}")
        for name in (*self.columns, *self.log):
            if name in self.sensitive and name in self.columns:
                raise BadInput(f"column {name} is named both as one that studies are about and as sensitive")
        for name in self.consumption:
            if name in self.log:
                raise BadInput(f"column {name} is named both as consumption and for its logarithm")
        if not 0 < self.largest_share <= 1:
            raise BadInput(f"largest_share must be above 0 and up to 1, got {self.largest_share!r}")
        if self.person and self.person in (*self.columns, *self.sensitive, *self.log, *self.consumption):
            raise BadInput(f"column {self.person} says whose row it is: it is in no group")

    def group_size(self, persons: int) -> int:
        """The fewest persons of a group: as chosen, or 5, and from 300 persons on a sixtieth, up to 11."""
        return self.g or max(USUAL, min(MOST_PROPOSED, persons // 60))
