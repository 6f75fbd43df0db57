"""Messages: a Question goes down to a site, a Reply comes up.

Both are frozen dataclasses that declare the name under which they travel. A Question defines how a site
answers it from its own rows, and which replies it accepts; a Reply that is Summable may be added over sites,
and only such a reply can be asked for as a total.
"""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np

from unpooled.errors import InputError, ReplyError
from unpooled.protocol import codec, declarations
from unpooled.protocol.declarations import Declaration, Figure, Length, Mean, Repeats, Scalar, Sum
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch
from unpooled.protocol.site_id import SiteId as SiteId
from unpooled.protocol.suppression import zero_suppressed
from unpooled.typing import FloatArray

if typing.TYPE_CHECKING:
    from unpooled.protocol.consistency import ReportedTotals


class Message:
    """A frozen dataclass that the codec can encode.

    A message of this package travels under the name of its class. A message of another author needs a
    prefix: ``class Medians(Reply, prefix="hospital")`` travels as ``hospital.Medians``. An abstract class
    does not travel.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()  # the names of its fields, as dataclasses set them

    def __init_subclass__(cls, *, prefix: str = "", abstract: bool = False, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not abstract:
            codec.register(cls, prefix)


class Reply(Message, abstract=True):
    """A message from a site to the coordinator.

    The three methods are for the coordinator, which compares replies with each other (consistency.py).
    """

    def check(self, question: Any) -> None:
        """Raise ReplyError if the numbers of this reply contradict each other."""

    def reported_totals(self, question: Any) -> "ReportedTotals | None":
        """Return the totals over all rows of a site that the reply reports (ReportedTotals), or None."""
        return None

    def cell_means(self, question: Any) -> tuple[FloatArray, FloatArray] | None:
        """Return the means (..., d) of clusters of transformed rows, and their sizes (...); or None."""
        return None


class Summable(Reply, abstract=True):
    """A reply of sums and counts: adding two replies gives the reply of both sites' rows together.

    Every field is a float64 array of at least one dimension. ``cells`` names the field that counts rows by
    cell, if there are cells; ``divided`` says that a row is in one of them, and that they add up to the rows.
    """

    cells: ClassVar[str] = ""
    divided: ClassVar[bool] = True

    def suppress_below(self, minimum: float) -> Self:
        """Return the reply with zeros in cells of fewer than ``minimum`` rows."""
        if not self.cells or minimum <= 1:
            return self
        size = getattr(self, self.cells)
        disclosed = size >= minimum * (1 - 1e-9)
        values = (getattr(self, name) for name in codec.field_names(type(self)))
        return type(self)(
            *(zero_suppressed(disclosed, v) if v.shape[: size.ndim] == size.shape else v for v in values)
        )

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(cast(Any, self)))
        return type(self)(*(a + b for a, b in pairs))


R = TypeVar("R", bound=Reply)
A = TypeVar("A", bound=Summable)


@dataclass(frozen=True, eq=False)
class Refusal(Reply):
    """A site's refusal, with the reason that the coordinator may see."""

    reason: str


@dataclass(frozen=True, eq=False)
class MaskedElsewhere(Reply):
    """The placeholder of a reply that travels masked, in another part of the same response."""


# the input of a question; "groups": a summary table, even that of an array; "raw rows": the rows of a site in
# raw mode, even if it answers other questions from groups of them; "": not declared
InputKind = Literal["", "rows", "raw rows", "table", "groups", "nothing"]


