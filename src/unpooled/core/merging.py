"""Questions that differ in their sets of centres travel as one: restarts in one kernel call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.declarations import declared, once
from unpooled.core.protocol import Ask, Steps, T
from unpooled.core.question import Question


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
