"""Secure sums between members in this process, with sites that fall silent where a schedule says so."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.exchange import Part, Turn
from unpooled.core.messages import Question, Refusal, Reply, Summable
from unpooled.errors import Refused
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.messages import (
    AskAgreed,
    AskKeys,
    AskMasked,
    AskOpened,
    AskShares,
    Roster,
    SumTerms,
    asked,
)
from unpooled.privacy.secure_sum.site import Member
from unpooled.privacy.secure_sum.tally import Total, tally
from unpooled.questions.clusters import AskMoments

STAGE = {AskShares: 0, AskMasked: 1, AskAgreed: 2, AskOpened: 3}


@dataclasses.dataclass(frozen=True, eq=False)
class Vector(Summable, prefix="federation"):
    values: np.ndarray


class Ring:
    """Some members, the roster of their run, and the coordinator's place in it."""

    def __init__(self, n: int, *, run: str = "run", min_sites: int = 3) -> None:
        self.names = tuple(f"s{i:03d}" for i in range(n))
        self.identities = {name: Identity.new() for name in self.names}
        self.authority = Identity.new()
        self.members = {
            name: Member(name, identity, min_sites=min_sites, authority=self.authority.public)
            for name, identity in self.identities.items()
        }
        self.run = run
        self.roster = self.signed(run)
        self.keys: dict[str, Any] = {}
        self.parts = (Part("total", AskMoments(), None, 0),)

    def signed(self, run: str, **other: str) -> Roster:
        """The roster of a run, signed by the authority; ``other`` identities in place of the sites' own."""
        keys = {name: identity.public.hex() for name, identity in self.identities.items()} | other
        roster = Roster(run, tuple(sorted(keys)), tuple(keys[name] for name in sorted(keys)))
        return dataclasses.replace(roster, signature=self.authority.sign(roster.statement).hex())

    def turn(self, number: int = 0, exchange: int = 0) -> Turn:
        return Turn(self.run, 0, number, exchange)

    def restart(self, site: str) -> None:
        """Kill a member and make it again from what it has kept."""
        old = self.members[site]
        self.members[site] = Member(
            site,
            self.identities[site],
            min_sites=old.min_sites,
            authority=self.authority.public,
            store=old._store,
        )

    def agree_on_keys(self, turn: Turn, epoch: str = "e") -> None:
        self.keys = {name: through(m.keys(turn, AskKeys(epoch))) for name, m in self.members.items()}

    def terms(self, turn: Turn, *, sites=None, epoch: str = "e", **other) -> SumTerms:
        sites = self.names if sites is None else tuple(sites)
        settings = {"threshold": threshold_for(len(self.names)), "asked": asked(self.parts), **other}
        return SumTerms(turn, epoch, self.roster.digest, sites, **settings)

    def reply(self, site: str, turn: Turn, question: Question[Any], inputs: Mapping[str, Summable]) -> Reply:
        """What a site's door does with a stage."""
        member, question = self.members[site], through(question)
        try:
            match question:
                case AskShares():
                    return through(member.shares(turn, question))
                case AskMasked():
                    return through(member.masked(turn, question, self.parts, [inputs[site]]))
                case AskAgreed():
                    return through(member.agreed(turn, question))
                case AskOpened():
                    return through(member.opened(turn, question))
        except Refused as refusal:
            return Refusal(str(refusal))
        raise AssertionError(question)

    def sum(
        self,
        inputs: Mapping[str, Summable],
        terms: SumTerms,
        *,
        silent: Callable[[int, str], bool] = lambda stage, site: False,
        twist: Callable[[int, str, Reply], Reply] = lambda stage, site, reply: reply,
    ) -> Total:
        """Drive one sum; ``silent(stage, site)`` says who sends nothing, ``twist`` changes what is sent."""
        stages, came = tally(terms, self.roster, self.keys, (0,)), None
        gone: set[str] = set()
        self.asks = {}  # of the last sum, by stage: what an honest coordinator asked of whom
        while True:
            try:
                asks = stages.send(came)
            except StopIteration as stop:
                return stop.value
            came = {}
            self.asks[STAGE[type(next(iter(asks.values())))]] = asks
            for site, question in asks.items():
                stage = STAGE[type(question)]
                gone |= {site} if silent(stage, site) else set()
                if site not in gone:
                    came[site] = twist(stage, site, self.reply(site, terms.turn, question, inputs))


def through(message: Any) -> Any:
    """To bytes and back, as everything travels."""
    return codec.decode(codec.encode(message))
