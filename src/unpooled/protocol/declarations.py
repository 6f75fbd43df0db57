"""Declarations: the meaning of every field of a question or reply, written on the field itself.

    sums: Annotated[FloatArray, Sum("R k d", rows="mass")]

A shape names its axes; an axis of a digit has that length, an axis named in a question has the length that
it has there, and ``d`` (columns) is the same for all sites. The code that checks replies, rounds counts,
guards centres, limits work or merges restarts reads declarations; nothing is inferred from names of fields.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from unpooled.errors import ReplyError
from unpooled.protocol.field_types import field_hints
from unpooled.protocol.limits import MAX_LENGTH

F = TypeVar("F", bound=Callable[..., Any])


def once(function: F) -> F:
    """Cache a function's result for each class: ``functools.cache`` with the function's own type."""
    return cast(F, functools.cache(function))


@dataclass(frozen=True)
class Declaration:
    """The meaning of a field. ``shape``: the names of its axes, separated by spaces.

    max_length is the largest length of an axis, except digits and ``d``, that a site accepts in a question.
    """

    shape: str = ""
    max_length: int = dataclasses.field(default=MAX_LENGTH, kw_only=True)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.shape.split())


# ---------------------------------------------------------------- fields of questions


@dataclass(frozen=True)
class Centers(Declaration):
    """Sets of positions to which rows are compared: (k, d), or R sets of them in one array."""

    by: Literal["nearest", "memberships", "noise"] = "nearest"  # how rows are assigned; or noise masks it


class Box(Declaration):
    """Bounds of the rows or centres that are considered."""


class Point(Declaration):
    """A position about which sums are taken; it selects no rows."""


class Numbers(Declaration):
    """Other numbers: prices, axes, steps. They select no rows either."""


class Scalar(Declaration):
    """A field that is not an array and has no axes."""


@dataclass(frozen=True)
class Setting(Scalar):
    """A number that changes neither how long a site works nor how much memory it needs, e.g. a fuzzifier.

    In a secure sum it must be above ``above`` and at most ``max_value``: beyond, a sum would leave its range.
    """

    above: float = dataclasses.field(default=-inf, kw_only=True)
    max_value: float = dataclasses.field(default=inf, kw_only=True)


class Length(Scalar):
    """A whole number that is the length of the axis of its name, e.g. ``k``, a number of clusters."""


@dataclass(frozen=True)
class Work(Scalar):
    """A number that decides how long a site works. A study states the largest that it will ask for.

    ``max_value`` is the largest that any site accepts, ``label`` the word for it, by default the field's
    name.
    """

    max_value: float = dataclasses.field(kw_only=True)
    label: str = dataclasses.field(default="", kw_only=True)

    def amount(self, value: float) -> float:
        """Return the amount that a value of the field stands for."""
        return value


@dataclass(frozen=True)
class Repeats(Work):
    """Steps, epochs or restarts, which multiply the work on every row. ``zero``: what 0 stands for."""

    zero: int = dataclasses.field(default=0, kw_only=True)

    def amount(self, value: float) -> float:
        return value or self.zero


# ---------------------------------------------------------------- fields of replies


@dataclass(frozen=True)
class Figure(Declaration):
    """An array of a reply: its smallest and largest possible value, and whether nan or inf are allowed."""

    min_value: float = -inf
    max_value: float = inf
    may_be_missing: bool = False


@dataclass(frozen=True)
class Count(Figure):
    """A number of rows, or their weight. ``extra``: the amount that a count includes beyond its rows."""

    min_value: float = 0.0
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
    """A number that is not a count, sum or mean of rows, e.g. a bound or a flag."""


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
def declared(cls: type[Any]) -> Mapping[str, Declaration]:
    """Return the declarations of a message's fields, by name; fields without one are left out."""
    hints = typing.get_type_hints(cls, include_extras=True)
    declarations = {}
    for field in dataclasses.fields(cls):
        for annotation in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(annotation, Declaration):
                declarations[field.name] = annotation
    return declarations


