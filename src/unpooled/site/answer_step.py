"""The step that computes the replies of a site from the rows that its questions read."""

from contextlib import nullcontext
from typing import Any

import numpy as np

from unpooled.errors import QueryRefusedError, ReplyError
from unpooled.protocol import codec
from unpooled.protocol.algorithm import reads_missing
from unpooled.protocol.exchange import STAGE, RequestId, Response, site_seed
from unpooled.protocol.messages import MaskedElsewhere, Reply, SiteId, Summable
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.chain import AskedPart, Exchange, Next, Step

_RUNS = 16  # the latest runs, whose memory is kept


class AnswerStep(Step):
    """Answer every part that is about rows; the mask answers the stages of secure sums.

    With ``checked`` a reply that is not what its question declares is not sent. With ``grouped`` the rows are
    groups of people.
    """

    name = "answer"

    def __init__(self, site: SiteId, *, grouped: bool, threads: int, checked: bool) -> None:
        self._site, self._grouped, self._threads, self._checked = site, grouped, threads, checked
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
            grouped=self._grouped,
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
