"""``python -m reproduction``: a paper's tables and figures, recomputed beside the published numbers."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli.outputs import FolderOutput, check

if TYPE_CHECKING:
    from reproduction.experiment import Task
    from reproduction.worker import Progress
    from rich.table import Table


def reproduce(
    name: Annotated[
        str, typer.Argument(help="An experiment (garst-fig1), a paper (garst), all; or list: shows them.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs; they are the first of the full set.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the authors' own data, if you have it.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel processes; default: all cores.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, tables and figures.")] = Path("reproduced"),
    runs: Annotated[int | None, typer.Option(help="Number of runs of everything, instead.")] = None,
) -> None:
    """Recompute a table or a figure of a paper, and compare it with the published numbers.

    Results are saved as they are computed: a run that was stopped continues where it was.

    python -m reproduction garst-fig1 --quick
    """
    from reproduction.catalogue import chosen
    from reproduction.data_sources import FILES, Sources
    from reproduction.output import markdown_table, page, verdict_text, write
    from reproduction.runner import finish
    from rich.console import Console

    from unpooled.storage.atomic_files import write_atomically

    console = Console(highlight=False)
    sources = Sources(data)
    if name.upper() == "LIST":
        console.print(_listed())
        return
    read = [data, *(data / file for file in FILES.values())] if data is not None else []
    check(results_output(out), inputs=read)
    every = name == "all"
    wanted = chosen(name)
    missing = {e.name: [n for n in e.needs if not sources.has(n)] for e in wanted}
    if every:  # name the experiments without data, and run the others
        for e in wanted:
            if missing[e.name]:
                console.print(f"{e.name} is left out: it needs {', '.join(missing[e.name])} in --data")
        wanted = tuple(e for e in wanted if not missing[e.name])
    for e in wanted:
        for needed in missing[e.name]:
            sources.path(needed)  # raises an error that names the missing file
    count = jobs if jobs is not None else os.cpu_count() or 1
    start = time.perf_counter()
    done = finish(wanted, sources, out, quick=quick, runs=runs, jobs=count, watch=bar)
    took = time.perf_counter() - start
    for one in done:
        path = write(one, out)
        console.print(f"\n[bold]{one.experiment.name}[/bold]: {one.experiment.title}")
        console.print(verdict_text(one), soft_wrap=True, markup=False)
        for table in one.presented.tables:
            console.print(f"\n{table.title}", markup=False)
            console.print(markdown_table(table), soft_wrap=True, markup=False)
        for i, note in enumerate(one.presented.notes, start=1):
            console.print(f"Note {i}. {note}", soft_wrap=True, markup=False)
        console.print(f"written: {path}", soft_wrap=True, markup=False)
    if len(done) > 1:
        write_atomically(out / "index.html", page(done).encode())
        console.print(f"written: {out / 'index.html'}", soft_wrap=True, markup=False)
    console.print(f"time: {took:.0f} s with {count} process{'es' if count > 1 else ''}")


def results_output(out: Path) -> FolderOutput:
    """The folder of saved results: a run continues with those that exist."""
    from reproduction.catalogue import NAMES

    own = any((out / "results" / name).is_dir() for name in (*NAMES, "compare"))
    return FolderOutput(out, "a folder of results", own=own, resumed=True)


def _listed() -> "Table":
    from reproduction.catalogue import NAMES, find
    from rich.table import Table

    table = Table("experiment", "what", "runs", "quick", "needs in --data")
    for e in map(find, NAMES):
        table.add_row(e.name, e.title, str(e.full), str(e.quick), ", ".join(e.needs) or "nothing")
    return table


@contextmanager
def bar(count: int) -> "Iterator[Progress]":
    """A progress bar with the remaining time, if stderr is a terminal."""
    if not count or not sys.stderr.isatty():
        yield lambda task: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("· left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with shown:
        at = shown.add_task("starting", total=count)

        def progress(task: "Task") -> None:
            shown.update(at, advance=1, description=task.experiment)

        yield progress
