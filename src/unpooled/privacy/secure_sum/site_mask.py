"""The mask of a site: its side of secure sums, and the rule to answer in secure sums only.

A reply that leaves masked is seen only in a sum over at least three sites, so it is not suppressed: the sum
equals pooling. ``floor`` is the smallest cell that a site adds to a sum; 1 adds every row.
"""

from collections.abc import Callable, Sequence
from typing import Any

from unpooled.core import codec
from unpooled.core.exchange import STAGE, Envelope, Part
from unpooled.core.messages import LeftMasked, Reply, SiteId, Summable
from unpooled.core.subtotal import Subtotal
from unpooled.errors import Refused
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.messages import AskAgreed, AskKeys, AskMasked, AskOpened, AskShares
from unpooled.privacy.secure_sum.settings import SecureSums
from unpooled.privacy.secure_sum.site import Member

_ALONE = (AskKeys, AskShares, AskAgreed, AskOpened)  # stages that no question about rows comes with


class Masking:
    """A site's mask. ``required``: refuse every question whose reply would be seen by itself.

    ``shown`` names questions that may be asked of each site even so, e.g. "AskSchema"; ``instead``
    names methods that need only sums, for the refusal. ``bounds`` refuses a part of a sum whose numbers are
    out of proportion to what the site states of its values. ``honest`` is the number of sites on the roster
    that add their part of one noise; None: all of them, as in a simulation.
    """

    def __init__(
        self,
        member: Member,
        *,
        required: bool = False,
        shown: tuple[str, ...] = (),
        instead: tuple[str, ...] = (),
        floor: float = 1.0,
        honest: int | None = None,
        bounds: Callable[[Part], None] | None = None,
    ) -> None:
        self._bounds = bounds
        self._member, self._required, self._shown, self._floor = member, required, shown, floor
        self._instead, self._honest = instead, honest

    def before(self, post: Envelope) -> None:
        """Refuse stages and questions that cannot be answered, before anything is computed or paid for."""
        for stage in (p.question for p in post.parts if p.verb == STAGE):
            if isinstance(stage, AskMasked):
                parts = _summed(post, stage)
                self._member.check_masked(post.turn, stage, parts)
                for part in parts if self._bounds is not None else ():
                    self._bounds(part)  # type: ignore[misc]
            elif not isinstance(stage, _ALONE):
                raise Refused(f"{codec.name_of(type(stage))} is no stage of a secure sum")
            elif len(post.parts) > 1:  # it might be refused when the rest is paid for
                raise Refused(f"{codec.name_of(type(stage))} comes alone")
        if not self._required:
            return
        masked = _masked(post)
        for part in post.parts:
            name = codec.name_of(type(part.question))
            if part.verb == STAGE or (part.verb == "total" and part.index in masked) or name in self._shown:
                continue
            raise Refused(
                f"only secure sums are allowed, and {name} would show a single site's reply; methods that "
                f"need only sums: {', '.join(self._instead)}"
            )

    def hides(self, post: Envelope, part: Part) -> bool:
        """True if the reply to this part is only seen in a sum."""
        return part.verb == "total" and part.index in _masked(post)

    def minimum(self, post: Envelope, part: Part, usual: float) -> float:
        """The smallest cell in a reply: the site's own rule, or ``floor`` if it is only seen in a sum."""
        return self._floor if self.hides(post, part) else usual

    def noise(self, post: Envelope, part: Part) -> float:
        """This site's share of a reply's noise: 1, or less where sites of a secure sum add it together."""
        for stage in (p.question for p in post.parts if p.verb == STAGE):
            if isinstance(stage, AskMasked) and part.verb == "total" and part.index in stage.parts:
                sites, threshold = self._member.sizes(post.turn, stage)
                return float(noise_sharers(sites, threshold, self._honest or sites) ** -0.5)
        return 1.0

    def was_opened(self, post: Envelope) -> bool:
        """True if the sum of this exchange was opened before, under other keys."""
        state, turn = self._member._run(post.turn.run), post.turn
        return state is not None and (turn.round, turn.exchange) in {given[:2] for given in state.given}

    def forget(self) -> None:
        """Take back what the mask remembers of an answer that was not kept."""
        self._member.forget()

    def hide(self, post: Envelope, replies: tuple[Reply, ...]) -> tuple[Reply, ...]:
        """Answer the stages; a reply that is part of a masked one is replaced by LeftMasked."""
        out = list(replies)
        hidden: set[int] = set()
        for position, part in enumerate(post.parts):
            if part.verb == STAGE:
                out[position] = self._staged(post, part.question, replies)
            elif self.hides(post, part):
                hidden.add(position)
        return tuple(LeftMasked() if position in hidden else reply for position, reply in enumerate(out))

    def _staged(self, post: Envelope, question: Any, replies: tuple[Reply, ...]) -> Reply:
        match question:
            case AskKeys():
                return self._member.keys(post.turn, question)
            case AskShares():
                return self._member.shares(post.turn, question)
            case AskAgreed():
                return self._member.agreed(post.turn, question)
            case AskOpened():
                return self._member.opened(post.turn, question)
            case AskMasked():
                parts = _summed(post, question)
                summed = [
                    reply
                    for part, reply in zip(post.parts, replies, strict=True)
                    if part in parts and isinstance(reply, Summable | Subtotal)
                ]
                if len(summed) < len(parts):
                    raise Refused("a secure sum of what is not a sum")
                return self._member.masked(post.turn, question, parts, summed)
        raise Refused(f"{codec.name_of(type(question))} is no stage of a secure sum")


def noise_sharers(sites: int, threshold: int, honest: int) -> int:
    """Return the number of sites that can add one noise together.

    ``sites`` are on the roster, and ``honest`` of them are honest. The others may help the coordinator, which
    then knows their parts of the noise and chooses who drops out. A sum that is opened has ``threshold``
    sites at least, so at least ``threshold`` less the others are honest. If the others are so many that two
    lists of survivors of one sum can be signed (``threshold_for``), a site's part is seen alone, and no noise
    is shared.

    >>> [noise_sharers(5, 4, honest) for honest in (1, 2, 3, 4, 5)]
    [1, 1, 2, 3, 4]
    """
    hostile = sites - min(honest, sites)
    return threshold - hostile if 2 * threshold > sites + hostile else 1


def _summed(post: Envelope, stage: AskMasked) -> list[Part]:
    """The parts whose replies a stage masks."""
    parts = [p for p in post.parts if p.verb == "total" and p.index in stage.parts]
    if [p.index for p in parts] != list(stage.parts) or not parts:
        raise Refused("a secure sum of what is not a sum")
    if sum(p.verb == STAGE for p in post.parts) > 1:
        raise Refused("two stages of secure sums in one envelope")
    return parts


def _masked(post: Envelope) -> set[int]:
    """Places in the exchange of the questions whose replies this envelope has masked."""
    stages = (part.question for part in post.parts if part.verb == STAGE)
    return {index for question in stages if isinstance(question, AskMasked) for index in question.parts}


def maskings(
    names: Sequence[SiteId],
    *,
    min_sites: int,
    required: bool,
    shown: tuple[str, ...] = (),
    instead: tuple[str, ...] = (),
) -> dict[SiteId, Masking]:
    """Masks for sites that are all in this process: fresh identities, and no authority."""
    SecureSums(min_sites).check_sites(len(names))
    members = {str(name): Member(str(name), Identity.new(), min_sites=min_sites) for name in names}
    return {
        name: Masking(member, required=required, shown=shown, instead=instead)
        for name, member in members.items()
    }
