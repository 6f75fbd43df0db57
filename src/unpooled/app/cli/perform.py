"""A job from the command line: done, written, and summed up; what ``fit``, ``run`` and ``resume`` share."""

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from unpooled.app.cli.progress import progress
from unpooled.app.cli.summary import show
from unpooled.app.execute import execute
from unpooled.app.job import Job
from unpooled.app.result import Result
from unpooled.app.run_folder import RunFolder
from unpooled.core.disk import write_atomically
from unpooled.errors import SchemaMismatch


def perform(
    job: Job, folder: RunFolder | None, report: Path | None, *, new: bool, as_json: bool, threads: int | None
) -> Result:
    """Do a job, write all that it makes, and print the summary or the JSON."""
    with progress(quiet=as_json) as watcher:
        try:
            result = execute(job, folder, watcher, new=new, threads=threads, stopped=_stopped)
        except SchemaMismatch as mismatch:
            _show_table(mismatch)
            raise
        page = result.report() if report is not None else None
        if report is not None and page is not None:
            write_atomically(report, page.encode())
    if as_json:
        typer.echo(json.dumps(result.to_json(), ensure_ascii=False))
        return result
    console = Console(highlight=False)
    show(result, console)
    for path in ([folder.path] if folder else []) + ([report] if report else []):
        console.print(f"written: {path}", soft_wrap=True, markup=False)
    return result


def _stopped(how: str) -> None:
    typer.echo(f"unpooled: {how}", err=True)


def _show_table(mismatch: SchemaMismatch) -> None:
    if len(mismatch.table) < 2:
        return
    table = Table(*mismatch.table[0], title="Columns that are not alike (- : the site has none)")
    for row in mismatch.table[1:]:
        table.add_row(*row)
    Console(stderr=True, highlight=False).print(table)
