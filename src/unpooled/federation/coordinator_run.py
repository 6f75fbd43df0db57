"""The coordinator's process in a run between machines, the same for every engine.

An engine starts this process and one at every site (``site.session``), and carries bytes between them. It
gives the coordinator's process a RunTask and a site's process RunTerms; neither holds a path or code.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import unpooled.algorithms
import unpooled.evaluation  # noqa: F401  importing them registers what may be asked
from unpooled.errors import InputError, SchemaMismatchError, UnpooledError
from unpooled.federation.run_history import BEGUN, append_event
from unpooled.federation.table_transfer import TABLES, TableTransfer
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol.algorithm import Algorithm
from unpooled.protocol.exchange import Transport
from unpooled.protocol.messages import Message, SiteId
from unpooled.protocol.run_loop import RoundRecord, run
from unpooled.site.identity import identity_in
from unpooled.storage.account import account
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error
from unpooled.storage.file_locks import locked


@dataclass(frozen=True, eq=False)
class RunTask(Message):
    """The task of a run, as the coordinator's process receives it."""

    run: str  # its name
    algorithm: Algorithm[Any]
    sites: tuple[SiteId, ...]
    seed: int
    quorum: float
    deadline: float  # seconds that an exchange may take
    secure: bool = False  # every total by secure sums
    min_cluster_size: int = 1  # of all sites together, in a cell of a secure sum
    approval_timeout: float = 30 * 86400.0  # seconds to wait for sites that have not approved the study
    exact_sums: bool = False  # every total is the exact sum, rounded once
    federations: tuple[SiteId, ...] = ()  # the members that are federations
    keys: tuple[tuple[SiteId, str], ...] = ()  # fingerprints of the keys of the others, where they are known
    transfer: bool = False  # sites transfer their summary tables once
    columns: tuple[str, ...] = ()  # of the study; (): all


@dataclass(frozen=True, eq=False)
class ForwardTask(Message):
    """The task of a run whose questions come from a relay: a federation above asks (federation/relay)."""

    run: str  # its name, above and here
    sites: tuple[SiteId, ...]
    quorum: float
    deadline: float
    approval_timeout: float


AnyTask = RunTask | ForwardTask


# ---------------------------------------------------------------- the coordinator's side

WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"


