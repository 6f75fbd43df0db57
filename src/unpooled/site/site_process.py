"""A site's process in a run between machines: its settings, its data, and its answers to one run."""

import contextlib
import json
import logging
import os
import signal
import threading
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unpooled.core.disk import Holder, write_atomically
from unpooled.core.messages import Message, SiteId
from unpooled.data import Table
from unpooled.data.readers import Reading, read_table
from unpooled.errors import CodecError, LedgerError, NotApproved
from unpooled.site import Site
from unpooled.site.log import LogInUse, holder_file
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, load

log = logging.getLogger(__name__)


ANSWERING = "the answers of this site in a run"  # the activity that the log's holder names
_LET_GO = (5.0, 30.0)  # seconds to wait for the log: of another program, of a process of ours
_COAX = 10.0  # seconds in which a process of ours must hand the log over; it is killed then
_LOOK = 0.2  # seconds between looks whether another process wants the log
_FRESH = 2.0  # seconds for which a wish for the log, or a sign of work, counts; it is renewed
_BUSY = 600.0  # seconds of one answer for which a process says that it is at work


@dataclass(frozen=True, eq=False)
class RunTerms(Message, wire="ends.Terms", version=2, since="0.2"):
    """The terms of a run that a site receives: the coordinator's version. Reading files is the site's."""

    version: str

    @classmethod
    def now(cls) -> "RunTerms":
        return cls(version("unpooled"))


@dataclass(frozen=True)
class SiteSettings:
    """The settings of a site. They are in a file of its own, which never leaves it."""

    site: SiteId
    data: str  # the file or database of its rows; not read where it answers from a copy
    folder: str  # the site's copy, log, ledger and keys
    policy: str | None = None
    authority: str = ""  # the coordinator's public key, hexadecimal
    columns: tuple[str, ...] | None = None  # the only ones that are read; None: all
    exclude: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    na: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    numbers: tuple[str, ...] = ()
    recode: tuple[tuple[str, str, str], ...] = ()
    query: str | None = None  # of a database; its address has no password
    sheet: str | None = None
    long: tuple[str, str, str] | None = None

    @classmethod
    def read(cls, path: Path) -> "SiteSettings":
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, value in values.items():
            values[name] = _tuples(value)
        return cls(**values)

    def write(self, path: Path) -> None:
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    def reading(self) -> Reading:
        """How the file is read: as the site says, and nobody else."""
        return Reading(
            columns=self.columns,
            exclude=self.exclude,
            categories=self.categories,
            na=self.na,
            delimiter=self.delimiter,
            decimal=self.decimal,
            encoding=self.encoding,
            numbers=self.numbers,
            recode=self.recode,
            query=self.query,
            sheet=self.sheet,
            long=self.long,
        )

    def open(self) -> Site:
        """Open the site under its policy: from its copy, or from its rows where the policy says so."""
        policy = self.rules()
        table = None if policy.protect.mode == "copy" else self.table()
        authority = bytes.fromhex(self.authority) if self.authority else None
        return open_site(self.site, table, policy, self.folder, authority=authority, what=ANSWERING)

    def table(self) -> Table:
        """The site's rows; the column that says whose they are is read as text."""
        reading, person = self.reading(), self.rules().protect.person
        if person:
            columns = reading.columns and tuple(dict.fromkeys((*reading.columns, person)))
            reading = replace(reading, columns=columns, categories=(*reading.categories, person))
        return read_table(self.data, reading, blank=self._told)

    def _told(self, rows: int) -> None:
        log.warning("%s: %d rows at its end have no value and are left out", self.data, rows)

    def rules(self) -> Policy:
        return Policy() if self.policy is None else load(Path(self.policy))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _fresh(file: Path) -> bool:
    """True if a file was touched just now."""
    try:
        return time.time() - file.stat().st_mtime < _FRESH
    except FileNotFoundError:
        return False


