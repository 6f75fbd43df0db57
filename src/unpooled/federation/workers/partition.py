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

from unpooled.data import Table
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, SiteFailedError, UnpooledError
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Transform
from unpooled.protocol.exchange import Aggregate, Request, size
from unpooled.protocol.partial_sum import partial_sum
from unpooled.typing import FloatArray

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
        rows = self.load(*self.arguments)
        if isinstance(rows, np.ndarray) and (rows.ndim != 2 or rows.dtype.kind != "f"):
            raise InputError(f"an array {rows.shape} of {rows.dtype}, where floats (n, d) are needed")
        if not isinstance(rows, np.ndarray | Table | SummaryTable | GroupRows):
            raise InputError(f"a {type(rows).__name__}, where an array, a Table or a Copy is needed")
        return rows


class GroupRows(NamedTuple):
    """The rows of a partition that are groups of persons: the copy of an array."""

    means: FloatArray  # (G, d)
    people: FloatArray  # (G,)
    within: FloatArray  # (d,) the variance within groups


class HeldByWorker(Protocol):
    """Rows where they are held; pickled they are only their description."""

    number: int
    name: str


class PartitionRequest(NamedTuple):
    """The questions of an exchange to a partition."""

    envelope: bytes
    modules: tuple[str, ...]  # that define its questions and views


class PartialAnswer(NamedTuple):
    """The answer of some partitions to one question: the sum, or the replies of single ones, encoded."""

    total: bytes  # a Subtotal; b"" where replies were asked for
    each: tuple[tuple[int, bytes], ...]  # the number of a partition, its reply
    size: tuple[int, int]  # numbers and bytes of a single reply

    @staticmethod
    def together(portions: Sequence["PartialAnswer"]) -> "PartialAnswer":
        totals = [codec.decode(portion.total) for portion in portions if portion.total]
        return PartialAnswer(
            codec.encode(partial_sum([totals])) if totals else b"",
            tuple(reply for portion in portions for reply in portion.each),
            max(portion.size for portion in portions),
        )


PartialAnswers = dict[int, PartialAnswer]  # by the question's place in the exchange


class HeldPartition:
    """A partition where it is held. Pickled it is only its description: whoever gets it reads the rows."""

    def __init__(
        self, number: int, name: str, partition: RowPartition, minimum: int = 1, threads: int = 1
    ) -> None:
        self.number, self.name, self.partition = number, name, partition
        self._settings = (minimum, threads)
        self._federation: Any = None
        self._views: dict[bytes, Transform] = {}
        self._lock = Lock()

    def __reduce__(self) -> Any:
        return HeldPartition, (self.number, self.name, self.partition, *self._settings)

    @property
    def federation(self) -> Any:
        """Its rows as a federation of one site, read at the first look."""
        from unpooled.federation.simulation import Simulation

        with self._lock:
            if self._federation is None:
                rows, (minimum, threads) = self.partition.rows(), self._settings
                grouped: dict[str, Any] = {}
                if isinstance(rows, GroupRows):
                    rows, people, within = rows
                    grouped = {"weights": {self.name: people}, "within": {self.name: within}}
                self._federation = Simulation.from_rows(
                    {self.name: rows}, min_cluster_size=minimum, threads=threads, exact_sums=True, **grouped
                )
        return self._federation

    def answer(self, post: PartitionRequest) -> PartialAnswers:
        for module in post.modules:
            import_module(module)
        envelope: Request = codec.decode(post.envelope, expect=Request)
        parts = {part.index: part for part in envelope.parts}
        nothing: Ask[Any] = Ask("each", (), envelope.parts[0].question)
        asks = [nothing] * (max(parts) + 1)
        for index, part in parts.items():  # at their own places: draws of sites depend on them
            verb: Any = part.verb
            asks[index] = Ask(verb, (self.name,), part.question, self._known(part.transform))
        replies_by_ask = self.federation.ask(envelope.request_id, tuple(asks))
        return {index: self._portion(replies_by_ask[index]) for index in parts}

    def _portion(self, gathered: Any) -> PartialAnswer:
        if isinstance(gathered, Aggregate):
            return PartialAnswer(codec.encode(gathered.partial_sum()), (), gathered.size)
        (reply,) = gathered.replies
        return PartialAnswer(b"", ((self.number, codec.encode(reply)),), size(reply))

    def _known(self, transform: Transform | None) -> Transform | None:
        """The same object for equal views, under which the rows are ready."""
        if transform is None:
            return None
        key = codec.encode(transform)
        while len(self._views) >= _VIEWS and key not in self._views:
            del self._views[next(iter(self._views))]
        return self._views.setdefault(key, transform)


def row_counts(held: HeldPartition, _: None) -> dict[int, int]:
    """The rows of a partition, by its number."""
    return with_partition_name(held, lambda: {held.number: held.federation.rows})  # type: ignore[no-any-return]


def counts_of_all(counts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    return {number: rows for some in counts for number, rows in some.items()}


def answer_partition(held: HeldPartition, post: PartitionRequest) -> PartialAnswers:
    """The answer of a partition, on a worker."""
    return with_partition_name(held, lambda: held.answer(post))  # type: ignore[no-any-return]


def add_answers(answers: Sequence[PartialAnswers]) -> PartialAnswers:
    """The answers of several partitions as one, on a worker: the sums that the tree is made of."""
    places = sorted({place for answer in answers for place in answer})
    return {
        place: PartialAnswer.together([answer[place] for answer in answers if place in answer])
        for place in places
    }


def with_partition_name(held: HeldByWorker, act: Callable[[], Any]) -> Any:
    """The result of ``act``; an error names the partition, in a class that travels between processes."""
    try:
        return act()
    except InputError as error:
        raise InputError(f"{held.name}: {error}") from None
    except UnpooledError as error:
        raise SiteFailedError(f"{held.name}: {error}") from None
    except Exception as error:
        raise SiteFailedError(f"{held.name}: {type(error).__name__}: {error}") from None
