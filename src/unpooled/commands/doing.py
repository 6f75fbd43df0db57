"""A job from its files to its folder and report: what ``fit`` and ``resume`` share."""

import json
from pathlib import Path

import typer
from rich.console import Console

from unpooled.checkpoint import write_atomically
from unpooled.commands.progress import Progress, progress
from unpooled.commands.summary import show, show_private
from unpooled.errors import SchemaMismatch
from unpooled.jobs import Job
from unpooled.outcome import Outcome
from unpooled.private_outcome import PrivateOutcome
from unpooled.report import page
from unpooled.runfolder import RunFolder
from unpooled.running import run


def perform(
    job: Job, folder: RunFolder | None, report: Path | None, *, new: bool, as_json: bool, threads: int | None
) -> Outcome | PrivateOutcome:
    """Run the job, write all that it makes, and print the summary or the JSON."""
    with progress(quiet=as_json) as shown:
        try:
            outcome = _run(job, folder, shown, new, threads)
        except SchemaMismatch as mismatch:
            _show_table(mismatch)
            raise
        shown.say("writing")
        if folder is not None:
            folder.finish(outcome)
            if isinstance(outcome, Outcome):
                write_atomically(folder.report, page(outcome).encode())
        if report is not None and isinstance(outcome, Outcome):
            write_atomically(report, page(outcome).encode())
    if as_json:
        typer.echo(json.dumps(outcome.to_json(), ensure_ascii=False))
        return outcome
    console = Console(highlight=False)
    if isinstance(outcome, PrivateOutcome):
        show_private(outcome, console)
    else:
        show(outcome, console)
    for path in ([folder.path] if folder else []) + ([report] if report else []):
        console.print(f"written: {path}", soft_wrap=True, markup=False)
    return outcome


def _run(
    job: Job, folder: RunFolder | None, shown: Progress, new: bool, threads: int | None
) -> Outcome | PrivateOutcome:
    shown.say(f"reading {len(job.files)} files" if len(job.files) > 1 else f"reading {job.files[0]}")
    federation = job.federation(threads)
    made = folder.begin(job) if folder is not None and new else False
    shown.say("agreeing on columns and scales, looking for starts")
    try:
        done = run(
            job.algorithm(),
            federation,
            seed=job.seed,
            checkpoint=folder.checkpoint if folder is not None else None,
            progress=shown,
        )
    except BaseException as error:
        if folder is not None and new:
            folder.give_up(made)
        if isinstance(error, KeyboardInterrupt) and folder is not None and folder.checkpoint.exists():
            typer.echo(f"unpooled: stopped; unpooled resume {folder.path} goes on", err=True)
        raise
    return Outcome(job, done) if job.epsilon is None else PrivateOutcome(job, done)


def _show_table(mismatch: SchemaMismatch) -> None:
    if len(mismatch.table) < 2:
        return
    from rich.table import Table

    table = Table(*mismatch.table[0], title="Columns that are not alike (- : the site has none)")
    for row in mismatch.table[1:]:
        table.add_row(*row)
    Console(stderr=True, highlight=False).print(table)
