"""A member's session in a run between machines: its settings, its data, and its answers to one run."""

import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar

from unpooled.data import Table
from unpooled.data.readers import is_file, read_declared, read_table
from unpooled.errors import InputError, LedgerError, NotApprovedError
from unpooled.options.reading import Reading
from unpooled.protocol.messages import Message, SiteId
from unpooled.site.endpoint import Endpoint, PendingDecision
from unpooled.site.folder_place import FolderMovedError
from unpooled.site.guards import file_state
from unpooled.site.log import (
    FRESH,
    POLL_SECONDS,
    LogInUse,
    handover_file,
    handover_requested,
    is_fresh,
    lock_owner_file,
    request_handover,
)
from unpooled.site.open_site import open_site
from unpooled.site.policy import POLICY, Policy, load
from unpooled.site.site import Site
from unpooled.site.study import Study, is_proposed_by
from unpooled.site.study_guard import StudyGuard
from unpooled.site.study_store import APPROVED, PENDING, StudyFolder
from unpooled.site.table_store import ABOUT, SUMMARY
from unpooled.site.table_store import APPROVED as APPROVAL
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error, works_with
from unpooled.storage.file_locks import LockOwner
from unpooled.storage.portable_paths import located, portable

log = logging.getLogger(__name__)
_Done = TypeVar("_Done")


SETTINGS = "settings.json"  # in the folder of a site or a relay: what all its federations have in common
ANSWERING = "the answers of this site in a run"  # the activity that the lock's owner names
_WAIT = (5.0, 30.0)  # seconds to wait for the log: of another program, of a session of this site
_HAND_OVER = 10.0  # seconds in which another session must hand the log over; then it is killed
_BUSY = 600.0  # seconds of one answer for which a session signals that it is at work


@dataclass(frozen=True, eq=False)
class RunTerms(Message):
    """The terms of a run that a site receives: the coordinator's version, and the study to approve.

    They do not contain how files are read, which the site decides.
    """

    version: str
    study: Study
    signature: str = ""  # of the study, by the coordinator's key, hexadecimal

    @classmethod
    def from_study(cls, study: Study, signature: str = "") -> "RunTerms":
        return cls(version("unpooled"), study, signature)


class MemberSettings(Protocol):
    """The settings of a member of a federation: a site, or a relay with a federation of its own."""

    @property
    def site(self) -> SiteId: ...
    @property
    def folder(self) -> str: ...  # its log and its keys
    @property
    def membership(self) -> str: ...  # the subfolder of the federation, with its studies; "": the folder
    @property
    def authority(self) -> str: ...  # the coordinator's public key, hexadecimal
    # files of its rules and its summary table: if one changes, the member is opened again
    @property
    def watched_files(self) -> tuple[Path, ...]: ...
    def approver(self, purpose: str) -> str: ...
    def open(self, study: Study) -> Endpoint: ...
    def close(self) -> None: ...  # end what stays open between two openings