@dataclass(frozen=True, eq=False)
class Question(Message, Generic[R], abstract=True):
    """A question of the coordinator; its fields travel down. ``answer_all`` runs at the site.

    The answer is a pure function of the batch, except for ``memory``. A list holds one reply per site; a
    ReplyBatch holds the same in one object, which makes thousands of simulated sites cheap.

    Its arrays and numbers, and all fields of its reply, have declarations (declarations.py), and ``reads``
    declares its input; a real site refuses a question without them. ``asks_for`` is the content of the
    reply in plain words, for the officer who approves a study.
    """

    reads: ClassVar[InputKind] = ""
    asks_for: ClassVar[str] = ""  # "": the first line of the docstring is shown
    supports_missing: ClassVar[bool] = False  # True if it can be answered from rows with missing cells
    sums_add_up: ClassVar[bool] = False  # True if the sums of its cells add up to those of all rows

    def answer_all(self, batch: SiteBatch) -> list[R] | ReplyBatch[R]:
        raise InputError(f"{type(self).__name__} does not say how it is answered")

    def answer(self, local: SiteBatch) -> R:
        """Return the reply of one site."""
        (reply,) = self.answer_all(local)
        return reply

    @classmethod
    def reply_type(cls) -> type[Reply]:
        """Return the class of the reply to this question: the parameter of ``Question[...]``."""
        return _reply_type(cls)

    @classmethod
    def undeclared(cls) -> str:
        """Return the declarations that the question lacks, in words; "" if it is complete."""
        return _undeclared(cls)

    def lengths(self) -> dict[str, int]:
        """Return the lengths of the axes that the question fixes.

        They are those of its arrays, and ``k`` of a field ``k: int``. InputError if two of its arrays
        disagree. A subclass that knows more axes adds them.
        """
        known: dict[str, int] = {}
        for name, declaration, value in declarations.declared_fields(self, Declaration):
            if isinstance(declaration, Scalar):
                continue
            lengths = declarations.shape_of(value)
            if not declarations.bind(declaration, lengths, known):
                shape = declarations.expected(declaration, known)
                raise InputError(f"{codec.name_of(type(self))}: {name} of shape {lengths}, not {shape}")
        for name in declarations.whole_numbers(type(self)):
            known.setdefault(name, int(getattr(self, name)))
        return known

    def max_lengths(self) -> dict[str, int]:
        """Return the largest allowed lengths of the axes whose length a site chooses itself."""
        return {}

    def figures(self) -> Mapping[str, Figure]:
        """Return the figures of the reply: as its class declares them, unless the question overrides them."""
        return declarations.figures(self.reply_type())

    def disclosed_sums(self, reply: Reply) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None:
        """Return what a reply discloses of the rows nearest to each of some points, if it does, for an audit.

        These are the points (k, d), the numbers of their rows (k,), the sums about the points (k, d), and the
        sums of squares (k,).
        """
        return None

    def disclosed_centers(self, reply: Reply) -> FloatArray | None:
        """Return a site's own centres (m, d) in a reply, of an unknown number of rows, for an audit."""
        return None

    def check_reply(self, reply: Reply, sites: int = 1) -> dict[str, int]:
        """Raise ReplyError unless this can be an honest answer, or the sum of the answers of ``sites`` sites.

        The check covers its class, and the shape and sign of every field. It returns the lengths of all axes,
        including those that the reply fixed.
        """
        if type(reply) is not self.reply_type():
            raise ReplyError(f"{type(reply).__name__} where {self.reply_type().__name__} was asked for")
        lengths = self.lengths()
        for name, declaration in declarations.declared(type(reply)).items():
            declarations.check_field(name, getattr(reply, name), declaration, lengths, sites)
        for axis, longest in self.max_lengths().items():
            if lengths.get(axis, 0) > longest:
                raise ReplyError(f"{lengths[axis]} {axis}, where {longest} are possible at most")
        with np.errstate(over="ignore", invalid="ignore"):  # a forged reply may hold numbers of any size
            reply.check(self)
        return lengths

    def comparisons(self) -> float:
        """Return how often at most one row is compared with a centre or another position of the question."""
        places, repeats = 1, 1.0
        for _, declaration, value in declarations.declared_fields(self, Declaration):
            if isinstance(declaration, Repeats):
                repeats *= max(declaration.amount(value), 1)
            elif isinstance(declaration, Length):
                places = max(places, value)
            elif not isinstance(declaration, Scalar):
                axes = zip(declaration.axes, declarations.shape_of(value), strict=False)
                places = max(places, prod(length for axis, length in axes if axis != "d"))
        return places * repeats

    def equations(self, *, all_rows: bool = True) -> int:
        """Return how many linear equations about rows the sum of the replies adds to that of all rows.

        A figure is a sum over rows in every column, with one weight for each row. The number of different
        weights is at most the number of entries of the largest figure, columns aside. If the cells add up to
        the sum of all rows (``all_rows``: the transform leaves none out), each set has one less. InputError
        if an axis of the reply has no bound.
        """
        known = {**self.max_lengths(), **self.lengths(), "d": 1}
        sizes = [self._entries(name, axes, known) for name, axes in _figure_axes(type(self))]
        cells = max(sizes, default=0)
        return cells - cells // max(known.get("k", 1), 1) if self.sums_add_up and all_rows else cells

    def reply_numbers(self, d: int) -> int:
        """Return the largest number of numbers in one site's reply, by the declared shapes, for d columns.

        A simulation and a site bound their memory by it. InputError if an axis of the reply has no bound.
        """
        if self.undeclared():
            return 0
        known = {"d": d, **self.max_lengths(), **self.lengths()}
        return sum(self._entries(name, axes, known) for name, axes in _figure_axes(type(self)))

    def _entries(self, name: str, axes: tuple[str, ...], known: Mapping[str, int]) -> int:
        """The number of entries of a figure of the reply; InputError if one of its axes has no bound."""
        for axis in axes:
            if not axis.isdigit() and axis not in known:
                raise InputError(
                    f"{codec.name_of(type(self))} does not bound the axis {axis} of {name} in its "
                    "reply. Its method max_lengths() can bound it."
                )
        return prod(int(axis) if axis.isdigit() else known[axis] for axis in axes)


