"""A site in NVFLARE, or a relay in its place: an Executor in the site's job process."""

import base64
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode, SiteType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from unpooled.federation.member_session import open_session
from unpooled.federation.nvflare.startup_kit import ANSWER, READY, SITE_FILE, TOPIC
from unpooled.protocol import codec
from unpooled.site.endpoint import PendingDecision
from unpooled.site.session import RunTerms, SiteSession
from unpooled.storage.file_format import format_error


class Responder(Executor):
    """Answers the coordinator's requests through ``SiteSession``."""

    def __init__(self, terms: str, format: int | None = None) -> None:  # noqa: A002
        super().__init__()
        self._terms, self._format = terms, format
        self._session: SiteSession | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            engine: Any = fl_ctx.get_engine()
            if format_error(self._format):
                engine.register_aux_message_handler(TOPIC, self._answer)
                return
            terms: RunTerms = codec.decode(base64.b64decode(self._terms), expect=RunTerms)
            path = fl_ctx.get_workspace().get_file_path_in_site_config(SITE_FILE)
            self._session = open_session(Path(path), terms)
            engine.register_aux_message_handler(TOPIC, self._answer)
            self._send(READY, Shareable({"site": self._session.site}), engine)
        elif event_type in (EventType.ABOUT_TO_END_RUN, EventType.END_RUN) and self._session is not None:
            self._session.close()  # the process may end late; the site's log is released at once

    def _answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Answer a request. Never raises, because the engine would send the text of the exception."""
        data, correlation_id = request.get("payload"), request.get("correlation_id")
        if not isinstance(data, bytes) or not isinstance(correlation_id, str):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        answer: bytes | str = f"the job is of {format_error(self._format)}"
        if self._session is not None:
            answer = self._session.respond(data)
        if isinstance(answer, bytes):
            content: dict[str, bytes | str] = {"payload": answer}
        else:
            content = {"waiting" if isinstance(answer, PendingDecision) else "reason": str(answer)}
        self._send(ANSWER, Shareable({**content, "correlation_id": correlation_id}), fl_ctx.get_engine())
        return make_reply(ReturnCode.OK)

    def _send(self, topic: str, message: Shareable, engine: Any) -> None:
        with engine.new_context() as context:
            engine.send_aux_request([SiteType.SERVER], topic, message, 0.0, context, optional=True)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        return make_reply(ReturnCode.TASK_UNKNOWN)
