"""Run a job with a line of progress, write its files, and print its result."""

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Column, Table

from unpooled.app.cli.print_result import print_result
from unpooled.app.event_log import EventLog

if TYPE_CHECKING:  # not imported at run time, so that --help is fast
    from unpooled.app.job import Job
    from unpooled.app.result import JobResult
    from unpooled.app.run_folder import RunFolder
    from unpooled.app.run_remote import RemoteRun


def run_and_print(
    job: "Job",
    folder: "RunFolder | None",
    report: Path | None,
    *,
    new: bool,
    as_json: bool,
    threads: int | None,
    timings: bool = False,
    prepared: "RemoteRun | None" = None,
    verbose: bool = False,
) -> "JobResult":
    """Run a job, write all its files, and print the result or its JSON; with ``timings``, the seconds too.

    ``prepared`` is a new run between machines. With ``verbose`` lines of a log replace the line of progress.
    """
    from unpooled.app.progress import ProgressLine, progress
    from unpooled.app.run_job import execute
    from unpooled.storage.atomic_files import write_atomically

    shown: contextlib.AbstractContextManager[ProgressLine] = progress(quiet=as_json)
    if verbose and folder is not None:
        log = EventLog(folder.path.name, verbose=True, stream=sys.stderr)
        shown = contextlib.nullcontext(ProgressLine(log.detail))
    with shown as observer:
        result = execute(job, folder, observer, new=new, threads=threads, prepared=prepared, stopped=_stopped)
        if report is not None:
            observer.activity("writing", "report")
        page = result.report() if report is not None else None
        if report is not None and page is not None:
            write_atomically(report, page.encode(), shared=True)
        seconds = phases(observer.marks, time.monotonic(), result)
    if timings:
        table = Table("phase", Column("seconds", justify="right"), title="Timings")
        for name, took in (*seconds.items(), ("all", sum(seconds.values()))):
            table.add_row(name, f"{took:.3f}")
        Console(stderr=True, highlight=False).print(table)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), ensure_ascii=False))
        return result
    console = Console(highlight=False)
    print_result(result, console)
    for path in ([folder.path] if folder else []) + ([report] if report else []):
        console.print(f"written: {path}", soft_wrap=True, markup=False)
    if folder is None and report is None and job.epsilon is None:
        console.print("Add --report report.html for the report as a page.")
    return result


def phases(marks: Sequence[tuple[str, float]], end: float, result: "JobResult | None") -> dict[str, float]:
    """Return the seconds of each phase of a job, in their order.

    The last rounds of an analysis have names of their own.

    >>> phases([("reading", 0.0), ("columns and starts", 2.0), ("rounds", 3.0), ("files", 3.5)], 4.0, None)
    {'reading': 2.0, 'columns and starts': 1.0, 'rounds': 0.5, 'files': 0.5}
    """
    from unpooled.app.progress import ROUND
    from unpooled.app.result import ClusterResult

    names = [name for name, _ in marks]
    rounds = [i for i, name in enumerate(names) if name == ROUND]
    if isinstance(result, ClusterResult) and rounds:
        last = ["choice of k", "description", *(["certificate"] if result.job.certify else [])]
        for i, name in zip(reversed(rounds), reversed([*last, "result"]), strict=False):
            names[i] = name
    seconds: dict[str, float] = {}
    for i, name in enumerate(names):
        until = marks[i + 1][1] if i + 1 < len(marks) else end
        seconds[name] = seconds.get(name, 0.0) + until - marks[i][1]
    return seconds


def _stopped(how: str) -> None:
    typer.echo(f"unpooled: {how}", err=True)
