"""Secure sums between members in this process, with sites that fall silent where a schedule says so."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unpooled.errors import QueryRefusedError
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.aggregate import SecureSumResult, aggregate
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import (
    AskConsistency,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Participants,
    SumParameters,
)
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, RequestId, parts_digest
from unpooled.protocol.messages import Question, Refusal, Reply, Summable
from unpooled.protocol.questions.cluster_sums import AskMoments

STAGE = {AskShares: 0, AskMasked: 1, AskConsistency: 2, AskUnmask: 3}


@dataclasses.dataclass(frozen=True, eq=False)
class Vector(Summable, prefix="federation"):
    values: np.ndarray


class Ring:
    """Some members, the participant list of their run, and the coordinator's place in it."""

    def __init__(self, n: int, *, run: str = "run", min_sites: int = 3) -> None:
        self.names = tuple(f"s{i:03d}" for i in range(n))
        self.identities = {name: Identity.new() for name in self.names}
        self.authority = Identity.new()
        self.members = {
            name: Member(name, identity, min_sites=min_sites, authority=self.authority.public)
            for name, identity in self.identities.items()
        }
        self.run = run
        self.participants = self.signed(run)
        self.keys: dict[str, Any] = {}
        self.parts = (Part("total", AskMoments(), None, 0),)

    def signed(self, run: str, **other: str) -> Participants:
        """The signed participant list of a run; ``other`` identities replace the sites' own."""
        keys = {name: identity.public.hex() for name, identity in self.identities.items()} | other
        participants = Participants(run, tuple(sorted(keys)), tuple(keys[name] for name in sorted(keys)))
        return dataclasses.replace(participants, signature=self.authority.sign(participants.statement).hex())

    def request_id(self, number: int = 0, exchange: int = 0) -> RequestId:
        return RequestId(self.run, 0, number, exchange)

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

    def agree_on_keys(self, request_id: RequestId, epoch: str = "e") -> None:
        self.keys = {name: through(m.keys(request_id, AskKeys(epoch))) for name, m in self.members.items()}

    def terms(self, request_id: RequestId, *, sites=None, epoch: str = "e", **other) -> SumParameters:
        sites = self.names if sites is None else tuple(sites)
        settings = {"threshold": threshold_for(len(self.names)), "asked": parts_digest(self.parts), **other}
        return SumParameters(request_id, epoch, self.participants.digest, sites, **settings)

    def reply(
        self, site: str, request_id: RequestId, question: Question[Any], inputs: Mapping[str, Summable]
    ) -> Reply:
        """Answer a stage as a site does."""
        member, question = self.members[site], through(question)
        try:
            match question:
                case AskShares():
                    return through(member.shares(request_id, question))
                case AskMasked():
                    return through(member.masked(request_id, question, self.parts, [inputs[site]]))
                case AskConsistency():
                    return through(member.sign_consistency(request_id, question))
                case AskUnmask():
                    return through(member.unmask(request_id, question))
        except QueryRefusedError as refusal:
            return Refusal(str(refusal))
        raise AssertionError(question)

    def sum(
        self,
        inputs: Mapping[str, Summable],
        terms: SumParameters,
        *,
        silent: Callable[[int, str], bool] = lambda stage, site: False,
        twist: Callable[[int, str, Reply], Reply] = lambda stage, site, reply: reply,
    ) -> SecureSumResult:
        """Drive one sum; ``silent(stage, site)`` says who sends nothing, ``twist`` changes what is sent."""
        stages = aggregate(terms, self.participants, self.keys, (0,))
        came: Any = None
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
                    came[site] = twist(stage, site, self.reply(site, terms.request_id, question, inputs))


def through(message: Any) -> Any:
    """To bytes and back, as everything travels."""
    return codec.decode(codec.encode(message))
