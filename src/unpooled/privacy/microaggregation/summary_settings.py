"""The settings of a summary table, which only the site chooses."""

from dataclasses import dataclass

from unpooled.errors import InputError
from unpooled.options.summarizing import SummaryChoices

MIN_GROUP_SIZE = 3  # people in a group; with fewer the rule against a dominating person has no meaning
DEFAULT_GROUP_SIZE = 5
_PEOPLE_PER_SIZE, _MAX_BY_PEOPLE = 60, 11  # larger groups hardly cost anything where people are many
_MIN_GROUPS = 24  # that a size by the number of columns leaves: eight clusters of three groups


@dataclass(frozen=True)
class SummarySettings(SummaryChoices):
    """The settings of a summary table.

    Parameters
    ----------
    min_group_size : int
        The fewest people in a group; 0 derives it from the numbers of people and columns.
    person : str
        The column that identifies people; "": every row counts as a person.
    study_columns : tuple of str
        The columns that studies are about: they count three times in the grouping.
    sensitive : tuple of str
        The columns that do not count in the grouping.
    log_transform : tuple of str
        The columns of which the table has only the logarithm.
    consumption : tuple of str
        The columns in which a cell is disclosed only if nobody dominates its total.
    max_share : float
        The largest share of such a total that one person may have.
    one_row_per_person : bool
        Whether the site declares that nobody has several rows.
    not_a_person : tuple of str
        The columns of which the site declares that they do not identify people.
    diverse : tuple of str
        The sensitive columns of which every group has diverse values.
    diverse_by : float
        By how much a value's share in a group may exceed its share in the table.
    no_sensitive_columns : bool
        Whether the site declares that it has no sensitive columns.

    Examples
    --------
    >>> default, eight = SummarySettings(), SummarySettings(min_group_size=8)
    >>> default.group_size_for(300, 4), default.group_size_for(300, 14), eight.group_size_for(300, 14)
    (5, 12, 8)
    """

    def __post_init__(self) -> None:
        if (
            isinstance(self.min_group_size, bool)
            or not isinstance(self.min_group_size, int)
            or (self.min_group_size and self.min_group_size < MIN_GROUP_SIZE)
        ):
            raise InputError(
                "min_group_size must be 0 (by people and columns) or a whole number of at least "
                f"{MIN_GROUP_SIZE}, got {self.min_group_size!r}"
            )
        for name in self.study_columns:
            if name in self.ungrouped:
                role = "diverse" if name in self.diverse else "sensitive"
                raise InputError(
                    f"column {name} is both in study_columns and in {role}. Name it in one of them."
                )
        if not 0.05 <= self.diverse_by < 1:
            raise InputError(f"diverse_by must be at least 0.05 and below 1, got {self.diverse_by!r}")
        if self.no_sensitive_columns and self.ungrouped:
            raise InputError(
                f"column {self.ungrouped[0]} is sensitive, and the site is declared to have no such columns"
            )
        for name in self.consumption:
            if name in self.log_transform:
                raise InputError(
                    f"column {name} is both in consumption and in log_transform. Name it in one of them."
                )
        if not 0 < self.max_share <= 1:
            raise InputError(f"max_share must be above 0 and at most 1, got {self.max_share!r}")
        if self.person and self.person in (
            *self.study_columns,
            *self.ungrouped,
            *self.log_transform,
            *self.consumption,
        ):
            raise InputError(f"column {self.person} identifies people, so it cannot have another role")
        if self.person and self.one_row_per_person:
            raise InputError(
                f"column {self.person} identifies people, and every row is declared to be a person. Declare "
                "only one of person and one_row_per_person."
            )
        if self.person in self.not_a_person and self.person:
            raise InputError(f"column {self.person} is both in --person and in --not-a-person")

    @property
    def ungrouped(self) -> tuple[str, ...]:
        """The columns that do not count in the grouping: all sensitive ones."""
        return tuple(dict.fromkeys((*self.sensitive, *self.diverse)))

    @property
    def sensitive_declared(self) -> bool:
        """True if the site named its sensitive columns, or declared that it has none."""
        return bool(self.ungrouped) or self.no_sensitive_columns

    @property
    def people_declared(self) -> bool:
        """True if the site declared which rows belong to one person."""
        return bool(self.person) or self.one_row_per_person

    def check_people_declared(self) -> None:
        """Raise InputError if the site did not declare which rows belong to one person."""
        if not self.people_declared:
            raise InputError(
                "nobody declared which rows belong to one person. Name the column that identifies people as "
                "person, or set one_row_per_person if every row is a different person."
            )

    def check_sensitive_declared(self) -> None:
        """Raise InputError if the site did not declare which columns are sensitive."""
        if not self.sensitive_declared:
            raise InputError(
                "nobody declared which columns are sensitive. Name them as diverse or sensitive, or set "
                "no_sensitive_columns if there are none."
            )

    def group_size_for(self, people: int, columns: int) -> int:
        """Return the minimum group size: as chosen, or by the numbers of people and of disclosed columns.

        Someone with an exact row can tell better whether it is in a table, the more columns there are per
        person of a group.
        """
        return self.min_group_size or max(
            DEFAULT_GROUP_SIZE,
            min(_MAX_BY_PEOPLE, people // _PEOPLE_PER_SIZE),
            min(columns, people // _MIN_GROUPS),
        )
