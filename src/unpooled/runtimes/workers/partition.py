"""Partitions: rows of a site, described by how to read them, and the answers of the worker that has them.

What travels is the description, a question and its answer, both as bytes of our codec; rows do not. A worker
that is lost is no loss: another one reads its partitions again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray
from unpooled.core.exchange import Envelope, Summed, size
from unpooled.core.protocol import Ask, View
from unpooled.core.subtotal import subtotal
from unpooled.data import Table
from unpooled.data.copy import Copy
from unpooled.errors import BadInput, SiteFailed, UnpooledError

_VIEWS = 4  # of which a worker knows that they are those of earlier questions


@dataclass(frozen=True)
class RowPartition:
    """Some rows of a site: ``load(*arguments)`` gives them, the same ones at every call and on every worker.

    ``load`` is a function that workers can import; it gives an array (n, d), a Table, a Copy or GroupRows.

    >>> RowPartition(np.zeros, ((4, 2),)).rows().shape
    (4, 2)
    """

    load: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def rows(self) -> Any:
        found = self.load(*self.arguments)
        if isinstance(found, np.ndarray) and (found.ndim != 2 or found.dtype.kind != "f"):
            raise BadInput(f"an array {found.shape} of {found.dtype}, where floats (n, d) are needed")
        if not isinstance(found, np.ndarray | Table | Copy | GroupRows):
            raise BadInput(f"a {type(found).__name__}, where an array, a Table or a Copy is needed")
        return found


class GroupRows(NamedTuple):
    """The rows of a partition that are groups of persons: the copy of an array."""

    means: FloatArray  # (G, d)
    persons: FloatArray  # (G,)
    within: FloatArray  # (d,) the variance within groups


class HeldByWorker(Protocol):
    """Rows where they are held; pickled they are only their description."""

    number: int
    name: str


class PartitionPost(NamedTuple):
    """The questions of an exchange to a partition."""

    envelope: bytes
    modules: tuple[str, ...]  # that define its questions and views


class Portion(NamedTuple):
    """The answer of some partitions to one question: the sum, or the replies of single ones, encoded."""

    total: bytes  # a Subtotal; b"" where replies were asked for
    each: tuple[tuple[int, bytes], ...]  # the number of a partition, its reply
    size: tuple[int, int]  # numbers and bytes of a single reply

    @staticmethod
    def together(portions: Sequence["Portion"]) -> "Portion":
        totals = [codec.decode(portion.total) for portion in portions if portion.total]
        return Portion(
            codec.encode(subtotal([totals])) if totals else b"",
            tuple(reply for portion in portions for reply in portion.each),
            max(portion.size for portion in portions),
        )


Portions = dict[int, Portion]  # by the question's place in the exchange


class HeldPartition:
    """A partition where it is held. Pickled it is only its description: whoever gets it reads the rows."""

    def __init__(
        self, number: int, name: str, partition: RowPartition, minimum: int = 1, threads: int = 1
    ) -> None:
        self.number, self.name, self.partition = number, name, partition
        self._settings = (minimum, threads)
        self._federation: Any = None
        self._views: dict[bytes, View] = {}
        self._lock = Lock()

    def __reduce__(self) -> Any:
        return HeldPartition, (self.number, self.name, self.partition, *self._settings)

    @property
    def federation(self) -> Any:
        """Its rows as a federation of one site, read at the first look."""
        from unpooled.runtimes.in_process import InProcess

        with self._lock:
            if self._federation is None:
                rows, (minimum, threads) = self.partition.rows(), self._settings
                grouped: dict[str, Any] = {}
                if isinstance(rows, GroupRows):
                    rows, persons, within = rows
                    grouped = {"weights": {self.name: persons}, "within": {self.name: within}}
                self._federation = InProcess.of(
                    {self.name: rows}, min_cluster_size=minimum, threads=threads, exact_sums=True, **grouped
                )
        return self._federation

    def answer(self, post: PartitionPost) -> Portions:
        for module in post.modules:
            import_module(module)
        envelope: Envelope = codec.decode(post.envelope, expect=Envelope)
        parts = {part.index: part for part in envelope.parts}
        nothing: Ask[Any] = Ask("each", (), envelope.parts[0].question)
        asks = [nothing] * (max(parts) + 1)
        for index, part in parts.items():  # at their own places: draws of sites depend on them
            verb: Any = part.verb
            asks[index] = Ask(verb, (self.name,), part.question, self._known(part.view))
        gathered = self.federation.ask(envelope.turn, tuple(asks))
        return {index: self._portion(gathered[index]) for index in parts}

    def _portion(self, got: Any) -> Portion:
        if isinstance(got, Summed):
            return Portion(codec.encode(got.subtotal()), (), got.size)
        (reply,) = got.replies
        return Portion(b"", ((self.number, codec.encode(reply)),), size(reply))

    def _known(self, view: View | None) -> View | None:
        """The same object for equal views, under which the rows are ready."""
        if view is None:
            return None
        key = codec.encode(view)
        while len(self._views) >= _VIEWS and key not in self._views:
            del self._views[next(iter(self._views))]
        return self._views.setdefault(key, view)


def row_counts(held: HeldPartition, _: None) -> dict[int, int]:
    """The rows of a partition, by its number."""
    return named(held, lambda: {held.number: held.federation.rows})  # type: ignore[no-any-return]


def counts_of_all(counts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    return {number: rows for some in counts for number, rows in some.items()}


def answered(held: HeldPartition, post: PartitionPost) -> Portions:
    """The answer of a partition, on a worker."""
    return named(held, lambda: held.answer(post))  # type: ignore[no-any-return]


def added(answers: Sequence[Portions]) -> Portions:
    """The answers of several partitions as one, on a worker: the sums that the tree is made of."""
    places = sorted({place for answer in answers for place in answer})
    return {
        place: Portion.together([answer[place] for answer in answers if place in answer]) for place in places
    }


def named(held: HeldByWorker, act: Callable[[], Any]) -> Any:
    """The result of ``act``; an error names the partition, in a class that travels between processes."""
    try:
        return act()
    except BadInput as error:
        raise BadInput(f"{held.name}: {error}") from None
    except UnpooledError as error:
        raise SiteFailed(f"{held.name}: {error}") from None
    except Exception as error:
        raise SiteFailed(f"{held.name}: {type(error).__name__}: {error}") from None
