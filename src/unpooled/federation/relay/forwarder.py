"""A relay's downstream run, in the job's process at the relay's own server: it forwards the relay's requests.

The run ends when the relay ends it, or when no relay has been connected for a while: the run above was given
up, or the relay's machine is gone. A relay that comes back repeats its last request, and gets the responses
that came meanwhile.
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
from unpooled.federation.progress_file import RUNNING, ProgressFile
from unpooled.federation.relay import ipc
from unpooled.federation.relay.ipc import IpcConnection
from unpooled.federation.retrying_transport import RetryingTransport
from unpooled.protocol.site_id import SiteId
from unpooled.storage.file_locks import locked

LEASE = 60.0  # seconds without a connected relay after which the downstream run ends
_POLL = 0.25
_Frame = tuple[IpcConnection, dict[str, Any] | None, list[bytes]]  # None: the connection is gone


class Forwarder:
    """Serves one relay: ``folder`` is that of the run, ``aborted`` is True once the engine ends the job."""

    def __init__(self, folder: Path, aborted: Callable[[], bool]) -> None:
        self._folder, self._aborted = folder, aborted
        self._inbox: queue.SimpleQueue[_Frame] = queue.SimpleQueue()
        self._pending: deque[_Frame] = deque()
        self._connections: set[IpcConnection] = set()
        self._alone = time.monotonic()  # since when no relay is connected
        self._current_key = ""  # of the request that is being forwarded now
        self._waiting: list[SiteId] = []  # members where a person must approve the study
        self._last_key = ""  # of the last request that all members answered
        self._last_responses: Mapping[SiteId, bytes | str] = {}

    def stopped(self) -> bool:
        """Return True if the relay does not need the responses to the current request any more."""
        while not self._inbox.empty():
            self._sort(self._inbox.get())
        if not self._current_key:
            return self._aborted()
        return self._aborted() or self._given_up() or bool(self._pending)

    def serve(self, transport: RetryingTransport) -> bool:
        """Forward the relay's requests until it ends the run; return False if the run was given up."""
        try:
            with locked(self._folder, 2.0, "the run of a federation above"):
                done = self._served(transport)
                shutil.rmtree(self._folder, ignore_errors=True)  # nothing in it is needed to begin again
                return done
        except InputError:  # a second job of the same run: the first one serves
            return True

    def _served(self, transport: RetryingTransport) -> bool:
        progress = ProgressFile(self._folder)

        def on_wait(waiting: Mapping[SiteId, float]) -> None:
            progress.record_waiting(waiting)
            self._waiting = sorted(waiting)
            self._send_all(ipc.WAITING, {"sites": self._waiting, "key": self._current_key})

        transport.on_wait = on_wait
        self._alone = time.monotonic()
        with ipc.open_listener(self._folder) as listener:
            threading.Thread(target=self._accept_connections, args=(listener,), daemon=True).start()
            progress.write(RUNNING)
            while not self._aborted() and not self._given_up():
                if not self._pending:
                    with contextlib.suppress(queue.Empty):
                        self._sort(self._inbox.get(timeout=_POLL))
                    continue
                _, head, parts = self._pending.popleft()
                assert head is not None
                if head["kind"] == ipc.END:
                    return True
                self._forward(transport, head, parts)
        return False

    def _given_up(self) -> bool:
        return not self._connections and time.monotonic() - self._alone > LEASE

    def _sort(self, frame: _Frame) -> None:
        """Record who is connected; a request waits its turn, unless it is the current one."""
        connection, head, _ = frame
        if head is None:
            self._connections.discard(connection)
            self._alone = time.monotonic()
        elif head["kind"] == ipc.HELLO:
            self._connections.add(connection)
        elif head["kind"] != ipc.REQUEST or head["key"] != self._current_key:
            self._pending.append(frame)
        elif self._waiting:  # a relay that is back
            self._send_all(ipc.WAITING, {"sites": self._waiting, "key": self._current_key})

    def _forward(self, transport: RetryingTransport, head: dict[str, Any], parts: list[bytes]) -> None:
        key = str(head["key"])
        if self._last_key != key:
            self._current_key = key
            results = transport.send_and_receive(ipc.unpack_frame(head, parts))
            self._current_key = ""
            if self._pending:  # another request: nobody waits for these responses any more
                return
            self._last_key, self._last_responses = key, results
        results = self._last_responses
        fields, packed = ipc.pack_frame({s: data for s, data in results.items() if isinstance(data, bytes)})
        reasons = {site: reason for site, reason in results.items() if isinstance(reason, str)}
        if reasons:  # a repeated request is sent to these members again
            self._last_key, self._last_responses = "", {}
        self._send_all(ipc.ANSWERS, {**fields, "reasons": reasons, "key": key}, packed)

    def _send_all(self, kind: str, head: dict[str, Any], parts: list[bytes] | None = None) -> None:
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):
                connection.send(kind, head, parts or ())

    def _accept_connections(self, listener: Listener) -> None:
        while True:
            try:
                connection = IpcConnection(listener.accept())
            except (AuthenticationError, EOFError):
                continue
            except OSError:  # the listener is closed
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: IpcConnection) -> None:
        self._inbox.put((connection, {"kind": ipc.HELLO}, []))
        try:
            while True:
                self._inbox.put((connection, *connection.receive()))
        except (EOFError, OSError, ValueError):
            self._inbox.put((connection, None, []))
