"""Exchanges: the messages between coordinator and sites, and the loop that runs a protocol over a federation.

First part: requests, responses, and the seeds that they determine. Second part: the gathered replies, and the
record of the sites that answered and the numbers that they sent.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b, sha256
from typing import Any, Generic, cast

import numpy as np
import numpy.typing as npt

from unpooled.errors import ReplyError, TooFewAnswersError
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Asks, Steps, T, Verb
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.declarations import declared
from unpooled.protocol.messages import Message, Question, R, Refusal, Reply, SiteId
from unpooled.protocol.partial_sum import PartialSum, partial_sum
from unpooled.protocol.site_batch import ReplyBatch, ordered_sum
from unpooled.protocol.transform import Transform


@dataclass(frozen=True)
class RequestId(Message):
    """The identity of a request in a run. A site answers a repeated request with the same bytes."""

    run: str
    seed: int
    round: int
    exchange: int


STAGE = "stage"  # the verb of a part that serves secure sums of other parts and reads no rows


@dataclass(frozen=True, eq=False)
class Part(Message):
    """One question of an exchange, as a site receives it."""

    verb: str  # each, total or STAGE
    question: Question[Any]
    transform: Transform | None
    index: int  # its place in the exchange, for any set of sites: part of the seed of a site's draws


@dataclass(frozen=True, eq=False)
class Request(Message):
    """The request to one site in one exchange."""

    request_id: RequestId
    parts: tuple[Part, ...]
    countersigned: str = ""  # "number:hash:signature": the last head of the site's log that arrived, signed

    @cached_property
    def digest(self) -> str:
        """A digest of all but the countersigned head: equal requests must get equal answers."""
        return codec.digest(replace(self, countersigned=""))


@dataclass(frozen=True, eq=False)
class Response(Message):
    """The response of one site: a reply per part of the request, or a refusal in its place."""

    request_id: RequestId
    replies: tuple[Reply, ...]
    head: str = ""  # "number:hash" of the line of the site's log that holds this answer


def parts_digest(parts: Iterable[Part]) -> str:
    """Return the digest of some questions, with their transforms and positions in the exchange."""
    digest = sha256()
    for part in parts:
        data = codec.encode(part)
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def countersignable(site: SiteId, head: str) -> bytes:
    """Return the bytes that a coordinator signs to confirm that it received this head from this site."""
    return Label.LOG_HEAD + f"{site}\n{head}".encode()


def site_seed(request_id: RequestId, part: int, site: SiteId) -> int:
    """Return the seed for a site's own draws: a hash of the run's seed, round, exchange, part and site."""
    key = f"{request_id.seed}/{request_id.round}/{request_id.exchange}/{part}/{site}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class SiteSeeds:
    """The seeds of several sites, computed only where a question draws."""

    request_id: RequestId
    part: int
    sites: tuple[SiteId, ...]

    def __getitem__(self, span: slice) -> "SiteSeeds":
        return replace(self, sites=self.sites[span])

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.uint64]:
        seeds = [site_seed(self.request_id, self.part, site) for site in self.sites]
        return np.array(seeds, dtype=np.uint64)


class _LazyRng:
    """A random generator that is made at the first draw; most rounds never draw.

    It saves a seventh of a round of 100 small sites: making a generator takes 25 microseconds.
    """

    def __init__(self, seed: int, number: int) -> None:
        self._key = (seed, number)
        self._rng: np.random.Generator | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._rng is None:
            seed, number = self._key
            self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
        return getattr(self._rng, name)

    def __deepcopy__(self, memo: dict[int, object]) -> "_LazyRng":
        other = _LazyRng(*self._key)
        other._rng = deepcopy(self._rng, memo)
        return other


def round_rng(seed: int, number: int) -> np.random.Generator:
    """Return the coordinator's random generator for a round; number 0 is the start."""
    return cast(np.random.Generator, _LazyRng(seed, number))


