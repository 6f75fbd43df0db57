"""The two ends of a run between machines, the same for every engine: the coordinator's, and a site's.

An engine starts both, each in its own process, and carries bytes between them. What it hands to the
coordinator's end is a Task, what it hands to a site's end are Terms; neither holds a path or code.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import unpooled.algorithms
import unpooled.analysis  # noqa: F401  importing them registers what may be asked
from unpooled.core.disk import held, write_atomically
from unpooled.core.exchange import Carrier
from unpooled.core.messages import Message, SiteId
from unpooled.core.run import Record, run
from unpooled.errors import SchemaMismatch, UnpooledError
from unpooled.privacy.secure_sum import SecureSums
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site.identity import identity_in


@dataclass(frozen=True, eq=False)
class RunTask(Message, wire="ends.Task"):
    """A run as the coordinator's end receives it."""

    run: str  # its name
    algorithm: Any
    sites: tuple[SiteId, ...]
    seed: int
    quorum: float
    deadline: float  # seconds that an exchange may take
    secure: bool = False  # every total by secure sums
    min_cluster_size: int = 1  # of all sites together, in a cell of a secure sum


# ---------------------------------------------------------------- the coordinator's end

WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"


class ProgressFile:
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


def coordinate(task: RunTask, carrier: Carrier, folder: Path) -> bool:
    """Run a task, from its checkpoint if there is one, and leave in the folder what came of it."""
    secure = SecureSums(min_cluster_size=task.min_cluster_size) if task.secure else None
    with held(folder):
        progress = ProgressFile(folder)
        progress.write(RUNNING)
        home = folder.parent.parent  # of the federation, over all its runs
        posting = RemoteFederation(carrier, secure=secure, sign=identity_in(home).sign)
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
