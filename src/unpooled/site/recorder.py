"""The steps that record what leaves a site: every answer, and every failure.

``audit_log.AuditLog`` is the Recorder of a site with a folder.
"""

from dataclasses import replace

from unpooled.errors import QueryRefusedError
from unpooled.protocol.exchange import Response
from unpooled.site.chain import Exchange, Next, Step, refused


class Recorder(Step):
    """The step that records every answer before it leaves, refusals too. This base class keeps nothing."""

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


class FailureStep(Step):
    """Record a refusal by the steps before the replay cache: the same request may be answered later."""

    name = "failures"

    def __init__(self, log: Recorder) -> None:
        self._log = log

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        try:
            return call_next(exchange)
        except QueryRefusedError as refusal:
            return self._log.failed(exchange, refusal)
