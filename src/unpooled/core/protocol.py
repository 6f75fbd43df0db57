"""How a coordinator asks: two verbs, Steps made of them, and the Algorithm that a method is.

``each`` shows the coordinator every site's reply; ``total`` shows only their sum. A protocol is a generator
that yields asks and receives answers, so it reads top to bottom like a paper's pseudocode, and larger ones
are made of smaller ones by ``yield from``.

>>> def spread(sites):
...     first = yield from total(sites, AskMoments())         # down: nothing; up: n, sums, squares
...     return first.variance
>>> from unpooled.questions.moments import AskMoments
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.messages import A, Message, R, SiteId
from unpooled.core.question import Question

T = TypeVar("T")


class View(Message):
    """What a site makes of its rows before a question sees them, e.g. a scaling agreed by all sites."""

    def apply(self, X: Rows) -> Rows:
        """Rows (n, d) in, rows (n, d') out; never changes its input."""
        return X

    def chosen(self, X: Rows) -> bytes:
        """Which rows it takes: equal for two views if and only if they take the same ones. b"" is all."""
        return b""

    def undo(self, Z: FloatArray) -> FloatArray:
        """Rows, or centres, back in the columns' own units: (m, d') -> (m, d')."""
        return Z

    def scaling(self) -> tuple[FloatArray, FloatArray]:
        """By what each of its columns was shifted, and then divided: (d',) and (d',)."""
        return np.zeros(0), np.zeros(0)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The column behind each number that it gives; None: those of the rows, in their order."""
        return None


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
