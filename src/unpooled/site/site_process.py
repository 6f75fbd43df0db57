"""A site's process in a run between machines: its settings, its data, and its answers to one run."""

import json
import logging
import threading
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unpooled.core.disk import write_atomically
from unpooled.core.messages import Message, SiteId
from unpooled.data import Table
from unpooled.data.readers import Reading, read_table
from unpooled.errors import CodecError, LedgerError
from unpooled.site import Site
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, load

log = logging.getLogger(__name__)


_LET_GO = 30.0  # seconds to wait for an earlier process to release the log


@dataclass(frozen=True, eq=False)
class RunTerms(Message, wire="ends.Terms"):
    """The terms of a run that a site receives: the coordinator's version, and how to read columns."""

    version: str
    columns: tuple[str, ...] | None
    exclude: tuple[str, ...]
    categories: tuple[str, ...]
    na: tuple[str, ...]

    @classmethod
    def of(cls, reading: Reading) -> "RunTerms":
        return cls(version("unpooled"), reading.columns, reading.exclude, reading.categories, reading.na)


@dataclass(frozen=True)
class SiteSettings:
    """The settings of a site. They are in a file of its own, which never leaves it."""

    site: SiteId
    data: str
    folder: str  # the site's log, ledger and keys
    policy: str | None = None
    columns: tuple[str, ...] | None = None  # those it lets be asked about; None: all
    exclude: tuple[str, ...] = ()
    na: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str = "."

    @classmethod
    def read(cls, path: Path) -> "SiteSettings":
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, value in values.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)

    def write(self, path: Path) -> None:
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    def reading(self, terms: RunTerms) -> Reading:
        """The options to read the file: as the run asks, within what the site allows."""
        columns = terms.columns if terms.columns is not None else self.columns
        if columns is not None and self.columns is not None:
            columns = tuple(name for name in columns if name in self.columns)
        return Reading(
            columns=columns,
            exclude=(*self.exclude, *terms.exclude),
            categories=terms.categories,
            na=(*self.na, *terms.na),
            delimiter=self.delimiter,
            decimal=self.decimal,
        )

    def open(self, terms: RunTerms) -> Site:
        """Read the data and open the site under its policy."""
        table: Any = self.table(terms)
        return open_site(self.site, table, self.rules(), folder=self.folder)

    def table(self, terms: RunTerms | None = None) -> Table:
        """The site's rows, read under the terms of a run."""
        return read_table(Path(self.data), self.reading(terms or RunTerms.of(Reading())))

    def rules(self) -> Policy:
        return Policy() if self.policy is None else load(Path(self.policy))


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
            except Exception as error:  # its text may quote the data, so only the site's log gets it
                log.error("the data cannot be opened for this run: %s", error)
                self._declined = "the site cannot open its data for this run; its own log says why"
        return self._site

    def _patiently(self) -> Site:
        """Open the site; retry while the process of an earlier job still holds its files."""
        until = time.monotonic() + _LET_GO
        while True:
            try:
                return self._settings.open(self._terms)
            except LedgerError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
