"""A site: everything that leaves it passes the same steps, in every runtime.

A request comes in, and a response goes out::

    transform -> guards before -> privacy cost -> answer -> check -> mask -> guards at the end -> audit -> out

A message that needs more work or memory than one message may is refused before that (message_limits.py). A
question reads the site's summary table or, by its policy, its rows, after a transform. Guards may refuse
(raise QueryRefusedError). A question that is answered with noise is charged to the site's privacy budget. The
mask conceals replies that are only to be summed, and answers the stages of secure sums, which read no rows
and pass no guards. The audit logs an answer before it leaves.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from unpooled.data.summary_table import SummaryTable
from unpooled.errors import CodecError, QueryRefusedError, ReplyError, SiteFailedError, UnpooledError
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.dp.noise import BudgetAccountant, Noise, SimulatedAccountant
from unpooled.privacy.secure_sum import stage_messages as _stages  # noqa: F401 registers its messages
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Transform, reads_missing
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response, site_seed
from unpooled.protocol.messages import MaskedElsewhere, Message, Refusal, Reply, SiteId, Summable
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.message_limits import check_message
from unpooled.typing import FloatArray, Rows

NO_REQUEST = RequestId("", 0, 0, 0)  # in responses to messages that cannot be read
MAX_MESSAGE_BYTES = 16 * 2**20
_RUNS = 16  # the latest runs, whose memory is kept


class Guard:
    """A rule of the site. This base class allows everything; subclasses override its methods.

    Each method may raise QueryRefusedError, with a reason that the coordinator may read.
    """

    def check_request(self, request: Request) -> None:
        """Check a request before anything else, even if it is repeated or a stage of a secure sum."""

    def check_questions(self, request: Request, rows: tuple[Rows, ...]) -> None:
        """Check a request before it is answered; ``rows`` are those that each part will read."""

    def cached_response(self, request: Request) -> Response | None:
        """Return the response that was given to the same request before and must be given again, or None."""
        return None

    def accountant(self, request: Request) -> BudgetAccountant | None:
        """Return the accountant that charges the noise in the answer to this request; None: no budget."""
        return None

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which this guard and the mask keep everything, or nothing."""
        return nullcontext()

    def before_release(self, request: Request, answer: Response) -> None:
        """Check again when the answer is ready, and record it if that must happen before it leaves."""


class VisibleRows(NamedTuple):
    """The rows that a question reads, with their weights."""

    rows: Any  # (n, d), or a Table or SummaryTable without a transform
    weights: FloatArray | None
    within: FloatArray | None  # (d,) variance within the groups of a summary table


class Mask(Protocol):
    """The part of a site that masks replies that are only to be summed. It may refuse, too."""

    def check_request(self, request: Request) -> None: ...
    def is_masked(self, request: Request, part: Part) -> bool: ...
    def minimum(self, request: Request, part: Part, usual: float) -> float: ...
    def noise(self, request: Request, part: Part) -> float: ...
    def apply(self, request: Request, replies: tuple[Reply, ...]) -> tuple[Reply, ...]: ...
    def forget(self) -> None: ...


Audit = Callable[[Request, Response], str | None]  # the head of the log, if there is one


