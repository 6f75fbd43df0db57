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

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.exchange import STAGE, Answer, Envelope, Part, Turn, site_seed
from unpooled.core.messages import LeftMasked, Message, Refusal, Reply, SiteId, Summable
from unpooled.core.protocol import View, has_holes
from unpooled.core.stack import Stack
from unpooled.data.copy import Copy
from unpooled.errors import BadReply, CodecError, Refused, SiteFailed, UnpooledError
from unpooled.privacy import Spending
from unpooled.privacy.dp.noise import Noise, Purse, Simulated
from unpooled.privacy.secure_sum import messages as _stages  # noqa: F401 registers its messages
from unpooled.site.message_limits import check_message

NO_TURN = Turn("", 0, 0, 0)  # in answers to messages that could not be read
MAX_MESSAGE_BYTES = 16 * 2**20
_RUNS = 16  # whose memory is kept


class Guard:
    """A rule of the site. This base class lets everything pass; subclasses override its methods.

    Each method may raise Refused, with a reason that may be shown.
    """

    def admit(self, post: Envelope) -> None:
        """Check whether an envelope is looked at: repeated turns and stages of secure sums included."""

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        """Check an envelope before it is answered; ``views`` are the rows that each part will see."""

    def kept(self, post: Envelope) -> Answer | None:
        """The answer that was given to this very envelope before and must be given again, or None."""
        return None

    def purse(self, post: Envelope) -> Purse | None:
        """The purse that pays for noise in the answer to this envelope; None: this guard has none."""
        return None

    def whole(self) -> AbstractContextManager[None]:
        """Whatever this guard and the mask keep within it is kept together, or not at all."""
        return nullcontext()

    def leaving(self, post: Envelope, answer: Answer) -> None:
        """Check again when the answer is ready, and note it where it must be noted before it leaves."""


class Seen(NamedTuple):
    """The rows that a question sees, with their weights."""

    rows: Any  # (n, d), or a Table or Copy where there is no view
    weights: FloatArray | None
    within: FloatArray | None  # (d,) variance within the groups that are the rows of a copy


class Mask(Protocol):
    """The part of a site that hides replies that are only to be summed. It may refuse, too."""

    def before(self, post: Envelope) -> None: ...
    def hides(self, post: Envelope, part: Part) -> bool: ...
    def minimum(self, post: Envelope, part: Part, usual: float) -> float: ...
    def noise(self, post: Envelope, part: Part) -> float: ...
    def hide(self, post: Envelope, replies: tuple[Reply, ...]) -> tuple[Reply, ...]: ...
    def forget(self) -> None: ...


