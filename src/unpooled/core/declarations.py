"""Declarations: the meaning of every field of a question or reply, written on the field itself.

    sums: Annotated[FloatArray, Sum("R k d", rows="mass")]

A shape names its axes; an axis of a digit has that length, an axis named in a question has the length that
it has there, and ``d`` (columns) is the same for all sites. The code that checks replies, rounds counts,
guards centres or merges restarts reads declarations; nothing is inferred from the names of fields.
"""

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeVar, cast

import numpy as np

from unpooled.core.hints import field_hints
from unpooled.errors import BadReply

F = TypeVar("F", bound=Callable[..., Any])


def once(function: F) -> F:
    """Cache the result for each class: ``functools.cache`` for functions of classes, which are hashable."""
    return cast(F, functools.cache(function))


@dataclass(frozen=True)
class Declaration:
    """The meaning of a field. ``shape``: the names of its axes, separated by spaces."""

    shape: str = ""

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.shape.split())


# ---------------------------------------------------------------- fields of questions


@dataclass(frozen=True)
class Centers(Declaration):
    """Sets of positions to which rows are compared: (k, d), or R sets of them in one array."""

    by: Literal["nearest", "memberships", "noise"] = "nearest"  # assignment of rows, or noise hides it


class Box(Declaration):
    """Bounds of the rows or centres that are considered."""


class Point(Declaration):
    """A position about which sums are taken; it selects no rows."""


class Numbers(Declaration):
    """Other numbers: prices, axes, steps. They select no rows either."""


# ---------------------------------------------------------------- fields of replies


@dataclass(frozen=True)
class Figure(Declaration):
    """An array of a reply: its least and largest possible value, and whether nan or inf are allowed."""

    least: float = -inf
    most: float = inf
    may_be_missing: bool = False


@dataclass(frozen=True)
class Count(Figure):
    """A number of rows, or their weight. ``extra``: the amount that a count includes beyond its rows."""

    least: float = 0.0
    extra: float = 0.0


@dataclass(frozen=True)
class Sum(Figure):
    """A sum over rows: of those that the count named by ``rows`` counts, or of all ("site")."""

    rows: str = "site"


@dataclass(frozen=True)
class Mean(Figure):
    """A mean over the rows that the count named by ``rows`` counts, or over an unstated number of rows."""

    rows: str = "site"


class Value(Figure):
    """A number that is neither count nor sum nor mean of rows, e.g. a bound or a flag."""


class Extreme(Figure):
    """A number that belongs to one row, e.g. the largest value of a column."""


class Noisy(Figure):
    """A count or sum with added noise, so any value is possible."""


class Text(Declaration):
    """A tuple of texts, or of tuples of them; an axis is its length."""


class Bytes(Declaration):
    """Bytes or whole numbers that hold ciphertext, keys, masked numbers."""


# ---------------------------------------------------------------- reading declarations


@once
def declared(cls: Any) -> Mapping[str, Declaration]:
    """The declarations of a message's fields, by name; fields without one are left out."""
    hints = typing.get_type_hints(cls, include_extras=True)
    declarations = {}
    for field in dataclasses.fields(cls):
        for annotation in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(annotation, Declaration):
                declarations[field.name] = annotation
    return declarations


@once
def undeclared(cls: Any) -> tuple[str, ...]:
    """The fields of a message that hold arrays and have no declaration."""
    known = declared(cls)
    hints = {name: hint for name, hint in field_hints(cls).items() if name not in known}
    return tuple(name for name, hint in hints.items() if _holds_array(hint))


@once
def whole_numbers(cls: Any) -> tuple[str, ...]:
    """The fields of a message that are whole numbers: an axis of that name has that length."""
    return tuple(name for name, hint in field_hints(cls).items() if hint is int)


def _holds_array(hint: Any) -> bool:
    if typing.get_origin(hint) is np.ndarray or hint is np.ndarray:
        return True
    return any(_holds_array(arg) for arg in typing.get_args(hint))


@once
def figures(cls: Any) -> Mapping[str, Figure]:
    """The declared figures of a reply class."""
    return {name: figure for name, figure in declared(cls).items() if isinstance(figure, Figure)}


def bind(said: Declaration, shape: tuple[int, ...], known: dict[str, int]) -> bool:
    """True if a shape fits a declaration; lengths of new axes are added to ``known``."""
    if len(shape) != len(said.axes):
        return False
    for axis, length in zip(said.axes, shape, strict=True):
        if axis.isdigit():
            if int(axis) != length:
                return False
        elif known.setdefault(axis, length) != length:
            return False
    return True


def expected(said: Declaration, known: Mapping[str, int]) -> str:
    """A declared shape as text, with the known lengths filled in: "(3, d)"."""
    parts = [str(known.get(axis, axis)) for axis in said.axes]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def check_field(name: str, value: Any, said: Declaration, known: dict[str, int], sites: int = 1) -> None:
    """Raise BadReply unless a field of a reply, or of the sum over ``sites``, fits its declaration.

    ``known``: the lengths of axes; those of this field are added.
    """
    if isinstance(said, Text):
        if said.axes and not bind(said, (len(value),), known):
            raise BadReply(f"{name} of length {len(value)} where {expected(said, known)} was asked for")
        return
    if not isinstance(value, np.ndarray):
        raise BadReply(f"{name} is a {type(value).__name__}, not an array")
    if isinstance(said, Figure) and value.dtype != np.float64:
        raise BadReply(f"{name} is an array of {value.dtype}, not of float64")
    before = dict(known)
    if not bind(said, value.shape, known):
        raise BadReply(f"{name} of shape {value.shape} where {expected(said, before)} was asked for")
    if not isinstance(said, Figure) or not value.size:
        return
    least, most = value.min(), value.max()
    if not said.may_be_missing:
        if not (np.isfinite(least) and np.isfinite(most)):
            raise BadReply(f"{name} holds a number that is not finite")
    elif np.isnan(least):
        finite = value[np.isfinite(value)]
        if not finite.size:
            return
        least, most = finite.min(), finite.max()
    if least < sites * said.least:
        raise BadReply(f"{name} holds {least:g}, the least possible is {sites * said.least:g}")
    if most > sites * said.most and np.isfinite(most):
        raise BadReply(f"{name} holds {most:g}, the largest possible is {sites * said.most:g}")


def sent(question: Any, kind: type[Declaration]) -> Iterator[tuple[str, Any, Any]]:
    """The fields of a question with a declaration of one kind: name, declaration, array."""
    for name, declaration in declared(type(question)).items():
        value = getattr(question, name)
        if isinstance(declaration, kind) and value is not None:
            yield name, declaration, value
