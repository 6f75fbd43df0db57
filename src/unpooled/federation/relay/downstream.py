"""A relay's own federation, as the relay's process asks it: over a downstream run that it keeps open.

A process of its own (``submit_downstream``) opens the run at the first question. If the relay's server dies,
or the job there, the relay opens the run again.
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
from unpooled.federation.coordinator_run import ForwardTask
from unpooled.federation.log_heads import append_log_heads, last_log_heads
from unpooled.federation.member_tree import TreeError
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.follow_run import is_followed
from unpooled.federation.provisioning.member_keys import known_members
from unpooled.federation.relay import ipc
from unpooled.federation.relay.ipc import IpcConnection
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol import codec
from unpooled.protocol.exchange import RequestId, Transport
from unpooled.protocol.site_id import SiteId
from unpooled.site.endpoint import NoAnswerError, NotYet
from unpooled.site.identity import identity_in
from unpooled.site.session import RunTerms
from unpooled.storage.file_locks import lock_owner

log = logging.getLogger(__name__)

_SUBMIT_MODULE = "unpooled.federation.relay.submit_downstream"
_SHORT_WAIT = 1.0  # seconds that a question waits for the downstream run to open, or for members to decide
_RETRY_AFTER = 5.0  # seconds after which a downstream run that did not open is opened again
_PUBLIC_REASONS = {
    "TooFewAnswersError": "too few of its members are connected",
    "EngineUnreachableError": "its server is not up",
}
_OWNER = "relay"  # the file in the run's folder that names the relay which opened it


class DownstreamUnavailableError(NoAnswerError):
    """The downstream run did not open; the message may be disclosed to the federation above."""


class DownstreamRun(Transport):
    """The Transport to the members of a relay: a run of its federation that stays open until ``close``.

    ``relay`` is the fingerprint of the relay's key: only one relay of a federation may pass a run on.
    """

    def __init__(
        self, federation: FederationFolder, task: ForwardTask, terms: RunTerms, relay: str, wait: float
    ) -> None:
        self.sites = task.sites
        self._federation, self._task, self._terms, self._wait = federation, task, terms, wait
        self._relay = relay
        self._work = federation.runs / task.run
        self._connection: IpcConnection | None = None
        self._current_key = ""  # of the request that is under way
        self._waiting = False  # members must approve the study
        self._opening: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._reason, self._failed = "", 0.0  # why it did not open, and when
        self._closed = False

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """Return the members' responses, or the reasons why there are none.

        Raises NotYet if the same request must be sent again later.
        """
        connection = self.opened()
        key = ipc.request_key(requests)
        try:
            if self._current_key != key:
                head, parts = ipc.pack_frame(requests)
                connection.send(ipc.REQUEST, {**head, "key": key}, parts)
                self._current_key, self._waiting = key, False
            return self._responses(connection, key)
        except (EOFError, OSError, ValueError):
            self._drop()
            raise NotYet("its downstream run ended, and is being opened again") from None

    def _responses(self, connection: IpcConnection, key: str) -> Mapping[SiteId, bytes | str]:
        since = time.monotonic()
        while not self._closed:
            if not connection.poll(0.25):
                if self._waiting and time.monotonic() - since > _SHORT_WAIT:
                    raise NotYet("its members have not approved the study yet")
                continue
            head, parts = connection.receive()
            if head.get("key") != key:
                continue  # of an earlier request
            if head["kind"] == ipc.WAITING:
                self._waiting = bool(head["sites"])
                if self._waiting:
                    raise NotYet("its members have not approved the study yet")
            elif head["kind"] == ipc.ANSWERS:
                self._current_key = ""
                reasons = {str(site): str(reason) for site, reason in head["reasons"].items()}
                return {**ipc.unpack_frame(head, parts), **reasons}
        raise DownstreamUnavailableError("the run is over")

    def opened(self) -> IpcConnection:
        """Return the connection to the downstream run.

        Raises NotYet while the run is being opened, DownstreamUnavailableError if that failed just now.
        """
        if self._connection is None:
            self._begin()
            until = time.monotonic() + _SHORT_WAIT
            while self._connection is None and self._is_opening() and time.monotonic() < until:
                time.sleep(0.02)
        if self._connection is not None:
            return self._connection
        if self._is_opening() or not self._reason:
            raise NotYet("its downstream run is being opened")
        raise DownstreamUnavailableError(f"its members were not asked: {self._reason}")

    def check(self) -> None:
        """Raise TreeError if a process that is not a relay, or another relay, has the run open."""
        if lock_owner(self._work) is None:
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
        """End the downstream run."""
        self._closed = True
        child, connection = self._child, self._connection
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        owner = self._work / _OWNER
        if connection is None and owner.exists() and self._is_mine(owner):
            connection = ipc.connect_to_run(self._work)
        if connection is None:
            return
        with contextlib.suppress(OSError):
            connection.send(ipc.END)
        connection.close()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._current_key = None, ""

    def _is_opening(self) -> bool:
        return self._opening is not None and self._opening.is_alive()

    def _begin(self) -> None:
        failed_recently = self._reason and time.monotonic() - self._failed < _RETRY_AFTER
        if self._closed or self._is_opening() or failed_recently:
            return
        self._opening = threading.Thread(target=self._open, daemon=True)
        self._opening.start()

    def _open(self) -> None:
        """Connect to the downstream run, or open it. The process that opens it ends with this thread."""
        self._reason = ""
        try:
            self.check()
        except TreeError as error:
            self._reason, self._failed = str(error), time.monotonic()
            return
        connection = ipc.connect_to_run(self._work)
        if connection is None:
            self._reason = self._submit_in_subprocess()
            self._failed = time.monotonic()
            connection = ipc.connect_to_run(self._work)
        if connection is not None and not self._closed:
            self._connection, self._reason = connection, ""
        elif not self._reason:
            self._reason = "its run ended at once"

    def _submit_in_subprocess(self) -> str:
        """Open the run; return "", or a reason that may be disclosed if that failed."""
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
        log.error("the downstream run did not open: %s", failed["text"])
        return _PUBLIC_REASONS.get(failed["kind"], "its run did not begin; its own log has the reason")


class DownstreamFederation(TransportFederation):
    """The members of a relay between machines. It reports their keys once the downstream run is open.

    With ``secure`` the members sum securely: the relay's process is their coordinator, and reads only the
    sum.
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
