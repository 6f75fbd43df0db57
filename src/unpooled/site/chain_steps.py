"""The steps of a site's chain, in the order of ``chain.CHAIN``.

The other steps are guards (guards.py, study_guard.py, budget_guard.py, message_limits.py) and the log
(audit_log.py). Those of a relay are in federation/relay/relay_steps.py.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import QueryRefusedError, ReplyError
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.dp.noise import BudgetAccountant
from unpooled.privacy.microaggregation.rare_categories import only_disclosed
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Request, RequestId, Response, site_seed
from unpooled.protocol.messages import MaskedElsewhere, Reply, SiteId, Summable
from unpooled.protocol.site_batch import SiteBatch
from unpooled.protocol.transform import Transform, reads_missing
from unpooled.site.chain import AskedPart, Exchange, Next, Step, VisibleRows, refused
from unpooled.site.equation_budget import EquationBudget
from unpooled.site.guards import SingleSourceGuard
from unpooled.site.ledger import Ledger, RunLimits

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask

Answers = Mapping[tuple[RequestId, str], Response]  # by id and digest of the request
_RUNS = 16  # the latest runs, whose memory is kept


class FailureStep(Step):
    """Record a refusal by the steps before the replay cache: the same request may be answered later."""

    name = "failures"

    def __init__(self, log: "Recorder") -> None:
        self._log = log

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        try:
            return call_next(exchange)
        except QueryRefusedError as refusal:
            return self._log.failed(exchange, refusal)


class ReplayCache(Step):
    """Give the same response to a repeated request, and compute nothing again.

    It holds the responses of the latest round; ``answered`` are those in the log of a restarted site.
    """

    name = "replay cache"

    def __init__(self, answered: Answers | None = None) -> None:
        self._answered = dict(answered or {})

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        request = exchange.request
        key = (request.request_id, request.digest)
        if key not in self._answered:
            response = call_next(exchange)
            now = (request.request_id.run, request.request_id.round)
            self._answered = {k: v for k, v in self._answered.items() if (k[0].run, k[0].round) == now}
            self._answered[key] = response
        return self._answered[key]


class Recorder(Step):
    """The step that records every answer before it leaves, refusals too. This base class keeps nothing.

    ``audit_log.AuditLog`` is the recorder of a site with a folder.
    """

    name = "log"

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        try:
            response = call_next(exchange)
        except QueryRefusedError as refusal:
            response = refused(exchange.request, refusal)
        return replace(response, head=self.record(exchange, response))

    def record(self, exchange: Exchange, response: Response) -> str:
        """Record an answer; returns the head of the log, "" if there is none."""
        return ""

    def record_failure(self, exchange: Exchange, response: Response) -> str:
        """Record a response without an answer, which is not given again: the question is tried again."""
        return ""

    def failed(self, exchange: Exchange, refusal: QueryRefusedError) -> Response:
        """Return the recorded response to a request that failed."""
        response = refused(exchange.request, refusal)
        return replace(response, head=self.record_failure(exchange, response))

    def close(self) -> None:
        """Close the files, if there are any."""


class ChargedAnswers(Step):
    """Give an answer again that was charged to the privacy budget: the same bytes, without a charge.

    An answer is kept under all that it depends on: the run, the request id and the whole request, stages of
    secure sums included. Any other request is charged again.
    """

    name = "charged answers"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        request = exchange.request
        kept = self._ledger.cached_response(request.request_id, request.digest)
        return call_next(exchange) if kept is None else codec.decode(kept, expect=Response)


class StagesStep(Step):
    """Refuse what secure sums do not allow, before anything is computed or charged; mark what they mask.

    Without a ``mask`` it refuses their stages.
    """

    name = "stages"

    def __init__(self, mask: "SiteMask | None", who: str = "site") -> None:
        self._mask, self._who = mask, who

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        request = exchange.request
        if self._mask is not None:
            self._mask.check_request(request)
            for asked in exchange.parts:
                asked.masked = self._mask.is_masked(request, asked.part)
        elif len(exchange.parts) < len(request.parts):
            raise QueryRefusedError(f"this {self._who} does not take part in secure sums")
        return call_next(exchange)


class TransformStep(Step):
    """Choose the rows that every part reads, and apply its transform; those of the last one are kept.

    ``own`` are the rows of the site, or with ``grouped`` groups of people. ``raw`` are the rows behind the
    groups, for masked questions that read raw rows, as long as the ``equations`` allow it. Of these rows a
    question reads the columns and categories that the groups disclose, and by no other transform: one sum
    over all categories of a column would list the rare ones.
    """

    name = "transform"

    def __init__(
        self,
        own: VisibleRows,
        *,
        grouped: bool = False,
        raw: VisibleRows | None = None,
        equations: EquationBudget | None = None,
    ) -> None:
        self._own, self._grouped, self._raw, self._equations = own, grouped, raw, equations
        if raw is not None and isinstance(raw.rows, Table) and isinstance(own.rows, SummaryTable):
            self._raw = raw._replace(rows=only_disclosed(raw.rows, own.rows))
        self._kept: dict[tuple[str, bool], VisibleRows] = {}  # by the digest of the transform, raw or not

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        exact = [one for one in exchange.parts if one.masked and one.part.question.reads == "raw rows"]
        if self._raw is None or (self._equations is not None and not self._equations.allows(exchange, exact)):
            exact = []
        for asked in exchange.parts:
            raw = asked in exact
            asked.visible = self._transformed(asked.part.transform, raw)
            asked.grouped = self._grouped and not raw
        return call_next(exchange)

    def _transformed(self, transform: Transform | None, raw: bool) -> VisibleRows:
        rows = self._raw if raw and self._raw is not None else self._own
        if transform is None:
            return rows
        key = codec.digest(transform), raw
        if key not in self._kept:
            transform.check(self._own.rows)
            transform.check(rows.rows)
            self._kept = {key: VisibleRows(*transform.apply_weighted(*rows))}
        return self._kept[key]


class SuppressionStep(Step):
    """Set the minimum of every part: the site's own, or 1 if its reply can be read only in a sum.

    Answering itself suppresses (protocol/suppression.py): a reply never exists with smaller cells.
    """

    name = "suppression"

    def __init__(self, minimum: float) -> None:
        self._minimum = minimum

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        for asked in exchange.parts:
            asked.minimum = 1.0 if asked.masked else self._minimum
        return call_next(exchange)


class NoiseStep(Step):
    """Charge the privacy budget for the noise of all parts at once: noise exists only after its charge.

    ``accountant`` None: the site does not have a budget.
    """

    name = "noise"

    def __init__(
        self, accountant: Callable[[Request], BudgetAccountant] | None, mask: "SiteMask | None" = None
    ) -> None:
        self._accountant, self._mask = accountant, mask

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        request, private, prices, shares = exchange.request, [], [], []
        for asked in exchange.parts:
            if isinstance(asked.part.question, PrivateQuestion):
                private.append(asked)
                prices.append(asked.part.question.privacy_cost)
                shares.append(1.0 if self._mask is None else self._mask.noise_share(request, asked.part))
        if private:
            if self._accountant is None:
                raise QueryRefusedError("this site does not have a privacy budget")
            noises = self._accountant(request).spend(prices, shares)
            for asked, noise in zip(private, noises, strict=True):
                asked.noise = (noise,)
        return call_next(exchange)


class AnswerStep(Step):
    """Answer every part that is about rows; the mask answers the stages of secure sums.

    With ``checked`` a reply that is not what its question declares is not sent.
    """

    name = "answer"

    def __init__(self, site: SiteId, *, threads: int, checked: bool) -> None:
        self._site, self._threads, self._checked = site, threads, checked
        self._memory: dict[str, dict[str, Any]] = {}  # of questions, by run

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        replies = iter([self._reply(exchange.request.request_id, asked) for asked in exchange.parts])
        exchange.replies = tuple(
            MaskedElsewhere() if part.verb == STAGE else next(replies) for part in exchange.request.parts
        )
        return call_next(exchange)

    def _reply(self, request_id: RequestId, asked: AskedPart) -> Reply:
        part, visible = asked.part, asked.visible
        assert visible is not None
        batch = SiteBatch(
            X=visible.rows,  # type: ignore[arg-type]  # a table, if the question reads one
            offsets=np.array([0, len(visible.rows)]),
            weights=visible.weights,
            seeds=np.array([site_seed(request_id, part.index, self._site)], dtype=np.uint64),
            minimum=asked.minimum,
            noise=asked.noise,
            threads=self._threads,
            memory=(self._remembered(request_id.run),),
            grouped=asked.grouped,
            within=None if visible.within is None else visible.within[None],
            has_missing=reads_missing(part.transform, part.question),
        )
        with np.errstate(all="ignore") if asked.masked else nullcontext():  # a failure would disclose numbers
            reply: Reply = part.question.answer(batch)
        for one in asked.noise:
            one.used()
        if self._checked:
            _check(asked, reply)
        return reply

    def _remembered(self, run: str) -> dict[str, Any]:
        """The memory of questions in a run; only of the latest runs, as it may be as large as the rows."""
        while run not in self._memory and len(self._memory) >= _RUNS:
            del self._memory[next(iter(self._memory))]
        return self._memory.setdefault(run, {})


def _check(asked: AskedPart, reply: Reply) -> None:
    """Refuse to send a reply that is not what its question declares.

    The reason names only the question: a value or a shape would be a number from the rows. Of a masked reply
    only the form is checked, because a refusal would disclose numbers.
    """
    question = asked.part.question
    try:
        question.check_reply(_zeros(reply) if asked.masked and isinstance(reply, Summable) else reply)
    except ReplyError as error:
        name = codec.name_of(type(question))
        raise QueryRefusedError(f"the reply to {name} is not what {name} declares") from error


def _zeros(reply: Summable) -> Summable:
    """A reply of the same form without its numbers."""
    return type(reply)(*(np.zeros_like(getattr(reply, name)) for name in codec.field_names(type(reply))))


class TransactionStep(Step):
    """Keep the state of the mask, the charged answer and the ledger's records together, or none of them."""

    name = "transaction"

    def __init__(self, ledger: Ledger | None, mask: "SiteMask | None") -> None:
        self.ledger, self.mask = ledger, mask

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        try:
            with nullcontext() if self.ledger is None else self.ledger.transaction():
                return call_next(exchange)
        except BaseException:
            if self.mask is not None:
                self.mask.forget()
            raise


