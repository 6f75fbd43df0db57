"""The process of a site in a federation: it enrols the site, keeps the engine's client alive, and logs.

It lives as long as the site takes part, so it imports neither arrays nor cryptography until it needs them.
"""

import contextlib
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.app.answer_events import AnswerEvents
from unpooled.app.event_log import EventLog
from unpooled.app.lasting_process import call
from unpooled.federation.engine import Address, Engine, engine
from unpooled.federation.provisioning.supervisor import supervise

if TYPE_CHECKING:
    from unpooled.federation.provisioning.site_membership import SiteMembership

_ASK_WHY = 10.0  # seconds without a connection before a site looks for the reason
_ASK_AGAIN = 2.0  # seconds between two requests for admission


def values_of(membership: "SiteMembership", is_federation: bool, log: dict[str, Any]) -> dict[str, Any]:
    """Return the values for ``main``; ``log`` are those of the EventLog but its name."""
    invitation = membership.invitation
    return {
        "site": invitation.site,
        "folder": str(membership.site),
        "membership": str(membership.path),
        "engine_name": invitation.engine,
        "address": [invitation.federation, invitation.host, invitation.port],
        "enrolled": membership.enrolled,
        "is_federation": is_federation,
        "log": log,
    }


def main(
    site: str,
    folder: str,
    membership: str,
    engine_name: str,
    address: tuple[str, str, int],
    enrolled: bool,
    is_federation: bool,
    log: dict[str, Any],
) -> None:
    """Run the engine's client of a site until SIGTERM or SIGINT."""
    place = Place(site, Path(folder), Path(membership), engine(engine_name), Address(*address))
    events = EventLog(site, **log)
    enrolment = None
    if not enrolled:
        from unpooled.federation.provisioning.site_membership import SiteMembership

        enrolment = Admission(SiteMembership(place.path, place.folder), is_federation, events)
        enrolment.begin()
    connection, studies = ConnectionEvents(place, events), StudyEvents(place, events)
    answers = AnswerEvents(place.folder, events, studies.runs)

    def on_tick() -> None:
        connection()
        studies()
        answers()

    command = place.engine.site_command(place.engine_folder, place.address, site)
    supervise(command, place.path, events, on_tick, lambda: enrolment is None or enrolment.done())


@dataclass(frozen=True)
class Place:
    """What the process knows of a site and its federation."""

    site: str  # its name
    folder: Path
    path: Path  # the subfolder of the federation
    engine: Engine
    address: Address

    @property
    def engine_folder(self) -> Path:
        return self.path / "engine"


class Admission:
    """Asks the server to enrol the site until the coordinator has admitted it."""

    def __init__(self, place: "SiteMembership", is_federation: bool, log: EventLog) -> None:
        self._place, self._is_federation, self._log = place, is_federation, log
        self._reason = "" if place.enrolled else "not asked"  # why it is not admitted
        self._asked = 0.0

    def begin(self) -> None:
        """Ask once, and print the fingerprint to read out."""
        if not self._reason:
            return
        print(f"the authority of {self._place.invitation.federation}: {self._place.authority()}")
        self._ask()
        print(f"the fingerprint to read out: {self._place.fingerprint()}")
        print(
            "Call the coordinator at a number that you know. If both of you read the same fingerprint, the "
            "coordinator admits this site; if not, stop here. The key stays in this site's folder.",
            flush=True,
        )

    def done(self) -> bool:
        """Return True once the site is admitted."""
        if self._reason and time.monotonic() - self._asked > _ASK_AGAIN:
            self._ask()
        return not self._reason

    def _ask(self) -> None:
        reason = self._place.enrol(is_federation=self._is_federation)
        at = self._place.invitation.address
        if reason and reason != self._reason:
            self._log(f"waiting to be admitted to {at.federation} at {at.host}:{at.port}: {reason}")
        elif not reason:
            self._log(f"admitted to {at.federation}")
        self._reason, self._asked = reason, time.monotonic()


class StudyEvents:
    """Logs which studies came and are pending."""

    def __init__(self, place: Place, log: EventLog) -> None:
        self._log, self._place = log, place
        self._read: set[str] = set()  # names of the files
        self.runs: set[str] = set()  # of the studies that came

    def __call__(self) -> None:
        for path in (self._place.path / "studies").glob("[0-9a-f]*.json"):
            if path.name in self._read:
                continue
            self._read.add(path.name)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a damaged file
                received = json.loads(path.read_text(encoding="utf-8"))
                study, run = received["study"], str(received["study"]["run"])
                self.runs.add(run)
                expired = datetime.now(UTC) >= datetime.fromisoformat(study["expires"])
                if not received["decisions"] and not expired:
                    review = f"unpooled site review {self._place.folder} {path.stem[:16]}"
                    self._log(f"a study is pending: {study['title']}: {review}", run=run)


class ConnectionEvents:
    """Logs when the site connects to the coordinator or loses it, and why it cannot connect."""

    def __init__(self, place: Place, log: EventLog) -> None:
        self._place, self._log = place, log
        self._address = place.address
        self._since = self._asked = 0.0  # from the first call on, when the engine is started
        self._connected = False
        self._reason = ""  # printed last

    def __call__(self) -> None:
        if not self._since:
            self._since = self._asked = time.time()
        heard = self._place.engine.seconds_since_contact(self._place.engine_folder)
        connected = heard is not None and heard < min(30.0, time.time() - self._since)
        at = self._address
        if connected != self._connected:
            self._log(f"{'connected to' if connected else 'lost'} {at.federation} at {at.host}:{at.port}")
            self._connected = connected
        if not connected and time.time() - self._asked > _ASK_WHY:
            from unpooled.federation.provisioning.diagnose import diagnose_connection

            self._asked = time.time()
            reason = diagnose_connection(at, *self._place.engine.identity(self._place.engine_folder))
            if reason != self._reason:
                self._reason = reason
                self._log.warn(f"not connected to {at.federation} at {at.host}:{at.port}: {reason}")


if __name__ == "__main__":
    call(main)