@declarations.once
def _reply_type(question: type[Question[R]]) -> type[Reply]:
    for base in question.__mro__:
        for parent in getattr(base, "__orig_bases__", ()):
            if issubclass(typing.get_origin(parent) or object, Question):
                (kind,) = typing.get_args(parent)
                if isinstance(kind, type):
                    return kind
    return Reply


@declarations.once
def _figure_axes(question: type[Question[R]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The fields of the reply that hold numbers, and the axes of each."""
    return tuple((name, figure.axes) for name, figure in declarations.figures(question.reply_type()).items())


@declarations.once
def asks_for(name: str) -> str:
    """Return what the question that travels under a name asks for, in plain words.

    >>> asks_for("elsewhere.AskAnything")
    'a query that this site does not know'
    """
    kind = codec.class_named(name)
    if kind is None:
        return "a query that this site does not know"
    words = kind.asks_for if issubclass(kind, Question) else ""
    return words or (kind.__doc__ or name).strip().partition("\n")[0].replace("``", "")


def _undeclared(question: type[Question[R]]) -> str:
    reply = question.reply_type()
    if not question.reads:
        return 'what it reads (reads = "rows", "raw rows", "table", "groups" or "nothing")'
    if reply is Reply:
        return "what its reply is (Question[...])"
    missing = [f"what it sends as {name}" for name in declarations.undeclared(question)]
    declared = declarations.declared(reply)
    missing += [f"what {name} of its reply is" for name in codec.field_names(reply) if name not in declared]
    for name, declaration in declared.items():
        if not isinstance(declaration, Sum | Mean) or declaration.rows == "site":
            continue
        if not isinstance(declared.get(declaration.rows), declarations.Count):
            missing.append(f"the count {declaration.rows!r} of the rows behind {name} of its reply")
    return ", ".join(missing)


def check_squares(sums: FloatArray, mass: FloatArray, squares: FloatArray, size: FloatArray | float) -> None:
    """Raise ReplyError if sums of squares are below what the sums imply: n sum x^2 >= (sum x)^2.

    ``size`` is the square of the numbers that were subtracted, which rounding is relative to.
    """
    smallest = np.divide(sums * sums, mass, out=np.zeros_like(sums), where=mass > 0)
    if (squares < (1 - 1e-3) * smallest - 1e-9 * mass * (1.0 + size)).any():
        raise ReplyError("sums of squares below what its sums imply")
