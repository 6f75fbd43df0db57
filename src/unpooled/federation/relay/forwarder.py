"""The run below a relay, in the job's process at the region's server: it carries what the relay asks.

It ends when the relay says so, or when no relay has been on the line for a while: then the run above was
given up, or the relay's machine is gone. A relay that comes back asks its last question again, and gets the
answers that came meanwhile.
"""

import contextlib
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.coordinator_run import RUNNING, ProgressFile
from unpooled.federation.relay import ipc
from unpooled.federation.relay.ipc import IpcConnection
from unpooled.federation.retrying_transport import RetryingTransport
from unpooled.protocol.site_id import SiteId
from unpooled.storage.file_locks import locked

LEASE = 60.0  # seconds without a relay on the line after which the run below ends
_LOOK = 0.25
_Frame = tuple[IpcConnection, dict[str, Any] | None, list[bytes]]  # None: the line is gone


class Forwarder:
    """Serves one relay: ``folder`` is that of the run, ``aborted`` is True once the engine ends the job."""

    def __init__(self, folder: Path, aborted: Callable[[], bool]) -> None:
        self._folder, self._aborted = folder, aborted
        self._inbox: queue.SimpleQueue[_Frame] = queue.SimpleQueue()
        self._pending: deque[_Frame] = deque()
        self._lines: set[IpcConnection] = set()
        self._alone = time.monotonic()  # since when no relay is on the line
        self._current_key = ""  # what is being carried now
        self._waiting: list[SiteId] = []  # members where somebody is to approve the study
        self._kept: tuple[str, Mapping[SiteId, bytes | str]] = (
            "",
            {},
        )  # the last answers of all sites

    def stopped(self) -> bool:
        """True if what is being carried now is not wanted any more."""
        while not self._inbox.empty():
            self._sort(self._inbox.get())
        if not self._current_key:
            return self._aborted()
        return self._aborted() or self._given_up() or bool(self._pending)

    def serve(self, transport: RetryingTransport) -> bool:
        """Carry what the relay asks, until it says that it is over; False if it was given up."""
        try:
            with locked(self._folder, 2.0, "the run of a federation above"):
                done = self._served(transport)
                shutil.rmtree(self._folder, ignore_errors=True)  # nothing in it is needed to begin again
                return done
        except InputError:  # a second job of the same run: the first one serves
            return True

    def _served(self, transport: RetryingTransport) -> bool:
        progress = ProgressFile(self._folder)

        def waits(waiting: Mapping[SiteId, float]) -> None:
            progress.record_waiting(waiting)
            self._waiting = sorted(waiting)
            self._tell(ipc.WAITING, {"sites": self._waiting, "key": self._current_key})

        transport.on_wait = waits
        self._alone = time.monotonic()
        with ipc.open_listener(self._folder) as listener:
            threading.Thread(target=self._accept_connections, args=(listener,), daemon=True).start()
            progress.write(RUNNING)
            while not self._aborted() and not self._given_up():
                if not self._pending:
                    with contextlib.suppress(queue.Empty):
                        self._sort(self._inbox.get(timeout=_LOOK))
                    continue
                line, head, parts = self._pending.popleft()
                assert head is not None
                if head["kind"] == ipc.END:
                    return True
                self._carry(transport, line, head, parts)
        return False

    def _given_up(self) -> bool:
        return not self._lines and time.monotonic() - self._alone > LEASE

    def _sort(self, frame: _Frame) -> None:
        """Note who is on the line; what is to be done waits in turn, unless it is being done already."""
        line, head, _ = frame
        if head is None:
            self._lines.discard(line)
            self._alone = time.monotonic()
        elif head["kind"] == ipc.HELLO:
            self._lines.add(line)
        elif head["kind"] != ipc.REQUEST or head["key"] != self._current_key:
            self._pending.append(frame)
        elif self._waiting:  # a relay that is back
            self._tell(ipc.WAITING, {"sites": self._waiting, "key": self._current_key})

    def _carry(
        self, transport: RetryingTransport, line: IpcConnection, head: dict[str, Any], parts: list[bytes]
    ) -> None:
        key = str(head["key"])
        if self._kept[0] != key:
            self._current_key = key
            results = transport.send_and_receive(ipc.unpack_frame(head, parts))
            self._current_key = ""
            if self._pending:  # another question: nobody waits for these any more
                return
            self._kept = (key, results)
        answers = self._kept[1]
        responses = {site: data for site, data in answers.items() if isinstance(data, bytes)}
        words, packed = ipc.pack_frame(responses)
        reasons = {site: why for site, why in answers.items() if isinstance(why, str)}
        if reasons:  # asked again, they are asked again
            self._kept = ("", {})
        self._tell(ipc.ANSWERS, {**words, "reasons": reasons, "key": key}, packed)

    def _tell(self, kind: str, head: dict[str, Any], parts: list[bytes] | None = None) -> None:
        for line in tuple(self._lines):
            with contextlib.suppress(OSError):
                line.send(kind, head, parts or ())

    def _accept_connections(self, listener: Listener) -> None:
        while True:
            try:
                line = IpcConnection(listener.accept())
            except (AuthenticationError, EOFError):
                continue
            except OSError:  # the door is closed
                return
            threading.Thread(target=self._read, args=(line,), daemon=True).start()

    def _read(self, line: IpcConnection) -> None:
        self._inbox.put((line, {"kind": ipc.HELLO}, []))
        try:
            while True:
                self._inbox.put((line, *line.receive()))
        except (EOFError, OSError, ValueError):
            self._inbox.put((line, None, []))
