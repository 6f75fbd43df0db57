"""Subtotals: what a federation passes up where a site passes up a reply, the exact sum over its sites.

A sum that is rounded on its way would not be the sum that all sites give together. So a subtotal holds the
limbs of every number (exact_sum.py), and is rounded where the total is read: trees of any shape give the same
bits as one federation with ``exact_sums``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.core import codec
from unpooled.core.arrays import BoolArray
from unpooled.core.declarations import Count, Figure
from unpooled.core.exact_sum import HIGH, LOW, ExactSum, added, exact_sum
from unpooled.core.messages import Question, Reply, Summable
from unpooled.core.stack import Stacked
from unpooled.errors import BadReply


@dataclass(frozen=True, eq=False)
class Subtotal(Reply, wire="protocol.Subtotal"):
    """The exact sum of the replies of so many sites, a set of limbs for every field of the reply."""

    kind: str  # the name of the reply's class
    sites: int
    low: tuple[int, ...]
    limbs: tuple[npt.NDArray[np.int32], ...]

    @classmethod
    def of(cls, kind: str, sites: int, sums: Iterable[ExactSum]) -> "Subtotal":
        """The message that holds these sums, one for every field of the reply."""
        sums = tuple(sums)
        return cls(kind, sites, tuple(s.low for s in sums), tuple(s.limbs for s in sums))

    @property
    def sums(self) -> tuple[ExactSum, ...]:
        """The sum of every field of the reply."""
        return tuple(map(ExactSum, self.low, self.limbs))

    @property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The name and shape of every field of the sum."""
        names = codec.field_names(codec.class_named(self.kind))
        return tuple((name, limbs.shape[1:]) for name, limbs in zip(names, self.limbs, strict=True))

    def reply(self, kind: Any = None) -> Any:
        """The sum as a reply, each number rounded once; ``kind`` is its class, by default the named one."""
        kind = codec.class_named(self.kind) if kind is None else kind
        return kind(*(one.rounded() for one in self.sums))

    def of_at_least(self, figures: Mapping[str, Figure], minimum: float) -> "Subtotal":
        """The sum without counts below ``minimum``, and without the sums and means that belong to them."""
        if minimum <= 1:
            return self
        reply, sums = self.reply(), dict(zip((name for name, _ in self.shapes), self.sums, strict=True))
        for count in (name for name, figure in figures.items() if isinstance(figure, Count)):
            shown: BoolArray = getattr(reply, count) >= minimum * (1 - 1e-9)
            for name, figure in figures.items():
                if name == count or getattr(figure, "rows", "") == count:
                    sums[name] = sums[name].only(shown)
        return Subtotal.of(self.kind, self.sites, sums.values())

    def check_for(self, question: Question[Any]) -> None:
        """Raise BadReply unless this can be the sum of honest answers to a question."""
        kind: Any = question.reply_type()
        name = codec.name_of(kind)
        if self.kind != name or not issubclass(kind, Summable):
            raise BadReply(f"a sum of {self.kind} where {name} was asked for")
        if self.sites < 1:
            raise BadReply(f"a sum over {self.sites} sites")
        if not len(self.low) == len(self.limbs) == len(codec.field_names(kind)):
            raise BadReply(f"a sum of {len(self.limbs)} fields, {name} has others")
        for low, limbs in zip(self.low, self.limbs, strict=True):
            if limbs.ndim < 1 or not (low >= LOW and low + len(limbs) <= HIGH):
                raise BadReply(f"a sum of {name} that is no sum of numbers")
        question.check_reply(self.reply(kind), self.sites)


def subtotal(blocks: Iterable[Any]) -> Subtotal:
    """The exact sum over sites of blocks of replies: lists, in which subtotals may be, or Stacked."""
    kind, sites, sums = "", 0, list[ExactSum]()
    for block in blocks:
        for part in [block] if isinstance(block, Stacked) else _alike(block):
            if isinstance(part, Subtotal):
                kind, count, more = part.kind, part.sites, list(part.sums)
            else:
                kind, count, more = codec.name_of(type(part.reply)), len(part), _exact(part)
            sites += count
            sums = [added(pair) for pair in zip(sums, more, strict=True)] if sums else more
    return Subtotal.of(kind, sites, sums)


def _alike(replies: list[Any]) -> list[Any]:
    """The subtotals among replies, and the other ones in one block."""
    plain = [reply for reply in replies if not isinstance(reply, Subtotal)]
    parts: list[Any] = [reply for reply in replies if isinstance(reply, Subtotal)]
    if plain:
        kind: Any = type(plain[0])
        fields = (np.stack([getattr(reply, name) for reply in plain]) for name in kind.__match_args__)
        parts.append(Stacked(kind(*fields), len(plain)))
    return parts


def _exact(block: Stacked[Any]) -> list[ExactSum]:
    kind: Any = type(block.reply)
    sums = []
    for name, array in zip(kind.__match_args__, block.arrays(), strict=True):
        try:
            sums.append(exact_sum(array))
        except ValueError as error:
            raise BadReply(f"{name} of {codec.name_of(kind)} holds {error}") from error
    return sums
