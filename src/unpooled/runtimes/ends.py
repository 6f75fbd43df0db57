"""The two ends of a run between machines, the same for every engine: the coordinator's, and a site's.

An engine starts both, each in its own process, and carries bytes between them. What it hands to the
coordinator's end is a Task, what it hands to a site's end are Terms; neither holds a path or code.
"""

import contextlib
import fcntl
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import unpooled.algorithms
import unpooled.analysis  # noqa: F401  importing them registers what may be asked
from unpooled.checkpoint import write_atomically
from unpooled.errors import BadInput, CodecError, LedgerError, SchemaMismatch, UnpooledError
from unpooled.files import Reading, read_table
from unpooled.messages import Message, SiteId
from unpooled.protocol import Carrier
from unpooled.running import Record, run
from unpooled.runtimes.posting import Posting
from unpooled.secure_sum import SecureSums
from unpooled.secure_sum.pinning import identity_in
from unpooled.site import Site
from unpooled.site.opening import open_site
from unpooled.site.policy import Policy, load
from unpooled.tables import Table

log = logging.getLogger(__name__)
_LET_GO = 30.0  # seconds


@dataclass(frozen=True, eq=False)
class Task(Message, wire="ends.Task"):
    """A run as the coordinator's end receives it."""

    run: str  # its name
    algorithm: Any
    sites: tuple[SiteId, ...]
    seed: int
    quorum: float
    deadline: float  # seconds that an exchange may take
    secure: bool = False  # every total by secure sums
    min_cluster_size: int = 1  # of all sites together, in a cell of a secure sum


@dataclass(frozen=True, eq=False)
class Terms(Message, wire="ends.Terms"):
    """A run as a site's end receives it: whose version, and which columns are to be read as what."""

    version: str
    columns: tuple[str, ...] | None
    exclude: tuple[str, ...]
    categories: tuple[str, ...]
    na: tuple[str, ...]

    @classmethod
    def of(cls, reading: Reading) -> "Terms":
        return cls(version("unpooled"), reading.columns, reading.exclude, reading.categories, reading.na)


# ---------------------------------------------------------------- the coordinator's end

WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"


class Progress:
    """What a run is doing, in a file beside its checkpoint, for whoever follows it from another process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "progress.json"

    def write(self, state: str, **more: Any) -> None:
        write_atomically(self.path, json.dumps({"state": state, "time": time.time(), **more}).encode())

    def record(self, record: Record) -> None:
        self.write(RUNNING, record=asdict(record))

    def failed(self, error: UnpooledError) -> None:
        table = error.table if isinstance(error, SchemaMismatch) else ()
        self.write(FAILED, kind=type(error).__name__, text=str(error), table=table)

    def read(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {"state": WAITING}


@contextlib.contextmanager
def held(folder: Path, patience: float = 20.0) -> Iterator[None]:
    """Only one process works on a run; the system lets go of it when the process ends, however it ends."""
    with (folder / "lock").open("w") as file:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise BadInput(f"{folder}: another process is working on this run") from None
                time.sleep(0.1)
        yield


def is_held(folder: Path) -> bool:
    """Whether a process is working on the run."""
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def coordinate(task: Task, carrier: Carrier, folder: Path) -> bool:
    """Run a task, from its checkpoint if there is one, and leave in the folder what came of it."""
    secure = SecureSums(min_cluster_size=task.min_cluster_size) if task.secure else None
    with held(folder):
        progress = Progress(folder)
        progress.write(RUNNING)
        home = folder.parent.parent  # of the federation, over all its runs
        posting = Posting(carrier, secure=secure, sign=identity_in(home).sign)
        heads = home / "heads.json"

        def record(of_round: Record) -> None:
            """The ends of the sites' logs are kept as evidence, from round to round and run to run."""
            before = json.loads(heads.read_text(encoding="utf-8")) if heads.exists() else {}
            write_atomically(heads, json.dumps({**before, **posting.heads}, indent=1).encode())
            progress.record(of_round)

        try:
            done = run(
                task.algorithm,
                posting,
                seed=task.seed,
                quorum=task.quorum,
                checkpoint=folder / "checkpoint",
                name=task.run,
                progress=record,
            )
        except UnpooledError as error:
            progress.failed(error)
            return False
        progress.write(FINISHED, rounds=done.rounds, seconds=getattr(carrier, "seconds", []))
        return True


# ---------------------------------------------------------------- a site's end


@dataclass(frozen=True)
class SiteSettings:
    """What a site decides by itself. Lives in a file of the site's own and never leaves it."""

    site: SiteId
    data: str
    folder: str  # where the site keeps its log and what it must remember
    policy: str | None = None
    columns: tuple[str, ...] | None = None  # those it lets be asked about; None: all
    exclude: tuple[str, ...] = ()
    na: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str = "."

    @classmethod
    def read(cls, path: Path) -> "SiteSettings":
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, value in said.items():
            said[name] = tuple(value) if isinstance(value, list) else value
        return cls(**said)

    def write(self, path: Path) -> None:
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    def reading(self, terms: Terms) -> Reading:
        """How the file is read: as the run asks, within what the site allows."""
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

    def open(self, terms: Terms) -> Site:
        """Read the data and stand behind the door."""
        table: Any = self.table(terms)
        return open_site(self.site, table, self.rules(), folder=self.folder)

    def table(self, terms: Terms | None = None) -> Table:
        """The site's rows as a run would have them read."""
        return read_table(Path(self.data), self.reading(terms or Terms.of(Reading())))

    def rules(self) -> Policy:
        return Policy() if self.policy is None else load(Path(self.policy))


class SiteEnd:
    """Answers envelopes for one run. Whatever goes wrong, what leaves is an answer or a plain reason."""

    def __init__(self, settings: SiteSettings, terms: Terms) -> None:
        self._settings, self._terms = settings, terms
        self._site: Site | None = None
        self._declined = ""
        self._lock = threading.Lock()  # a repeat waits for the first answer, and is given the same

    def respond(self, data: bytes) -> bytes | str:
        """An encoded answer, or why there is none."""
        with self._lock:
            site = self._opened()
            if site is None:
                return self._declined
            try:
                return site.receive(data)
            except CodecError as error:  # which turn it would have been is not known
                return f"not a message for this site: {error}"
            except Exception as error:
                log.error("a question failed: %s", error)
                return site.respond(data)  # the same, in words that may be shown

    def _opened(self) -> Site | None:
        if self._site is None and not self._declined:
            mine = version("unpooled")
            if self._terms.version != mine:
                self._declined = f"the coordinator has unpooled {self._terms.version}, this site {mine}"
                return None
            try:
                self._site = self._patiently()
            except Exception as error:  # its text may quote the data: it stays here
                log.error("the data cannot be opened for this run: %s", error)
                self._declined = "the site cannot open its data for this run; its own log says why"
        return self._site

    def _patiently(self) -> Site:
        """Open the site; the process of an earlier job that died may take a moment to let go of it."""
        until = time.monotonic() + _LET_GO
        while True:
            try:
                return self._settings.open(self._terms)
            except LedgerError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
