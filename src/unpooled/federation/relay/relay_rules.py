"""The rules of a relay: what it passes up, and from how many sites and people on."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from unpooled.data.merged_schema import COLUMNS
from unpooled.errors import InputError
from unpooled.optimality.questions import AskNode
from unpooled.protocol import codec
from unpooled.protocol.messages import Question, Summable
from unpooled.protocol.questions.cluster_sums import AskClusterSums

DUAL_QUESTIONS = (codec.name_of(AskNode), codec.name_of(AskClusterSums))
"""Questions that ``RelayRules.forwarded`` must name for the dual methods to run over a tree."""


@dataclass(frozen=True)
class RelayRules:
    """The rules of a relay: what it passes up, and from how many sites and people on.

    Parameters
    ----------
    min_sites
        Fewest sites of a sum; of a member that is a relay, its sites count.
    min_contributors
        With ``exact``: fewest sites that have rows of a cluster, or of another cell of a sum; a cell with
        fewer is suppressed.
    min_people
        Fewest people of a count and of the sums that belong to it; below that they are suppressed.
    exact
        Pass up exact sums over the members' answers, so that a tree gives the bits of a flat federation. The
        federation above can then compute nearly all groups of single members. By default the relay answers
        from one summary of its members' groups, three or more to a row.
    quorum
        Share of the members that must answer.
    columns
        How the members' columns must agree, as in PreparationOptions: "same", "common" or "any".
    fixed_membership
        With ``exact``: every sum of a run is over the same sites as its first sum, or is refused.
    forwarded
        With ``exact``: questions for single replies that the relay answers with the sum, as one site.
    secure
        Answer only in the secure sums of the federation above, except for the schema.
    """

    min_sites: int = 3
    min_contributors: int = 1
    min_people: int = 1
    exact: bool = False
    quorum: float = 0.5
    columns: str = "same"
    fixed_membership: bool = False
    forwarded: tuple[str, ...] = ()
    secure: bool = False

    def __post_init__(self) -> None:
        for key in ("min_sites", "min_contributors", "min_people"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} must be 1 or more, got {getattr(self, key)}")
        for key, default in (("min_contributors", 1), ("fixed_membership", False), ("forwarded", ())):
            if not self.exact and getattr(self, key) != default:
                raise InputError(
                    f"{key} is a rule about exact sums, and without exact = true a relay answers from one "
                    f"summary of its members. Set exact = true, or leave {key} out."
                )
        if self.min_contributors > self.min_sites:
            raise InputError(
                f"min_contributors of {self.min_contributors} is above min_sites of {self.min_sites}: a cell "
                "cannot have more sites than its sum"
            )
        if not 0 <= self.quorum <= 1:
            raise InputError(f"quorum must be a share between 0 and 1, got {self.quorum}")
        if self.columns not in COLUMNS:
            raise InputError(f"columns must be one of {', '.join(COLUMNS)}, got {self.columns!r}")
        for name in self.forwarded:
            question: Any = codec.class_named(name)
            if question is None or not issubclass(question, Question):
                raise InputError(f"forwarded: there is no question {name!r}")
            if not issubclass(question.reply_type(), Summable) and question is not AskNode:
                raise InputError(f"forwarded: replies to {name} have no sum, so they would go up one by one")

    @property
    def digest(self) -> str:
        return sha256(repr(self).encode()).hexdigest()