class MaskStep(Step):
    """Answer the stages of secure sums, and mask the replies that are only to be summed."""

    name = "mask"

    def __init__(self, mask: "SiteMask") -> None:
        self._mask = mask

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        exchange.replies = self._mask.apply(exchange.request, exchange.replies)
        return call_next(exchange)


class LedgerStep(Step):
    """Record a release before it leaves: the source of the run, its rounds and, with noise, the answer.

    ``limits`` are those on runs and rounds of a site without a privacy budget; a charge counts them itself.
    ``equations`` is the budget of a site whose rows are in secure sums.
    """

    name = "ledger"

    def __init__(
        self,
        ledger: Ledger,
        source: SingleSourceGuard,
        limits: RunLimits | None = None,
        equations: EquationBudget | None = None,
    ) -> None:
        self._ledger, self._source, self._limits = ledger, source, limits
        self._equations = equations

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        response = call_next(exchange)
        if not exchange.parts:
            return response  # stages of secure sums read no rows
        request = exchange.request
        self._source.begin(request.request_id.run)
        if self._limits is not None:
            self._ledger.charge(request.request_id, request.digest, 0.0, self._limits)
        if self._equations is not None:
            self._equations.charge(exchange)
        if any(isinstance(asked.part.question, PrivateQuestion) for asked in exchange.parts):
            self._ledger.keep(request.request_id, request.digest, codec.encode(response))
        return response
