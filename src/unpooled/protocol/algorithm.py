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

from collections.abc import Callable, Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from unpooled.errors import QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.declarations import declared, once
from unpooled.protocol.messages import A, Message, Question, R, SiteId
from unpooled.typing import FloatArray, Rows

T = TypeVar("T")


class Transform(Message, abstract=True):
    """A transformation of a site's rows before a question reads them, e.g. a scaling agreed by all sites."""

    keeps_missing: ClassVar[bool] = (
        False  # True if missing cells stay missing: NaN in the rows that it returns
    )

    def check(self, X: Any) -> None:
        """Raise QueryRefusedError unless it suits the columns of ``X``: single rows must not make it fail."""

    def apply(self, X: Rows) -> Rows:
        """Return the transformed rows, (n, d) -> (n, d'); the input stays unchanged."""
        return X

    def apply_weighted(
        self, X: Any, weights: FloatArray | None, within: FloatArray | None
    ) -> tuple[Rows, FloatArray | None, FloatArray | None]:
        """Return a site's transformed rows, their weights, and the variance within rows that are groups."""
        return self.apply(X), weights, None if within is None else within / self.scaling()[1] ** 2

    def undo(self, Z: FloatArray) -> FloatArray:
        """Return rows, or centres, in the columns' own units: (m, d') -> (m, d')."""
        return Z

    def scaling(self) -> tuple[FloatArray, FloatArray]:
        """Return the shift of each column, (d',), and the divisor applied after it, (d',)."""
        return np.zeros(0), np.zeros(0)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The column behind each output column; None: the columns of the rows, in their order."""
        return None


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


def reads_missing(transform: Transform | None, question: Question[Any]) -> bool:
    """Return whether a question reads missing cells after a transform.

    Raises
    ------
    QueryRefusedError
        If the question cannot be answered from rows with missing cells.
    """
    if transform is None or not transform.keeps_missing:
        return False
    if not question.supports_missing:
        raise QueryRefusedError(f"{codec.name_of(type(question))} cannot be answered where cells are missing")
    return True


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


class State(Protocol):
    """The attributes that every algorithm's state has; the loop, the history and the report read them."""

    @property
    def centers(self) -> FloatArray: ...  # (k, d)
    @property
    def movement(self) -> float: ...  # how far the centres moved in the last round
    @property
    def inertia(self) -> float: ...  # of the centres sent out last; nan where a method does not learn it


S = TypeVar("S", bound=State)


class Algorithm(Protocol[S]):
    """A method. Its state is explicit between rounds; within a round a generator runs."""

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[S]: ...
    def round(self, state: S, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[S]: ...
    def finished(self, state: S) -> bool: ...


def build_algorithm(algorithm: Any) -> Algorithm[Any]:
    """Return the algorithm that a run executes; several starts of a method run side by side."""
    expand = getattr(algorithm, "build", None)
    return algorithm if expand is None else expand()  # type: ignore[no-any-return]


# ---------------------------------------------------------------- fewer questions for the same answers


def merged(steps: Steps[T]) -> Steps[T]:
    """Return the same protocol; questions of one exchange that differ in their sets of centres travel as one.

    A question can be merged if its arrays, and all of its reply, have a leading axis R (declarations.py).
    """
    answers: tuple[Any, ...] | None = None
    try:
        while True:
            asks = steps.send(answers)  # type: ignore[arg-type]
            groups: dict[Any, list[int]] = {}
            for i, ask in enumerate(asks):
                groups.setdefault(_merge_key(ask) or i, []).append(i)
            replies = yield tuple(_merged([asks[i] for i in group]) for group in groups.values())
            parted: list[Any] = [None] * len(asks)
            for group, answer in zip(groups.values(), replies, strict=True):
                for i, part in zip(group, _parted([asks[i] for i in group], answer), strict=True):
                    parted[i] = part
            answers = tuple(parted)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


@once
def _axis_of_sets(cls: Any) -> tuple[str, ...] | None:
    """The fields of a question class with a leading axis R; None if it cannot be merged."""
    with_sets = {name for name, declaration in declared(cls).items() if declaration.axes[:1] == ("R",)}
    reply = cls.reply_type()
    figures = declared(reply).values()
    whole = len(figures) == len(reply.__match_args__) and all(f.axes[:1] == ("R",) for f in figures)
    return tuple(name for name in cls.__match_args__ if name in with_sets) if with_sets and whole else None


def _merge_key(ask: Ask[Any]) -> Any:
    """A key that is equal for asks whose questions can be merged; None if a question cannot be."""
    question: Any = ask.question
    sets = _axis_of_sets(type(question)) if isinstance(question, Question) else None
    if sets is None:
        return None
    names = type(question).__match_args__
    rest = tuple(getattr(question, n) if n not in sets else getattr(question, n).shape[1:] for n in names)
    return ask.verb, ask.sites, id(ask.transform), type(question), rest


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
    kind, arrays = type(reply), [getattr(reply, name) for name in type(reply).__match_args__]
    parts, start = [], 0
    for ask in asks:
        end = start + len(getattr(ask.question, sets[0]))
        parts.append(kind(*[array[start:end] for array in arrays]))
        start = end
    return parts


def shared(steps: Steps[T]) -> Steps[T]:
    """Return the same protocol; equal questions in one exchange travel once, and all receive the answer."""
    answers: tuple[Any, ...] | None = None
    try:
        while True:
            asks = steps.send(answers)  # type: ignore[arg-type]
            first: dict[Any, int] = {}
            places = [first.setdefault(_key(ask), len(first)) for ask in asks]
            replies = yield tuple(asks[places.index(i)] for i in range(len(first)))
            answers = tuple(replies[i] for i in places)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def _key(ask: Ask[Any]) -> Any:
    """A key that is equal for asks of the same question, after the same transform, of the same sites."""
    question: Any = ask.question
    if not isinstance(question, Question):
        return id(ask)
    kind: Any = type(question)
    values = (getattr(question, name) for name in kind.__match_args__)
    held = tuple((v.shape, v.dtype, v.tobytes()) if isinstance(v, np.ndarray) else v for v in values)
    return ask.verb, ask.sites, id(ask.transform), kind, held


class CopiedRng:
    """A copy of a random generator, made at the first draw; nobody may draw from the original after that.

    Every concurrent start has a copy in every round, and most methods never draw from it.
    """

    def __init__(self, original: np.random.Generator) -> None:
        self._original = original
        self._copy: np.random.Generator | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._copy is None:
            self._copy = deepcopy(self._original)
        return getattr(self._copy, name)

    def __deepcopy__(self, memo: Any) -> "CopiedRng":
        other = CopiedRng(self._original)
        other._copy = deepcopy(self._copy, memo)
        return other
