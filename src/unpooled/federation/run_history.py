"""The history of a federation's runs, a line of JSON for each event, in its coordinator's folder.

The process that submits a run, and the coordinator's process that executes it, append to the same file. The
server's log and the metrics of ``unpooled federation status`` are made from it.
"""

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HISTORY = "runs.jsonl"
SUBMITTED, BEGUN, FINISHED, FAILED = "submitted", "begun", "finished", "failed"


def append_event(home: Path, run: str, event: str, **facts: object) -> None:
    """Append an event of a run to the history in the federation's folder ``home``."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"time": now, "run": run, "event": event, **facts}) + "\n"
    with (home / HISTORY).open("ab") as file:  # one write: lines of two processes do not mix
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def read_events(home: Path, start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events after the byte ``start``, and where the last whole line ends."""
    try:
        with (home / HISTORY).open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return [], 0
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], start + len(whole)


@dataclass
class RunTotals:
    """What the history adds up to. A run counts by its last outcome."""

    outcomes: dict[str, int] = field(default_factory=lambda: {FINISHED: 0, FAILED: 0})
    last_success: float | None = None  # seconds since 1970
    seconds: float | None = None  # of the last run that finished, from its first beginning on
    round_trips: int | None = None  # of the same run
    sent_bytes: int | None = None  # by all its sites


def run_totals(events: list[dict[str, Any]]) -> RunTotals:
    """Add up the events of a history.

    >>> at = "2026-11-18T12:00:0{}+00:00".format
    >>> totals = run_totals([
    ...     {"time": at(1), "run": "a", "event": "begun"}, {"time": at(2), "run": "a", "event": "failed"},
    ...     {"time": at(3), "run": "a", "event": "begun"},
    ...     {"time": at(5), "run": "a", "event": "finished", "exchanges": 7, "bytes": 90}])
    >>> totals.outcomes, totals.seconds, totals.round_trips, totals.sent_bytes
    ({'finished': 1, 'failed': 0}, 4.0, 7, 90)
    """
    totals = RunTotals()
    began: dict[str, float] = {}
    last: dict[str, str] = {}
    for event in events:
        run, kind = str(event["run"]), str(event["event"])
        when = datetime.fromisoformat(event["time"]).timestamp()
        if kind == BEGUN:
            began.setdefault(run, when)
        elif kind in totals.outcomes:
            last[run] = kind
        if kind == FINISHED:
            totals.last_success, totals.seconds = when, when - began.get(run, when)
            totals.round_trips, totals.sent_bytes = int(event["exchanges"]), int(event["bytes"])
    for kind in last.values():
        totals.outcomes[kind] += 1
    return totals


def totals_text(totals: RunTotals) -> str:
    """Return what the history adds up to as a line for a person.

    >>> totals_text(RunTotals())
    'runs that ended: 0 finished, 0 failed'
    >>> totals_text(RunTotals({"finished": 2, "failed": 1}, 1.7e9, 33.4, 14, 2000)).split("; ")[1]
    'last success 2023-11-14T22:13:20+00:00, 33 s, 14 round trips, 2,000 bytes'
    """
    text = f"runs that ended: {totals.outcomes[FINISHED]} finished, {totals.outcomes[FAILED]} failed"
    if totals.last_success is None:
        return text
    when = datetime.fromtimestamp(totals.last_success, UTC).isoformat(timespec="seconds")
    return (
        f"{text}; last success {when}, {totals.seconds:.0f} s, {totals.round_trips} round trips, "
        f"{totals.sent_bytes:,} bytes"
    )


def event_text(event: dict[str, Any]) -> str:
    """Return an event as a sentence for the server's log.

    >>> event_text({"run": "a", "event": "submitted", "title": "k-means of heart", "contact": "Dr. Low"})
    "run a was submitted: study 'k-means of heart', contact Dr. Low"
    >>> event_text({"run": "a", "event": "finished", "rounds": 9, "exchanges": 14, "bytes": 2000})
    'run a finished after 9 rounds and 14 round trips; the sites sent 2,000 bytes'
    """
    match event["event"]:
        case "submitted":
            return f"run {event['run']} was submitted: study {event['title']!r}, contact {event['contact']}"
        case "finished":
            return (
                f"run {event['run']} finished after {event['rounds']} rounds and {event['exchanges']} round "
                f"trips; the sites sent {event['bytes']:,} bytes"
            )
        case "failed":
            return f"run {event['run']} failed: {event['cause']}"
        case _:
            return f"run {event['run']} began"
