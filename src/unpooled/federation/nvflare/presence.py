"""Records of connections, which server and sites write for other processes (see ``presence_file``)."""

import contextlib
import json
import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import IO, Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated
from nvflare.fuel.sec.audit import AuditService
from nvflare.private.defs import ClientType

from unpooled.federation.nvflare import heartbeat
from unpooled.federation.nvflare.launchers import job_folders, mark_job_ended
from unpooled.federation.nvflare.presence_file import PRESENCE_FILE, presence_folder
from unpooled.federation.nvflare.startup_kit import SITE_FILE, own_path
from unpooled.federation.ports import listens
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_locks import locked

_KEPT_JOBS = 20  # records of ended jobs that the engine's store keeps


class Presence(FLComponent):
    """Admits the sites of the federation and no others, even with a valid certificate.

    As soon as this process listens at the server's port, it writes ``connected.json`` in the server's folder:
    when each site made contact last, who was refused when, and why jobs did not start. It also removes the
    engine's records of old jobs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._refused: dict[str, float] = {}
        self._sites: tuple[str, ...] = ()  # as last read from the federation's file
        self._failures = _Failures()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            root = Path(fl_ctx.get_workspace().get_root_dir())
            home = presence_folder(root)
            home.mkdir(exist_ok=True)
            (home / PRESENCE_FILE).unlink(missing_ok=True)  # left by an earlier server
            for folder in job_folders(root):
                mark_job_ended(folder)
            logging.getLogger().addHandler(self._failures)
            _audit_despite_full_disk()
            threading.Thread(target=self._watch, args=(fl_ctx.get_engine(), home), daemon=True).start()
        elif event_type == EventType.CLIENT_REGISTER_RECEIVED:
            self._admit(fl_ctx)
        elif event_type in (EventType.JOB_COMPLETED, EventType.JOB_ABORTED):
            _forget_old_jobs(fl_ctx)

    def _admit(self, fl_ctx: FLContext) -> None:
        own = Path(fl_ctx.get_workspace().get_file_path_in_site_config(SITE_FILE))
        peer = fl_ctx.get_peer_context()
        if fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) != ClientType.REGULAR or peer is None:
            return
        if not own.exists():  # a server that unpooled did not set up: its own rules apply
            return
        federation = own_path(own, "federation")
        name = str(peer.get_identity_name())
        try:
            self._sites = tuple(json.loads(federation.read_text())["sites"])
        except (OSError, ValueError, KeyError) as error:  # being edited by hand: the last known sites count
            self.logger.error("%s cannot be read: %s", federation, error)
        if name not in self._sites:
            self._refused[name[:100]] = time.time()
            raise NotAuthenticated(f"{name[:100]!r} is not a site of this federation")

    def _watch(self, engine: Any, home: Path) -> None:
        port = _port(home.parent)
        while not listens(os.getpid(), port):  # the engine goes on without a port if it gets none
            time.sleep(0.1)
        while True:  # on a full disk nothing is recorded until there is space again
            with contextlib.suppress(OSError), locked(home, what="the server"):  # the lock shows that it runs
                while True:
                    self._record(engine, home)
                    time.sleep(heartbeat.SERVER_INTERVAL)
            time.sleep(heartbeat.SERVER_INTERVAL)

    def _record(self, engine: Any, home: Path) -> None:
        _, linked = engine.get_cell().get_sub_cell_names()  # by open connections
        clients = [client for client in engine.get_clients() if client.name in linked]
        seen = {client.name: client.last_connect_time for client in clients}
        record = {"sites": seen, "refused": dict(self._refused), "failed": self._failures.latest()}
        with contextlib.suppress(OSError):
            write_atomically(home / PRESENCE_FILE, json.dumps(record).encode())


def _port(server: Path) -> int:
    settings = json.loads((server / "startup" / "fed_server.json").read_text())
    return int(settings["servers"][0]["service"]["target"].rpartition(":")[2])


class _Failures(logging.Handler):
    """Reads in the engine's log why a job did not start, because the engine reports it nowhere else."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._known: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        match = re.search(r"Failed to run the Job \(([0-9a-f-]{36})\): (.*)", record.getMessage(), re.DOTALL)
        if match:
            text = re.sub(r" ?\([0-9a-f-]{36}\)|NVFLARE_ERROR: ", "", " ".join(match[2].split()))
            self._known[match[1]] = text[:500]

    def latest(self) -> dict[str, str]:
        return dict(list(self._known.items())[-_KEPT_JOBS:])


def _forget_old_jobs(fl_ctx: FLContext) -> None:
    """Delete all but the latest jobs that have ended from the engine's store."""
    engine: Any = fl_ctx.get_engine()
    manager = engine.get_component(SystemComponents.JOB_MANAGER)
    running = set(engine.run_processes)
    jobs = sorted(manager.get_all_jobs(fl_ctx), key=lambda job: str(job.meta.get("submit_time")))
    for job in [job for job in jobs if job.job_id not in running][:-_KEPT_JOBS]:
        manager.delete(job.job_id, fl_ctx)


class SitePresence(FLComponent):
    """Writes ``connected.json`` in a site's folder: the time of its last contact with the server.

    On a full disk the engine, here and at the server, fails to write its own audit file and then answers
    nothing at all. So lines of that file are dropped when the disk is full. Everything that leaves the site
    is in the site's own log.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            _audit_despite_full_disk()
        registered = event_type == EventType.AFTER_CLIENT_REGISTER and fl_ctx.get_prop(
            FLContextKey.CLIENT_TOKEN
        )
        if registered or event_type == EventType.AFTER_CLIENT_HEARTBEAT:
            path = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT)) / PRESENCE_FILE
            with contextlib.suppress(OSError):
                write_atomically(path, json.dumps({"time": time.time()}).encode())


def _audit_despite_full_disk() -> None:
    auditor: Any = AuditService.get_auditor()
    if auditor is not None:
        auditor.audit_file = _LossyFile(auditor.audit_file)


class _LossyFile:
    """A file whose lines are dropped when the disk is full."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        try:
            with open(self._file.name, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            logging.getLogger(__name__).error("a line of the audit file could not be written: %s", error)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()
