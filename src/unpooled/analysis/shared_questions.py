"""Ask once what several protocols ask alike in the same exchange: a start for every k from one sketch."""

from typing import Any, TypeVar

from unpooled.core import codec
from unpooled.core.protocol import Ask, Steps
from unpooled.core.question import Question

T = TypeVar("T")


def shared(steps: Steps[T]) -> Steps[T]:
    """The same protocol; equal questions in one exchange travel once, and each asker gets the answer."""
    answers: tuple[Any, ...] | None = None
    try:
        while True:
            asks = steps.send(answers)  # type: ignore[arg-type]
            first: dict[Any, int] = {}
            places = [first.setdefault(_key(ask), len(first)) for ask in asks]
            got = yield tuple(asks[places.index(i)] for i in range(len(first)))
            answers = tuple(got[i] for i in places)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def _key(ask: Ask[Any]) -> Any:
    if not isinstance(ask.question, Question):
        return id(ask)
    return ask.verb, ask.sites, codec.encode(ask.question), codec.encode(ask.view)