class ProgressFile:
    """The state of a run, in a file beside its checkpoint, for other processes that follow the run."""

    def __init__(
        self,
        folder: Path,
        on_round: Callable[[RoundRecord], None] = lambda record: None,
        on_wait: Callable[[Mapping[SiteId, float]], None] = lambda waiting: None,
    ) -> None:
        self.path = folder / "progress.json"
        self._on_round, self._on_wait = on_round, on_wait
        self._record: dict[str, Any] = {}
        self._waiting: dict[SiteId, float] = {}

    def write(self, state: str, **more: object) -> None:
        values = {"format": FORMAT, "state": state, "time": time.time(), **more}
        write_atomically(self.path, json.dumps(values).encode())

    def record(self, record: RoundRecord) -> None:
        self._record = {"record": asdict(replace(record, sent=dict(record.sent)))}
        self._running()
        self._on_round(record)

    def record_waiting(self, waiting: Mapping[SiteId, float]) -> None:
        """Record the sites that have not approved the study, and since when the run waits for each."""
        self._waiting = dict(waiting)
        self._running()
        self._on_wait(self._waiting)

    def _running(self) -> None:
        self.write(RUNNING, waiting=self._waiting, **self._record)

    def failed(self, error: UnpooledError, retry: bool = False) -> None:
        """Record a failure; ``retry``: repeating the run may help, because some site was not reached."""
        table = error.table if isinstance(error, SchemaMismatchError) else ()
        self.write(FAILED, kind=type(error).__name__, text=str(error), table=table, retry=retry)

    def read(self) -> dict[str, Any]:
        """Return the last record; raise InputError if it is of another format."""
        try:
            values = dict(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {"state": WAITING}
        if problem := format_error(values.get("format")):
            raise InputError(
                f"{self.path}: a run of {problem}. Finish it with the release that began it, or remove its "
                "folder."
            )
        return values


def append_log_heads(path: Path, new: list[tuple[SiteId, str]]) -> None:
    """Append the new heads of sites' logs: they are evidence, over all exchanges and runs.

    The last head alone is not enough: a site could truncate its log, continue, and report a matching head.
    """
    _append(path, "".join(json.dumps({"site": site, "head": head}) + "\n" for site, head in new))


def last_log_heads(path: Path) -> dict[SiteId, str]:
    """Return the last head received of every site's log, in any run; none of a site readmitted since."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    last = {str(line["site"]): str(line["head"]) for line in lines}
    return {site: head for site, head in last.items() if head}


def forked_logs(path: Path) -> dict[SiteId, int]:
    """Return the sites of whose log two different lines of one number came, and that number.

    Then two folders of the site have answered, because each continues a log of its own. A site that was
    readmitted begins anew.
    """
    known: dict[SiteId, dict[str, str]] = {}
    forked: dict[SiteId, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        site, (number, _, digest) = str(entry["site"]), str(entry["head"]).partition(":")
        if not digest:
            known.pop(site, None)
            forked.pop(site, None)
        elif known.setdefault(site, {}).setdefault(number, digest) != digest:
            forked.setdefault(site, int(number))
    return forked


def readmit(path: Path, site: SiteId, reason: str) -> int:
    """Record that a site's log begins anew: its earlier heads stay on record and are not required any more.

    Returns the number of lines of the old log, as far as the coordinator knows it.
    """
    head = last_log_heads(path).get(site, "")
    if not head:
        raise InputError(f"{path} has no log head of {site}: the site needs no readmission")
    if not reason.strip():
        raise InputError("a readmission needs a reason, because it is evidence. Give it with --reason.")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"site": site, "head": "", "readmitted": now, "by": account(), "reason": reason.strip()}
    _append(path, json.dumps(line) + "\n")
    return int(head.partition(":")[0]) + 1


def _append(path: Path, lines: str) -> None:
    with path.open("ab") as file:
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def coordinate(
    task: RunTask,
    transport: Transport,
    folder: Path,
    *,
    home: Path,
    on_round: Callable[[RoundRecord], None] = lambda record: None,
    on_wait: Callable[[Mapping[SiteId, float]], None] = lambda waiting: None,
) -> bool:
    """Run a task, from its checkpoint if there is one; write progress and results into the folder.

    ``home`` is the federation's folder, shared by all its runs: its key, and the heads of the sites' logs.
    ``on_round`` is called with the record of every round, ``on_wait`` with the sites that have not approved
    the study, since when, whenever that changes.
    Returns False if the run failed; the progress file then names the reason.
    """
    secure = SecureSums(min_cluster_size=task.min_cluster_size) if task.secure else None
    with locked(folder, what="the coordinator's process of a run"):
        progress = ProgressFile(folder, on_round, on_wait)
        progress.write(RUNNING)
        append_event(home, task.run, BEGUN)
        log_heads = home / "log_heads.jsonl"
        try:
            sites = TransportFederation(
                transport,
                secure=secure,
                exact_sums=task.exact_sums,
                sign=identity_in(home).sign,
                log_heads=last_log_heads(log_heads),
                on_new_heads=partial(append_log_heads, log_heads),
                keys=dict(task.keys),
                federations=task.federations,
            )
        except UnpooledError as error:
            progress.failed(error)
            append_event(home, task.run, FAILED, cause=str(error))
            return False

        federation = TableTransfer(sites, task.columns, folder / TABLES) if task.transfer else sites
        transport.on_wait = progress.record_waiting
        try:
            done = run(
                task.algorithm,
                federation,
                seed=task.seed,
                quorum=task.quorum,
                checkpoint=folder / "checkpoint",
                name=task.run,
                progress=progress.record,
            )
        except UnpooledError as error:
            progress.failed(error, retry=bool(transport.unreached))
            append_event(home, task.run, FAILED, cause=str(error))
            return False
        (folder / TABLES).unlink(missing_ok=True)
        sent = sum(size for _, size in done.sent().values())
        append_event(home, task.run, FINISHED, rounds=done.rounds, exchanges=done.exchanges, bytes=sent)
        progress.write(FINISHED, rounds=done.rounds, seconds=list(transport.seconds))
        return True
