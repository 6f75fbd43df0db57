"""The mask of a site: its side of secure sums, and the rule to answer only in secure sums.

A masked reply can be read only in a sum over at least three sites, so it is not suppressed: the sum equals
pooling.
"""

from collections.abc import Callable, Sequence

from unpooled.errors import QueryRefusedError
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import (
    AskConsistency,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
)
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.privacy.secure_sum.sum_settings import SecureSums
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Part, Request
from unpooled.protocol.messages import MaskedElsewhere, Question, Reply, SiteId, Summable
from unpooled.protocol.partial_sum import PartialSum

_ALONE = (AskKeys, AskShares, AskConsistency, AskUnmask)  # stages that no question about rows comes with


class SiteMask:
    """A site's mask. With ``required`` it refuses every query whose answer would be read by itself.

    ``allowed_in_clear`` names queries that each site may answer nevertheless, e.g. "AskSchema".
    ``suggested_methods`` names methods that need only sums, for the refusal. ``bounds`` refuses a part of a
    sum whose numbers are out of proportion to the sizes of the site's columns. ``honest_sites`` is the number
    of participants that add their part of one noise; None: all of them, as in a simulation.
    """

    def __init__(
        self,
        member: Member,
        *,
        required: bool = False,
        allowed_in_clear: tuple[str, ...] = (),
        suggested_methods: tuple[str, ...] = (),
        honest_sites: int | None = None,
        bounds: Callable[[Part], None] | None = None,
    ) -> None:
        self._bounds = bounds
        self._member, self._required, self._allowed_in_clear = member, required, allowed_in_clear
        self._suggested_methods, self._honest = suggested_methods, honest_sites

    def check_request(self, request: Request) -> None:
        """Refuse stages and queries that cannot be answered, before anything is computed or charged."""
        for stage in (p.question for p in request.parts if p.verb == STAGE):
            if isinstance(stage, AskMasked):
                parts = _summed(request, stage)
                self._member.check_masked(request.request_id, stage, parts)
                if self._bounds is not None:
                    for part in parts:
                        self._bounds(part)
            elif not isinstance(stage, _ALONE):
                raise QueryRefusedError(f"{codec.name_of(type(stage))} is not a stage of a secure sum")
            elif len(request.parts) > 1:  # it might be refused after the rest was charged
                raise QueryRefusedError(f"{codec.name_of(type(stage))} must be the only part of a request")
        if not self._required:
            return
        masked = _masked(request)
        for part in request.parts:
            name = codec.name_of(type(part.question))
            if (
                part.verb == STAGE
                or (part.verb == "total" and part.index in masked)
                or name in self._allowed_in_clear
            ):
                continue
            raise QueryRefusedError(
                f"only secure sums are allowed, and {name} would disclose a single site's answer. These "
                f"methods need only sums: {', '.join(self._suggested_methods)}."
            )

    def is_masked(self, request: Request, part: Part) -> bool:
        """Return whether the reply to this part can be read only in a sum."""
        return part.verb == "total" and part.index in _masked(request)

    def noise_share(self, request: Request, part: Part) -> float:
        """Return this site's share of a reply's noise: below 1 if sites of a secure sum add it together."""
        for stage in (p.question for p in request.parts if p.verb == STAGE):
            if isinstance(stage, AskMasked) and part.verb == "total" and part.index in stage.parts:
                sites, threshold = self._member.sizes(request.request_id, stage)
                return float(noise_sharers(sites, threshold, self._honest or sites) ** -0.5)
        return 1.0

    def was_unmasked(self, request: Request) -> bool:
        """Return whether the sum of this exchange was unmasked before, under other keys."""
        return self._member.was_unmasked(request.request_id)

    def forget(self) -> None:
        """Forget the state of an answer that was not kept."""
        self._member.forget()

    def apply(self, request: Request, replies: tuple[Reply, ...]) -> tuple[Reply, ...]:
        """Answer the stages; a reply that is part of a masked one is replaced by MaskedElsewhere."""
        out = list(replies)
        masked: set[int] = set()
        for position, part in enumerate(request.parts):
            if part.verb == STAGE:
                out[position] = self._staged(request, part.question, replies)
            elif self.is_masked(request, part):
                masked.add(position)
        return tuple(MaskedElsewhere() if position in masked else reply for position, reply in enumerate(out))

    def _staged(self, request: Request, question: Question[Reply], replies: tuple[Reply, ...]) -> Reply:
        match question:
            case AskKeys():
                return self._member.keys(request.request_id, question)
            case AskShares():
                return self._member.shares(request.request_id, question)
            case AskConsistency():
                return self._member.sign_consistency(request.request_id, question)
            case AskUnmask():
                return self._member.unmask(request.request_id, question)
            case AskMasked():
                parts = _summed(request, question)
                summed = [
                    reply
                    for part, reply in zip(request.parts, replies, strict=True)
                    if part in parts and isinstance(reply, Summable | PartialSum)
                ]
                if len(summed) < len(parts):
                    raise QueryRefusedError("a secure sum of replies that cannot be summed")
                return self._member.masked(request.request_id, question, parts, summed)
        raise QueryRefusedError(f"{codec.name_of(type(question))} is not a stage of a secure sum")


def noise_sharers(sites: int, threshold: int, honest_sites: int) -> int:
    """Return the number of sites that can add one noise together.

    There are ``sites`` participants, and ``honest_sites`` of them are honest. The others may help the
    coordinator, which then knows their parts of the noise and chooses who drops out. A sum that is unmasked
    has at least ``threshold`` sites, so at least ``threshold`` less the others are honest. If the others are
    enough to sign two lists of survivors of one sum (``threshold_for``), a site's part can be read by itself,
    and no noise is shared.

    >>> [noise_sharers(5, 4, honest) for honest in (1, 2, 3, 4, 5)]
    [1, 1, 2, 3, 4]
    """
    hostile = sites - min(honest_sites, sites)
    return threshold - hostile if 2 * threshold > sites + hostile else 1


def _summed(request: Request, stage: AskMasked) -> list[Part]:
    """The parts whose replies a stage masks."""
    parts = [p for p in request.parts if p.verb == "total" and p.index in stage.parts]
    if [p.index for p in parts] != list(stage.parts) or not parts:
        raise QueryRefusedError("a secure sum of replies that cannot be summed")
    if sum(p.verb == STAGE for p in request.parts) > 1:
        raise QueryRefusedError("two stages of secure sums in one request")
    return parts


def _masked(request: Request) -> set[int]:
    """Positions in the exchange of the questions whose replies this request masks."""
    stages = (part.question for part in request.parts if part.verb == STAGE)
    return {index for question in stages if isinstance(question, AskMasked) for index in question.parts}


def site_masks(
    names: Sequence[SiteId],
    *,
    min_sites: int,
    required: bool,
    allowed_in_clear: tuple[str, ...] = (),
    suggested_methods: tuple[str, ...] = (),
) -> dict[SiteId, SiteMask]:
    """Return masks for sites that are all in this process, with new identities and without an authority."""
    SecureSums(min_sites).check_sites(len(names))
    members = {str(name): Member(str(name), Identity.new(), min_sites=min_sites) for name in names}
    return {
        name: SiteMask(
            member, required=required, allowed_in_clear=allowed_in_clear, suggested_methods=suggested_methods
        )
        for name, member in members.items()
    }
