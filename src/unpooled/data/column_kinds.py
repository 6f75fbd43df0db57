"""The kinds of columns, a class for each: what its cells are, and why others are not clustered by.

Tables, messages and files hold the text of a kind, and ``kind_of`` returns its class. Readers find the kind,
schemas state it, and preparations encode a column by it.
"""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class ColumnKind:
    """A kind of column; ``text`` is how tables, messages and files name it."""

    text: str
    has_mean: ClassVar[bool] = False  # its cells are numbers, and groups and clusters have their mean
    has_positions: ClassVar[bool] = False  # the numbers are positions: an estimate of one is right or wrong
    has_cells: ClassVar[bool] = False  # rows are clustered by it, and a summary table has cells of it
    suppressed: ClassVar[str] = ""  # why a summary table has no cells of such columns
    left_out: ClassVar[str] = ""  # why it looks like no measurement, and the option that uses it; {0}: name

    @property
    def legend(self) -> str:
        """What the numbers of such a column stand for; "" if they are amounts."""
        return ""

    def why_left_out(self, name: str) -> str:
        """Return why a column of dates, ids or codes is left out, and the option that uses it."""
        return self.left_out.format(shlex.quote(name))


class Numeric(ColumnKind):
    """Measurements and amounts."""

    has_mean = has_cells = True


class Categorical(ColumnKind):
    """A few texts or codes that repeat."""

    has_cells = True


class Ordered(Numeric):
    """Categories with an order, such as low < mid < high, which is the text of the kind.

    A column has their positions, from 0. Sites that state another order have a column of another kind.
    """

    has_positions = True
    SIGN = " < "

    @property
    def order(self) -> tuple[str, ...]:
        """The categories from the lowest."""
        return tuple(self.text.split(self.SIGN))

    @property
    def legend(self) -> str:
        return ", ".join(f"{category} is {position}" for position, category in enumerate(self.order))


class Texts(ColumnKind):
    """Too many different texts for categories."""

    suppressed = "they have too many different texts"


class Empty(ColumnKind):
    """No value in any row."""

    suppressed = "too few people share a value"


class Date(ColumnKind):
    """Dates, and numbers that look like dates."""

    suppressed = "they are dates"
    left_out = "dates are not measurements; cluster by a number such as an age, or a number of days"


class Id(ColumnKind):
    """Ids of people or rows."""

    suppressed = "they are ids or row numbers"
    left_out = "looks like ids or row numbers; --numbers {0} takes it as numbers"


class Code(ColumnKind):
    """Digits that are no amounts: post codes, numbers with leading zeros."""

    suppressed = "they are codes"
    left_out = "looks like codes (leading zeros, post codes); --categorical {0} takes it as a category"


NUMBER, CATEGORY, TEXT, EMPTY = "number", "category", "text", "empty"
DATE, ID, CODE = "date", "id", "code"
KINDS: dict[str, ColumnKind] = {
    kind.text: kind
    for kind in (
        Numeric(NUMBER), Categorical(CATEGORY), Date(DATE), Id(ID), Code(CODE), Texts(TEXT), Empty(EMPTY),
    )
}  # fmt: skip


def is_kind(text: object) -> bool:
    """Return whether a text, perhaps from another machine, names a kind of column."""
    return isinstance(text, str) and (text in KINDS or type(kind_of(text)) is not ColumnKind)


def kind_of(text: str) -> ColumnKind:
    """Return the kind that a text names; one without cells for a text that names none."""
    if text in KINDS:
        return KINDS[text]
    return Ordered(text) if Ordered.SIGN in text else ColumnKind(text)


def looks_odd(present: Collection[str]) -> str:
    """Return the kind that keeps a column with these kinds at its sites from being used; "" if none does.

    >>> looks_odd(["date", "number"]), looks_odd(["date"]), looks_odd(["id", "number"])
    ('', 'date', 'id')
    """
    odd = [text for text in KINDS if text in present and KINDS[text].left_out]
    return odd[0] if odd and (odd == [ID] or not any(map(has_mean, present))) else ""


def has_mean(text: str) -> bool:
    """Return whether columns of a kind have numbers, which groups and clusters describe by means.

    >>> has_mean("number"), has_mean("category")
    (True, False)
    """
    return kind_of(text).has_mean


def has_cells(text: str) -> bool:
    """Return whether rows are clustered by columns of a kind, and a summary table has cells of them.

    >>> has_cells("category"), has_cells("date")
    (True, False)
    """
    return kind_of(text).has_cells
