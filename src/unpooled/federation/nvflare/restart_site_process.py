"""Restart of a site's process in a job: a signal may kill it, or the whole site may go and come back."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, JobConstants
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.job_launcher_spec import JobHandleSpec
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher

from unpooled.federation.nvflare.launchers import dying_with_parent, job_folders, mark_job_ended, starter
from unpooled.storage.atomic_files import write_atomically

_MAX_RESTARTS = 20  # of one site's process within a job


class RestartingLauncher(ClientProcessJobLauncher):
    """Keeps a job's process alive: the engine would abort the whole job when one site's process dies.

    A process that a signal killed is restarted. The running job is recorded in a file, so that a site that
    was killed as a whole rejoins the same job when it is back. The engine sends every site the names of all
    others and of the run: they are removed from its files before the job's process starts.
    """

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        return dying_with_parent(super().get_command(job_meta, fl_ctx))

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        start = super().launch_job

        def launch() -> Any:
            return starter.submit(start, job_meta, fl_ctx).result()

        _without_names(job_meta, str(fl_ctx.get_identity_name()))
        workspace: Any = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        record = _job_record(fl_ctx)
        for path in (Path(workspace.get_job_meta_path(job_meta[JobConstants.JOB_ID])), record):
            write_atomically(path, json.dumps(job_meta).encode())
        return _RestartedJob(launch(), launch, record)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        super().handle_event(event_type, fl_ctx)
        home = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT) or "")
        if event_type == EventType.JOB_COMPLETED:
            mark_job_ended(home / str(fl_ctx.get_prop(FLContextKey.CURRENT_JOB_ID)))
        if event_type == EventType.SYSTEM_START:
            running = json.loads(_job_record(fl_ctx).read_text()) if _job_record(fl_ctx).exists() else {}
            for folder in job_folders(home):  # left by an engine that was killed
                if folder.name != running.get(JobConstants.JOB_ID):
                    mark_job_ended(folder)
        if event_type == EventType.SYSTEM_START and _job_record(fl_ctx).exists():
            job_meta = json.loads(_job_record(fl_ctx).read_text())
            engine: Any = fl_ctx.get_engine()
            try:
                engine.start_app(job_meta[JobConstants.JOB_ID], job_meta)
            except Exception as error:  # the job no longer exists, so there is nothing to rejoin
                self.logger.warning("the job is not rejoined: %s", error)
                _job_record(fl_ctx).unlink(missing_ok=True)


class _RestartedJob(JobHandleSpec):
    """The handle of a job's present process, which may be a restarted one."""

    def __init__(self, handle: Any, launch: Callable[[], Any], record: Path) -> None:
        super().__init__()
        self._handle, self._launch, self._record = handle, launch, record
        self._ended = False
        self._lock = threading.Lock()

    def terminate(self) -> None:
        with self._lock:
            self._ended = True
            handle = self._handle
        handle.terminate()

    def poll(self) -> Any:
        return self._handle.poll()

    def wait(self) -> None:
        for _ in range(_MAX_RESTARTS):
            self._handle.wait()
            with self._lock:
                code = self._handle.adapter.poll()
                if self._ended or code is None or code >= 0:
                    break
                self._handle = self._launch()
        self._handle.wait()
        self._record.unlink(missing_ok=True)


def _job_record(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT)) / "running.json"


def _without_names(job_meta: dict[str, Any], site: str) -> None:
    """Remove the other sites and the run's name from a job's description; the engine needs its own only."""
    clients = job_meta.get(JobMetaKey.JOB_CLIENTS.value) or []
    job_meta[JobMetaKey.JOB_CLIENTS.value] = [client for client in clients if client.get("name") == site]
    job_meta[JobMetaKey.DEPLOY_MAP.value] = {"app": [site]}
    for key in (JobMetaKey.JOB_NAME.value, JobMetaKey.JOB_FOLDER_NAME.value):
        if key in job_meta:
            job_meta[key] = "run"