@once
def undeclared(cls: type[Any]) -> tuple[str, ...]:
    """Return the fields of a message that hold more than text or a yes or no and have no declaration.

    Any of them might decide how long a site works, or how much memory it needs.
    """
    known = declared(cls)
    hints = {name: hint for name, hint in field_hints(cls).items() if name not in known}
    return tuple(name for name, hint in hints.items() if not _is_plain(hint))


@once
def whole_numbers(cls: type[Any]) -> tuple[str, ...]:
    """Return the fields of a message that are whole numbers: an axis of that name has that length."""
    return tuple(name for name, hint in field_hints(cls).items() if hint is int)


def _is_plain(hint: object) -> bool:
    """True for texts, yes or no, None, and as many of them as the annotation allows."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType, tuple):
        return Ellipsis not in args and all(map(_is_plain, args))
    return origin is typing.Literal or hint in (str, bool, type(None))


def shape_of(value: npt.ArrayLike) -> tuple[int, ...]:
    """Return the lengths of a field's axes: of an array all of them, of a tuple its own length."""
    return (len(value),) if isinstance(value, tuple) else np.shape(value)


@once
def figures(cls: type[Any]) -> Mapping[str, Figure]:
    """Return the declared figures of a reply class."""
    return {name: figure for name, figure in declared(cls).items() if isinstance(figure, Figure)}


def bind(declaration: Declaration, shape: tuple[int, ...], known: dict[str, int]) -> bool:
    """Return whether a shape fits a declaration; lengths of new axes are added to ``known``."""
    if len(shape) != len(declaration.axes):
        return False
    for axis, length in zip(declaration.axes, shape, strict=True):
        if axis.isdigit():
            if int(axis) != length:
                return False
        elif known.setdefault(axis, length) != length:
            return False
    return True


def expected(declaration: Declaration, known: Mapping[str, int]) -> str:
    """Return a declared shape as text, with the known lengths filled in: "(3, d)"."""
    parts = [str(known.get(axis, axis)) for axis in declaration.axes]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def check_field(
    name: str, value: Sized, declaration: Declaration, known: dict[str, int], sites: int = 1
) -> None:
    """Raise ReplyError unless a field of a reply, or of the sum over ``sites``, fits its declaration.

    ``known``: the lengths of axes; those of this field are added.
    """
    if isinstance(declaration, Text):
        if declaration.axes and not bind(declaration, (len(value),), known):
            raise ReplyError(
                f"{name} of length {len(value)} where {expected(declaration, known)} was asked for"
            )
        return
    if not isinstance(value, np.ndarray):
        raise ReplyError(f"{name} is a {type(value).__name__}, not an array")
    if isinstance(declaration, Figure) and value.dtype != np.float64:
        raise ReplyError(f"{name} is an array of {value.dtype}, not of float64")
    before = dict(known)
    if not bind(declaration, value.shape, known):
        raise ReplyError(f"{name} of shape {value.shape} where {expected(declaration, before)} was asked for")
    if not isinstance(declaration, Figure) or not value.size:
        return
    smallest, largest = value.min(), value.max()
    if not declaration.may_be_missing:
        if not (np.isfinite(smallest) and np.isfinite(largest)):
            raise ReplyError(f"{name} holds a number that is not finite")
    elif np.isnan(smallest):
        finite = value[np.isfinite(value)]
        if not finite.size:
            return
        smallest, largest = finite.min(), finite.max()
    low, high = sites * declaration.min_value, sites * declaration.max_value
    if smallest < low:
        raise ReplyError(f"{name} holds {smallest:g}, the smallest possible is {low:g}")
    if largest > high and np.isfinite(largest):
        raise ReplyError(f"{name} holds {largest:g}, the largest possible is {high:g}")


def declared_fields(question: object, kind: type[Declaration]) -> Iterator[tuple[str, Any, Any]]:
    """Return the fields of a question with a declaration of one kind: name, declaration, array."""
    for name, declaration in declared(type(question)).items():
        value = getattr(question, name)
        if isinstance(declaration, kind) and value is not None:
            yield name, declaration, value
