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

from unpooled.errors import ReplyError, TooFewAnswersError
from unpooled.protocol import codec
from unpooled.protocol.declarations import Figure
from unpooled.protocol.declarations import figures as figures_of
from unpooled.protocol.exact_sum import HIGH, LOW, ExactSum, added, exact_sum
from unpooled.protocol.messages import Question, Reply, Summable
from unpooled.protocol.site_batch import ReplyBatch
from unpooled.protocol.suppression import ContributorCounts, belonging, counts_in
from unpooled.typing import BoolArray


@dataclass(frozen=True, eq=False)
class PartialSum(Reply):
    """The exact sum of the replies of so many sites, a set of limbs for every field of the reply."""

    kind: str  # the name of the reply's class
    sites: int
    low: tuple[int, ...]
    limbs: tuple[npt.NDArray[np.int32], ...]
    min_contributors: int = 1  # no cell that is shown has fewer sites behind it

    @classmethod
    def from_sums(
        cls, kind: str, sites: int, sums: Iterable[ExactSum], min_contributors: int = 1
    ) -> "PartialSum":
        """The message that holds these sums, one for every field of the reply."""
        sums = tuple(sums)
        return cls(kind, sites, tuple(s.low for s in sums), tuple(s.limbs for s in sums), min_contributors)

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

    def suppress_below(self, figures: Mapping[str, Figure], minimum: float) -> "PartialSum":
        """The sum without counts below ``minimum``, and without the sums and means that belong to them."""
        if minimum <= 1:
            return self
        reply = self.reply()
        enough = {name: getattr(reply, name) >= minimum * (1 - 1e-9) for name in counts_in(figures)}
        return self._where(enough, figures, self.min_contributors)

    def _where(
        self, disclosed: Mapping[str, BoolArray], figures: Mapping[str, Figure], min_contributors: int
    ) -> "PartialSum":
        """The sum without cells of counts, and without the sums and means that belong to them."""
        sums = dict(zip((name for name, _ in self.shapes), self.sums, strict=True))
        for count, mask in disclosed.items():
            for name in (count, *belonging(figures, count)):
                sums[name] = sums[name].where(mask)
        return PartialSum.from_sums(self.kind, self.sites, sums.values(), min_contributors)

    def with_contributors(self, sites: ContributorCounts) -> "PartialSum":
        """The sum without the cells that too few sites have rows of; TooFewAnswersError if so few have any."""
        reply, figures = self.reply(), figures_of(codec.class_named(self.kind))
        mass = {name: getattr(reply, name) for name in counts_in(figures)}
        for name, count in mass.items():
            if count.shape == (1,) and 0 < sites.contributors(name) < sites.min_contributors:
                raise TooFewAnswersError(f"{sites.contributors(name)} of its sites have rows")
        return (
            self._where(sites.disclosed(mass), figures, sites.min_contributors)
            if mass
            else replace(self, min_contributors=sites.min_contributors)
        )

    def check_for(self, question: Question[Any]) -> None:
        """Raise ReplyError unless this can be the sum of honest answers to a question."""
        kind: Any = question.reply_type()
        name = codec.name_of(kind)
        if self.kind != name or not issubclass(kind, Summable):
            raise ReplyError(f"a sum of {self.kind} where {name} was asked for")
        if self.sites < 1 or not 1 <= self.min_contributors <= self.sites:
            raise ReplyError(f"a sum over {self.sites} sites, {self.min_contributors} behind every cell")
        if not len(self.low) == len(self.limbs) == len(codec.field_names(kind)):
            raise ReplyError(f"a sum of {len(self.limbs)} fields, {name} has others")
        for low, limbs in zip(self.low, self.limbs, strict=True):
            if limbs.ndim < 1 or not (low >= LOW and low + len(limbs) <= HIGH):
                raise ReplyError(f"a sum of {name} that is no sum of numbers")
        question.check_reply(self.reply(kind), self.sites)


def partial_sum(blocks: Iterable[Any], min_contributors: int = 1) -> PartialSum:
    """The exact sum over sites of blocks of replies: lists, in which subtotals may be, or Stacked.

    Cells that fewer than ``min_contributors`` sites have rows of are left out.
    """
    kind, sites, sums, behind = "", 0, list[ExactSum](), ContributorCounts(min_contributors)
    for block in blocks:
        for part in [block] if isinstance(block, ReplyBatch) else _in_blocks(block):
            if isinstance(part, PartialSum):
                kind, count, more = part.kind, part.sites, list(part.sums)
                if min_contributors > 1:
                    behind.add(codec.class_named(kind), _with_axis(part.reply()), part.min_contributors)
            else:
                kind, count, more = codec.name_of(type(part.reply)), len(part), _exact(part)
                if min_contributors > 1:
                    names = type(part.reply).__match_args__
                    behind.add(type(part.reply), dict(zip(names, part.arrays(), strict=True)))
            sites += count
            sums = [added(pair) for pair in zip(sums, more, strict=True)] if sums else more
    whole = PartialSum.from_sums(kind, sites, sums)
    return whole.with_contributors(behind) if 1 < min_contributors <= sites else whole


def _with_axis(reply: Any) -> dict[str, Any]:
    """The fields of one reply, with a leading axis of members."""
    return {name: getattr(reply, name)[None] for name in type(reply).__match_args__}


def _in_blocks(replies: list[Any]) -> list[Any]:
    """The subtotals among replies, and the other ones in one block."""
    plain = [reply for reply in replies if not isinstance(reply, PartialSum)]
    parts: list[Any] = [reply for reply in replies if isinstance(reply, PartialSum)]
    if plain:
        kind: Any = type(plain[0])
        fields = (np.stack([getattr(reply, name) for reply in plain]) for name in kind.__match_args__)
        parts.append(ReplyBatch(kind(*fields), len(plain)))
    return parts


def _exact(block: ReplyBatch[Any]) -> list[ExactSum]:
    kind: Any = type(block.reply)
    sums = []
    for name, array in zip(kind.__match_args__, block.arrays(), strict=True):
        try:
            sums.append(exact_sum(array))
        except ValueError as error:
            raise ReplyError(f"{name} of {codec.name_of(kind)} holds {error}") from error
    return sums
