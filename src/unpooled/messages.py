"""What travels: a Question goes down to a site, a Reply comes up.

Both are frozen dataclasses. A Question says how a site answers it from its own rows; a Reply that is
Summable may be added over sites, and only such a reply can be asked for as a total.
"""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from unpooled import codec, declarations, kernels
from unpooled.codec import BoolArray, FloatArray
from unpooled.declarations import Declaration, Figure
from unpooled.errors import BadInput, BadReply

SiteId = str
Rows = npt.NDArray[Any]  # (n, d), float32 or float64
Sight = Literal["", "rows", "table", "nothing"]  # what a question looks at; "" is not said


class Message:
    """Anything that the codec carries: a frozen dataclass that says the name under which it travels.

    ``class Medians(Reply, wire="hospital.Medians")``; with other fields later, ``version=2, since="1.4"``.
    """

    def __init_subclass__(cls, *, wire: str = "", version: int = 1, since: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if wire:
            codec.register(cls, wire, version, since)


class Reply(Message):
    """What a site sends up."""


class Summable(Reply):
    """A reply of sums and counts: adding two replies gives the reply of both sites' rows together.

    Every field is a float64 array of at least one dimension. ``cells`` names the field that counts rows by
    cell, if there are cells.
    """

    cells: ClassVar[str] = ""

    def of_at_least(self, minimum: float) -> Self:
        """Without the cells of fewer rows: their counts and sums alike are zero."""
        if not self.cells or minimum <= 1:
            return self
        size = getattr(self, self.cells)
        shown = size >= minimum * (1 - 1e-9)
        values = (getattr(self, name) for name in codec.field_names(type(self)))
        return type(self)(*(only(shown, v) if v.shape[: size.ndim] == size.shape else v for v in values))

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(cast(Any, self)))
        return type(self)(*(a + b for a, b in pairs))


R = TypeVar("R", bound=Reply)
A = TypeVar("A", bound=Summable)


@dataclass(frozen=True, eq=False)
class Refusal(Reply, wire="messages.Refusal"):
    """A site declines, for a reason that it lets the coordinator see."""

    reason: str


@dataclass(frozen=True, eq=False)
class Hidden(Reply, wire="messages.Hidden"):
    """In place of a reply that left masked, elsewhere in the same answer."""


@dataclass(frozen=True, eq=False)
class Stack:
    """The rows of one site or of many, one after the other: all that a question may see.

    Site s holds rows ``offsets[s]:offsets[s + 1]``. ``minimum`` is the size below which a cluster is not
    shown; it is the site's own rule, never part of a question. A site that answers for itself is a stack
    of one, so there is one way to answer.
    """

    X: Rows  # (n, d)
    offsets: npt.NDArray[np.int64]  # (S + 1,)
    weights: FloatArray | None  # (n,)
    seeds: Any  # (S,) uint64, for the questions that draw: fixed by (seed, site, round, exchange, part)
    minimum: float = 1.0
    threads: int = 1
    memory: tuple[dict[str, Any], ...] = field(default=())  # (S,) what a site remembers within a run
    noise: float = 1.0  # how much of a release's noise each site adds: all of it, or its share of one noise
    labels: list[Any] | None = None  # where a question leaves the (R, n) cells it put rows into, if asked to

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def row_counts(self) -> npt.NDArray[np.int64]:
        return self.offsets[1:] - self.offsets[:-1]

    def site(self, s: int) -> "Stack":
        """Site ``s`` alone."""
        a, b = self.offsets[s], self.offsets[s + 1]
        weights = None if self.weights is None else self.weights[a:b]
        memory = self.memory[s : s + 1]
        return dataclasses.replace(
            self,
            X=self.X[a:b],
            offsets=np.array([0, b - a]),
            weights=weights,
            seeds=self.seeds[s : s + 1],
            memory=memory,
        )

    def large(self, mass: FloatArray, squares: FloatArray, at_least: float = 1.0) -> BoolArray:
        """Which cells hold at least ``minimum`` rows (or ``at_least``, if larger).

        Weighted rows count by Kish's effective size (sum w)^2 / sum w^2: one heavy row among many light
        ones is one row, and a row of weight zero hides nothing.
        """
        least = max(self.minimum, at_least) * (1 - 1e-9)
        if least <= 1:
            return np.ones(mass.shape, dtype=np.bool_)
        return effective_size(mass, squares) >= least

    def shown(self, mass: FloatArray, squares: FloatArray, at_least: float = 1.0) -> BoolArray:
        """Which cells may be shown, where the last axis runs over the cells that share out a site's rows.

        Those that are large enough; and what is hidden must not follow by subtraction from what is shown
        and the site's total: the rows that one set of cells hides are none or again at least ``minimum``,
        if need be by hiding the smallest cell that could be shown.
        """
        least = max(self.minimum, at_least) * (1 - 1e-9)
        return hide_enough(self.large(mass, squares, at_least), mass, squares, least)


