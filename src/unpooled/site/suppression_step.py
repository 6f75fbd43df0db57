"""The step that sets the smallest cell that a site discloses.

Suppression itself is part of answering (protocol/suppression.py): a reply never exists with smaller cells.
"""

from unpooled.protocol.exchange import Response
from unpooled.site.chain import Exchange, Next, Step


class SuppressionStep(Step):
    """Set the minimum of every part: the site's own, or 1 if its reply can be read only in a sum."""

    name = "suppression"

    def __init__(self, minimum: float) -> None:
        self._minimum = minimum

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        for asked in exchange.parts:
            asked.minimum = 1.0 if asked.masked else self._minimum
        return call_next(exchange)
