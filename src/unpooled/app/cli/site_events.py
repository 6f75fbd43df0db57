"""What happens at a site, as lines of its log: connections, studies, answers."""

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.app.cli.events import EventLog
from unpooled.errors import LedgerError
from unpooled.html.formatting import counted, size

if TYPE_CHECKING:
    from unpooled.federation.provisioning.site_membership import SiteMembership

_ASK_WHY = 10.0  # seconds without a connection before a site looks for the reason


class StudyEvents:
    """Logs which studies came and are pending."""

    def __init__(self, place: "SiteMembership", log: EventLog) -> None:
        from unpooled.site.study_store import StudyFolder

        self._log, self._place = log, StudyFolder(place.site, place.path)
        self._printed: set[str] = set()
        self.runs: set[str] = set()  # of the studies that came

    def __call__(self) -> None:
        for path in self._place.files():
            if path.stem not in self._printed:
                self._printed.add(path.stem)
                with contextlib.suppress(LedgerError):  # a damaged file: unpooled site status reports it
                    received = self._place.read(path.stem)
                    self.runs.add(received.study.run)
                    if received.is_pending:
                        self._log(
                            f"a study is pending: {received.study.title}: unpooled site review "
                            f"{self._place.folder} {path.stem[:16]}",
                            run=received.study.run,
                        )


class AnswerEvents:
    """Logs what the site answers and refuses from now on, as the site's own log records it.

    Parameters
    ----------
    folder
        The site's folder.
    log
        Where the details go; without ``--verbose`` nothing is read.
    runs
        The runs that count; None: all. A site's log has the answers to all its federations.
    """

    def __init__(self, folder: Path, log: EventLog, runs: set[str] | None = None) -> None:
        self._path, self._log, self._runs = folder / "log.jsonl", log, runs
        self._read = self._size()

    def __call__(self) -> None:
        if not self._log.verbose:
            return
        if self._size() < self._read:  # the log was rotated
            self._read = 0
        for entry in self._new_lines():
            run = str(entry.get("run", ""))
            if entry["kind"] in ("release", "refusal") and (self._runs is None or run in self._runs):
                self._log.detail(answer_text(entry), run=run)

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _new_lines(self) -> list[dict[str, Any]]:
        if self._size() == self._read:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def answer_text(entry: dict[str, Any]) -> str:
    """Return a line of a site's log about an answer or a refusal as a sentence.

    >>> asked = [{"refused": False}, {"refused": True}]
    >>> entry = {"kind": "release", "run": "a", "round": 3, "asked": asked, "payload": "A" * 1000}
    >>> answer_text(entry | {"refused": ["too small"]})
    'run a, round 3: answered 1 query with 750 B; refused: too small'
    >>> answer_text({"kind": "refusal", "run": "a", "round": 3, "refused": ["too late"]})
    'run a, round 3: refused: too late'
    """
    parts = []
    if entry["kind"] == "release":
        answered = sum(not one["refused"] for one in entry["asked"])
        sent = len(entry["payload"]) * 3 // 4  # in base64
        parts.append(f"answered {counted(answered, 'query')} with {size(sent)}")
    parts += [f"refused: {reason}" for reason in entry["refused"]]
    return f"run {entry['run']}, round {entry['round']}: {'; '.join(parts)}"


class ConnectionEvents:
    """Logs when the site connects to the coordinator or loses it, and why it cannot connect."""

    def __init__(self, place: "SiteMembership", log: EventLog) -> None:
        self._place, self._engine, self._log = place, place.engine, log
        self._address = place.invitation.address
        self._since = self._asked = 0.0  # from the first call on, when the engine is started
        self._connected = False
        self._reason = ""  # printed last

    def __call__(self) -> None:
        from unpooled.federation.provisioning.diagnose import diagnose_connection

        if not self._since:
            self._since = self._asked = time.time()
        heard = self._engine.seconds_since_contact(self._place.engine_folder)
        connected = heard is not None and heard < min(30.0, time.time() - self._since)
        at = self._address
        if connected != self._connected:
            self._log(f"{'connected to' if connected else 'lost'} {at.federation} at {at.host}:{at.port}")
            self._connected = connected
        if not connected and time.time() - self._asked > _ASK_WHY:
            self._asked = time.time()
            reason = diagnose_connection(at, *self._engine.identity(self._place.engine_folder))
            if reason != self._reason:
                self._reason = reason
                self._log.warn(f"not connected to {at.federation} at {at.host}:{at.port}: {reason}")