def hide_enough(shown: BoolArray, mass: FloatArray, squares: FloatArray, least: float) -> BoolArray:
    """Hide the smallest shown cell, and again, until what is hidden is nothing or of at least ``least`` rows.

    >>> sizes = np.array([1.0, 7.0, 9.0])
    >>> hide_enough(sizes >= 5, sizes, sizes, 5.0)
    array([False, False,  True])
    """
    if least <= 1:
        return shown
    shown = shown.copy()
    size = effective_size(mass, squares)
    while True:
        hidden_mass = np.where(shown, 0.0, mass).sum(axis=-1)
        hidden = effective_size(hidden_mass, np.where(shown, 0.0, squares).sum(axis=-1))
        candidates = np.where(shown & (mass > 0), size, np.inf)
        open_sets = (hidden_mass > 0) & (hidden < least) & np.isfinite(candidates).any(axis=-1)
        if not open_sets.any():
            return shown
        smallest = np.arange(mass.shape[-1]) == candidates.argmin(axis=-1)[..., None]
        shown &= ~(open_sets[..., None] & smallest)


def only(shown: BoolArray, values: FloatArray) -> FloatArray:
    """The values of the cells that are shown, else plain zeros; a product would keep the sign of the hidden.

    >>> only(np.array([True, False]), np.array([[-1.0], [-2.0]]))
    array([[-1.],
           [ 0.]])
    """
    return np.where(shown.reshape(shown.shape + (1,) * (values.ndim - shown.ndim)), values, 0.0)


def effective_size(mass: FloatArray, squares: FloatArray) -> FloatArray:
    """Kish's effective number of rows, 0 where there is no weight.

    >>> effective_size(np.array([4.0, 1001.0, 0.0]), np.array([4.0, 1000001.0, 0.0])).round(3)
    array([4.   , 1.002, 0.   ])
    """
    return np.divide(mass * mass, squares, out=np.zeros_like(mass), where=squares > 0)


@dataclass(frozen=True, eq=False)
class Stacked(Generic[R]):
    """The replies of several sites in one: every array of ``reply`` has a leading axis of sites."""

    reply: R
    sites: int

    def __len__(self) -> int:
        return self.sites

    def __getitem__(self, s: int) -> R:
        reply = cast(Any, self.reply)
        return cast(R, type(reply)(*(getattr(reply, f)[s] for f in codec.field_names(type(reply)))))

    def __iter__(self) -> Iterator[R]:
        return (self[s] for s in range(self.sites))

    def add_to(self, totals: list[FloatArray]) -> None:
        """Add the replies to ``totals``, an array for each field, strictly in site order."""
        names = codec.field_names(type(self.reply))
        for total, name in zip(totals, names, strict=True):
            add_up(total, getattr(self.reply, name))