@dataclass(frozen=True)
class MembershipFile:
    """The file of a member that an engine's processes read first: its name, and where its folders are.

    It is among the engine's files for one federation, and names paths relative to itself.
    """

    site: SiteId
    authority: str  # the public key of the federation's coordinator, hexadecimal
    folder: str  # the member's folder
    membership: str  # its subfolder for this federation

    @classmethod
    def read(cls, path: Path) -> "MembershipFile":
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            values["site"],
            values["authority"],
            located(values["folder"], path.parent),
            located(values["membership"], path.parent),
        )

    def write(self, path: Path) -> None:
        paths = {
            name: portable(getattr(self, name), self.folder, path.parent) for name in ("folder", "membership")
        }
        write_atomically(path, (json.dumps(asdict(self) | paths, indent=1) + "\n").encode())


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the values in the settings of a member; InputError if they have another format."""
    values: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    if wrong := format_error(values.pop("format", None)):
        raise InputError(f"{folder / SETTINGS}: the settings have {wrong}")
    return values


def write_settings(folder: Path, values: dict[str, Any]) -> None:
    """Write the settings of a member."""
    write_atomically(folder / SETTINGS, (json.dumps({"format": FORMAT, **values}, indent=1) + "\n").encode())


@dataclass(frozen=True)
class SiteSettings:
    """The settings of a site in a federation. They are in files of its own, which never leave it.

    Its data and how they are read are the same for all federations (``settings.json`` in its folder), and so
    are its rules. The file names paths within the site's folder relative to itself, so the folder can be
    moved.
    """

    site: SiteId
    data: str  # the file or database of its rows; not read if it answers from a summary table
    folder: str  # the site's summary table, log, ledger and keys
    policy: str | None = None  # the file of its rules; None: the default rules
    authority: str = ""  # the coordinator's public key, hexadecimal
    membership: str = ""  # the subfolder of the federation, with its studies; "": the site's folder
    reading: Reading = field(default_factory=Reading)  # how the file is read, which only the site decides

    @classmethod
    def read(cls, path: Path) -> "SiteSettings":
        """Return the settings in one federation, by the file in ``path`` (``MembershipFile``)."""
        own = MembershipFile.read(path)
        settings = cls.of_folder(Path(own.folder))
        return replace(settings, site=own.site, authority=own.authority, membership=own.membership)

    @classmethod
    def of_folder(cls, folder: Path) -> "SiteSettings":
        """Return the settings of a site, without those of one federation."""
        values = read_settings(folder)
        reading = Reading.from_json(values["reading"])
        settings = cls("", values["data"], str(folder), str(folder / POLICY), reading=reading)
        return settings._with_paths(lambda file: located(file, folder))

    def write(self) -> None:
        """Write the settings that all federations have in common into the site's folder."""
        folder = Path(self.folder)
        portable_settings = self._with_paths(lambda file: portable(file, folder, folder))
        reading = asdict(portable_settings.reading)
        write_settings(folder, {"data": portable_settings.data, "reading": reading})

    def _with_paths(self, changed: Callable[[str], str]) -> "SiteSettings":
        """Return the settings with the paths of their files changed."""
        query = self.reading.query
        reading = replace(self.reading, query=query and changed(query))
        is_path = bool(self.data) and is_file(self.data)  # "": only the summary table is known
        return replace(self, data=changed(self.data) if is_path else self.data, reading=reading)

    def open(self, study: Study) -> Site:
        """Open the site under its policy for an approved study: from its summary table, or from its rows."""
        policy = self.rules()
        table = None if policy.protect.mode == "summary" else self.table()
        authority = bytes.fromhex(self.authority) if self.authority else None
        guard = StudyGuard(study, study_folder(self))
        return open_site(
            self.site, table, policy, self.folder, authority=authority, what=ANSWERING, study=guard
        )

    def close(self) -> None:
        """Nothing stays open between two openings of a site."""

    def table(self) -> Table:
        """The site's rows; the column that identifies people is read as text."""
        reading, rules = self.reading, self.rules()
        person, declared = rules.protect.person, rules.domain.columns if rules.private else ()
        if declared:
            reading = replace(reading, columns=declared, numbers=declared)
        if person:
            columns = reading.columns and tuple(dict.fromkeys((*reading.columns, person)))
            reading = replace(reading, columns=columns, categorical=(*reading.categorical, person))
        if declared:
            return read_declared(self.data, reading, self._warn_no_numbers)
        return read_table(self.data, reading, on_blank_rows=self._warn_blank_rows)

    def _warn_blank_rows(self, rows: int) -> None:
        log.warning("%s: the last %d rows have no value and are left out", self.data, rows)

    def _warn_no_numbers(self, column: str, cells: int) -> None:
        log.warning(
            "%s, column %s: %d cells are not numbers and count as missing. Only you see this.",
            self.data,
            column,
            cells,
        )

    def rules(self) -> Policy:
        return Policy() if self.policy is None else load(Path(self.policy))

    @property
    def watched_files(self) -> tuple[Path, ...]:
        summary = Path(self.folder) / SUMMARY
        return (*([Path(self.policy)] if self.policy else []), summary / ABOUT, summary / APPROVAL)

    def approver(self, purpose: str) -> str:
        """The policy, in words, if it approves studies of this purpose; "" if a person must."""
        rules = self.rules()
        return f"the policy {rules.digest[:16]}" if rules.studies.covers(purpose) else ""


