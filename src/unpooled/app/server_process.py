"""The process of a federation's server: it listens, keeps the engine's server alive, and logs.

It lives as long as the federation is served, so it does not import arrays.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unpooled.app.event_log import EventLog
from unpooled.app.lasting_process import call
from unpooled.errors import InputError
from unpooled.federation.progress_file import RUNNING, ProgressFile
from unpooled.federation.provisioning import ingress
from unpooled.federation.provisioning.enrolment import awaiting_admission, enrol
from unpooled.federation.provisioning.enrolment_wire import server_context
from unpooled.federation.provisioning.federation_folder import FederationFolder, connected_sites
from unpooled.federation.provisioning.supervisor import supervise
from unpooled.federation.run_history import FAILED, event_text, read_events
from unpooled.storage.file_locks import is_locked


def main(folder: str, listen: list[str] | None, log: dict[str, Any]) -> None:
    """Run the server of a federation until SIGTERM or SIGINT; ``log``: the values of the EventLog."""
    served = FederationFolder.read(Path(folder))
    events = EventLog(served.address.federation, **log)
    ingress.raise_open_file_limit()
    at, engine = served.address, served.engine
    addresses = listen or ingress.local_addresses(at.host)
    context = server_context(*map(str, engine.server_identity(served.server)))

    @contextlib.contextmanager
    def opened() -> Iterator[None]:
        """Open the ingress and the engine behind it, once this process is the only one that serves."""
        with (
            ingress.reserved_port() as port,
            ingress.Ingress(
                addresses,
                at.port,
                port,
                context,
                lambda request: enrol(FederationFolder.read(served.path), request),
            ),
        ):
            engine.listen_at(served.server, served.console, at, port)
            events(f"serving {at.federation} at {', '.join(addresses)}, port {at.port}; Ctrl-C stops it")
            if ingress.is_unreachable(at.host, addresses):
                events.warn(
                    f"{at.host} is {', '.join(addresses)} here, which no other machine reaches. Set "
                    "the address to listen at with --listen ADDRESS."
                )
            yield

    command = engine.server_command(served.server, at)
    supervise(command, served.server, events, ServerEvents(served.path, events), within=opened())


class ServerEvents:
    """Logs which sites connected, disconnected or asked to be admitted since the last call, and the runs."""

    def __init__(self, path: Path, log: EventLog) -> None:
        self._path, self._log = path, log
        _, self._read = read_events(path)  # the runs before this server are in the history
        self._served = FederationFolder.read(path)
        self._asked: dict[str, str] = {}
        self._connected: tuple[str, ...] = ()
        self._refused: set[str] = set()
        self._up = False
        self._problem = ""  # logged last
        self._reached: dict[str, Any] = {}  # by run: the round and the sites waited for that were logged last

    def __call__(self) -> None:
        self._log_runs()
        if self._log.verbose:
            self._log_progress()
        problem = ""
        try:
            self._read_requests()
        except InputError as error:  # e.g. half saved by hand
            problem = f"{error}; the earlier contents count until it can be read again"
        connected = connected_sites(self._served)
        self._log_once(problem or self._served.engine.server_problem(self._served.server))
        if connected is None:
            self._up = False
            return
        if not self._up:
            self._log("the server is up")
            self._up = True
        for name in self._served.engine.refused_names(self._served.server):
            if name not in self._refused:
                self._refused.add(name)
                self._log.warn(f"refused: {name} has a certificate, but is not a site of this federation")
        for site in sorted(set(connected) ^ set(self._connected)):
            change = "connected" if site in connected else "disconnected"
            self._log(f"{site} {change} ({len(connected)} of {len(self._served.sites)})")
        self._connected = connected

    def _log_once(self, problem: str) -> None:
        if problem != self._problem:
            if problem:
                self._log.warn(problem)
            else:
                self._log("all is well again")
        self._problem = problem

    def _log_runs(self) -> None:
        events, self._read = read_events(self._path, self._read)
        for event in events:
            level = logging.WARNING if event["event"] == FAILED else logging.INFO
            self._log(event_text(event), level=level, run=event["run"])

    def _log_progress(self) -> None:
        for folder in filter(is_locked, self._served.runs.iterdir()):
            progress = ProgressFile(folder).read()
            record, waiting = progress.get("record"), sorted(progress.get("waiting", ()))
            reached = (record and record["round"], waiting)
            if progress["state"] != RUNNING or self._reached.get(folder.name) == reached:
                continue
            self._reached[folder.name] = reached
            if waiting:
                text = f"run {folder.name} waits for {', '.join(waiting)} to approve the study"
                self._log.detail(text, run=folder.name)
            elif record:
                answered, asked = len(record["sent"]), len(record["sent"]) + len(record["silent"])
                sent = sum(size for _, size in record["sent"].values())
                text = f"round {record['round']}; {answered} of {asked} sites answered, {sent:,} bytes"
                self._log.detail(f"run {folder.name}: {text}", run=folder.name)

    def _read_requests(self) -> None:
        self._served = FederationFolder.read(self._path)  # sites may have been added
        asked = awaiting_admission(self._served)
        for site in sorted(asked.keys() - self._asked.keys()):
            self._log(f"{site} asks to be admitted: unpooled federation admit {self._path}")
        self._asked = asked


if __name__ == "__main__":
    call(main)
