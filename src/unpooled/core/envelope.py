"""What travels between coordinator and site in one exchange, and the seeds that it fixes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from unpooled.core.messages import Message, Reply, SiteId
from unpooled.core.protocol import View
from unpooled.core.question import Question


@dataclass(frozen=True)
class Turn(Message, wire="protocol.Turn"):
    """Which exchange of which run. A site answers a repeated turn with the same bytes."""

    run: str
    seed: int
    round: int
    exchange: int


STAGE = "stage"  # the verb of a part that is about other parts' secrecy, never about rows


@dataclass(frozen=True, eq=False)
class Part(Message, wire="protocol.Part"):
    """One question of an exchange, as a site receives it."""

    verb: str  # each, total or STAGE
    question: Question[Any]
    view: View | None
    index: int  # its place in the exchange, whoever else is asked: it keys the site's draws


@dataclass(frozen=True, eq=False)
class Envelope(Message, wire="protocol.Envelope", fields={"countersigned": "seal"}):
    """What goes down to one site in one exchange."""

    turn: Turn
    parts: tuple[Part, ...]
    countersigned: str = ""  # "number:hash:signature": the last head of the log that came, signed


@dataclass(frozen=True, eq=False)
class Answer(Message, wire="protocol.Answer"):
    """What comes up from one site: a reply per part of the envelope, or a refusal in its place."""

    turn: Turn
    replies: tuple[Reply, ...]
    head: str = ""  # "number:hash" of the line of the site's log that holds this answer


def site_seed(turn: Turn, part: int, site: SiteId) -> int:
    """The seed for a site's own draws: keyed by all that it depends on, and by nothing else."""
    key = f"{turn.seed}/{turn.round}/{turn.exchange}/{part}/{site}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class SiteSeeds:
    """The seeds of several sites, worked out only where a question draws."""

    turn: Turn
    part: int
    sites: tuple[SiteId, ...]

    def __getitem__(self, some: slice) -> "SiteSeeds":
        return replace(self, sites=self.sites[some])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        seeds = [site_seed(self.turn, self.part, site) for site in self.sites]
        return np.array(seeds, dtype=np.uint64)


def round_rng(seed: int, number: int) -> np.random.Generator:
    """The coordinator's randomness for a round; number 0 is the start."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))


class Carrier(Protocol):
    """An engine between machines: all it knows is bytes and the names of sites.

    ``carry`` takes one encoded Envelope to each named site and brings back its encoded Answer, or a few words
    that say why there is none ("late", "gone"); a site may also be missing. It is bounded in time and does
    not raise for a site's sake.
    """

    @property
    def sites(self) -> tuple[SiteId, ...]: ...
    def carry(self, posts: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]: ...
