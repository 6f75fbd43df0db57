"""The replay cache: a repeated request gets the same response, and nothing is computed again."""

from collections.abc import Mapping

from unpooled.protocol.exchange import RequestId, Response
from unpooled.site.chain import Exchange, Next, Step
from unpooled.site.request_digest import request_digest

Answers = Mapping[tuple[RequestId, str], Response]  # by id and digest of the request


class ReplayCache(Step):
    """The responses of the latest round. ``answered`` are those in the log of a site that was restarted."""

    name = "replay cache"

    def __init__(self, answered: Answers | None = None) -> None:
        self._answered = dict(answered or {})

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        request = exchange.request
        key = (request.request_id, request_digest(request))
        if key not in self._answered:
            response = call_next(exchange)
            now = (request.request_id.run, request.request_id.round)
            self._answered = {k: v for k, v in self._answered.items() if (k[0].run, k[0].round) == now}
            self._answered[key] = response
        return self._answered[key]