class SiteEnd:
    """Answers envelopes for one run. After any error it returns an answer or a reason without data.

    The site's log has one writer. A process of another run that waits for it gets it between two answers;
    the next question opens it again. So a process that is done, or hangs, never keeps a site out of a run.
    """

    def __init__(self, settings: SiteSettings, terms: RunTerms) -> None:
        self._settings, self._terms = settings, terms
        self._site: Site | None = None
        self._declined = ""
        self._lock = threading.Lock()  # a repeated envelope waits, and gets the same answer as the first
        self._log = Path(settings.folder) / "log.jsonl"
        self._wanted = Path(settings.folder) / "log.jsonl.wanted"  # touched by a process that waits
        self._busy = Path(settings.folder) / "log.jsonl.busy"  # touched by a process that is answering
        self._watching, self._began = False, 0.0

    def close(self) -> None:
        """Answer nothing any more, and release the log."""
        with self._lock:
            self._declined = "the run is over"
            self._release()

    def _release(self) -> None:
        if self._site is not None:
            self._site.close()
            self._site = None

    def _hand_over(self) -> None:
        """Release the log whenever another process wants it."""
        while not self._declined:
            time.sleep(_LOOK)
            if not _fresh(self._wanted):
                continue
            if self._lock.acquire(timeout=_LOOK):
                try:
                    self._release()
                finally:
                    self._lock.release()
                time.sleep(2 * _LOOK)  # for the other process to take it
            elif self._site is not None and time.monotonic() - self._began < _BUSY:  # it answers
                with contextlib.suppress(OSError):
                    self._busy.touch()

    def respond(self, data: bytes) -> bytes | str:
        """An encoded answer, or the reason why there is none."""
        with self._lock:
            self._began = time.monotonic()
            site = self._opened()
            if site is None:
                return self._declined
            try:
                return site.receive(data)
            except CodecError as error:  # no turn is known that an answer could name
                return f"not a message for this site: {error}"
            except Exception as error:
                log.error("a question failed: %s", error)
                return site.respond(data)  # an answer with a reason that may be shown

    def _opened(self) -> Site | None:
        if self._site is None and not self._declined:
            installed = version("unpooled")
            if self._terms.version != installed:
                self._declined = f"the coordinator has unpooled {self._terms.version}, this site {installed}"
                return None
            try:
                self._site = self._patiently()
            except NotApproved as error:
                log.error("%s", error)
                self._declined = "nobody at the site has approved its copy yet"
            except LogInUse as error:
                log.error("%s", error)
                self._declined = "another program at the site has its log open; the site's own log names it"
            except Exception as error:  # its text may quote the data, so only the site's log gets it
                log.error("the data cannot be opened for this run: %s", error)
                self._declined = "the site cannot open its data for this run; its own log says why"
        return self._site

    def _patiently(self) -> Site:
        """Open the site; a process of ours that holds its log hands it over, or is killed if it does not.

        To kill such a process loses nothing: all that it has sent is on disk, and it is started again if its
        run goes on.
        """
        began = time.monotonic()
        while True:
            try:
                site = self._settings.open()
                break
            except LedgerError as error:
                waited = time.monotonic() - began
                if waited > (self._ask_for_log(waited) if isinstance(error, LogInUse) else _FRESH):
                    raise
                time.sleep(_LOOK / 2)
        self._wanted.unlink(missing_ok=True)
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._hand_over, daemon=True).start()
        return site

    def _ask_for_log(self, waited: float) -> float:
        """Have the log handed over; the seconds for which to wait for it in all."""
        with contextlib.suppress(OSError):  # a full disk: then only the end of the other process helps
            self._wanted.touch()
        holder = Holder.read(holder_file(self._log))
        if holder is None or holder.what != ANSWERING:
            return _LET_GO[0]
        if _fresh(self._busy):
            return waited + _FRESH
        if waited > _COAX and holder.lives and holder.pid != os.getpid():
            log.warning("%s keeps the log and is killed", holder)
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
        return _LET_GO[1]
