"""Partitions: rows of a site, described by how to read them, and the answers of the worker that holds them.

Only the description, a question and its answer travel, the latter two as bytes of the codec; rows do not. If
a worker is lost, another one reads its partitions again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from unpooled.data import Table
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, SiteFailedError, UnpooledError
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, Verb
from unpooled.protocol.exchange import Aggregate, Replies, Request, size
from unpooled.protocol.messages import Reply
from unpooled.protocol.partial_sum import partial_sum
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray

if TYPE_CHECKING:
    from unpooled.federation.simulation import Simulation

T = TypeVar("T")

_MAX_TRANSFORMS = 4  # transforms of earlier questions that a worker keeps


@dataclass(frozen=True)
class RowPartition:
    """Some rows of a site, described by how to read them.

    Parameters
    ----------
    load
        A function that workers can import. ``load(*arguments)`` returns an array (n, d), a Table, a
        SummaryTable or GroupRows: the same rows at every call and on every worker.
    arguments
        The arguments of ``load``.

    Examples
    --------
    >>> RowPartition(np.zeros, ((4, 2),)).rows().shape
    (4, 2)
    """

    load: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def rows(self) -> Any:
        """Read the rows."""
        rows = self.load(*self.arguments)
        if isinstance(rows, np.ndarray) and (rows.ndim != 2 or rows.dtype.kind != "f"):
            raise InputError(f"rows must be an array (n, d) of floats, got {rows.shape} of {rows.dtype}")
        if not isinstance(rows, np.ndarray | Table | SummaryTable | GroupRows):
            raise InputError(f"rows must be an array, a Table or a SummaryTable, got a {type(rows).__name__}")
        return rows


class GroupRows(NamedTuple):
    """The rows of a partition that are groups of people: the summary table of an array."""

    means: FloatArray  # (G, d)
    people: FloatArray  # (G,)
    within: FloatArray  # (d,) the variance within groups


class HeldByWorker(Protocol):
    """Rows on the worker that holds them; pickled they are only their description."""

    number: int
    name: str


class PartitionRequest(NamedTuple):
    """The questions of an exchange to a partition."""

    request: bytes  # an encoded Request
    modules: tuple[str, ...]  # that define its questions and transforms


class PartialAnswer(NamedTuple):
    """The answer of some partitions to one question: the sum, or the replies of single ones, encoded."""

    total: bytes  # a PartialSum; b"" if single replies were asked for
    each: tuple[tuple[int, bytes], ...]  # the number of a partition, its reply
    size: tuple[int, int]  # numbers and bytes of a single reply

    @staticmethod
    def merged(portions: Sequence["PartialAnswer"]) -> "PartialAnswer":
        totals = [codec.decode(portion.total) for portion in portions if portion.total]
        return PartialAnswer(
            codec.encode(partial_sum([totals])) if totals else b"",
            tuple(reply for portion in portions for reply in portion.each),
            max(portion.size for portion in portions),
        )


PartialAnswers = dict[int, PartialAnswer]  # by the question's index in the exchange


class HeldPartition:
    """A partition on the worker that holds it. Pickled it is only its description, without rows."""

    def __init__(
        self, number: int, name: str, partition: RowPartition, min_cluster_size: int = 1, n_threads: int = 1
    ) -> None:
        self.number, self.name, self.partition = number, name, partition
        self._settings = (min_cluster_size, n_threads)
        self._federation: Simulation | None = None
        self._transforms: dict[bytes, Transform] = {}
        self._lock = Lock()

    def __reduce__(self) -> Any:
        return HeldPartition, (self.number, self.name, self.partition, *self._settings)

    @property
    def federation(self) -> "Simulation":
        """Its rows as a federation of one site, read at the first use."""
        from unpooled.federation.simulation import Simulation

        with self._lock:
            if self._federation is None:
                rows, (min_cluster_size, n_threads) = self.partition.rows(), self._settings
                grouped: dict[str, Any] = {}
                if isinstance(rows, GroupRows):
                    rows, people, within = rows
                    grouped = {"weights": {self.name: people}, "within": {self.name: within}}
                self._federation = Simulation.from_rows(
                    {self.name: rows},
                    min_cluster_size=min_cluster_size,
                    n_threads=n_threads,
                    exact_sums=True,
                    **grouped,
                )
        return self._federation

    def answer(self, addressed: PartitionRequest) -> PartialAnswers:
        """Answer the questions of an exchange."""
        for module in addressed.modules:
            import_module(module)
        request: Request = codec.decode(addressed.request, expect=Request)
        parts = {part.index: part for part in request.parts}
        nothing: Ask[Reply] = Ask("each", (), request.parts[0].question)
        asks = [nothing] * (max(parts) + 1)
        for index, part in parts.items():  # at their own indices: sites' draws depend on them
            asks[index] = Ask(cast(Verb, part.verb), (self.name,), part.question, self._known(part.transform))
        replies_by_ask = self.federation.ask(request.request_id, tuple(asks))
        return {index: self._portion(replies_by_ask[index]) for index in parts}

    def _portion(self, gathered: Replies[Reply]) -> PartialAnswer:
        if isinstance(gathered, Aggregate):
            return PartialAnswer(codec.encode(gathered.partial_sum()), (), gathered.size)
        (reply,) = gathered.replies
        return PartialAnswer(b"", ((self.number, codec.encode(reply)),), size(reply))

    def _known(self, transform: Transform | None) -> Transform | None:
        """Return the same object for equal transforms, so that rows already transformed are used again."""
        if transform is None:
            return None
        key = codec.encode(transform)
        while len(self._transforms) >= _MAX_TRANSFORMS and key not in self._transforms:
            del self._transforms[next(iter(self._transforms))]
        return self._transforms.setdefault(key, transform)


def row_counts(held: HeldPartition, _: None) -> dict[int, int]:
    """Return the number of rows of a partition, by the partition's number."""
    return with_partition_name(held, lambda: {held.number: held.federation.rows})


def counts_of_all(counts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Return the row counts of several partitions as one mapping."""
    return {number: rows for some in counts for number, rows in some.items()}


def answer_partition(held: HeldPartition, request: PartitionRequest) -> PartialAnswers:
    """Return the answer of a partition, on a worker."""
    return with_partition_name(held, lambda: held.answer(request))


def add_answers(answers: Sequence[PartialAnswers]) -> PartialAnswers:
    """Return the answers of several partitions as one, on a worker: one node of the tree of sums."""
    indices = sorted({index for answer in answers for index in answer})
    return {
        index: PartialAnswer.merged([answer[index] for answer in answers if index in answer])
        for index in indices
    }


def with_partition_name(held: HeldByWorker, act: Callable[[], T]) -> T:
    """Return the result of ``act``; an error names the partition, in a class that can be pickled."""
    try:
        return act()
    except InputError as error:
        raise InputError(f"{held.name}: {error}") from None
    except UnpooledError as error:
        raise SiteFailedError(f"{held.name}: {error}") from None
    except Exception as error:
        raise SiteFailedError(f"{held.name}: {type(error).__name__}: {error}") from None