Audit = Callable[[Envelope, Answer], str | None]  # the head of the log, if there is one


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
        answered: Mapping[tuple[Turn, str], Answer] | None = None,
        key: str = "",
    ) -> None:
        self.name = str(name)
        self.key = key  # the fingerprint of its public key; "": it has none
        self.max_message_bytes = max_message_bytes
        self.min_cluster_size = min_cluster_size
        self._X, self._weights, self._within = X, weights, within
        self._grouped = grouped or isinstance(X, Copy)
        self._guards, self._mask, self._audit = tuple(guards), mask, audit
        self._threads = threads
        self._views: dict[str, Seen] = {}
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
        post: Envelope = codec.unwrap(data, expect=Envelope, limit=self.max_message_bytes)
        try:
            return codec.wrap(self.answer(post))
        except UnpooledError:
            raise
        except Exception as error:
            titles = ", ".join(codec.name_of(type(part.question)) for part in post.parts)
            raise SiteFailed(f"site {self.name}, round {post.turn.round}, {titles}: {error}") from error

    def respond(self, data: bytes) -> bytes:
        """``receive`` for engines between machines: never raises, and no reason it gives holds data."""
        try:
            return self.receive(data)
        except CodecError as error:
            return codec.wrap(Answer(NO_TURN, (Refusal(f"not a message for this site: {error}"),)))
        except Exception as error:
            return self.failure(data, error)

    def failure(self, data: bytes, error: Exception) -> bytes:
        """The encoded answer to an envelope for which ``receive`` raised ``error``; computes nothing."""
        post: Envelope = codec.unwrap(data, expect=Envelope)
        cause = error.__cause__ if isinstance(error, SiteFailed) else error
        reason = f"failed with {type(cause).__name__}; the site's own log says more"
        return codec.wrap(self._failed(post, refused(post, Refused(reason))))

    def _failed(self, post: Envelope, answer: Answer) -> Answer:
        """An answer that says only why there is none, logged; asked again, the question is tried again."""
        failed = getattr(self._audit, "failed", None)
        return answer if failed is None else replace(answer, head=failed(post, answer))

    def answer(self, post: Envelope) -> Answer:
        """Answer an envelope. A repeated turn gets the same answer, and nothing is computed again."""
        admit = getattr(self._audit, "admit", None)
        try:
            if admit is not None:
                admit(post)
            if not (0 <= post.turn.round < 2**63 and 0 <= post.turn.exchange < 2**63):
                raise Refused("the question is not of any round and exchange")
        except Refused as refusal:
            return refused(post, refusal)
        try:
            for guard in self._guards:
                guard.admit(post)
        except Refused as refusal:
            return self._failed(post, refused(post, refusal))
        key = (post.turn, request_digest(post))
        if key in self._answered:
            return self._answered[key]
        answer = next((a for a in (guard.kept(post) for guard in self._guards) if a is not None), None)
        if answer is None:
            answer = self._within_limits(post)
        if self._audit is not None:
            answer = replace(answer, head=self._audit(post, answer) or "")
        now = (post.turn.run, post.turn.round)
        self._answered = {k: v for k, v in self._answered.items() if (k[0].run, k[0].round) == now}
        self._answered[key] = answer
        return answer

    def _within_limits(self, post: Envelope) -> Answer:
        """The answer to an envelope; a refusal, before anything is computed, if it asks for too much."""
        try:
            check_message(post, self._X)
        except Refused as refusal:
            return refused(post, refusal)
        return self._computed(post)

    def _computed(self, post: Envelope) -> Answer:
        """The answer to an envelope: its replies, or a refusal of every part."""
        try:
            about_rows = tuple(part for part in post.parts if part.verb != STAGE)
            if self._mask is not None:
                self._mask.before(post)
            elif len(about_rows) < len(post.parts):
                raise Refused("this site takes no part in secure sums")
            views = tuple(self._viewed(part.view) for part in about_rows)
            shown = post if len(about_rows) == len(post.parts) else replace(post, parts=about_rows)
            for guard in self._guards if about_rows else ():
                guard.before(shown, tuple(seen.rows for seen in views))
            noises, seen_by = self._paid(post), iter(views)
            replies = tuple(
                LeftMasked() if part.verb == STAGE else self._reply(post, part, next(seen_by), noise)
                for part, noise in zip(post.parts, noises, strict=True)
            )
            return self._kept(post, replies, bool(about_rows))
        except Refused as refusal:
            return refused(post, refusal)

    def _kept(self, post: Envelope, replies: tuple[Reply, ...], about_rows: bool) -> Answer:
        """The answer with its mask on, noted by the guards; what they and the mask keep is kept as one."""
        try:
            with ExitStack() as together:
                for guard in self._guards:
                    together.enter_context(guard.whole())
                if self._mask is not None:
                    replies = self._mask.hide(post, replies)
                answer = Answer(post.turn, replies)
                for guard in self._guards if about_rows else ():
                    guard.leaving(post, answer)
                return answer
        except BaseException:
            if self._mask is not None:
                self._mask.forget()
            raise

    def _paid(self, post: Envelope) -> list[tuple[Noise, ...]]:
        """The noise of every part, paid for all at once; () for a part that takes none."""
        at = [i for i, part in enumerate(post.parts) if isinstance(part.question, Spending)]
        out: list[tuple[Noise, ...]] = [() for _ in post.parts]
        if not at:
            return out
        purse: Purse | None = None if self._guards else Simulated()
        for guard in self._guards:
            purse = guard.purse(post) or purse
        if purse is None:
            raise Refused("this site has no budget for noise")
        shares = [1.0 if self._mask is None else self._mask.noise(post, post.parts[i]) for i in at]
        prices = [cast(Spending[Any], post.parts[i].question).spends for i in at]
        for i, noise in zip(at, purse.spend(prices, shares), strict=True):
            out[i] = (noise,)
        return out

    def _reply(self, post: Envelope, part: Part, seen: Seen, noise: tuple[Noise, ...]) -> Reply:
        turn, minimum = post.turn, float(self.min_cluster_size)
        hidden = self._mask is not None and self._mask.hides(post, part)
        if self._mask is not None:
            minimum = self._mask.minimum(post, part, minimum)
        stack = Stack(
            X=seen.rows,
            offsets=np.array([0, len(seen.rows)]),
            weights=seen.weights,
            seeds=np.array([site_seed(turn, part.index, self.name)], dtype=np.uint64),
            minimum=minimum,
            noise=noise,
            threads=self._threads,
            memory=(self._remembered(turn.run),),
            grouped=self._grouped,
            within=None if seen.within is None else seen.within[None],
            holes=has_holes(part.view, part.question),
        )
        with np.errstate(all="ignore") if hidden else nullcontext():  # a failure would tell of its numbers
            reply: Reply = part.question.answer(stack)
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
        except BadReply as error:
            name = codec.name_of(type(part.question))
            raise Refused(f"what {name} would send is not what it declares") from error

    def _remembered(self, run: str) -> dict[str, Any]:
        """What questions remember in a run; of the latest runs only, since it may be as large as the rows."""
        while run not in self._memory and len(self._memory) >= _RUNS:
            del self._memory[next(iter(self._memory))]
        return self._memory.setdefault(run, {})

    def _viewed(self, view: View | None) -> Seen:
        """The rows under a view; the last view is kept, since a run uses one."""
        if view is None:
            return Seen(self._X, self._weights, self._within)
        key = digest(view)
        if key not in self._views:
            view.check(self._X)
            self._views = {key: Seen(*view.shown(self._X, self._weights, self._within))}
        return self._views[key]


def _zeros(reply: Summable) -> Summable:
    """A reply of the same form without its numbers."""
    return type(reply)(*(np.zeros_like(getattr(reply, name)) for name in codec.field_names(type(reply))))


def refused(post: Envelope, refusal: Refused) -> Answer:
    """The answer that refuses every part of an envelope."""
    return Answer(post.turn, tuple(Refusal(str(refusal)) for _ in post.parts))


@lru_cache(maxsize=8)  # by identity: several guards need the digest of one envelope
def request_digest(message: Message) -> str:
    """A digest of a request: of the envelope's content without the countersigned head that came with it."""
    return digest(replace(message, countersigned="") if isinstance(message, Envelope) else message)


@lru_cache(maxsize=32)
def digest(message: Message) -> str:
    """A short digest of a message's content."""
    return sha256(codec.encode(message)).hexdigest()[:32]
