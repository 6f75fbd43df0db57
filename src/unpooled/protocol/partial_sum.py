"""Partial sums: the exact sum over its sites that a relay sends where a site sends its own reply.

A sum that a relay rounds would not be the sum that all sites give together. So a partial sum holds the limbs
of every number (exact_sum.py), and the coordinator rounds the total: trees of any shape give the same bits as
one federation with ``exact_sums``.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from unpooled.typing import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class PartialSum(Reply):
    """The exact sum of the replies of ``sites`` sites, a set of limbs for every field of the reply."""

    kind: str  # the name of the reply's class
    sites: int
    low: tuple[int, ...]
    limbs: tuple[npt.NDArray[np.int32], ...]
    min_contributors: int = 1  # every disclosed cell has at least so many contributing sites

    @classmethod
    def from_sums(
        cls, kind: str, sites: int, sums: Iterable[ExactSum], min_contributors: int = 1
    ) -> "PartialSum":
        """Return the message that holds these sums, one for every field of the reply."""
        sums = tuple(sums)
        return cls(kind, sites, tuple(s.low for s in sums), tuple(s.limbs for s in sums), min_contributors)

    @property
    def sums(self) -> tuple[ExactSum, ...]:
        """The sum of every field of the reply."""
        return tuple(map(ExactSum, self.low, self.limbs))

    @property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The name and shape of every field of the sum."""
        names = codec.field_names(_class_named(self.kind))
        return tuple((name, limbs.shape[1:]) for name, limbs in zip(names, self.limbs, strict=True))

    def reply(self, kind: type[Any] | None = None) -> Any:
        """Return the sum as a reply of class ``kind`` (default: the named one), each number rounded once."""
        kind = _class_named(self.kind) if kind is None else kind
        return kind(*(one.rounded() for one in self.sums))

    def suppress_below(self, figures: Mapping[str, Figure], minimum: float) -> "PartialSum":
        """Return the sum without counts below ``minimum`` and the sums and means that belong to them."""
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
        """Return the sum without the cells to which too few sites contribute.

        TooFewAnswersError if too few sites have any rows at all.
        """
        reply, figures = self.reply(), figures_of(_class_named(self.kind))
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
        kind = question.reply_type()
        name = codec.name_of(kind)
        if self.kind != name or not issubclass(kind, Summable):
            raise ReplyError(f"a sum of {self.kind} where {name} was asked for")
        if self.sites < 1 or not 1 <= self.min_contributors <= self.sites:
            raise ReplyError(f"a sum over {self.sites} sites, {self.min_contributors} behind every cell")
        if not len(self.low) == len(self.limbs) == len(codec.field_names(kind)):
            raise ReplyError(f"a sum of {len(self.limbs)} fields, {name} has others")
        for low, limbs in zip(self.low, self.limbs, strict=True):
            if limbs.ndim < 1 or not (low >= LOW and low + len(limbs) <= HIGH):
                raise ReplyError(f"a sum of {name} that is not a sum of numbers")
        question.check_reply(self.reply(kind), self.sites)


def _class_named(kind: str) -> type[Any]:
    """Return the class of the replies in a sum; raise ReplyError if no imported module defines it."""
    known = codec.class_named(kind)
    if known is None:
        raise ReplyError(f"a sum of {kind}, which is not known here")
    return known


class ExactTotal:
    """An exact sum over sites, to which replies are added in any order.

    Cells to which fewer than ``min_contributors`` sites contribute are left out of it.
    """

    def __init__(self, min_contributors: int = 1) -> None:
        self._kind, self._sites, self._sums = "", 0, list[ExactSum]()
        self._min_contributors, self._contributors = min_contributors, ContributorCounts(min_contributors)

    def add(self, replies: Sequence[Reply] | ReplyBatch[Any]) -> None:
        """Add the replies of some sites; a list may hold partial sums among them."""
        for part in [replies] if isinstance(replies, ReplyBatch) else _in_blocks(replies):
            if isinstance(part, PartialSum):
                self._kind, count, sums = part.kind, part.sites, list(part.sums)
                if self._min_contributors > 1:
                    kind = _class_named(part.kind)
                    self._contributors.add(kind, _with_axis(part.reply()), part.min_contributors)
            else:
                kind = type(part.reply)
                self._kind, count, sums = codec.name_of(kind), len(part), _exact(part)
                if self._min_contributors > 1:
                    arrays = dict(zip(kind.__match_args__, part.arrays(), strict=True))
                    self._contributors.add(kind, arrays)
            self._sites += count
            before = self._sums
            self._sums = [added(pair) for pair in zip(before, sums, strict=True)] if before else sums

    def partial_sum(self) -> PartialSum:
        """Return the sum of all replies so far."""
        total = PartialSum.from_sums(self._kind, self._sites, self._sums)
        return (
            total.with_contributors(self._contributors)
            if 1 < self._min_contributors <= self._sites
            else total
        )


def partial_sum(blocks: Iterable[Sequence[Reply] | ReplyBatch[Any]], min_contributors: int = 1) -> PartialSum:
    """Return the exact sum over the sites of all blocks of replies (ExactTotal)."""
    total = ExactTotal(min_contributors)
    for replies in blocks:
        total.add(replies)
    return total.partial_sum()


def _with_axis(reply: Reply) -> dict[str, FloatArray]:
    """The fields of one reply, with a leading axis of members."""
    return {name: getattr(reply, name)[None] for name in type(reply).__match_args__}


def _in_blocks(replies: Sequence[Reply]) -> list[PartialSum | ReplyBatch[Any]]:
    """The partial sums among replies, and the other ones in one block."""
    plain = [reply for reply in replies if not isinstance(reply, PartialSum)]
    parts: list[PartialSum | ReplyBatch[Any]] = [r for r in replies if isinstance(r, PartialSum)]
    if plain:
        kind = type(plain[0])
        fields = (np.stack([getattr(reply, name) for reply in plain]) for name in kind.__match_args__)
        parts.append(ReplyBatch(kind(*fields), len(plain)))
    return parts


def _exact(block: ReplyBatch[Any]) -> list[ExactSum]:
    kind = type(block.reply)
    sums = []
    for name, array in zip(kind.__match_args__, block.arrays(), strict=True):
        try:
            sums.append(exact_sum(array))
        except ValueError as error:
            raise ReplyError(f"{name} of {codec.name_of(kind)} holds {error}") from error
    return sums
