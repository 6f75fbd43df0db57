"""What travels: a Question goes down to a site, a Reply comes up.

Both are frozen dataclasses. A Question says how a site answers it from its own rows; a Reply that is
Summable may be added over sites, and only such a reply can be asked for as a total.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar, cast

from unpooled.core import codec
from unpooled.core.suppression import only

SiteId = str


class Message:
    """Anything that the codec carries: a frozen dataclass that says the name under which it travels.

    ``class Medians(Reply, wire="hospital.Medians")``; with other fields later, ``version=2, since="1.4"``.
    """

    def __init_subclass__(
        cls,
        *,
        wire: str = "",
        version: int = 1,
        since: str = "",
        fields: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if wire:
            codec.register(cls, wire, version, since, fields)


class Reply(Message):
    """What a site sends up."""


class Summable(Reply):
    """A reply of sums and counts: adding two replies gives the reply of both sites' rows together.

    Every field is a float64 array of at least one dimension. ``cells`` names the field that counts rows by
    cell, if there are cells.
    """

    cells: ClassVar[str] = ""

    def of_at_least(self, minimum: float) -> Self:
        """Without the cells of fewer rows: their counts and sums alike are zero."""
        if not self.cells or minimum <= 1:
            return self
        size = getattr(self, self.cells)
        shown = size >= minimum * (1 - 1e-9)
        values = (getattr(self, name) for name in codec.field_names(type(self)))
        return type(self)(*(only(shown, v) if v.shape[: size.ndim] == size.shape else v for v in values))

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(cast(Any, self)))
        return type(self)(*(a + b for a, b in pairs))


R = TypeVar("R", bound=Reply)
A = TypeVar("A", bound=Summable)


@dataclass(frozen=True, eq=False)
class Refusal(Reply, wire="messages.Refusal"):
    """A site declines, for a reason that it lets the coordinator see."""

    reason: str


@dataclass(frozen=True, eq=False)
class LeftMasked(Reply, wire="messages.Hidden"):
    """In place of a reply that left masked, elsewhere in the same answer."""
