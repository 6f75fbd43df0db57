"""The coordinator in NVFLARE: a Controller, in the server's job process."""

import base64
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from unpooled.algorithms.registry import import_methods
from unpooled.federation.coordinator_run import AnyTask, ForwardTask, RunTask, coordinate
from unpooled.federation.nvflare.startup_kit import ANSWER, READY, SITE_FILE, TOPIC, own_path
from unpooled.federation.relay.forwarder import Forwarder
from unpooled.federation.retrying_transport import NoAnswer, OnAnswer, RetryingTransport
from unpooled.protocol import codec
from unpooled.protocol.messages import Message
from unpooled.protocol.site_id import SiteId
from unpooled.storage.file_format import format_error


class Coordinator(Controller):
    """Runs a task over aux messages: a request to a site and its reply, without the engine's task polling."""

    def __init__(self, task: str, format: int | None = None, modules: Sequence[str] = ()) -> None:  # noqa: A002
        super().__init__()
        self._task, self._format = task, format
        self._modules = modules  # user modules that define the task's classes

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        if problem := format_error(self._format):
            self.system_panic(f"the job is of {problem}", fl_ctx)
            return
        import_methods(self._modules)
        task: AnyTask = codec.decode(base64.b64decode(self._task), expect=Message)
        engine: Any = fl_ctx.get_engine()
        mailbox = Mailbox(engine)
        home, runs = _places(fl_ctx)
        folder = _run_folder(runs, task)

        def aborted() -> bool:
            return bool(abort_signal.triggered)

        forwarder = Forwarder(folder, aborted) if isinstance(task, ForwardTask) else None
        transport = RetryingTransport(
            task.sites,
            mailbox.send,
            deadline=task.deadline,
            stopped=aborted if forwarder is None else forwarder.stopped,
            approval_timeout=task.approval_timeout,
        )

        def ready(topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
            transport.ready(str(request.get("site")))
            return make_reply(ReturnCode.OK)

        engine.register_aux_message_handler(ANSWER, mailbox.receive)
        engine.register_aux_message_handler(READY, ready)
        if isinstance(task, RunTask):
            done = coordinate(task, transport, folder, home=home)
        else:
            assert forwarder is not None
            done = forwarder.serve(transport)
        if not done:
            self.system_panic("the run did not finish; its folder holds the reason", fl_ctx)

    def process_result_of_unknown_task(self, *args: object, **kwargs: object) -> None:
        """No tasks are sent, so no result is expected."""


def _places(fl_ctx: FLContext) -> tuple[Path, Path]:
    """Return the federation's folder and the parent of its runs, from the server's own settings file.

    A server that another program provisioned has no such file; both are then in its workspace.
    """
    workspace = fl_ctx.get_workspace()
    own = Path(workspace.get_file_path_in_site_config(SITE_FILE))
    if own.exists():
        return own_path(own, "federation").parent, own_path(own, "runs")
    root = Path(workspace.get_root_dir())
    return root, root / "runs"


def _run_folder(runs: Path, task: AnyTask) -> Path:
    """Return the folder of the run; a task names no path."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", task.run):
        raise ValueError("the name of the run has other characters than letters, digits, . _ and -")
    folder = runs / task.run
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Mailbox:
    """Sends requests to sites and receives their responses as separate messages, so no thread waits.

    A response names its request by a correlation id that only the asked site knows, so no site can answer for
    another.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._open: dict[str, tuple[SiteId, OnAnswer]] = {}
        self._last: dict[SiteId, bytes] = {}

    def send(self, site: SiteId, data: bytes, answered: OnAnswer) -> None:
        if self._engine.get_client_from_name(site) is None:
            answered(NoAnswer("was not connected when the run began", retry=False, unreached=True))
            return
        if self._last.get(site) is not data:  # another request: nobody waits for responses to the last one
            self._forget(site)
        self._last[site] = data
        correlation_id = secrets.token_hex(16)
        self._open[correlation_id] = (site, answered)
        with self._engine.new_context() as context:
            self._engine.send_aux_request(
                [site],
                TOPIC,
                Shareable({"payload": data, "correlation_id": correlation_id}),
                0.0,
                context,
                optional=True,
            )

    def receive(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Receive a response; a response to no open request is dropped."""
        site, answered = self._open.pop(str(request.get("correlation_id")), ("", None))
        if answered is not None:
            answered(read_answer(request))
            self._forget(site)  # earlier attempts: a site answers all of them with the same bytes
        return make_reply(ReturnCode.OK)

    def _forget(self, site: SiteId) -> None:
        for correlation_id in [
            correlation_id for correlation_id, (asked, _) in list(self._open.items()) if asked == site
        ]:
            self._open.pop(correlation_id, None)


def read_answer(answer: Shareable) -> bytes | NoAnswer:
    """Return the payload of a site's answer, or the reason why there is none; other fields are ignored."""
    payload, reason, waiting = answer.get("payload"), answer.get("reason"), answer.get("waiting")
    if isinstance(payload, bytes):
        return payload
    if isinstance(reason, str):
        return NoAnswer(reason[:500], retry=False)
    if isinstance(waiting, str):
        return NoAnswer(waiting[:500], waiting=True)
    return NoAnswer("its message was not an answer", retry=False)
