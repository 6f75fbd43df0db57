"""The chain of a site: the steps that every request passes, in one order, and that every answer leaves by.

A step has one signature: ``step(exchange, call_next) -> Response``. It reads or completes the Exchange, and
calls the next step. A step that acts on the response does so when ``call_next`` returns: the log has the
answer before the replay cache has it, and the answer leaves when the first step returns. A step refuses by
raising QueryRefusedError, with a reason that the coordinator may read.

``CHAIN`` is the order. A site has those steps of it that its policy needs (``open_site``), a site of a
simulation the few that it needs (``Site``), and a relay has other steps in their places (``Relay``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import QueryRefusedError
from unpooled.privacy.dp.noise import Noise
from unpooled.protocol.exchange import STAGE, Part, Request, Response
from unpooled.protocol.messages import Refusal, Reply, SiteId
from unpooled.typing import FloatArray, Rows

CHAIN = (
    "log head",  # refuse if the coordinator has lines of the log that the log lacks
    "request id",  # refuse numbers that are not valid
    "failures",  # log a refusal by the next three; the same request may succeed later
    "study",  # refuse another run than that of the approved study, or after its end
    "source",  # refuse a run that began from another table, or under other rules
    "erasures",  # refuse if somebody was erased since the site was opened
    "replay cache",  # give the same answer to the same request
    "log",  # write the answer, or the refusal, into the log
    "charged answers",  # give an answer again that was charged, from the ledger
    "limits",  # refuse messages that need too much work or memory
    "members",  # of a relay: answer the question for its members
    "stages",  # refuse what secure sums do not allow; mark what they mask
    "transform",  # prepare the rows that each question reads
    "policy",  # refuse what the study and the policy do not allow
    "suppression",  # set the smallest cell that is disclosed
    "noise",  # charge the privacy budget for the noise
    "answer",  # compute the replies; of a relay: ask its members
    "transaction",  # keep all that the following steps write, or nothing
    "mask",  # mask the replies that are only to be summed
    "study",  # again: the answer took time
    "erasures",  # again
    "ledger",  # record the release before it leaves
)


class VisibleRows(NamedTuple):
    """The rows that a question reads, with their weights."""

    rows: Rows | Table | SummaryTable  # (n, d); a table if there is no transform
    weights: FloatArray | None
    within: FloatArray | None  # (d,) variance within the groups of a summary table


class AnswerSource(NamedTuple):
    """What a site answers from: its summary table, or its rows."""

    X: Rows | Table | SummaryTable
    weights: FloatArray | None = None
    within: FloatArray | None = None
    grouped: bool = False
    min_cluster_size: int = 1
    digest: str = ""  # of its summary table
    groups: SummaryTable | None = None  # in raw mode: of the rows, if the site answers only in secure sums
    raw: VisibleRows | None = None  # the rows behind these groups, for exact rounds

    @property
    def visible(self) -> VisibleRows:
        return VisibleRows(self.X, self.weights, self.within)

    @classmethod
    def from_summary(cls, summary: SummaryTable, digest: str = "") -> "AnswerSource":
        """Return the source of a site that answers from a summary table; that of an array is an array."""
        if summary.named:
            return cls(summary, grouped=True, digest=digest)
        within = np.nan_to_num(summary.within)
        return cls(summary.matrix(), summary.people, within, grouped=True, digest=digest)


@dataclass(eq=False)
class AskedPart:
    """A part of a request that is about rows, and what the steps set for its answer."""

    part: Part
    masked: bool = False  # its reply can be read only in a sum ("stages")
    visible: VisibleRows | None = None  # "transform"
    grouped: bool = False  # the rows that it reads are groups of people ("transform")
    minimum: float = 1.0  # the smallest cell that is disclosed ("suppression")
    noise: tuple[Noise, ...] = ()  # one if the reply has noise ("noise")

    @property
    def rows(self) -> Rows | Table | SummaryTable:
        """The rows that the question reads; they are known after the step "transform"."""
        assert self.visible is not None
        return self.visible.rows


@dataclass(eq=False)
class Exchange:
    """One request on its way through the chain, and what the steps found for it so far."""

    request: Request
    parts: tuple[AskedPart, ...] = field(init=False)  # without the stages of secure sums
    replies: tuple[Reply, ...] = ()  # one for each part of the request ("answer", "mask")
    member_failures: str = ""  # of a relay: which members did not answer, and why; only its log has this
    sum_members: tuple[SiteId, ...] = ()  # of a relay with fixed membership: the members of its sum
    sum_sites: int = 0  # the number of sites at or below those members

    def __post_init__(self) -> None:
        self.parts = tuple(AskedPart(part) for part in self.request.parts if part.verb != STAGE)


Next = Callable[[Exchange], Response]


class Step(ABC):
    """A step of a chain; ``name`` is its place in CHAIN."""

    name: str

    @abstractmethod
    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        """Return the response to a request, as a rule that of the next step."""


class Guard(Step):
    """A step that may refuse a request and changes nothing. This base class allows everything."""

    name = "policy"

    def check(self, exchange: Exchange) -> None:
        """Raise QueryRefusedError, with a reason that the coordinator may read, or return."""

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        self.check(exchange)
        return call_next(exchange)


class Chain:
    """Steps in the order of CHAIN. None stands for a step that a site does not need.

    Examples
    --------
    >>> Chain(Guard(), None).names
    ('policy',)
    """

    def __init__(self, *steps: Step | None) -> None:
        self.steps: Sequence[Step] = tuple(step for step in steps if step is not None)
        check_order(self.names)
        call: Next = _respond
        for step in reversed(self.steps):
            call = partial(step, call_next=call)
        self._first = call

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)

    def __call__(self, exchange: Exchange) -> Response:
        """Return the response to a request. A refusal that no step turned into a response is not logged."""
        try:
            return self._first(exchange)
        except QueryRefusedError as refusal:
            return refused(exchange.request, refusal)


def check_order(names: Sequence[str]) -> None:
    """Raise ValueError unless the names are in the order of CHAIN, where one may occur several times."""
    places = iter(CHAIN)
    place = next(places, "")
    for name in names:
        while place != name:
            place = next(places, "")
            if not place:
                raise ValueError(f"the step {name!r} is not in the order of the chain")


def _respond(exchange: Exchange) -> Response:
    return Response(exchange.request.request_id, exchange.replies)


def refused(request: Request, refusal: QueryRefusedError) -> Response:
    """Return the response that refuses every part of a request."""
    return Response(request.request_id, tuple(Refusal(str(refusal)) for _ in request.parts))
