"""The coordinator's console: writes a job folder and submits it to the engine."""

import base64
import contextlib
import dataclasses
import io
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unpooled.errors import EngineError, EngineUnreachableError
from unpooled.federation.coordinator_run import AnyTask
from unpooled.federation.nvflare.presence_file import presence_folder, read_presence
from unpooled.federation.nvflare.startup_kit import CONSOLE_NAME, COORDINATOR, JOB_FILES, RESPONDER
from unpooled.protocol import codec
from unpooled.protocol.messages import Message
from unpooled.site.session import RunTerms
from unpooled.storage.file_format import FORMAT
from unpooled.storage.file_locks import is_locked

_MAX_ATTEMPTS = 3  # to submit a job to a busy server that does not answer
_ACTIVE = ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING")


def write_job(folder: Path, task: AnyTask, terms: RunTerms) -> None:
    """Write a job folder for NVFLARE: names of installed classes, settings, and no code."""
    needed = max(1, math.ceil(task.quorum * len(task.sites)))
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "deploy_map": {"coordinator": ["server"], "site": list(task.sites)},
        "min_clients": needed,
    }
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "run",
                "path": COORDINATOR,
                "args": {"task": _text(task), "format": FORMAT, "modules": _modules(task)},
            }
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    site = {
        "format_version": 2,
        "executors": [
            {
                "tasks": ["*"],
                "executor": {"path": RESPONDER, "args": {"terms": _text(terms), "format": FORMAT}},
            }
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    for name, value in zip(JOB_FILES, (meta, server, site), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _write(folder / name, value)


@contextlib.contextmanager
def submitted_job(
    console: Path, server: Path, job: Path, timeout: float
) -> Iterator[Callable[[], str | None]]:
    """Submit a job folder to the server. Yields a function: the job's end state, None while it runs.

    ``console`` and ``server`` are folders of the same federation, on one machine. A job counts as running
    while the server is too busy to answer.
    """
    session = ConsoleSession(console, server, timeout)
    try:
        job_id = session.submit(job)
        yield lambda: session.end_state(job_id)
    finally:
        session.close()


class ConsoleSession:
    """The console's session with the server; it is opened again if the server has closed it."""

    def __init__(self, console: Path, server: Path, timeout: float) -> None:
        os.environ.update(no_grpc_proxy="localhost")  # the server is on this machine, whatever proxy there is
        self._console, self._server, self._timeout = console, server, timeout
        self._session = self._opened()

    def _opened(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        with contextlib.redirect_stdout(io.StringIO()):  # NVFLARE prints while it connects
            try:
                return new_secure_session(CONSOLE_NAME, str(self._console), timeout=self._timeout)
            except Exception as error:
                raise EngineUnreachableError(f"the server cannot be reached: {error}") from error

    def submit(self, job: Path) -> str:
        """Submit a job folder and return its id. By the token the server recognises a repeated submission."""
        token, attempts = secrets.token_hex(16), 0
        while True:
            try:
                return str(self._session.submit_job(str(job), submit_token=token))
            except ConnectionError as error:
                if (attempts := attempts + 1) == _MAX_ATTEMPTS:
                    raise EngineUnreachableError(f"the server does not answer: {error}") from error
            except Exception as error:
                raise EngineError(f"the server does not accept the job: {error}") from error

    def end_state(self, job_id: str) -> str | None:
        """Return the end state of a job; None while it runs, or while a live server does not answer."""
        from nvflare.fuel.flare_api.api_spec import SessionClosed

        try:
            meta = self._session.get_job_meta(job_id)
        except (ConnectionError, SessionClosed) as error:
            if not is_locked(presence_folder(self._server)):
                return f"the server cannot be asked: {error}"
            if isinstance(error, SessionClosed):  # by a server that was started anew
                self.close()
                with contextlib.suppress(EngineUnreachableError):
                    self._session = self._opened()
            return None
        except Exception as error:
            return f"the server cannot be asked: {error}"
        status = str(meta.get("status"))
        return None if status in _ACTIVE else _describe_end(status, job_id, meta, self._server)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._session.close()


def _describe_end(status: str, job: str, meta: Mapping[str, Any], server: Path) -> str:
    """Return a job's end state, and the reason of each site that did not accept it."""
    details = [str(line) for line in meta.get("job_deploy_detail") or ()]
    failures = [line for line in details if not line.endswith(": OK")]
    failed = read_presence(server).get("failed", {})
    return "; ".join([status, *failures, *([failed[job]] if job in failed else [])])


def _modules(message: object) -> list[str]:
    """Return the user modules that must be imported before a message can be decoded."""
    modules = {type(message).__module__} if isinstance(message, Message) else set()
    if dataclasses.is_dataclass(message):
        message = tuple(getattr(message, name) for name in codec.field_names(type(message)))
    if isinstance(message, tuple):
        modules |= {module for item in message for module in _modules(item)}
    return sorted(module for module in modules if not module.startswith("unpooled."))


def _text(message: object) -> str:
    return base64.b64encode(codec.encode(message)).decode()


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
