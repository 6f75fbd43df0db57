"""Fewer questions for the same answers: within an exchange, similar questions travel as one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unpooled.protocol.algorithm import Ask, Steps, T
from unpooled.protocol.declarations import declared, once
from unpooled.protocol.messages import Question, Reply, SiteId


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
def _axis_of_sets(cls: type[Question[Any]]) -> tuple[str, ...] | None:
    """The fields of a question class with a leading axis R; None if it cannot be merged."""
    names: tuple[str, ...] = cls.__match_args__
    with_sets = {name for name, declaration in declared(cls).items() if declaration.axes[:1] == ("R",)}
    reply = cls.reply_type()
    figures = declared(reply).values()
    whole = len(figures) == len(reply.__match_args__) and all(f.axes[:1] == ("R",) for f in figures)
    return tuple(name for name in names if name in with_sets) if with_sets and whole else None


def _merge_key(ask: Ask[Any]) -> tuple[object, ...] | None:
    """A key that is equal for asks whose questions can be merged; None if a question cannot be."""
    question = ask.question
    if not isinstance(question, Question) or (sets := _axis_of_sets(type(question))) is None:
        return None
    names: tuple[str, ...] = type(question).__match_args__
    rest = tuple(
        getattr(question, name).shape[1:] if name in sets else _hashable(getattr(question, name))
        for name in names
    )
    return ask.verb, ask.sites, id(ask.transform), type(question), rest


def _merged(asks: Sequence[Ask[Any]]) -> Ask[Any]:
    if len(asks) == 1:
        return asks[0]
    questions: list[Any] = [ask.question for ask in asks]
    sets = _axis_of_sets(type(questions[0])) or ()
    joined = {name: np.concatenate([getattr(q, name) for q in questions]) for name in sets}
    return replace(asks[0], question=replace(questions[0], **joined))


def _parted(
    asks: Sequence[Ask[Any]], answer: Reply | dict[SiteId, Reply]
) -> Sequence[Reply | dict[SiteId, Reply]]:
    if len(asks) == 1:
        return [answer]
    if isinstance(answer, dict):
        apart = {site: _parts_of(asks, reply) for site, reply in answer.items()}
        return [{site: parts[i] for site, parts in apart.items()} for i in range(len(asks))]
    return _parts_of(asks, answer)


def _parts_of(asks: Sequence[Ask[Any]], reply: Reply) -> list[Reply]:
    """A reply of R sets as the replies that each of the merged questions asked for."""
    sets = _axis_of_sets(type(asks[0].question_for(asks[0].sites[0]))) or ()
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


def _key(ask: Ask[Any]) -> tuple[object, ...]:
    """A key that is equal for asks of the same question, after the same transform, of the same sites."""
    question = ask.question
    if not isinstance(question, Question):
        return (id(ask),)
    names: tuple[str, ...] = type(question).__match_args__
    values = tuple(_hashable(getattr(question, name)) for name in names)
    return ask.verb, ask.sites, id(ask.transform), type(question), values


def _hashable(value: object) -> object:
    """A key that is equal for equal fields of questions, arrays among them."""
    return (value.shape, value.dtype, value.tobytes()) if isinstance(value, np.ndarray) else value
