"""Subtotals: what a federation passes up where a site passes up a reply, the exact sum over its sites.

A sum that is rounded on its way would not be the sum that all sites give together. So a subtotal holds the
limbs of every number (exact_sum.py), and is rounded where the total is read: trees of any shape give the same
bits as one federation with ``exact_sums``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.core import codec
from unpooled.core.arrays import BoolArray
from unpooled.core.declarations import Figure
from unpooled.core.declarations import figures as figures_of
from unpooled.core.exact_sum import HIGH, LOW, ExactSum, added, exact_sum
from unpooled.core.messages import Question, Reply, Summable
from unpooled.core.sites_behind import SitesBehind, belonging, counts_in
from unpooled.core.stack import Stacked
from unpooled.errors import BadReply, TooFewAnswers


@dataclass(frozen=True, eq=False)
class Subtotal(Reply):
    """The exact sum of the replies of so many sites, a set of limbs for every field of the reply."""

    kind: str  # the name of the reply's class
    sites: int
    low: tuple[int, ...]
    limbs: tuple[npt.NDArray[np.int32], ...]
    least: int = 1  # no cell that is shown has fewer sites behind it

    @classmethod
    def of(cls, kind: str, sites: int, sums: Iterable[ExactSum], least: int = 1) -> "Subtotal":
        """The message that holds these sums, one for every field of the reply."""
        sums = tuple(sums)
        return cls(kind, sites, tuple(s.low for s in sums), tuple(s.limbs for s in sums), least)

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
        reply = self.reply()
        enough = {name: getattr(reply, name) >= minimum * (1 - 1e-9) for name in counts_in(figures)}
        return self._only(enough, figures, self.least)

    def _only(self, shown: Mapping[str, BoolArray], figures: Mapping[str, Figure], least: int) -> "Subtotal":
        """The sum without cells of counts, and without the sums and means that belong to them."""
        sums = dict(zip((name for name, _ in self.shapes), self.sums, strict=True))
        for count, mask in shown.items():
            for name in (count, *belonging(figures, count)):
                sums[name] = sums[name].only(mask)
        return Subtotal.of(self.kind, self.sites, sums.values(), least)

    def behind(self, sites: SitesBehind) -> "Subtotal":
        """The sum without the cells that too few sites have rows of; TooFewAnswers if so few have any."""
        reply, figures = self.reply(), figures_of(codec.class_named(self.kind))
        mass = {name: getattr(reply, name) for name in counts_in(figures)}
        for name, count in mass.items():
            if count.shape == (1,) and 0 < sites.rows_of(name) < sites.least:
                raise TooFewAnswers(f"{sites.rows_of(name)} of its sites have rows")
        return (
            self._only(sites.shown(mass), figures, sites.least) if mass else replace(self, least=sites.least)
        )

    def check_for(self, question: Question[Any]) -> None:
        """Raise BadReply unless this can be the sum of honest answers to a question."""
        kind: Any = question.reply_type()
        name = codec.name_of(kind)
        if self.kind != name or not issubclass(kind, Summable):
            raise BadReply(f"a sum of {self.kind} where {name} was asked for")
        if self.sites < 1 or not 1 <= self.least <= self.sites:
            raise BadReply(f"a sum over {self.sites} sites, {self.least} behind every cell")
        if not len(self.low) == len(self.limbs) == len(codec.field_names(kind)):
            raise BadReply(f"a sum of {len(self.limbs)} fields, {name} has others")
        for low, limbs in zip(self.low, self.limbs, strict=True):
            if limbs.ndim < 1 or not (low >= LOW and low + len(limbs) <= HIGH):
                raise BadReply(f"a sum of {name} that is no sum of numbers")
        question.check_reply(self.reply(kind), self.sites)


def subtotal(blocks: Iterable[Any], least: int = 1) -> Subtotal:
    """The exact sum over sites of blocks of replies: lists, in which subtotals may be, or Stacked.

    Cells that fewer than ``least`` sites have rows of are left out.
    """
    kind, sites, sums, behind = "", 0, list[ExactSum](), SitesBehind(least)
    for block in blocks:
        for part in [block] if isinstance(block, Stacked) else _alike(block):
            if isinstance(part, Subtotal):
                kind, count, more = part.kind, part.sites, list(part.sums)
                if least > 1:
                    behind.add(codec.class_named(kind), _with_axis(part.reply()), part.least)
            else:
                kind, count, more = codec.name_of(type(part.reply)), len(part), _exact(part)
                if least > 1:
                    names = type(part.reply).__match_args__
                    behind.add(type(part.reply), dict(zip(names, part.arrays(), strict=True)))
            sites += count
            sums = [added(pair) for pair in zip(sums, more, strict=True)] if sums else more
    whole = Subtotal.of(kind, sites, sums)
    return whole.behind(behind) if 1 < least <= sites else whole


def _with_axis(reply: Any) -> dict[str, Any]:
    """The fields of one reply, with a leading axis of members."""
    return {name: getattr(reply, name)[None] for name in type(reply).__match_args__}


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
