"""A site's process in a run between machines: its settings, its data, and its answers to one run."""

import json
import logging
import threading
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unpooled.core.disk import write_atomically
from unpooled.core.messages import Message, SiteId
from unpooled.data import Table
from unpooled.data.readers import Reading, read_table
from unpooled.errors import CodecError, LedgerError, NotApproved
from unpooled.site import Site
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, load

log = logging.getLogger(__name__)


_LET_GO = 30.0  # seconds to wait for an earlier process to release the log


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
    data: str  # the file of its rows; not read where it answers from a copy
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
        )

    def open(self) -> Site:
        """Open the site under its policy: from its copy, or from its rows where the policy says so."""
        policy = self.rules()
        table = None if policy.protect.mode == "copy" else self.table()
        authority = bytes.fromhex(self.authority) if self.authority else None
        return open_site(self.site, table, policy, self.folder, authority=authority)

    def table(self) -> Table:
        """The site's rows; the column that says whose they are is read as text."""
        reading, person = self.reading(), self.rules().protect.person
        if person:
            columns = reading.columns and tuple(dict.fromkeys((*reading.columns, person)))
            reading = replace(reading, columns=columns, categories=(*reading.categories, person))
        return read_table(Path(self.data), reading)

    def rules(self) -> Policy:
        return Policy() if self.policy is None else load(Path(self.policy))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


class SiteEnd:
    """Answers envelopes for one run. After any error it returns an answer or a reason without data."""

    def __init__(self, settings: SiteSettings, terms: RunTerms) -> None:
        self._settings, self._terms = settings, terms
        self._site: Site | None = None
        self._declined = ""
        self._lock = threading.Lock()  # a repeated envelope waits, and gets the same answer as the first

    def respond(self, data: bytes) -> bytes | str:
        """An encoded answer, or the reason why there is none."""
        with self._lock:
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
            except Exception as error:  # its text may quote the data, so only the site's log gets it
                log.error("the data cannot be opened for this run: %s", error)
                self._declined = "the site cannot open its data for this run; its own log says why"
        return self._site

    def _patiently(self) -> Site:
        """Open the site; retry while the process of an earlier job still holds its files."""
        until = time.monotonic() + _LET_GO
        while True:
            try:
                return self._settings.open()
            except LedgerError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
