"""The coordinator's process in a run between machines, the same for every engine.

An engine starts this process and one at every site (``site.session``), and carries bytes between them. It
gives the coordinator's process a RunTask and a site's process RunTerms; neither holds a path or code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import unpooled.algorithms
import unpooled.evaluation  # noqa: F401  importing them registers what may be asked
from unpooled.errors import UnpooledError
from unpooled.federation.log_heads import append_log_heads, last_log_heads
from unpooled.federation.progress_file import FAILED, FINISHED, RUNNING, ProgressFile
from unpooled.federation.run_history import BEGUN, append_event
from unpooled.federation.table_transfer import TABLES, TableTransfer
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol.algorithm import Algorithm
from unpooled.protocol.exchange import Transport
from unpooled.protocol.messages import Message, SiteId
from unpooled.protocol.run_loop import RoundRecord, run
from unpooled.site.identity import identity_in
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
