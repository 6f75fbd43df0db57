"""The steps of the ledger: charged answers are given again, and a release is recorded before it leaves."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from unpooled.privacy import PrivateQuestion
from unpooled.protocol import codec
from unpooled.protocol.exchange import Response
from unpooled.site.chain import Exchange, Next, Step
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.request_digest import request_digest
from unpooled.site.single_source_guard import SingleSourceGuard

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask


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
        kept = self._ledger.cached_response(request.request_id, request_digest(request))
        return call_next(exchange) if kept is None else codec.decode(kept, expect=Response)


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


class LedgerStep(Step):
    """Record a release before it leaves: the source of the run, its rounds and, with noise, the answer.

    ``limits`` are those on runs and rounds of a site without a privacy budget; a charge counts them itself.
    """

    name = "ledger"

    def __init__(self, ledger: Ledger, source: SingleSourceGuard, limits: RunLimits | None = None) -> None:
        self._ledger, self._source, self._limits = ledger, source, limits

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        response = call_next(exchange)
        if not exchange.parts:
            return response  # stages of secure sums read no rows
        request = exchange.request
        self._source.begin(request.request_id.run)
        if self._limits is not None:
            self._ledger.charge(request.request_id, request_digest(request), 0.0, self._limits)
        if any(isinstance(asked.part.question, PrivateQuestion) for asked in exchange.parts):
            self._ledger.keep(request.request_id, request_digest(request), codec.encode(response))
        return response
