"""A site: everything that leaves it passes the same steps, in every runtime.

An envelope comes in, and an answer goes out::

    view -> guards before -> noise paid -> answer -> check -> mask -> guards at the end -> audit -> out

A message that asks for more work or memory than one may ask is refused before that (message_limits.py).
What is seen through a view is the site's copy, or, where its policy says so, its rows. Guards may refuse
(raise Refused). Questions that are answered with noise get it from the site's purse, for a price. The mask
hides replies that are only to be summed, and
answers the stages of secure sums, which are about no rows and pass no guards. The audit logs an answer before
it leaves.
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

NO_REQUEST = RequestId("", 0, 0, 0)  # in answers to messages that could not be read
MAX_MESSAGE_BYTES = 16 * 2**20
_RUNS = 16  # whose memory is kept


class Guard:
    """A rule of the site. This base class lets everything pass; subclasses override its methods.

    Each method may raise Refused, with a reason that may be shown.
    """

    def check_request(self, request: Request) -> None:
        """Check whether an envelope is looked at: repeated turns and stages of secure sums included."""

    def check_questions(self, request: Request, views: tuple[Rows, ...]) -> None:
        """Check an envelope before it is answered; ``views`` are the rows that each part will see."""

    def cached_response(self, request: Request) -> Response | None:
        """The answer that was given to this very envelope before and must be given again, or None."""
        return None

    def accountant(self, request: Request) -> BudgetAccountant | None:
        """The purse that pays for noise in the answer to this envelope; None: this guard has none."""
        return None

    def transaction(self) -> AbstractContextManager[None]:
        """Whatever this guard and the mask keep within it is kept together, or not at all."""
        return nullcontext()

    def before_release(self, request: Request, answer: Response) -> None:
        """Check again when the answer is ready, and note it where it must be noted before it leaves."""


class VisibleRows(NamedTuple):
    """The rows that a question sees, with their weights."""

    rows: Any  # (n, d), or a Table or Copy where there is no view
    weights: FloatArray | None
    within: FloatArray | None  # (d,) variance within the groups that are the rows of a copy


class Mask(Protocol):
    """The part of a site that hides replies that are only to be summed. It may refuse, too."""

    def check_request(self, request: Request) -> None: ...
    def is_masked(self, request: Request, part: Part) -> bool: ...
    def minimum(self, request: Request, part: Part, usual: float) -> float: ...
    def noise(self, request: Request, part: Part) -> float: ...
    def apply(self, request: Request, replies: tuple[Reply, ...]) -> tuple[Reply, ...]: ...
    def forget(self) -> None: ...


Audit = Callable[[Request, Response], str | None]  # the head of the log, if there is one


class Site:
    """A site: what it answers from, its rules, and the answers of the latest round.

    ``X`` is a Copy, a Table, or an array (n, d); ``grouped`` says that the rows of an array are groups,
    ``weights`` their persons and ``within`` the variance inside them. ``min_cluster_size`` is the smallest
    cluster that a site shows of raw rows; 1 suppresses nothing.
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
        self._views: dict[str, VisibleRows] = {}
        self._memory: dict[str, dict[str, Any]] = {}
        self._answered = dict(answered or {})  # of the latest round, by turn and request

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
        """True if it answers from groups of persons."""
        return self._grouped

    @property
    def within(self) -> FloatArray | None:
        return self._within

    def receive(self, data: bytes) -> bytes:
        """Answer an encoded envelope with an encoded answer; engines call this."""
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
        """``receive`` for engines between machines: never raises, and no reason it gives holds data."""
        try:
            return self.receive(data)
        except CodecError as error:
            return codec.wrap(Response(NO_REQUEST, (Refusal(f"not a message for this site: {error}"),)))
        except Exception as error:
            return self.failure(data, error)

    def failure(self, data: bytes, error: Exception) -> bytes:
        """The encoded answer to an envelope for which ``receive`` raised ``error``; computes nothing."""
        request: Request = codec.unwrap(data, expect=Request)
        cause = error.__cause__ if isinstance(error, SiteFailedError) else error
        reason = f"failed with {type(cause).__name__}; the site's own log says more"
        return codec.wrap(self._failed(request, refused(request, QueryRefusedError(reason))))

    def _failed(self, request: Request, answer: Response) -> Response:
        """An answer that says only why there is none, logged; asked again, the question is tried again."""
        failed = getattr(self._audit, "failed", None)
        return answer if failed is None else replace(answer, head=failed(request, answer))

    def answer(self, request: Request) -> Response:
        """Answer an envelope. A repeated turn gets the same answer, and nothing is computed again."""
        check_request = getattr(self._audit, "check_request", None)
        try:
            if check_request is not None:
                check_request(request)
            if not (0 <= request.request_id.round < 2**63 and 0 <= request.request_id.exchange < 2**63):
                raise QueryRefusedError("the question is not of any round and exchange")
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
        """The answer to an envelope; a refusal, before anything is computed, if it asks for too much."""
        try:
            check_message(request, self._X)
        except QueryRefusedError as refusal:
            return refused(request, refusal)
        return self._computed(request)

    def _computed(self, request: Request) -> Response:
        """The answer to an envelope: its replies, or a refusal of every part."""
        try:
            about_rows = tuple(part for part in request.parts if part.verb != STAGE)
            if self._mask is not None:
                self._mask.check_request(request)
            elif len(about_rows) < len(request.parts):
                raise QueryRefusedError("this site takes no part in secure sums")
            views = tuple(self._viewed(part.transform) for part in about_rows)
            shown = request if len(about_rows) == len(request.parts) else replace(request, parts=about_rows)
            for guard in self._guards if about_rows else ():
                guard.check_questions(shown, tuple(seen.rows for seen in views))
            noises, seen_by = self._paid(request), iter(views)
            replies = tuple(
                MaskedElsewhere() if part.verb == STAGE else self._reply(request, part, next(seen_by), noise)
                for part, noise in zip(request.parts, noises, strict=True)
            )
            return self._kept(request, replies, bool(about_rows))
        except QueryRefusedError as refusal:
            return refused(request, refusal)

    def _kept(self, request: Request, replies: tuple[Reply, ...], about_rows: bool) -> Response:
        """The answer with its mask on, noted by the guards; what they and the mask keep is kept as one."""
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

    def _paid(self, request: Request) -> list[tuple[Noise, ...]]:
        """The noise of every part, paid for all at once; () for a part that takes none."""
        at = [i for i, part in enumerate(request.parts) if isinstance(part.question, PrivateQuestion)]
        out: list[tuple[Noise, ...]] = [() for _ in request.parts]
        if not at:
            return out
        accountant: BudgetAccountant | None = None if self._guards else SimulatedAccountant()
        for guard in self._guards:
            accountant = guard.accountant(request) or accountant
        if accountant is None:
            raise QueryRefusedError("this site has no budget for noise")
        shares = [1.0 if self._mask is None else self._mask.noise(request, request.parts[i]) for i in at]
        prices = [cast(PrivateQuestion[Any], request.parts[i].question).privacy_cost for i in at]
        for i, noise in zip(at, accountant.spend(prices, shares), strict=True):
            out[i] = (noise,)
        return out

    def _reply(self, request: Request, part: Part, seen: VisibleRows, noise: tuple[Noise, ...]) -> Reply:
        request_id, minimum = request.request_id, float(self.min_cluster_size)
        hidden = self._mask is not None and self._mask.is_masked(request, part)
        if self._mask is not None:
            minimum = self._mask.minimum(request, part, minimum)
        batch = SiteBatch(
            X=seen.rows,
            offsets=np.array([0, len(seen.rows)]),
            weights=seen.weights,
            seeds=np.array([site_seed(request_id, part.index, self.name)], dtype=np.uint64),
            minimum=minimum,
            noise=noise,
            threads=self._threads,
            memory=(self._remembered(request_id.run),),
            grouped=self._grouped,
            within=None if seen.within is None else seen.within[None],
            has_missing=reads_missing(part.transform, part.question),
        )
        with np.errstate(all="ignore") if hidden else nullcontext():  # a failure would tell of its numbers
            reply: Reply = part.question.answer(batch)
        for bought in noise:
            bought.used()
        if self._guards:
            self._check(part, reply, hidden)
        return reply

    def _check(self, part: Part, reply: Reply, hidden: bool) -> None:
        """Refuse to send a reply that is not what its question declares.

        The reason names the question only: a value, or a shape, would be a number from the rows. Of a reply
        that is ``hidden`` in a sum only the form is checked: a refusal would tell of its numbers.
        """
        try:
            part.question.check_reply(_zeros(reply) if hidden and isinstance(reply, Summable) else reply)
        except ReplyError as error:
            name = codec.name_of(type(part.question))
            raise QueryRefusedError(f"what {name} would send is not what it declares") from error

    def _remembered(self, run: str) -> dict[str, Any]:
        """What questions remember in a run; of the latest runs only, since it may be as large as the rows."""
        while run not in self._memory and len(self._memory) >= _RUNS:
            del self._memory[next(iter(self._memory))]
        return self._memory.setdefault(run, {})

    def _viewed(self, transform: Transform | None) -> VisibleRows:
        """The rows under a view; the last view is kept, since a run uses one."""
        if transform is None:
            return VisibleRows(self._X, self._weights, self._within)
        key = digest(transform)
        if key not in self._views:
            transform.check(self._X)
            self._views = {key: VisibleRows(*transform.apply_weighted(self._X, self._weights, self._within))}
        return self._views[key]


def _zeros(reply: Summable) -> Summable:
    """A reply of the same form without its numbers."""
    return type(reply)(*(np.zeros_like(getattr(reply, name)) for name in codec.field_names(type(reply))))


def refused(request: Request, refusal: QueryRefusedError) -> Response:
    """The answer that refuses every part of an envelope."""
    return Response(request.request_id, tuple(Refusal(str(refusal)) for _ in request.parts))


@lru_cache(maxsize=8)  # by identity: several guards need the digest of one envelope
def request_digest(message: Message) -> str:
    """A digest of a request: of the envelope's content without the countersigned head that came with it."""
    return digest(replace(message, countersigned="") if isinstance(message, Request) else message)


@lru_cache(maxsize=32)
def digest(message: Message) -> str:
    """A short digest of a message's content."""
    return sha256(codec.encode(message)).hexdigest()[:32]
