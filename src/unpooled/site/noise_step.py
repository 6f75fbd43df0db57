"""The step that charges the privacy budget: the noise of an answer exists only after its charge."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from unpooled.errors import QueryRefusedError
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.dp.noise import BudgetAccountant
from unpooled.protocol.exchange import Request, Response
from unpooled.site.chain import Exchange, Next, Step

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask


class NoiseStep(Step):
    """Charge the noise of all parts at once. ``accountant`` None: the site does not have a budget."""

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
