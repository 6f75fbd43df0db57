"""A job from its files to its folder and report: what ``fit``, ``run`` and ``resume`` share."""

import json
import shutil
from pathlib import Path

import typer
from rich.console import Console

from unpooled.app.cli.progress import LiveLine, progress
from unpooled.app.cli.summary import show, show_private
from unpooled.app.job import Job
from unpooled.app.private_result import PrivateOutcome
from unpooled.app.report import page
from unpooled.app.result import Outcome
from unpooled.app.run_folder import RunFolder
from unpooled.core.disk import write_atomically
from unpooled.core.run import run
from unpooled.errors import EngineFailed, SchemaMismatch, TooFewAnswers, UnpooledError


def perform(
    job: Job, folder: RunFolder | None, report: Path | None, *, new: bool, as_json: bool, threads: int | None
) -> Outcome | PrivateOutcome:
    """Run the job, write all that it makes, and print the summary or the JSON."""
    with progress(quiet=as_json) as shown:
        try:
            outcome = (_run if job.between is None else _run_between)(job, folder, shown, new, threads)
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
    job: Job, folder: RunFolder | None, shown: LiveLine, new: bool, threads: int | None
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


def _run_between(
    job: Job, folder: RunFolder | None, shown: LiveLine, new: bool, threads: int | None
) -> Outcome | PrivateOutcome:
    """Have the sites of a federation do the job, and take over what its server kept of it."""
    from unpooled.app.cli.run import see_through

    assert job.between is not None
    assert folder is not None
    made = folder.begin(job) if new else False
    try:
        if not folder.checkpoint.exists():
            checkpoint = see_through(job, job.between, shown)
            write_atomically(folder.checkpoint, checkpoint.read_bytes())
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
        done = folder.load_run(job)
        return Outcome(job, done) if job.epsilon is None else PrivateOutcome(job, done)
    except KeyboardInterrupt:
        typer.echo(f"unpooled: the run goes on; unpooled resume {folder.path} follows it", err=True)
        raise
    except (EngineFailed, TooFewAnswers) as error:
        raise type(error)(f"{error}; unpooled resume {folder.path} goes on") from error
    except UnpooledError:
        if new:
            folder.give_up(made)
            shutil.rmtree(Path(job.between.federation) / "runs" / job.between.run, ignore_errors=True)
        raise


def _show_table(mismatch: SchemaMismatch) -> None:
    if len(mismatch.table) < 2:
        return
    from rich.table import Table

    table = Table(*mismatch.table[0], title="Columns that are not alike (- : the site has none)")
    for row in mismatch.table[1:]:
        table.add_row(*row)
    Console(stderr=True, highlight=False).print(table)
