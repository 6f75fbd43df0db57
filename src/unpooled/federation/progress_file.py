"""The state of a run between machines, in a file that the coordinator's process writes and others read."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.errors import InputError, SchemaMismatchError, UnpooledError
from unpooled.protocol.site_id import SiteId
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error

if TYPE_CHECKING:  # a server's supervisor reads the file, and needs nothing of a run
    from unpooled.protocol.run_loop import RoundRecord

WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"


class ProgressFile:
    """The state of a run, in a file beside its checkpoint, for other processes that follow the run."""

    def __init__(
        self,
        folder: Path,
        on_round: Callable[["RoundRecord"], None] = lambda record: None,
        on_wait: Callable[[Mapping[SiteId, float]], None] = lambda waiting: None,
    ) -> None:
        self.path = folder / "progress.json"
        self._on_round, self._on_wait = on_round, on_wait
        self._record: dict[str, Any] = {}
        self._waiting: dict[SiteId, float] = {}

    def write(self, state: str, **more: object) -> None:
        values = {"format": FORMAT, "state": state, "time": time.time(), **more}
        write_atomically(self.path, json.dumps(values).encode())

    def record(self, record: "RoundRecord") -> None:
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
