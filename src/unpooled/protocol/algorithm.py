"""Protocols: the coordinator's two verbs, the Steps made of them, and the Algorithm interface of methods.

``each`` gives a method every site's reply; ``total`` gives it only their sum. Without secure sums the
coordinator receives every site's reply in both cases. A protocol is a generator that yields asks and receives
answers, so it reads top to bottom like a paper's pseudocode, and larger ones are made of smaller ones by
``yield from``.

>>> def spread(sites):
...     first = yield from total(sites, AskMoments())         # down: nothing; up: n, sums, squares
...     return first.variance
>>> from unpooled.protocol.questions.cluster_sums import AskMoments
"""

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np

from unpooled.errors import InputError
from unpooled.protocol import codec
from unpooled.protocol.messages import A, Message, Question, R, SiteId
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray

T = TypeVar("T")


Verb = Literal["each", "total"]


@dataclass(frozen=True)
class Ask(Generic[R]):
    """One question to some sites, and whether the method receives their replies one by one or as a sum."""

    verb: Verb
    sites: tuple[SiteId, ...]
    question: Question[R] | Callable[[SiteId], Question[R]]
    transform: Transform | None = None

    def question_for(self, site: SiteId) -> Question[R]:
        return self.question if isinstance(self.question, Question) else self.question(site)

    @property
    def title(self) -> str:
        """The question's name, for messages to people."""
        question = self.question if isinstance(self.question, Question) else self.question(self.sites[0])
        return codec.name_of(type(question))


Asks = tuple[Ask[Any], ...]
Steps = Generator[Asks, tuple[Any, ...], T]


def each(
    sites: Sequence[SiteId], question: Question[R] | Callable[[SiteId], Question[R]]
) -> Steps[dict[SiteId, R]]:
    """Ask every site and receive every reply; a site that did not answer is not in the result."""
    (replies,) = yield (Ask("each", tuple(sites), question),)
    return dict(replies)


def total(sites: Sequence[SiteId], question: Question[A]) -> Steps[A]:
    """Ask every site and receive only the sum of the replies."""
    (sum_of_replies,) = yield (Ask("total", tuple(sites), question),)
    return sum_of_replies  # type: ignore[no-any-return]


def together(protocols: Sequence[Steps[T]]) -> Steps[list[T]]:
    """Run several protocols in lockstep: their questions share round trips, so ten cost as many as one."""
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


def transformed(transform: Transform | None, steps: Steps[T]) -> Steps[T]:
    """Return the same protocol, in which every question reads the rows after ``transform``."""
    answers: tuple[Any, ...] | None = None
    try:
        while True:
            asks = steps.send(answers)  # type: ignore[arg-type]
            answers = yield tuple(replace(ask, transform=ask.transform or transform) for ask in asks)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


# ---------------------------------------------------------------- methods


class State(Message, abstract=True):
    """A method's state between two rounds: a frozen dataclass whose fields a checkpoint keeps.

    Every state has ``centers``, ``movement`` and ``inertia``. The loop, the history and the report read these
    and the attributes below, which have defaults. A state that knows more has a field of that name.
    """

    if TYPE_CHECKING:  # a subclass has them as fields or as properties

        @property
        def centers(self) -> FloatArray:  # (k, d)
            raise NotImplementedError

        @property
        def movement(self) -> float:  # how far the centres moved in the last round
            raise NotImplementedError

        @property
        def inertia(self) -> float:  # of the centres sent out last; nan where a method does not learn it
            raise NotImplementedError

    threshold: float | None = None  # movement that counts as rest
    suspects: tuple[SiteId, ...] = ()  # sites whose replies the method left out
    lower_bound: float | None = None  # on the inertia of any k centres, if bound_condition holds
    bound_condition: str = ""

    @property
    def leader(self) -> "State":
        """The state of the method itself: of the best start so far, if the state holds several."""
        return self

    @property
    def leader_movement(self) -> float:
        """The movement that tells how near the end is: other starts than the leader may stop early."""
        return self.movement

    @property
    def candidates(self) -> tuple[FloatArray, FloatArray, int]:
        """The centres of every start (R, k, d), their inertia (R,), and which is best."""
        return self.centers[None], np.array([self.inertia]), 0

    @property
    def scaling(self) -> Transform | None:
        """The transform on which the sites agreed before the method started; None if there is none."""
        return None

    @property
    def scaled_centers(self) -> FloatArray:
        """The centres (k, d) in the columns that the method read, after ``scaling``."""
        return self.centers

    @property
    def comparison_rounds(self) -> int:
        """The number of rounds that only compared restarts, after the last round of the method."""
        return 0


S = TypeVar("S", bound=State)

UNLIMITED_ROUNDS = sys.maxsize