class Transport(ABC):
    """A transport between machines: it handles only bytes and the names of sites.

    A transport must have ``sites`` and ``send_and_receive``. The other members describe how its exchanges
    went; the defaults are those of a transport that does not know.
    """

    sites: tuple[SiteId, ...]
    unreached: Collection[SiteId] = ()  # not reached by the last exchange; another run may reach them
    seconds: Sequence[float] = ()  # duration of each exchange
    on_wait: Callable[[Mapping[SiteId, float]], None] | None = None
    # Called with the sites where a person must approve the study, and since when, whenever that changes.

    @abstractmethod
    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """Send one encoded Request to each named site. Return by site its encoded Response.

        In place of a response stands the reason, in a few words, why there is none ("late", "gone"); a site
        may also be missing. The call is bounded in time and does not raise because of a single site.
        """


def size(message: Message) -> tuple[int, int]:
    """Return (numbers, bytes) of a message: the number of its array entries, and its length when encoded."""
    kind: Any = type(message)
    if isinstance(message, Reply):
        values = [getattr(message, name) for name in kind.__match_args__]
        if all(isinstance(v, np.ndarray) for v in values):
            return _size_of(kind, tuple((v.dtype.str, v.shape) for v in values))
    return codec.numbers(message), len(codec.encode(message))


@lru_cache(maxsize=4096)
def _size_of(cls: type[Any], shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[int, int]:
    message = object.__new__(cls)  # filled with zeros, since only shapes matter
    for name, (dtype, shape) in zip(cls.__match_args__, shapes, strict=True):
        object.__setattr__(message, name, np.zeros(shape, dtype))
    return codec.numbers(message), len(codec.encode(message))


@dataclass(frozen=True, eq=False)
class Replies(Generic[R]):
    """The replies to one ask, in site order. ``sites`` names those that answered.

    The reply of a member that is a federation is the PartialSum of its sites.
    """

    sites: tuple[SiteId, ...]
    replies: list[R] | ReplyBatch[R]
    refusals: Mapping[SiteId, str] = field(default_factory=dict)
    exchanges: int = 1  # round trips to the sites that all asks of the exchange took together
    exact: bool = False  # the total is the exact sum, rounded once
    sizes: Mapping[SiteId, tuple[int, int]] | None = None  # what each site sent; None: its reply

    def each(self) -> dict[SiteId, R]:
        replies = (reply.reply() if isinstance(reply, PartialSum) else reply for reply in self.replies)
        return dict(zip(self.sites, replies, strict=True))

    def total(self) -> R:
        if self.exact or (isinstance(self.replies, list) and _any_partial_sum(self.replies)):
            return self.partial_sum().reply()  # type: ignore[no-any-return]
        return ordered_sum([self.replies])

    def partial_sum(self, min_contributors: int = 1) -> PartialSum:
        """Return the exact sum of the replies, without cells of fewer than ``min_contributors`` sites."""
        return partial_sum([self.replies], min_contributors)

    def sent(self) -> Mapping[SiteId, tuple[int, int]]:
        """Return (numbers, bytes) of every site's reply."""
        if self.sizes is not None:
            return self.sizes
        return {site: size(reply) for site, reply in zip(self.sites, self.replies, strict=True)}


class UniformSizes(Mapping[SiteId, tuple[int, int]]):
    """The numbers and bytes that each of many sites sent, if all sent the same: one entry for all of them."""

    def __init__(self, sites: tuple[SiteId, ...], size: tuple[int, int]) -> None:
        self._sites, self._size = sites, size
        self._known: frozenset[SiteId] | None = None

    def __getitem__(self, site: SiteId) -> tuple[int, int]:
        if self._known is None:
            self._known = frozenset(self._sites)
        if site not in self._known:
            raise KeyError(site)
        return self._size

    def __iter__(self) -> Iterator[SiteId]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UniformSizes):
            return self._size == other._size and self._sites == other._sites
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def plus(self, other: Mapping[SiteId, tuple[int, int]]) -> "UniformSizes | None":
        """Return the sum of both sizes; None if it is not the same for all sites."""
        if not (isinstance(other, UniformSizes) and self._sites == other._sites):
            return None
        (numbers, size), (other_numbers, other_size) = self._size, other._size
        return UniformSizes(self._sites, (numbers + other_numbers, size + other_size))


