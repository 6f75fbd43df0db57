"""The coordinator's console: writes a job folder and submits it to the engine."""

import base64
import contextlib
import dataclasses
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unpooled.core import codec
from unpooled.core.messages import Message
from unpooled.errors import EngineFailed, EngineGone
from unpooled.runtimes.coordinator_run import RunTask
from unpooled.runtimes.nvflare.startup_kit import CONSOLE_NAME, COORDINATOR, RESPONDER
from unpooled.site.site_process import RunTerms

JOB_FILES = ("meta.json", "app/config/config_fed_server.json", "app/config/config_fed_client.json")


def write_job(folder: Path, task: RunTask, terms: RunTerms) -> None:
    """Write a job folder for NVFLARE: names of installed classes, settings, and no code."""
    (folder / "app" / "config").mkdir(parents=True)
    needed = max(1, math.ceil(task.quorum * len(task.sites)))
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "deploy_map": {"app": ["server", *task.sites]},
        "min_clients": needed,
    }
    server = {
        "format_version": 2,
        "workflows": [
            {"id": "run", "path": COORDINATOR, "args": {"task": _text(task), "modules": _modules(task)}}
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    site = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": {"path": RESPONDER, "args": {"terms": _text(terms)}}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    for name, value in zip(JOB_FILES, (meta, server, site), strict=True):
        _write(folder / name, value)


@contextlib.contextmanager
def submitted(console: Path, job: Path, timeout: float) -> Iterator[Callable[[], str | None]]:
    """Submit a job folder to the server. Yields a function: the job's end state, None while it runs."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    with contextlib.redirect_stdout(io.StringIO()):  # NVFLARE prints while it connects
        try:
            session = new_secure_session(CONSOLE_NAME, str(console), timeout=timeout)
        except Exception as error:
            raise EngineGone(f"the server cannot be reached: {error}") from error
    try:
        try:
            job_id = session.submit_job(str(job))
        except Exception as error:
            raise EngineFailed(f"the server does not take the job: {error}") from error

        def ended() -> str | None:
            try:
                status = str(session.get_job_meta(job_id).get("status"))
            except Exception as error:
                return f"the server cannot be asked: {error}"
            return None if status in ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING") else status

        yield ended
    finally:
        with contextlib.suppress(Exception):
            session.close()


def _modules(message: Any) -> list[str]:
    """User modules that must be imported before a message can be decoded."""
    found = {type(message).__module__} if isinstance(message, Message) else set()
    if dataclasses.is_dataclass(message):
        message = tuple(getattr(message, name) for name in codec.field_names(type(message)))
    if isinstance(message, tuple):
        found |= {module for item in message for module in _modules(item)}
    return sorted(module for module in found if not module.startswith("unpooled."))


def _text(message: Any) -> str:
    return base64.b64encode(codec.encode(message)).decode()


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
