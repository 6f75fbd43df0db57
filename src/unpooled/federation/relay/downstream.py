"""The federation below a relay, as the relay's process asks it: over a run that it keeps open.

The run is opened by a process of its own (``opener``) at the first question. If the region's server dies, or
the job there, it is opened again.
"""

import base64
import contextlib
import json
import logging
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unpooled.federation import die_with_parent
from unpooled.federation.coordinator_run import ForwardTask, append_log_heads, last_log_heads
from unpooled.federation.membership import TreeError
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.follow_run import is_followed
from unpooled.federation.provisioning.member_keys import known_members
from unpooled.federation.relay import ipc
from unpooled.federation.relay.ipc import IpcConnection
from unpooled.federation.remote import RemoteFederation
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol import codec
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.site_id import SiteId
from unpooled.site.identity import identity_in
from unpooled.site.session import RunTerms
from unpooled.storage.file_locks import lock_owner

log = logging.getLogger(__name__)

_SUBMIT_MODULE = "unpooled.federation.relay.submit_downstream"
_BRIEFLY = 1.0  # seconds that a question waits for the run below to open, or for members to decide
_AGAIN = 5.0  # seconds after which a run below that did not open is tried again
_PUBLIC_REASONS = {
    "TooFewAnswersError": "too few of its members are connected",
    "EngineUnreachableError": "its server is not up",
}
_OWNER = "relay"  # the file in the run's folder that names the relay which opened it


class NotYet(Exception):  # noqa: N818 neither is an error
    """The federation below cannot answer yet, but will: its run is being opened, or members are to decide."""


class DownstreamUnavailableError(Exception):
    """The run below did not open; the words may be shown above."""


