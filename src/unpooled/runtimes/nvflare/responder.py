"""A site in NVFLARE: an Executor in the site's job process, and the launcher that restarts that process."""

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, JobConstants, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobHandleSpec
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher

from unpooled.core import codec
from unpooled.core.disk import write_atomically
from unpooled.runtimes.nvflare.coordinator import TOPIC
from unpooled.runtimes.nvflare.startup_kit import SITE_FILE
from unpooled.site.site_process import RunTerms, SiteEnd, SiteSettings

_RESTARTS = 20  # most restarts of one site's process within a job


class Responder(Executor):
    """Answers the coordinator's envelopes through ``SiteEnd``."""

    def __init__(self, terms: str) -> None:
        super().__init__()
        self._terms = terms
        self._end: SiteEnd | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            terms: RunTerms = codec.decode(base64.b64decode(self._terms), expect=RunTerms)
            path = fl_ctx.get_workspace().get_file_path_in_site_config(SITE_FILE)
            self._end = SiteEnd(SiteSettings.read(Path(path)), terms)
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._answer)

    def _answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Answer an envelope. Never raises, since the engine would send the text of the exception."""
        data = request.get("payload")
        reply = make_reply(ReturnCode.OK)
        if not isinstance(data, bytes) or self._end is None:
            reply["reason"] = "not an envelope"
            return reply
        answer = self._end.respond(data)
        reply["payload" if isinstance(answer, bytes) else "reason"] = answer
        return reply

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        return make_reply(ReturnCode.TASK_UNKNOWN)


class TolerantLauncher(ClientProcessJobLauncher):
    """Keeps a job's process alive: the engine would abort the whole job when one site's process dies.

    A process that a signal killed is restarted. The running job is recorded in a file, so that a site that
    was killed as a whole rejoins the same job when it is back.
    """

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        launch = super().launch_job
        note = _note(fl_ctx)
        write_atomically(note, json.dumps(job_meta).encode())
        return _RestartedJob(launch(job_meta, fl_ctx), lambda: launch(job_meta, fl_ctx), note)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.SYSTEM_START and _note(fl_ctx).exists():
            job_meta = json.loads(_note(fl_ctx).read_text())
            engine: Any = fl_ctx.get_engine()
            try:
                engine.start_app(job_meta[JobConstants.JOB_ID], job_meta)
            except Exception as error:  # the job no longer exists, so there is nothing to rejoin
                self.logger.warning("not taken up again: %s", error)
                _note(fl_ctx).unlink(missing_ok=True)


def _note(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT)) / "running.json"


class _RestartedJob(JobHandleSpec):
    """The handle of a job's present process, which may be a restarted one."""

    def __init__(self, handle: Any, launch: Callable[[], Any], note: Path) -> None:
        super().__init__()
        self._handle, self._launch, self._note = handle, launch, note
        self._ended = False
        self._lock = threading.Lock()

    def terminate(self) -> None:
        with self._lock:
            self._ended = True
        self._handle.terminate()

    def poll(self) -> Any:
        return self._handle.poll()

    def wait(self) -> None:
        for _ in range(_RESTARTS):
            self._handle.wait()
            with self._lock:
                code = self._handle.adapter.poll()
                if self._ended or code is None or code >= 0:
                    break
                self._handle = self._launch()
        self._handle.wait()
        self._note.unlink(missing_ok=True)
