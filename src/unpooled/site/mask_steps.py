"""The steps of secure sums at a site: their rules before the answer, and the mask after it."""

from typing import TYPE_CHECKING

from unpooled.errors import QueryRefusedError
from unpooled.protocol.exchange import Response
from unpooled.site.chain import Exchange, Next, Step

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask


class SecureSumGuard(Step):
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


class MaskStep(Step):
    """Answer the stages of secure sums, and mask the replies that are only to be summed."""

    name = "mask"

    def __init__(self, mask: "SiteMask") -> None:
        self._mask = mask

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        exchange.replies = self._mask.apply(exchange.request, exchange.replies)
        return call_next(exchange)
