"""The step that prepares the rows that each question reads."""

from unpooled.protocol.algorithm import Transform
from unpooled.protocol.exchange import Response
from unpooled.site.chain import Exchange, Next, Step, VisibleRows
from unpooled.site.request_digest import digest


class TransformStep(Step):
    """Apply the transform of every part; the rows of the last one are kept, because a run uses one."""

    name = "transform"

    def __init__(self, own: VisibleRows) -> None:
        self._own = own
        self._kept: dict[str, VisibleRows] = {}  # by the digest of the transform

    def __call__(self, exchange: Exchange, call_next: Next) -> Response:
        for asked in exchange.parts:
            asked.visible = self._transformed(asked.part.transform)
        return call_next(exchange)

    def _transformed(self, transform: Transform | None) -> VisibleRows:
        if transform is None:
            return self._own
        key = digest(transform)
        if key not in self._kept:
            transform.check(self._own.rows)
            self._kept = {key: VisibleRows(*transform.apply_weighted(*self._own))}
        return self._kept[key]