def study_folder(settings: MemberSettings) -> StudyFolder:
    """The studies that a member received from one federation."""
    return StudyFolder(Path(settings.folder), Path(settings.membership) if settings.membership else None)


def seconds_left(elapsed: float, interval: float) -> float:
    """Return the seconds until the next multiple of the interval; 0 if there is no interval.

    >>> [seconds_left(elapsed, 0.25) for elapsed in (0.0, 0.0625, 0.25, 0.375)], seconds_left(3.0, 0.0)
    ([0.25, 0.1875, 0.25, 0.125], 0.0)
    """
    return interval - elapsed % interval if interval else 0.0


class SiteSession:
    """A session that answers the requests of one run, with an answer or a reason without data.

    Nothing is answered before the study of the run is approved; until then the log is not locked. The site's
    log has one writer. A process of another run that waits for it gets it between two answers; the next
    request opens it again. A process that is done, or hangs, therefore never keeps a site out of a run.
    """

    def __init__(self, settings: MemberSettings, terms: RunTerms) -> None:
        self._settings, self._terms = settings, terms
        self._site: Endpoint | None = None
        self._seen: list[tuple[int, int, int] | None] = []  # the watched files when the site was opened
        self._declined = ""
        self._lock = threading.Lock()  # a repeated request waits, and gets the same answer as the first
        self._folder = Path(settings.folder)
        self._studies = study_folder(settings)
        self._noted: set[str] = set()  # refusals of the study that the log has
        self._busy = Path(settings.folder) / "log.jsonl.busy"  # touched by a process that is answering
        self._watching, self._began = False, 0.0
        self._closed = threading.Event()

    @property
    def site(self) -> SiteId:
        return self._settings.site

    def close(self) -> None:
        """Stop answering, and release the log."""
        self._settings.close()  # an answer that waits for members ends
        self._closed.set()
        with self._lock:
            self._declined = "the run is over"
            self._release()

    def _release(self) -> None:
        if self._site is not None:
            self._site.close()
            self._site = None

    def _hand_over(self) -> None:
        """Release the log whenever another process requests it."""
        while not self._declined and not self._closed.wait(POLL_SECONDS):
            if not handover_requested(self._folder):
                continue
            if self._lock.acquire(timeout=POLL_SECONDS):
                try:
                    self._release()
                finally:
                    self._lock.release()
                self._closed.wait(2 * POLL_SECONDS)  # for the other process to take it
            elif self._site is not None and time.monotonic() - self._began < _BUSY:  # it answers
                with contextlib.suppress(OSError):
                    self._busy.touch()

    def respond(self, data: bytes) -> bytes | str:
        """Return an encoded answer, or the reason why there is none."""
        with self._lock:
            self._began = time.monotonic()
            site = self._opened()
            if isinstance(site, str):
                return site
            given = site.answer_or_reason(data)
            time.sleep(seconds_left(time.monotonic() - self._began, site.interval))
            return given

    def _opened(self) -> Endpoint | str:
        """The site, or why it does not answer; a PendingDecision until somebody decides about the study."""
        if self._site is not None and self._seen != self._now():
            log.warning("the summary table or the rules of the site changed, and it is opened again")
            self._release()
        if self._declined or self._site is not None:
            return self._declined or self._site or ""
        installed = version("unpooled")
        if not works_with(self._terms.version, installed):
            self._declined = (
                f"the coordinator has unpooled {self._terms.version}, this site {installed}. They may be one "
                "minor version apart."
            )
        else:
            try:
                if why := self._not_approved():
                    return why
                self._site = self._patiently(lambda: self._settings.open(self._terms.study))
                self._seen = self._now()
                self._watch()
            except NotApprovedError as error:
                log.error("%s", error)
                self._declined = "nobody at the site has approved its summary table yet"
            except FolderMovedError as error:
                log.error("%s", error)
                self._declined = "the site's folder was moved or copied, and nobody there has confirmed it"
            except LogInUse as error:
                log.error("%s", error)
                self._declined = "another program at the site has its log open. The site's own log names it."
            except Exception as error:  # its text may quote the data, so only the site's log gets it
                log.error("the data cannot be opened for this run: %s", error)
                self._declined = "the site cannot open its data for this run. Its own log has the reason."
        return self._site or self._declined

    def _now(self) -> list[tuple[int, int, int] | None]:
        """The state of the watched files."""
        return [file_state(path) for path in self._settings.watched_files]

    def _not_approved(self) -> str:
        """The reason why nothing of the study is answered; "" once it is approved."""
        study, authority = self._terms.study, self._settings.authority
        fault = study.fault()
        if not fault and authority and not is_proposed_by(study, self._terms.signature, authority):
            fault = "the study is not signed by the authority of this federation"
        if not fault and study.expired:
            fault = self._expiry
        if fault:
            return self._refused(fault)
        kept = self._studies.receive(self._settings.site, study, self._terms.signature)
        if kept.state == PENDING and authority and (by := self._settings.approver(study.purpose)):
            kept = self._patiently(lambda: self._studies.decide(study.digest, APPROVED, by, patience=0.0))
        if kept.state == PENDING:
            return PendingDecision("nobody at the site has approved the study yet")
        if kept.state != APPROVED:
            why = f": {kept.decisions[-1].reason}" if kept.decisions[-1].reason else ""
            return self._refused(f"the site has {kept.state} the study{why}")
        return ""

    @cached_property
    def _expiry(self) -> str:
        """Why the expired study is not answered, in the same words to every request."""
        return self._terms.study.expiry

    def _refused(self, why: str) -> str:
        """Record once in the log that nothing of the study is answered; returns the reason."""
        if why not in self._noted:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                self._studies.refuse(self._settings.site, self._terms.study, why)
                self._noted.add(why)
            except LedgerError as error:
                log.error("the refusal of a study is not in the log: %s", error)
        return why

    def _watch(self) -> None:
        """Check from now on whether another process requests the log."""
        handover_file(self._folder).unlink(missing_ok=True)
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._hand_over, daemon=True).start()

    def _patiently(self, act: Callable[[], _Done]) -> _Done:
        """Do what needs the log; another session that has it hands it over, or is killed if it does not.

        Nothing is lost with such a process: all that it has sent is on disk, and it is started again if its
        run continues.
        """
        began = time.monotonic()
        while True:
            try:
                return act()
            except LedgerError as error:
                waited = time.monotonic() - began
                if waited > (self._ask_for_log(waited) if isinstance(error, LogInUse) else FRESH):
                    raise
                time.sleep(POLL_SECONDS / 2)

    def _ask_for_log(self, waited: float) -> float:
        """Request the log; returns the seconds for which to wait for it in all."""
        request_handover(self._folder)
        lock_owner = LockOwner.read(lock_owner_file(self._folder / "log.jsonl"))
        if lock_owner is None or lock_owner.what != ANSWERING:
            return _WAIT[0]
        if is_fresh(self._busy):
            return waited + FRESH
        if waited > _HAND_OVER and lock_owner.is_alive and lock_owner.pid != os.getpid():
            log.warning("%s does not hand the log over and is killed", lock_owner)
            with contextlib.suppress(ProcessLookupError):
                os.kill(lock_owner.pid, signal.SIGKILL)
        return _WAIT[1]