@dataclass(frozen=True, eq=False)
class Question(Message, Generic[R]):
    """What the coordinator asks; its fields travel down. ``answer_all`` runs at the site.

    The answer is a pure function of the stack but for ``memory``. A list holds one reply per site; a
    Stacked reply says the same in one piece, which is what makes thousands of simulated sites cheap.

    Its arrays, and all fields of its reply, say what they are (declarations.py), and ``sees`` what it looks
    at; a real site refuses a question that does not.
    """

    sees: ClassVar[Sight] = ""

    def answer_all(self, stack: Stack) -> list[R] | Stacked[R]:
        raise BadInput(f"{type(self).__name__} does not say how it is answered")

    def answer(self, local: Stack) -> R:
        """The reply of one site."""
        (reply,) = self.answer_all(local)
        return reply

    @classmethod
    def reply_type(cls) -> type[Reply]:
        """The kind of reply that this question gets: what stands in the brackets of ``Question[...]``."""
        return _reply_type(cls)

    @classmethod
    def undeclared(cls) -> str:
        """What the question fails to say of itself, in words; "" if it says everything."""
        return _undeclared(cls)

    def lengths(self) -> dict[str, int]:
        """The lengths of the axes that the question fixes: those of its arrays, and ``k`` by a field k: int.

        BadInput if two of its arrays disagree. A question that knows more adds to it.
        """
        known: dict[str, int] = {}
        for name, said, value in declarations.sent(self, Declaration):
            if not declarations.bind(said, np.shape(value), known):
                shape = declarations.expected(said, known)
                raise BadInput(f"{codec.name_of(type(self))}: {name} of shape {np.shape(value)}, not {shape}")
        for name in declarations.whole_numbers(type(self)):
            known.setdefault(name, int(getattr(self, name)))
        return known

    def most(self) -> dict[str, int]:
        """The largest lengths of axes that a site chooses itself."""
        return {}

    def figures(self) -> Mapping[str, Figure]:
        """The figures of the reply: as its class declares them, unless the question knows better."""
        return declarations.figures(self.reply_type())

    def check_reply(self, reply: Reply, sites: int = 1) -> dict[str, int]:
        """Raise BadReply unless this can be an honest answer, or the sum of those of so many ``sites``.

        Its kind, and every field's shape and sign.

        Returns the lengths of all axes, those that the reply fixed among them.
        """
        if type(reply) is not self.reply_type():
            raise BadReply(f"{type(reply).__name__} where {self.reply_type().__name__} was asked for")
        lengths = self.lengths()
        for name, said in declarations.declared(type(reply)).items():
            declarations.check_field(name, getattr(reply, name), said, lengths, sites)
        for axis, most in self.most().items():
            if lengths.get(axis, 0) > most:
                raise BadReply(f"{lengths[axis]} {axis}, where {most} are possible at most")
        return lengths

    def reply_numbers(self, d: int) -> int:
        """About how many numbers one site's reply holds: lets a simulation bound its memory."""
        return 0


@declarations.once
def _reply_type(question: Any) -> type[Reply]:
    for base in question.__mro__:
        for parent in getattr(base, "__orig_bases__", ()):
            if issubclass(typing.get_origin(parent) or object, Question):
                (kind,) = typing.get_args(parent)
                if isinstance(kind, type):
                    return kind
    return Reply


@declarations.once
def _undeclared(question: Any) -> str:
    reply: Any = question.reply_type()
    if not question.sees:
        return 'what it sees (sees = "rows", "table" or "nothing")'
    if reply is Reply:
        return "what its reply is (Question[...])"
    missing = [f"what it sends as {name}" for name in declarations.undeclared(question)]
    said = declarations.declared(reply)
    missing += [f"what {name} of its reply is" for name in codec.field_names(reply) if name not in said]
    return ", ".join(missing)


def fold(blocks: Iterable[list[A] | Stacked[A]]) -> A:
    """The sum over sites, added strictly in site order, so that every runtime gives the same bits."""
    kind: Any = None
    names: tuple[str, ...] = ()
    totals: list[FloatArray] = []
    for replies in blocks:
        if not totals:
            stacked = isinstance(replies, Stacked)
            first: Any = replies.reply if isinstance(replies, Stacked) else replies[0]
            kind = type(first)
            names = codec.field_names(kind)
            totals = [np.zeros(getattr(first, name).shape[1 if stacked else 0 :]) for name in names]
        if isinstance(replies, Stacked):
            replies.add_to(totals)
        else:
            for total, name in zip(totals, names, strict=True):
                add_up(total, np.stack([getattr(reply, name) for reply in replies]))
    return cast(A, kind(*totals))


def add_up(total: FloatArray, column: FloatArray) -> None:
    """Add every site's part of column (S, ...) to total (...), in place and in order."""
    kernels.fold(total.reshape(-1), np.ascontiguousarray(column).reshape(len(column), -1))