class Algorithm(Generic[S]):
    """A method. Its state is explicit between rounds; within a round a generator runs.

    A subclass defines ``start``, ``round`` and ``finished``. All other members have defaults.
    """

    citation: ClassVar[str] = ""  # the paper to cite

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[S]:
        """Return the state before the first round."""
        raise NotImplementedError

    def round(self, state: S, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[S]:
        """Return the state after one more round."""
        raise NotImplementedError

    def finished(self, state: S) -> bool:
        """Return whether the state is final."""
        raise NotImplementedError

    # ------------------------------------------------------------ what a run needs to know

    @property
    def innermost(self) -> "Algorithm[Any]":
        """The method inside algorithms that wrap others, e.g. restarts on scaled columns; or itself."""
        return self

    @property
    def k(self) -> int | None:
        """The number of clusters; None if it is not known yet."""
        return None

    @property
    def init(self) -> str | FloatArray:
        """The way to start, or starting centres (k, d)."""
        return ""

    @property
    def max_rounds(self) -> int:
        """The number of rounds after which a run ends, whatever ``finished`` returns."""
        return UNLIMITED_ROUNDS

    @property
    def participation(self) -> float:
        """The share of the sites (float), or the number of sites (int), that takes part in a round."""
        return 1.0

    @property
    def min_cluster_size(self) -> int:
        """The size of the smallest cluster that the sites are known to disclose."""
        return 1

    @property
    def fuzzifier(self) -> float | None:
        """The fuzzifier m of fuzzy clusters; None if every row belongs to one cluster."""
        return None

    def ended(self, state: S, rounds: int) -> bool:
        """Return whether a run is over after this number of rounds."""
        return rounds >= self.max_rounds or self.finished(state)

    def ran_out(self, state: S) -> bool:
        """Return whether a run ended only because of ``max_rounds``; False if the method has no other end."""
        return False

    # ------------------------------------------------------------ the same method in another form

    def build(self) -> "Algorithm[Any]":
        """Return the algorithm that a run executes, e.g. several starts side by side."""
        return self

    def with_init(self, centers: FloatArray) -> "Algorithm[Any]":
        """Return the same algorithm with these starting centres (k, d)."""
        raise InputError(f"{type(self).__name__} cannot start from given centres")

    def with_restarts(self, n: int | None) -> "Algorithm[Any]":
        """Return the algorithm with ``n`` restarts; None: its default number."""
        if n is not None and n > 1:
            raise InputError(f"n_init={n} needs a Method, and {type(self).__name__} is not one")
        return self

    @property
    def supports_missing(self) -> bool:
        """True if it can cluster rows with missing cells, see ``with_missing``."""
        return False

    def with_missing(self) -> "Algorithm[Any]":
        """Return the algorithm for rows with missing cells; InputError if it cannot cluster them."""
        raise InputError(f"{type(self).__name__} cannot cluster rows with missing cells")


class WrapperState(State, abstract=True):
    """The state of an algorithm that runs another one: its facts are those of its ``leader``."""

    # mypy takes the defaults of State for attributes that can be set, but states are frozen
    @property
    def threshold(self) -> float | None:  # type: ignore[override]
        return self.leader.threshold

    @property
    def suspects(self) -> tuple[SiteId, ...]:  # type: ignore[override]
        return self.leader.suspects

    @property
    def lower_bound(self) -> float | None:  # type: ignore[override]
        return self.leader.lower_bound

    @property
    def bound_condition(self) -> str:  # type: ignore[override]
        return self.leader.bound_condition


@dataclass(frozen=True, eq=False)
class NestedState(WrapperState, abstract=True):
    """The state of an algorithm that runs exactly one other one: what it does not define is that one's."""

    inner: State

    @property
    def centers(self) -> FloatArray:
        return self.inner.centers

    @property
    def movement(self) -> float:
        return self.inner.movement

    @property
    def inertia(self) -> float:
        return self.inner.inertia

    @property
    def leader(self) -> State:
        return self.inner.leader

    @property
    def leader_movement(self) -> float:
        return self.inner.leader_movement

    @property
    def comparison_rounds(self) -> int:
        return self.inner.comparison_rounds


@dataclass(frozen=True, eq=False)
class Wrapper(Message, Algorithm[S], abstract=True):
    """An algorithm that runs another one, e.g. with restarts or on scaled columns."""

    inner: Algorithm[Any]

    @property
    def innermost(self) -> Algorithm[Any]:
        return self.inner.innermost

    @property
    def k(self) -> int | None:
        return self.inner.k

    @property
    def init(self) -> str | FloatArray:
        return self.inner.init

    @property
    def participation(self) -> float:
        return self.inner.participation

    @property
    def min_cluster_size(self) -> int:
        return self.inner.min_cluster_size

    @property
    def fuzzifier(self) -> float | None:
        return self.inner.fuzzifier

    def build(self) -> Self:
        return replace(self, inner=self.inner.build())

    def with_init(self, centers: FloatArray) -> Self:
        return replace(self, inner=self.inner.with_init(centers))

    @property
    def supports_missing(self) -> bool:
        return self.inner.supports_missing

    def with_missing(self) -> Self:
        return replace(self, inner=self.inner.with_missing())