class DownstreamRun:
    """A Carrier to the members of the federation below: a run there that stays open until ``close``.

    ``relay`` is the fingerprint of the relay's key: of the relays of one federation one passes a run on.
    """

    def __init__(
        self, federation: FederationFolder, task: ForwardTask, terms: RunTerms, relay: str, wait: float
    ) -> None:
        self.sites = task.sites
        self._federation, self._task, self._terms, self._wait = federation, task, terms, wait
        self._relay = relay
        self._work = federation.runs / task.run
        self._line: IpcConnection | None = None
        self._current_key = ""  # the question that is under way
        self._waiting = False  # members are to approve the study
        self._opening: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._why, self._failed = "", 0.0  # why it did not open, and when
        self._closed = False

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """The members' answers, or the reasons why there are none. NotYet: ask again, the same way."""
        line = self.opened()
        key = ipc.request_key(requests)
        try:
            if self._current_key != key:
                head, parts = ipc.pack_frame(requests)
                line.send(ipc.REQUEST, {**head, "key": key}, parts)
                self._current_key, self._waiting = key, False
            return self._answers(line, key)
        except (EOFError, OSError, ValueError):
            self._drop()
            raise NotYet("its run below ended, and is being opened again") from None

    def _answers(self, line: IpcConnection, key: str) -> Mapping[SiteId, bytes | str]:
        since = time.monotonic()
        while not self._closed:
            if not line.poll(0.25):
                if self._waiting and time.monotonic() - since > _BRIEFLY:
                    raise NotYet("members below have not approved the study yet")
                continue
            head, parts = line.receive()
            if head.get("key") != key:
                continue  # of an earlier question
            if head["kind"] == ipc.WAITING:
                self._waiting = bool(head["sites"])
                if self._waiting:
                    raise NotYet("members below have not approved the study yet")
            elif head["kind"] == ipc.ANSWERS:
                self._current_key = ""
                reasons = {str(site): str(why) for site, why in head["reasons"].items()}
                return {**ipc.unpack_frame(head, parts), **reasons}
        raise DownstreamUnavailableError("the run is over")

    def opened(self) -> IpcConnection:
        """The line to the run below; NotYet while it is being opened, DownstreamUnavailableError if that failed just now."""
        if self._line is None:
            self._begin()
            until = time.monotonic() + _BRIEFLY
            while self._line is None and self._is_opening() and time.monotonic() < until:
                time.sleep(0.02)
        if self._line is not None:
            return self._line
        if self._is_opening() or not self._why:
            raise NotYet("its run below is being opened")
        raise DownstreamUnavailableError(f"the federation below was not asked: {self._why}")

    def check(self) -> None:
        """Raise TreeError if another process has the run open that is no relay, or another relay."""
        other = lock_owner(self._work)
        if other is None:
            return
        name, owner = self._federation.address.federation, self._work / _OWNER
        if not owner.exists():
            raise TreeError(f"the federation {name} contains itself: its own run {self._task.run} asks it")
        if not self._is_mine(owner):
            raise TreeError(
                f"the federation {name} is reached by two paths: two relays pass this run on to it"
            )

    def _is_mine(self, owner: Path) -> bool:
        return owner.read_text(encoding="utf-8").strip() == self._relay

    def close(self) -> None:
        """End the run below."""
        self._closed = True
        child, line = self._child, self._line
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        owner = self._work / _OWNER
        if line is None and owner.exists() and self._is_mine(owner):
            line = ipc.connect_to_run(self._work)
        if line is None:
            return
        with contextlib.suppress(OSError):
            line.send(ipc.END)
        line.close()

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, self._current_key = None, ""

    def _is_opening(self) -> bool:
        return self._opening is not None and self._opening.is_alive()

    def _begin(self) -> None:
        if self._closed or self._is_opening() or (self._why and time.monotonic() - self._failed < _AGAIN):
            return
        self._opening = threading.Thread(target=self._open, daemon=True)
        self._opening.start()

    def _open(self) -> None:
        """Join the run below if it is open; else open it. The process that does so ends with this thread."""
        self._why = ""
        try:
            self.check()
        except TreeError as error:
            self._why, self._failed = str(error), time.monotonic()
            return
        line = ipc.connect_to_run(self._work)
        if line is None:
            self._why = self._submit_in_subprocess()
            self._failed = time.monotonic()
            line = ipc.connect_to_run(self._work)
        if line is not None and not self._closed:
            self._line, self._why = line, ""
        elif not self._why:
            self._why = "its run ended at once"

    def _submit_in_subprocess(self) -> str:
        """Open the run; why that failed, in words that may be shown, or ""."""
        self._work.mkdir(parents=True, exist_ok=True)
        owner = self._work / _OWNER
        if is_followed(self._work) and not (owner.exists() and self._is_mine(owner)):
            return "another process opens this run of its federation"
        owner.write_text(f"{self._relay}\n", encoding="utf-8")
        arguments = {
            "federation": str(self._federation.path),
            "task": base64.b64encode(codec.encode(self._task)).decode(),
            "terms": base64.b64encode(codec.encode(self._terms)).decode(),
            "wait": self._wait,
        }
        self._child = child = subprocess.Popen(
            die_with_parent.command(_SUBMIT_MODULE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = child.communicate(json.dumps(arguments).encode())
        self._child = None
        if child.returncode == 0:
            return ""
        try:
            failed: dict[str, Any] = json.loads(out)
        except ValueError:
            failed = {"kind": "error", "text": err.decode(errors="replace")[-2000:]}
        log.error("the run below did not open: %s", failed["text"])
        return _PUBLIC_REASONS.get(failed["kind"], "its run did not begin; its own log says why")


class DownstreamFederation(RemoteFederation):
    """The members of a relay between machines. Who they are is said once the run below is open.

    With ``secure`` they sum securely: the relay's process is their coordinator, and has the sum alone.
    """

    def __init__(
        self, federation: FederationFolder, transport: DownstreamRun, secure: SecureSums | None = None
    ) -> None:
        log_heads = federation.log_heads
        keys, federations = known_members(federation)
        super().__init__(
            transport,
            secure=secure,
            exact_sums=secure is None,
            sign=identity_in(federation.path).sign,
            log_heads=last_log_heads(log_heads),
            on_new_heads=lambda new: append_log_heads(log_heads, new),
            keys=keys,
            federations=federations,
        )
        self._downstream_run = transport

    def members(self, request_id: RequestId, ancestors: tuple[str, ...]) -> tuple[str, ...]:
        self._downstream_run.check()
        self._downstream_run.opened()
        return super().members(request_id, ancestors)
