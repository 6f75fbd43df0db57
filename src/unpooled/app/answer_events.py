"""The answers of a site, as details in the log of a command that runs for long."""

import json
from pathlib import Path
from typing import Any

from unpooled.app.event_log import EventLog
from unpooled.html.formatting import counted, size


class AnswerEvents:
    """Logs what the site answers and refuses from now on, as the site's own log records it.

    Parameters
    ----------
    folder
        The site's folder.
    log
        Where the details go; without ``--verbose`` nothing is read.
    runs
        The runs that count; None: all. A site's log has the answers to all its federations.
    """

    def __init__(self, folder: Path, log: EventLog, runs: set[str] | None = None) -> None:
        self._path, self._log, self._runs = folder / "log.jsonl", log, runs
        self._read = self._size()

    def __call__(self) -> None:
        if not self._log.verbose:
            return
        if self._size() < self._read:  # the log was rotated
            self._read = 0
        for entry in self._new_lines():
            run = str(entry.get("run", ""))
            if entry["kind"] in ("release", "refusal") and (self._runs is None or run in self._runs):
                self._log.detail(answer_text(entry), run=run)

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _new_lines(self) -> list[dict[str, Any]]:
        if self._size() == self._read:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def answer_text(entry: dict[str, Any]) -> str:
    """Return a line of a site's log about an answer or a refusal as a sentence.

    >>> asked = [{"refused": False}, {"refused": True}]
    >>> entry = {"kind": "release", "run": "a", "round": 3, "asked": asked, "payload": "A" * 1000}
    >>> answer_text(entry | {"refused": ["too small"]})
    'run a, round 3: answered 1 query with 750 B; refused: too small'
    >>> answer_text({"kind": "refusal", "run": "a", "round": 3, "refused": ["too late"]})
    'run a, round 3: refused: too late'
    """
    parts = []
    if entry["kind"] == "release":
        answered = sum(not one["refused"] for one in entry["asked"])
        sent = len(entry["payload"]) * 3 // 4  # in base64
        parts.append(f"answered {counted(answered, 'query')} with {size(sent)}")
    parts += [f"refused: {reason}" for reason in entry["refused"]]
    return f"run {entry['run']}, round {entry['round']}: {'; '.join(parts)}"
