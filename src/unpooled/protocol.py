"""How a coordinator asks: two verbs, Steps made of them, and the Algorithm that a method is.

``each`` shows the coordinator every site's reply; ``total`` shows only their sum. A protocol is a generator
that yields asks and receives answers, so it reads top to bottom like a paper's pseudocode, and larger ones
are made of smaller ones by ``yield from``.

>>> def spread(sites):
...     first = yield from total(sites, AskMoments())         # down: nothing; up: n, sums, squares
...     return first.variance
>>> from unpooled.summaries import AskMoments
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from unpooled import codec
from unpooled.codec import FloatArray
from unpooled.declarations import declared, once
from unpooled.errors import BadReply, TooFewAnswers
from unpooled.messages import A, Message, Question, R, Refusal, Reply, Rows, SiteId, Stacked, fold

T = TypeVar("T")


class View(Message):
    """What a site makes of its rows before a question sees them, e.g. a scaling agreed by all sites."""

    def apply(self, X: Rows) -> Rows:
        """Rows (n, d) in, rows (n, d') out; never changes its input."""
        return X

    def chosen(self, X: Rows) -> bytes:
        """Which rows it takes: equal for two views if and only if they take the same ones. b"" is all."""
        return b""


Verb = Literal["each", "total"]


@dataclass(frozen=True)
class Ask(Generic[R]):
    """One question to some sites, and whether their replies are seen one by one or only as a sum."""

    verb: Verb
    sites: tuple[SiteId, ...]
    question: Question[R] | Callable[[SiteId], Question[R]]
    view: View | None = None

    def question_for(self, site: SiteId) -> Question[R]:
        return self.question if isinstance(self.question, Question) else self.question(site)

    @property
    def title(self) -> str:
        """The question's name, for messages to people."""
        return codec.name_of(type(self.question_for(self.sites[0])))


Asks = tuple[Ask[Any], ...]
Steps = Generator[Asks, tuple[Any, ...], T]


def each(
    sites: Sequence[SiteId], question: Question[R] | Callable[[SiteId], Question[R]]
) -> Steps[dict[SiteId, R]]:
    """Ask every site and see every reply; a site that did not answer is not in the result."""
    (replies,) = yield (Ask("each", tuple(sites), question),)
    return dict(replies)


def total(sites: Sequence[SiteId], question: Question[A]) -> Steps[A]:
    """Ask every site and see only the sum of the replies."""
    (summed,) = yield (Ask("total", tuple(sites), question),)
    return summed  # type: ignore[no-any-return]


def together(protocols: Sequence[Steps[T]]) -> Steps[list[T]]:
    """Run several protocols in lockstep: their questions share exchanges, so ten cost what one costs."""
    results: dict[int, T] = {}
    waiting: dict[int, Asks] = {}

    def advance(index: int, answers: tuple[Any, ...] | None) -> None:
        waiting.pop(index, None)
        try:
            waiting[index] = protocols[index].send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            results[index] = stop.value

    for index in range(len(protocols)):
        advance(index, None)
    while waiting:
        order = sorted(waiting)
        answers = yield tuple(ask for index in order for ask in waiting[index])
        start = 0
        for index in order:
            width = len(waiting[index])
            advance(index, answers[start : start + width])
            start += width
    return [results[index] for index in range(len(protocols))]


def merged(steps: Steps[T]) -> Steps[T]:
    """The same protocol; questions of one exchange that differ in their sets of centres travel as one.

    A question can be merged if its arrays, and all of its reply, have a leading axis R (declarations.py).
    """
    answers: tuple[Any, ...] | None = None
    try:
        while True:
            asks = steps.send(answers)  # type: ignore[arg-type]
            groups: dict[Any, list[int]] = {}
            for i, ask in enumerate(asks):
                groups.setdefault(_merge_key(ask) or i, []).append(i)
            got = yield tuple(_merged([asks[i] for i in some]) for some in groups.values())
            parted: list[Any] = [None] * len(asks)
            for some, answer in zip(groups.values(), got, strict=True):
                for i, part in zip(some, _parted([asks[i] for i in some], answer), strict=True):
                    parted[i] = part
            answers = tuple(parted)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


@once
def _axis_of_sets(cls: Any) -> tuple[str, ...] | None:
    """The fields of a kind of question that hold R of something, None if it cannot be merged."""
    said = {name for name, one in declared(cls).items() if one.axes[:1] == ("R",)}
    reply = cls.reply_type()
    figures = declared(reply).values()
    whole = len(figures) == len(codec.field_names(reply)) and all(f.axes[:1] == ("R",) for f in figures)
    return tuple(name for name in codec.field_names(cls) if name in said) if said and whole else None


def _merge_key(ask: Ask[Any]) -> Any:
    """Equal for asks whose questions can be merged, None for one that cannot."""
    question = ask.question
    sets = _axis_of_sets(type(question)) if isinstance(question, Question) else None
    if sets is None:
        return None
    names = codec.field_names(type(question))
    rest = tuple(getattr(question, n) if n not in sets else getattr(question, n).shape[1:] for n in names)
    return ask.verb, ask.sites, id(ask.view), type(question), rest


def _merged(asks: Sequence[Ask[Any]]) -> Ask[Any]:
    if len(asks) == 1:
        return asks[0]
    questions: list[Any] = [ask.question for ask in asks]
    sets = _axis_of_sets(type(questions[0])) or ()
    joined = {name: np.concatenate([getattr(q, name) for q in questions]) for name in sets}
    return replace(asks[0], question=replace(questions[0], **joined))


def _parted(asks: Sequence[Ask[Any]], answer: Any) -> list[Any]:
    if len(asks) == 1:
        return [answer]
    if asks[0].verb == "each":
        apart = {site: _parts_of(asks, reply) for site, reply in answer.items()}
        return [{site: parts[i] for site, parts in apart.items()} for i in range(len(asks))]
    return _parts_of(asks, answer)


def _parts_of(asks: Sequence[Ask[Any]], reply: Any) -> list[Any]:
    """A reply of R sets as the replies that each of the merged questions asked for."""
    sets = _axis_of_sets(type(asks[0].question)) or ()
    kind, arrays = type(reply), [getattr(reply, name) for name in codec.field_names(type(reply))]
    parts, start = [], 0
    for ask in asks:
        end = start + len(getattr(ask.question, sets[0]))
        parts.append(kind(*[array[start:end] for array in arrays]))
        start = end
    return parts


def viewed(view: View | None, steps: Steps[T]) -> Steps[T]:
    """The same protocol, with every question asked of the rows as ``view`` shows them."""
    answers: tuple[Any, ...] | None = None
    try:
        while True:
            asks = steps.send(answers)  # type: ignore[arg-type]
            answers = yield tuple(replace(ask, view=ask.view or view) for ask in asks)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


# ---------------------------------------------------------------- what a method is


class State(Protocol):
    """What every algorithm's state shows, so that one loop, one history and one report serve them all."""

    @property
    def centers(self) -> FloatArray: ...  # (k, d)
    @property
    def movement(self) -> float: ...  # how far the centres moved in the last round
    @property
    def inertia(self) -> float: ...  # of the centres sent out last; nan where a method does not learn it


S = TypeVar("S", bound=State)


class Algorithm(Protocol[S]):
    """A method: state in, state out. State is explicit between rounds; a generator runs within a round."""

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[S]: ...
    def round(self, state: S, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[S]: ...
    def finished(self, state: S) -> bool: ...


def expanded(algorithm: Any) -> Algorithm[Any]:
    """What a run of an algorithm carries out: one that has several starts runs them side by side."""
    expand = getattr(algorithm, "expanded", None)
    return algorithm if expand is None else expand()  # type: ignore[no-any-return]


# ---------------------------------------------------------------- turns, and what carries them


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
class Envelope(Message, wire="protocol.Envelope"):
    """What goes down to one site in one exchange."""

    turn: Turn
    parts: tuple[Part, ...]
    seal: str = ""  # "number:hash:signature": the head that the coordinator last received, signed by it


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


class LazyRng:
    """A round's randomness, made when a method first draws: most rounds of most methods never do."""

    def __init__(self, seed: int, number: int) -> None:
        self._key = (seed, number)
        self._rng: np.random.Generator | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._rng is None:
            self._rng = round_rng(*self._key)
        return getattr(self._rng, name)

    def __deepcopy__(self, memo: Any) -> "LazyRng":
        other = LazyRng(*self._key)
        other._rng = deepcopy(self._rng, memo)
        return other


@dataclass(frozen=True, eq=False)
class Gathered(Generic[R]):
    """The replies to one ask, in site order. ``sites`` names those that answered."""

    sites: tuple[SiteId, ...]
    replies: list[R] | Stacked[R]
    refusals: Mapping[SiteId, str] = field(default_factory=dict)
    exchanges: int = 1  # trips to the sites and back that all asks of the exchange took together

    def each(self) -> dict[SiteId, R]:
        return dict(zip(self.sites, self.replies, strict=True))

    def total(self) -> R:
        return fold([self.replies])  # type: ignore[type-var]

    def left(self) -> dict[SiteId, tuple[int, int]]:
        """(numbers, bytes) of every site's reply."""
        return {site: codec.size(reply) for site, reply in zip(self.sites, self.replies, strict=True)}


@dataclass(frozen=True, eq=False)
class Summed(Gathered[R]):
    """The replies to one ask of which only the sum is left; each site sent ``size`` (numbers, bytes)."""

    replies: list[R] | Stacked[R] = field(default_factory=list)
    sum: R | None = None
    size: tuple[int, int] = (0, 0)

    def each(self) -> dict[SiteId, R]:
        raise TypeError("only the sum of these replies is known")

    def total(self) -> R:
        assert self.sum is not None
        return self.sum

    def left(self) -> dict[SiteId, tuple[int, int]]:
        return dict.fromkeys(self.sites, self.size)


class Federation(Protocol):
    """A runtime: carries one exchange's asks to the sites and gathers what comes back."""

    @property
    def sites(self) -> tuple[SiteId, ...]: ...
    def ask(self, turn: Turn, asks: Asks) -> Sequence[Gathered[Any]]: ...


class Carrier(Protocol):
    """An engine between machines: all it knows is bytes and the names of sites.

    ``carry`` takes one encoded Envelope to each named site and brings back its encoded Answer, or a few words
    that say why there is none ("late", "gone"); a site may also be missing. It is bounded in time and does
    not raise for a site's sake.
    """

    @property
    def sites(self) -> tuple[SiteId, ...]: ...
    def carry(self, posts: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]: ...


def gather(ask: Ask[R], replies: Mapping[SiteId, Reply]) -> Gathered[R]:
    """Sort what sites sent into replies and refusals; a site that sent nothing is in neither.

    Replies that cannot be put together with those of most sites are as refusals.
    """
    refusals = {s: r.reason for s, r in replies.items() if isinstance(r, Refusal)}
    refusals |= _odd_ones(ask, {s: r for s, r in replies.items() if s not in refusals})
    sites = tuple(s for s in ask.sites if s in replies and s not in refusals)
    return Gathered(sites, [replies[s] for s in sites], refusals)  # type: ignore[misc]


def _odd_ones(ask: Ask[Any], replies: Mapping[SiteId, Reply]) -> dict[SiteId, str]:
    """Sites whose replies have other shapes, or other columns, than those of most sites, and why."""
    found = {site: _fit(ask.verb, reply) for site, reply in replies.items()}
    counted = Counter(found.values()).most_common(2)
    if len(counted) < 2:
        return {}
    (most, number), (_, next_number) = counted
    if number == next_number:
        sides = [min(s for s, fit in found.items() if fit == one) for one, _ in counted]
        raise BadReply(
            f"{ask.title}: replies of {sides[0]} {_told(most)} and of {sides[1]} {_told(counted[1][0])}, "
            "and no majority says which is right"
        )
    return {
        site: f"its answer was not usable: {_told(fit)}, where most sites have {_told(most)}"
        for site, fit in found.items()
        if fit != most
    }


def _fit(verb: Verb, reply: Reply) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What replies must have in common: all shapes to be added, else the number of columns."""
    said = declared(type(reply))
    if verb == "total":
        return tuple((name, getattr(reply, name).shape) for name in codec.field_names(type(reply)))
    axes = ((name, i) for name, one in said.items() for i, axis in enumerate(one.axes) if axis == "d")
    first = next(axes, None)
    return () if first is None else (("columns", (getattr(reply, first[0]).shape[first[1]],)),)


def _told(fit: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in fit)


@dataclass(eq=False)
class Trace:
    """What a round's exchanges were: how many, who answered, who did not and why, what left each site."""

    exchanges: int = 0  # trips to the sites and back: a secure sum takes several
    turns: int = 0  # questions, or sets of them, that were asked
    left: dict[SiteId, tuple[int, int]] = field(default_factory=dict)  # numbers and bytes
    silent: dict[SiteId, str] = field(default_factory=dict)

    def add(self, ask: Ask[Any], got: Gathered[Any]) -> None:
        left = got.left()
        if self.left:
            for site, (numbers, size) in left.items():
                before = self.left.get(site, (0, 0))
                self.left[site] = (before[0] + numbers, before[1] + size)
        else:
            self.left = left
        if len(got.sites) < len(ask.sites):
            answered = set(got.sites)
            for site in ask.sites:
                if site not in answered:
                    self.silent[site] = got.refusals.get(site, "no answer")


def conduct(
    steps: Steps[T],
    federation: Federation,
    *,
    run: str = "",
    seed: int = 0,
    number: int = 0,
    quorum: float = 0.5,
    trace: Trace | None = None,
) -> T:
    """Drive a protocol over a federation to its result; ``number`` is the round that it is.

    ``quorum`` is the share of the asked sites that must answer each ask (always at least one).
    """
    trace = trace if trace is not None else Trace()
    answers: tuple[Any, ...] | None = None
    while True:
        try:
            asks = steps.send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        gathered = federation.ask(Turn(run, seed, number, trace.turns), asks)
        trace.turns += 1
        trace.exchanges += max(got.exchanges for got in gathered)
        for ask, got in zip(asks, gathered, strict=True):
            trace.add(ask, got)
            _require(ask, got, number, quorum)
        answers = tuple(
            got.each() if ask.verb == "each" else got.total() for ask, got in zip(asks, gathered, strict=True)
        )


def _require(ask: Ask[Any], got: Gathered[Any], number: int, quorum: float) -> None:
    needed = max(1, int(np.ceil(quorum * len(ask.sites))))
    if len(got.sites) >= needed:
        return
    silent = {s: got.refusals.get(s, "no answer") for s in ask.sites if s not in set(got.sites)}
    raise TooFewAnswers(
        f"round {number}, {ask.title}: {len(got.sites)} of {len(ask.sites)} sites answered, "
        f"{needed} needed; missing: {whys(silent)}"
    )


def whys(silent: Mapping[SiteId, str]) -> str:
    """Who did not answer and why, those with the same reason together.

    >>> whys({"a": "late", "b": "late", "c": "closed"})
    'a, b (late), c (closed)'
    """
    alike: dict[str, list[SiteId]] = {}
    for site, why in list(silent.items())[:5]:
        alike.setdefault(why, []).append(site)
    more = f" and {len(silent) - 5} more" if len(silent) > 5 else ""
    return ", ".join(f"{', '.join(sites)} ({why})" for why, sites in alike.items()) + more
