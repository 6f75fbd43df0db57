"""The coordinator in NVFLARE: a Controller, in the server's job process."""

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from unpooled.algorithms.base import import_methods
from unpooled.core import codec
from unpooled.core.messages import SiteId
from unpooled.runtimes.coordinator_run import RunTask, coordinate
from unpooled.runtimes.delivery import Delivery, NoAnswer
from unpooled.runtimes.nvflare.startup_kit import SITE_FILE

TOPIC = "unpooled.ask"
_REASONS = {
    ReturnCode.TIMEOUT: "late",
    ReturnCode.COMMUNICATION_ERROR: "not reached",
    ReturnCode.TOPIC_UNKNOWN: "not ready",
}


class Coordinator(Controller):
    """Runs a task over aux messages: a request to a site and its reply, without the engine's task polling."""

    def __init__(self, task: str, modules: Sequence[str] = ()) -> None:
        super().__init__()
        self._task, self._modules = task, modules  # user modules that define the task's classes

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        import_methods(self._modules)
        task: RunTask = codec.decode(base64.b64decode(self._task), expect=RunTask)
        engine: Any = fl_ctx.get_engine()

        def send(site: SiteId, data: bytes, timeout: float) -> bytes | NoAnswer:
            if engine.get_client_from_name(site) is None:
                return NoAnswer("was not connected when the run began", again=False)
            with engine.new_context() as context:
                replies = engine.send_aux_request(
                    [site], TOPIC, Shareable({"payload": data}), timeout, context, optional=True
                )
            return opened((replies or {}).get(site))

        courier = Delivery(
            task.sites, send, deadline=task.deadline, stopped=lambda: bool(abort_signal.triggered)
        )
        try:
            done = coordinate(task, courier, self._folder(task, fl_ctx))
        finally:
            courier.close()
        if not done:
            self.system_panic("the run did not finish; its folder says why", fl_ctx)

    def _folder(self, task: RunTask, fl_ctx: FLContext) -> Path:
        """The folder of the run, from the server's own settings file; a task names no path."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", task.run):
            raise ValueError("the name of the run is not one")
        workspace = fl_ctx.get_workspace()
        own = Path(workspace.get_file_path_in_site_config(SITE_FILE))
        runs = json.loads(own.read_text())["runs"] if own.exists() else f"{workspace.get_root_dir()}/runs"
        folder = Path(runs) / task.run
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def process_result_of_unknown_task(self, *args: Any, **kwargs: Any) -> None:
        """No tasks are sent, so no result is expected."""


def opened(reply: Any) -> bytes | NoAnswer:
    """The payload of a site's reply, or the reason why there is none; all other fields are ignored."""
    if reply is None:
        return NoAnswer("not reached")
    code = reply.get_return_code()
    if code != ReturnCode.OK:
        return NoAnswer(_REASONS.get(code, "failed"))
    payload, reason = reply.get("payload"), reply.get("reason")
    if isinstance(payload, bytes):
        return payload
    if isinstance(reason, str):
        return NoAnswer(reason[:500], again=False)
    return NoAnswer("sent something else than an answer", again=False)
