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

from unpooled.core import codec
from unpooled.core.disk import holder
from unpooled.core.exchange import Turn
from unpooled.core.site_id import SiteId
from unpooled.privacy.secure_sum import SecureSums
from unpooled.runtimes import tied
from unpooled.runtimes.coordinator_run import PassingTask, keep_heads, kept_heads
from unpooled.runtimes.membership import BadTree
from unpooled.runtimes.provisioning.federation_folder import FederationFolder
from unpooled.runtimes.provisioning.follow_run import is_followed
from unpooled.runtimes.provisioning.members import members_of
from unpooled.runtimes.region import local_line
from unpooled.runtimes.region.local_line import LocalLine
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site.identity import identity_in
from unpooled.site.site_process import RunTerms

log = logging.getLogger(__name__)

_OPENER = "unpooled.runtimes.region.opener"
_BRIEFLY = 1.0  # seconds that a question waits for the run below to open, or for members to decide
_AGAIN = 5.0  # seconds after which a run below that did not open is tried again
_SHOWN = {"TooFewAnswers": "too few of its members are connected", "EngineGone": "its server is not up"}
_OWNER = "relay"  # the file in the run's folder that names the relay which opened it


class NotYet(Exception):  # noqa: N818 neither is an error
    """The federation below cannot answer yet, but will: its run is being opened, or members are to decide."""


class NotOpened(Exception):  # noqa: N818
    """The run below did not open; the words may be shown above."""


class RunBelow:
    """A Carrier to the members of the federation below: a run there that stays open until ``close``.

    ``relay`` is the fingerprint of the relay's key: of the relays of one federation one passes a run on.
    """

    def __init__(
        self, federation: FederationFolder, task: PassingTask, terms: RunTerms, relay: str, wait: float
    ) -> None:
        self.sites = task.sites
        self._federation, self._task, self._terms, self._wait = federation, task, terms, wait
        self._relay = relay
        self._work = federation.runs / task.run
        self._line: LocalLine | None = None
        self._asked = ""  # the question that is under way
        self._waiting = False  # members are to approve the study
        self._opening: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._why, self._failed = "", 0.0  # why it did not open, and when
        self._closed = False

    def carry(self, posts: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """The members' answers, or the reasons why there are none. NotYet: ask again, the same way."""
        line = self.opened()
        key = local_line.key_of(posts)
        try:
            if self._asked != key:
                head, parts = local_line.packed(posts)
                line.send(local_line.CARRY, {**head, "key": key}, parts)
                self._asked, self._waiting = key, False
            return self._answers(line, key)
        except (EOFError, OSError, ValueError):
            self._drop()
            raise NotYet("its run below ended, and is being opened again") from None

    def _answers(self, line: LocalLine, key: str) -> Mapping[SiteId, bytes | str]:
        since = time.monotonic()
        while not self._closed:
            if not line.comes(0.25):
                if self._waiting and time.monotonic() - since > _BRIEFLY:
                    raise NotYet("members below have not approved the study yet")
                continue
            head, parts = line.receive()
            if head.get("key") != key:
                continue  # of an earlier question
            if head["kind"] == local_line.WAITING:
                self._waiting = bool(head["sites"])
                if self._waiting:
                    raise NotYet("members below have not approved the study yet")
            elif head["kind"] == local_line.ANSWERS:
                self._asked = ""
                reasons = {str(site): str(why) for site, why in head["reasons"].items()}
                return {**local_line.unpacked(head, parts), **reasons}
        raise NotOpened("the run is over")

    def opened(self) -> LocalLine:
        """The line to the run below; NotYet while it is being opened, NotOpened if that failed just now."""
        if self._line is None:
            self._begin()
            until = time.monotonic() + _BRIEFLY
            while self._line is None and self._is_opening() and time.monotonic() < until:
                time.sleep(0.02)
        if self._line is not None:
            return self._line
        if self._is_opening() or not self._why:
            raise NotYet("its run below is being opened")
        raise NotOpened(f"the federation below was not asked: {self._why}")

    def check(self) -> None:
        """Raise BadTree if another process has the run open that is no relay, or another relay."""
        other = holder(self._work)
        if other is None:
            return
        name, owner = self._federation.address.federation, self._work / _OWNER
        if not owner.exists():
            raise BadTree(f"the federation {name} contains itself: its own run {self._task.run} asks it")
        if not self._is_mine(owner):
            raise BadTree(f"the federation {name} is reached by two paths: two relays pass this run on to it")

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
            line = local_line.dialled_door(self._work)
        if line is None:
            return
        with contextlib.suppress(OSError):
            line.send(local_line.END)
        line.close()

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, self._asked = None, ""

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
        except BadTree as error:
            self._why, self._failed = str(error), time.monotonic()
            return
        line = local_line.dialled_door(self._work)
        if line is None:
            self._why = self._opened_by_process()
            self._failed = time.monotonic()
            line = local_line.dialled_door(self._work)
        if line is not None and not self._closed:
            self._line, self._why = line, ""
        elif not self._why:
            self._why = "its run ended at once"

    def _opened_by_process(self) -> str:
        """Open the run; why that failed, in words that may be shown, or ""."""
        self._work.mkdir(parents=True, exist_ok=True)
        owner = self._work / _OWNER
        if is_followed(self._work) and not (owner.exists() and self._is_mine(owner)):
            return "another process opens this run of its federation"
        owner.write_text(f"{self._relay}\n", encoding="utf-8")
        said = {
            "federation": str(self._federation.path),
            "task": base64.b64encode(codec.encode(self._task)).decode(),
            "terms": base64.b64encode(codec.encode(self._terms)).decode(),
            "wait": self._wait,
        }
        self._child = child = subprocess.Popen(
            tied.command(_OPENER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = child.communicate(json.dumps(said).encode())
        self._child = None
        if child.returncode == 0:
            return ""
        try:
            failed: dict[str, Any] = json.loads(out)
        except ValueError:
            failed = {"kind": "error", "text": err.decode(errors="replace")[-2000:]}
        log.error("the run below did not open: %s", failed["text"])
        return _SHOWN.get(failed["kind"], "its run did not begin; its own log says why")


class FederationBelow(RemoteFederation):
    """The members of a relay between machines. Who they are is said once the run below is open.

    With ``secure`` they sum securely: the relay's process is their coordinator, and has the sum alone.
    """

    def __init__(
        self, federation: FederationFolder, carrier: RunBelow, secure: SecureSums | None = None
    ) -> None:
        heads = federation.heads
        keys, federations = members_of(federation)
        super().__init__(
            carrier,
            secure=secure,
            exact_sums=secure is None,
            sign=identity_in(federation.path).sign,
            heads=kept_heads(heads),
            keep=lambda new: keep_heads(heads, new),
            keys=keys,
            federations=federations,
        )
        self._run_below = carrier

    def members(self, turn: Turn, above: tuple[str, ...]) -> tuple[str, ...]:
        self._run_below.check()
        self._run_below.opened()
        return super().members(turn, above)
