"""Finished tasks on disk: one JSON file each, named by the digest of all that its result depends on.

A file is written under a temporary name and moved in one step. After a kill it is complete or does not exist,
and a task with a file is not done again.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.experiment import Numbers, Results, Task
from unpooled.errors import CheckpointError
from unpooled.storage.atomic_files import write_atomically


@dataclass(frozen=True)
class Store:
    """Results under ``folder``/results."""

    folder: Path

    def path(self, task: Task) -> Path:
        """Return the file of a task's result."""
        return self.folder / "results" / task.experiment / f"{task.digest}.json"

    def has(self, task: Task) -> bool:
        """Return True if the task is done."""
        return self.path(task).is_file()

    def save(self, task: Task, numbers: Numbers, seconds: float) -> None:
        """Save the numbers of a task, and the CPU seconds that it took."""
        path = self.path(task)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "experiment": task.experiment,
            "settings": task.settings,
            "runs": [task.runs.start, task.runs.stop],
            "cpu_seconds": round(seconds, 3),
            "numbers": numbers,
        }
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())

    def load(self, task: Task) -> dict[str, Any]:
        """Return the content of a task's file."""
        path = self.path(task)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            counts = {len(values) for values in found["numbers"].values()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is not a result. Remove it to compute it again.") from error
        if found.get("settings") != task.settings or counts - {len(task.runs)}:
            raise CheckpointError(f"{path} is the result of another task. Remove it to compute it again.")
        return dict(found)

    def results(self, tasks: Sequence[Task]) -> Results:
        """Return the numbers of finished tasks, in the order of their runs."""
        return Results([(task.settings, self.load(task)["numbers"]) for task in tasks])

    def seconds(self, tasks: Sequence[Task]) -> float:
        """Return the CPU seconds of the tasks, as saved when they were done."""
        return float(sum(self.load(task)["cpu_seconds"] for task in tasks))