def _any_partial_sum(replies: Sequence[Any]) -> bool:
    return any(isinstance(reply, PartialSum) for reply in replies)


@dataclass(frozen=True, eq=False)
class Aggregate(Replies[R]):
    """The replies to one ask of which only the sum is left; each site sent ``size`` (numbers, bytes)."""

    replies: list[R] | ReplyBatch[R] = field(default_factory=list)
    sum: R | None = None
    size: tuple[int, int] = (0, 0)
    unrounded: PartialSum | None = None  # the sum, where it is exact

    def each(self) -> dict[SiteId, R]:
        raise TypeError("only the sum of these replies is known")

    def total(self) -> R:
        assert self.sum is not None
        return self.sum

    def partial_sum(self, min_contributors: int = 1) -> PartialSum:
        assert self.unrounded is not None
        return self.unrounded

    def sent(self) -> Mapping[SiteId, tuple[int, int]]:
        return UniformSizes(self.sites, self.size) if self.sizes is None else self.sizes


class Federation(ABC):
    """The sites as an algorithm asks them: in this process, on workers or on other machines.

    A federation must have ``sites`` and ``ask``. The defaults of the other members are those of sites
    without keys, without secure sums, and without federations among them.
    """

    sites: tuple[SiteId, ...]
    secure: bool = False  # every total is a secure sum
    exact_sums: bool = False  # every total is the exact sum, rounded once: the same bits in any order
    federations: tuple[SiteId, ...] = ()  # the members that are federations themselves
    min_contributors: int = 1  # sites with rows in a cell of an exact sum; see ``suppress_cells``
    rows: int | None = None  # of all sites; of summary tables, their groups. None: not known here

    @abstractmethod
    def ask(self, request_id: RequestId, asks: Asks) -> Sequence[Replies[Reply]]:
        """Send the asks of one exchange to the sites and gather the replies to each ask."""

    def close(self) -> None:  # noqa: B027 most federations hold nothing
        """Free what the federation holds, e.g. connections to workers. Nothing is asked afterwards."""

    def members(self, request_id: RequestId, ancestors: tuple[str, ...]) -> tuple[str, ...]:
        """Return the fingerprints of the keys of all members, for the federation above.

        ``ancestors`` are the fingerprints of the federations above this one.
        """
        return ()

    def suppress_cells(self, min_contributors: int) -> None:
        """Suppress in exact sums the cells that fewer than ``min_contributors`` sites have rows in.

        A federation that returns single replies leaves that to ``Replies.partial_sum``.
        """
        self.min_contributors = min_contributors


def gather(ask: Ask[R], replies: Mapping[SiteId, Reply], exact: bool = False) -> Replies[R]:
    """Divide the messages of sites into replies and refusals; a site that sent nothing is in neither.

    Replies that cannot be combined with those of most sites count as refusals. With ``exact`` the total is
    the exact sum.
    """
    refusals = {s: r.reason for s, r in replies.items() if isinstance(r, Refusal)}
    refusals |= _odd_ones(ask, {s: r for s, r in replies.items() if s not in refusals})
    sites = tuple(s for s in ask.sites if s in replies and s not in refusals)
    return Replies(sites, [replies[s] for s in sites], refusals, exact=exact)  # type: ignore[misc]


def _odd_ones(ask: Ask[Any], replies: Mapping[SiteId, Reply]) -> dict[SiteId, str]:
    """Sites whose replies have other shapes, or other columns, than those of most sites, with the reason."""
    fits = {site: _fit(ask.verb, reply) for site, reply in replies.items()}
    counted = Counter(fits.values()).most_common(2)
    if len(counted) < 2:
        return {}
    (usual, number), (_, next_number) = counted
    if number == next_number:
        sides = [min(s for s, fit in fits.items() if fit == frequent) for frequent, _ in counted]
        raise ReplyError(
            f"{ask.title}: replies of {sides[0]} {_words(usual)} and of {sides[1]} {_words(counted[1][0])}, "
            "and no majority says which is right"
        )
    return {
        site: f"its answer was not usable: {_words(fit)}, where most sites have {_words(usual)}"
        for site, fit in fits.items()
        if fit != usual
    }


