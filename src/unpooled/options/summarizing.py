"""The options for making summary tables, each declared once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from unpooled.options.declaration import MORE_PROTECT, PROTECT, OptionGroup, option
from unpooled.options.values import ColumnsValue, SwitchValue, WholeNumberValue, WordValue


@dataclass(frozen=True)
class SummaryChoices(OptionGroup):
    """The settings of a summary table; ``privacy.SummarySettings`` checks them."""

    min_group_size: int = option(
        0,
        WholeNumberValue(),
        panel=PROTECT,
        help="Minimum number of people in a group of the summary table (default 0: at least 5, more for many "
        "people or columns).",
        doc="The fewest people in a group of a summary table; 0 derives it from the people and columns.",
    )
    person: str = option(
        "",
        WordValue(),
        panel=PROTECT,
        help="Column that identifies the person a row belongs to; it is never queried.",
        doc="The column that identifies people, for summary tables.",
    )
    study_columns: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        panel=MORE_PROTECT,
        help="Sensitive columns, which do not decide who is grouped with whom: hiv,abuse",
        doc="Sensitive columns, which do not decide who is grouped with whom.",
    )
    log_transform: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        panel=MORE_PROTECT,
        help="Skewed columns; the summary table holds only their logarithm: income",
        doc="Columns of which a summary table has only the logarithm.",
    )
    consumption: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        panel=MORE_PROTECT,
        help="Consumption columns; a mean that one person dominates (15% of the total) is suppressed: kwh",
        doc="Columns in which a mean that one person dominates is suppressed.",
    )
    max_share: float = 0.15
    one_row_per_person: bool = option(
        False,
        SwitchValue(),
        panel=MORE_PROTECT,
        help="Declare that every row is a different person. The declaration is recorded.",
        doc="Whether every row is another person.",
    )
    not_a_person: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        panel=MORE_PROTECT,
        help="Columns that do not identify people although they look like it: device. The declaration is "
        "recorded.",
        doc="Columns that do not identify people although they look like it.",
    )
    diverse: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        panel=MORE_PROTECT,
        help="Sensitive columns of which no group may have too many equal values: diagnosis. In a group, the "
        "share of a value exceeds its share in the table by at most 30 percentage points.",
        doc="Sensitive columns of which no group may have too many equal values.",
    )
    diverse_by: float = 0.3
    no_sensitive_columns: bool = False


class SummaryArguments(TypedDict, total=False):
    """The options as arguments of ``cluster``, for type checkers."""

    min_group_size: int
    person: str
    sensitive: str | Sequence[str]
    log_transform: str | Sequence[str]
    consumption: str | Sequence[str]
    one_row_per_person: bool
    not_a_person: str | Sequence[str]
    diverse: str | Sequence[str]