class Site:
    """A site: what it answers from, its rules, and the answers of the latest round.

    ``X`` is a SummaryTable, a Table, or an array (n, d). With ``grouped``, the rows of an array are groups,
    ``weights`` their numbers of people and ``within`` the variance inside them. ``min_cluster_size`` is the
    smallest cluster of raw rows that a site discloses; 1 suppresses nothing.
    """

    is_federation = False  # a Relay is one

    def __init__(
        self,
        name: SiteId,
        X: Any,
        weights: FloatArray | None = None,
        *,
        grouped: bool = False,
        within: FloatArray | None = None,
        min_cluster_size: int = 1,
        guards: Sequence[Guard] = (),
        mask: Mask | None = None,
        audit: Audit | None = None,
        threads: int = 1,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        answered: Mapping[tuple[RequestId, str], Response] | None = None,
        key: str = "",
    ) -> None:
        self.name = str(name)
        self.key = key  # the fingerprint of its public key; "": it has none
        self.max_message_bytes = max_message_bytes
        self.min_cluster_size = min_cluster_size
        self._X, self._weights, self._within = X, weights, within
        self._grouped = grouped or isinstance(X, SummaryTable)
        self._guards, self._mask, self._audit = tuple(guards), mask, audit
        self._threads = threads
        self._visible: dict[str, VisibleRows] = {}  # by the digest of the transform
        self._memory: dict[str, dict[str, Any]] = {}
        self._answered = dict(answered or {})  # of the latest round, by id and digest of the request

    def close(self) -> None:
        """Close the log and the ledger, if there are any."""
        for part in (self._audit, *self._guards):
            closing = getattr(part, "close", None)
            if closing is not None:
                closing()

    @property
    def plain(self) -> bool:
        """True without guard, mask or audit: a simulation may answer for many such sites at once."""
        return not self._guards and self._mask is None and self._audit is None

    @property
    def rows(self) -> Any:
        return self._X

    @property
    def weights(self) -> FloatArray | None:
        return self._weights

    @property
    def grouped(self) -> bool:
        """True if it answers from groups of people."""
        return self._grouped

    @property
    def within(self) -> FloatArray | None:
        return self._within

    def receive(self, data: bytes) -> bytes:
        """Answer an encoded request with an encoded response; engines call this."""
        request: Request = codec.unwrap(data, expect=Request, limit=self.max_message_bytes)
        try:
            return codec.wrap(self.answer(request))
        except UnpooledError:
            raise
        except Exception as error:
            titles = ", ".join(codec.name_of(type(part.question)) for part in request.parts)
            raise SiteFailedError(
                f"site {self.name}, round {request.request_id.round}, {titles}: {error}"
            ) from error

    def respond(self, data: bytes) -> bytes:
        """``receive`` for engines between machines: never raises, and its reasons contain no data."""
        try:
            return self.receive(data)
        except CodecError as error:
            return codec.wrap(Response(NO_REQUEST, (Refusal(f"not a message for this site: {error}"),)))
        except Exception as error:
            return self.failure(data, error)

    def failure(self, data: bytes, error: Exception) -> bytes:
        """Return the encoded response to a request for which ``receive`` raised; computes nothing."""
        request: Request = codec.unwrap(data, expect=Request)
        cause = error.__cause__ if isinstance(error, SiteFailedError) else error
        reason = f"failed with {type(cause).__name__}; the site's own log has the details"
        return codec.wrap(self._failed(request, refused(request, QueryRefusedError(reason))))

    def _failed(self, request: Request, answer: Response) -> Response:
        """Log a response that gives only a reason; if it is asked again, the question is tried again."""
        failed = getattr(self._audit, "failed", None)
        return answer if failed is None else replace(answer, head=failed(request, answer))

    def answer(self, request: Request) -> Response:
        """Answer a request. A repeated request gets the same response, and nothing is computed again."""
        check_request = getattr(self._audit, "check_request", None)
        try:
            if check_request is not None:
                check_request(request)
            if not (0 <= request.request_id.round < 2**63 and 0 <= request.request_id.exchange < 2**63):
                raise QueryRefusedError("the round or the exchange of the request is not a valid number")
        except QueryRefusedError as refusal:
            return refused(request, refusal)
        try:
            for guard in self._guards:
                guard.check_request(request)
        except QueryRefusedError as refusal:
            return self._failed(request, refused(request, refusal))
        key = (request.request_id, request_digest(request))
        if key in self._answered:
            return self._answered[key]
        answer = next(
            (a for a in (guard.cached_response(request) for guard in self._guards) if a is not None), None
        )
        if answer is None:
            answer = self._within_limits(request)
        if self._audit is not None:
            answer = replace(answer, head=self._audit(request, answer) or "")
        now = (request.request_id.run, request.request_id.round)
        self._answered = {k: v for k, v in self._answered.items() if (k[0].run, k[0].round) == now}
        self._answered[key] = answer
        return answer

    def _within_limits(self, request: Request) -> Response:
        """The response to a request; a refusal, before anything is computed, if it is beyond the limits."""
        try:
            check_message(request, self._X)
        except QueryRefusedError as refusal:
            return refused(request, refusal)
        return self._computed(request)

    def _computed(self, request: Request) -> Response:
        """The response to a request: its replies, or a refusal of every part."""
        try:
            about_rows = tuple(part for part in request.parts if part.verb != STAGE)
            if self._mask is not None:
                self._mask.check_request(request)
            elif len(about_rows) < len(request.parts):
                raise QueryRefusedError("this site does not take part in secure sums")
            visible = tuple(self._transformed(part.transform) for part in about_rows)
            checked = request if len(about_rows) == len(request.parts) else replace(request, parts=about_rows)
            for guard in self._guards if about_rows else ():
                guard.check_questions(checked, tuple(one.rows for one in visible))
            noises, read = self._charged_noise(request), iter(visible)
            replies = tuple(
                MaskedElsewhere() if part.verb == STAGE else self._reply(request, part, next(read), noise)
                for part, noise in zip(request.parts, noises, strict=True)
            )
            return self._released(request, replies, bool(about_rows))
        except QueryRefusedError as refusal:
            return refused(request, refusal)

    def _released(self, request: Request, replies: tuple[Reply, ...], about_rows: bool) -> Response:
        """The masked response, recorded by the guards; they and the mask keep all of it, or nothing."""
        try:
            with ExitStack() as together:
                for guard in self._guards:
                    together.enter_context(guard.transaction())
                if self._mask is not None:
                    replies = self._mask.apply(request, replies)
                answer = Response(request.request_id, replies)
                for guard in self._guards if about_rows else ():
                    guard.before_release(request, answer)
                return answer
        except BaseException:
            if self._mask is not None:
                self._mask.forget()
            raise

    def _charged_noise(self, request: Request) -> list[tuple[Noise, ...]]:
        """The noise of every part, all of it charged at once; () for a part without noise."""
        at = [i for i, part in enumerate(request.parts) if isinstance(part.question, PrivateQuestion)]
        out: list[tuple[Noise, ...]] = [() for _ in request.parts]
        if not at:
            return out
        accountant: BudgetAccountant | None = None if self._guards else SimulatedAccountant()
        for guard in self._guards:
            accountant = guard.accountant(request) or accountant
        if accountant is None:
            raise QueryRefusedError("this site does not have a privacy budget")
        shares = [1.0 if self._mask is None else self._mask.noise(request, request.parts[i]) for i in at]
        prices = [cast(PrivateQuestion[Any], request.parts[i].question).privacy_cost for i in at]
        for i, noise in zip(at, accountant.spend(prices, shares), strict=True):
            out[i] = (noise,)
        return out

    def _reply(self, request: Request, part: Part, visible: VisibleRows, noise: tuple[Noise, ...]) -> Reply:
        request_id, minimum = request.request_id, float(self.min_cluster_size)
        masked = self._mask is not None and self._mask.is_masked(request, part)
        if self._mask is not None:
            minimum = self._mask.minimum(request, part, minimum)
        batch = SiteBatch(
            X=visible.rows,
            offsets=np.array([0, len(visible.rows)]),
            weights=visible.weights,
            seeds=np.array([site_seed(request_id, part.index, self.name)], dtype=np.uint64),
            minimum=minimum,
            noise=noise,
            threads=self._threads,
            memory=(self._remembered(request_id.run),),
            grouped=self._grouped,
            within=None if visible.within is None else visible.within[None],
            has_missing=reads_missing(part.transform, part.question),
        )
        with np.errstate(all="ignore") if masked else nullcontext():  # a failure would disclose numbers
            reply: Reply = part.question.answer(batch)
        for one in noise:
            one.used()
        if self._guards:
            self._check(part, reply, masked)
        return reply

    def _check(self, part: Part, reply: Reply, masked: bool) -> None:
        """Refuse to send a reply that is not what its question declares.

        The reason names only the question: a value or a shape would be a number from the rows. If the reply
        is ``masked``, only its form is checked, because a refusal would disclose numbers.
        """
        try:
            part.question.check_reply(_zeros(reply) if masked and isinstance(reply, Summable) else reply)
        except ReplyError as error:
            name = codec.name_of(type(part.question))
            raise QueryRefusedError(f"the reply to {name} is not what {name} declares") from error

    def _remembered(self, run: str) -> dict[str, Any]:
        """The memory of questions in a run; only of the latest runs, as it may be as large as the rows."""
        while run not in self._memory and len(self._memory) >= _RUNS:
            del self._memory[next(iter(self._memory))]
        return self._memory.setdefault(run, {})

    def _transformed(self, transform: Transform | None) -> VisibleRows:
        """The transformed rows; those of the last transform are kept, because a run uses one."""
        if transform is None:
            return VisibleRows(self._X, self._weights, self._within)
        key = digest(transform)
        if key not in self._visible:
            transform.check(self._X)
            visible = VisibleRows(*transform.apply_weighted(self._X, self._weights, self._within))
            self._visible = {key: visible}
        return self._visible[key]


def _zeros(reply: Summable) -> Summable:
    """A reply of the same form without its numbers."""
    return type(reply)(*(np.zeros_like(getattr(reply, name)) for name in codec.field_names(type(reply))))


def refused(request: Request, refusal: QueryRefusedError) -> Response:
    """Return the response that refuses every part of a request."""
    return Response(request.request_id, tuple(Refusal(str(refusal)) for _ in request.parts))


@lru_cache(maxsize=8)  # by identity: several guards need the digest of one request
def request_digest(message: Message) -> str:
    """Return a digest of a request, without the countersigned head that came with it."""
    return digest(replace(message, countersigned="") if isinstance(message, Request) else message)


@lru_cache(maxsize=32)
def digest(message: Message) -> str:
    """Return a short digest of a message's content."""
    return sha256(codec.encode(message)).hexdigest()[:32]