def _fit(verb: Verb, reply: Reply) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The shapes that must agree between sites: all of them in a sum, else the number of columns."""
    fields = declared(type(reply))
    if isinstance(reply, PartialSum):
        return reply.shapes if verb == "total" else _fit(verb, reply.reply())
    if verb == "total":
        return tuple((name, getattr(reply, name).shape) for name in type(reply).__match_args__)
    axes = (
        (name, i)
        for name, declaration in fields.items()
        for i, axis in enumerate(declaration.axes)
        if axis == "d"
    )
    first = next(axes, None)
    return () if first is None else (("columns", (getattr(reply, first[0]).shape[first[1]],)),)


def _words(fit: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in fit)


@dataclass(eq=False)
class RoundLog:
    """The record of a round's exchanges: their number, the sites that answered or did not, what they sent."""

    exchanges: int = 0  # round trips to the sites: a secure sum takes several
    requests: int = 0  # questions, or sets of them, that were asked
    sent: Mapping[SiteId, tuple[int, int]] = field(default_factory=dict)  # numbers and bytes
    silent: dict[SiteId, str] = field(default_factory=dict)

    def add(self, ask: Ask[Any], replies: Replies[Any]) -> None:
        sent = replies.sent()
        if not self.sent:
            self.sent = sent
        elif (both := sent.plus(self.sent) if isinstance(sent, UniformSizes) else None) is not None:
            self.sent = both
        else:
            sums = dict(self.sent)
            for site, (numbers, size) in sent.items():
                before = sums.get(site, (0, 0))
                sums[site] = (before[0] + numbers, before[1] + size)
            self.sent = sums
        if len(replies.sites) < len(ask.sites):
            answered = set(replies.sites)
            for site in ask.sites:
                if site not in answered:
                    self.silent[site] = replies.refusals.get(site, "no answer")


def run_protocol(
    steps: Steps[T],
    federation: Federation,
    *,
    run: str = "",
    seed: int = 0,
    number: int = 0,
    quorum: float = 0.5,
    round_log: RoundLog | None = None,
) -> T:
    """Run a protocol over a federation to its result; ``number`` is that of the round.

    ``quorum`` is the share of the asked sites that must answer each ask (always at least one).
    """
    round_log = round_log if round_log is not None else RoundLog()
    answers: tuple[Any, ...] | None = None
    while True:
        try:
            asks = steps.send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        replies_by_ask = federation.ask(RequestId(run, seed, number, round_log.requests), asks)
        round_log.requests += 1
        round_log.exchanges += max(answer.exchanges for answer in replies_by_ask)
        for ask, answer in zip(asks, replies_by_ask, strict=True):
            round_log.add(ask, answer)
            _require(ask, answer, number, quorum)
        answers = tuple(
            answer.each() if ask.verb == "each" else answer.total()
            for ask, answer in zip(asks, replies_by_ask, strict=True)
        )


def _require(ask: Ask[Any], answer: Replies[Any], number: int, quorum: float) -> None:
    needed = max(1, int(np.ceil(quorum * len(ask.sites))))
    if len(answer.sites) >= needed:
        return
    silent = {s: answer.refusals.get(s, "no answer") for s in ask.sites if s not in set(answer.sites)}
    raise TooFewAnswersError(
        f"round {number}, {ask.title}: {len(answer.sites)} of {len(ask.sites)} sites answered, "
        f"{needed} needed; missing: {format_silent_sites(silent)}"
    )


def format_silent_sites(silent: Mapping[SiteId, str]) -> str:
    """Return the sites that did not answer, grouped by reason, as text.

    >>> format_silent_sites({"a": "late", "b": "late", "c": "closed"})
    'a, b (late), c (closed)'
    """
    alike: dict[str, list[SiteId]] = {}
    for site, why in list(silent.items())[:5]:
        alike.setdefault(why, []).append(site)
    more = f" and {len(silent) - 5} more" if len(silent) > 5 else ""
    return ", ".join(f"{', '.join(sites)} ({why})" for why, sites in alike.items()) + more
