"""Annotations of the fields of messages, as codec and declarations read them."""

import dataclasses
import functools
import operator
import types
import typing
from typing import Any


def field_hints(cls: type[Any]) -> dict[str, Any]:
    """Return the annotations of a dataclass by field, with names of types replaced by the types.

    ``numpy.typing.NDArray`` is such a name since numpy 2.5: it comes from a ``type`` statement.
    """
    hints = typing.get_type_hints(cls)
    return {field.name: spelled_out(hints[field.name]) for field in dataclasses.fields(cls)}


def spelled_out(hint: Any) -> Any:
    """Return an annotation with the types themselves in place of names that ``type`` statements gave them.

    >>> spelled_out(tuple[int, ...] | None)
    tuple[int, ...] | None
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    named = hint if origin is None else origin
    if hasattr(named, "__value__") and hasattr(named, "__type_params__"):
        value, parameters = named.__value__, dict(zip(named.__type_params__, args, strict=False))
        free = getattr(value, "__parameters__", ())
        return spelled_out(value[tuple(parameters.get(one, one) for one in free)] if free else value)
    if origin is typing.Literal:  # its arguments are values
        return hint
    plain = tuple(map(spelled_out, args))
    if all(new is old for new, old in zip(plain, args, strict=True)):
        return hint
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, plain)
    return origin[plain]
