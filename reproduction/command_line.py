"""The command line of ``python -m reproduction``."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.table import Column, Table
from typer.core import TyperCommand

from reproduction import compare_methods, recorded
from reproduction.catalogue import COMPARE, NAMES, RECORDED, RECORDED_QUICK, find, select
from reproduction.data_sources import FILES, Sources
from reproduction.experiment import Experiment, Task
from reproduction.output import FinishedExperiment, markdown_table, page, verdict_text, write
from reproduction.result_store import Store
from reproduction.runner import finish
from reproduction.worker import Progress
from unpooled.app.outputs import FolderOutput, check
from unpooled.errors import InputError, UnpooledError
from unpooled.storage.atomic_files import write_atomically

PROGRAM = "python -m reproduction"
PAGES = "pages"


class OneLineErrors(TyperCommand):
    """A command that prints an expected error as one line and exits with code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except UnpooledError as error:
            text = str(error)
        except OSError as error:
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        typer.echo(f"{PROGRAM}: {text}", err=True)
        raise typer.Exit(1)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=OneLineErrors)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="An experiment (garst-fig1), several with commas between them, all experiments of a paper "
            "(garst), all, or compare: the comparison of all methods in the documentation. pages runs "
            "nothing, and writes the pages of docs/ from the recorded results."
        ),
    ] = "",
    listed: Annotated[bool, typer.Option("--list", help="List the experiments, and run none.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do fewer runs. They are the first ones of the full set.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the authors' own data, if you have it.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel processes (default: all cores).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, tables and figures.")] = Path("reproduced"),
    runs: Annotated[
        int | None, typer.Option(help="Number of runs of every configuration (default: as in the paper).")
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--record", help="Write the results to reproduction/results and to the pages of docs/."),
    ] = False,
    stored: Annotated[
        bool,
        typer.Option("--stored", help="With --record: run nothing, and record what is saved in --out."),
    ] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only configurations with this setting, such as method=k-FED (repeatable)."),
    ] = None,
) -> None:
    """Recompute tables and figures of the papers, and compare them with the published numbers.

    Every result is saved when it is computed. A run that was stopped continues where it stopped.

    python -m reproduction --list

    python -m reproduction garst-fig1 --quick
    """
    console = Console(highlight=False)
    if listed:
        console.print(_list_of_experiments())
        return
    if not name:
        raise InputError(f"No experiment is named. {PROGRAM} --list lists them.")
    if (where or stored) and not keep:
        raise InputError("--where and --stored choose what is recorded. Use them with --record.")
    if name == PAGES:
        _write_pages(console)
        return
    count = jobs if jobs is not None else os.cpu_count() or 1
    if name == COMPARE:
        _compare(console, data, out, quick=quick, runs=runs, jobs=count, keep=keep)
        return
    sources = Sources(data)
    experiments = _available(console, select(name), sources, leave_out=name == "all")
    inputs = [data, *(data / file for file in FILES.values())] if data is not None else []
    check(results_folder(out), inputs=inputs)
    start = time.perf_counter()
    if where:
        experiments = [recorded.only_some(e, where) for e in experiments]
    finished = []
    for e in experiments:  # one by one, so that a run that is stopped has recorded what it finished
        n = runs if runs is not None or not keep else RECORDED.get(e.name)
        if stored:
            e = recorded.only_stored(e, Store(out), sources, runs=n)
        small = quick or (keep and e.name in RECORDED_QUICK)
        for one in finish([e], sources, out, quick=small, runs=n, jobs=count, watch=progress_bar):
            finished.append(one)
            if keep:
                recorded.record(one)
            _print(console, one, write(one, out))
    if keep:
        _write_pages(console)
    seconds = time.perf_counter() - start
    if len(finished) > 1:
        write_atomically(out / "index.html", page(finished).encode())
        console.print(f"written: {out / 'index.html'}", soft_wrap=True, markup=False)
    console.print(f"time: {seconds:.0f} s with {count} process{'es' if count > 1 else ''}")


def results_folder(out: Path) -> FolderOutput:
    """Return the folder of saved results as an output: a run continues with the results in it."""
    own = any((out / "results" / name).is_dir() for name in (*NAMES, COMPARE))
    return FolderOutput(out, "a folder of results", own=own, resumed=True)


def _write_pages(console: Console) -> None:
    for path in recorded.write_pages():
        console.print(f"written: {path}", soft_wrap=True, markup=False)


def _available(
    console: Console, experiments: Sequence[Experiment], sources: Sources, *, leave_out: bool
) -> list[Experiment]:
    """The experiments whose data exist; of the others the missing file is named, or they are left out."""
    available = []
    for e in experiments:
        missing = [needed for needed in e.needs if not sources.has(needed)]
        if missing and leave_out:
            console.print(f"{e.name} is left out: it needs {', '.join(missing)} in --data")
            continue
        for needed in missing:
            sources.path(needed)  # raises an error that names the missing file
        available.append(e)
    return available


def _print(console: Console, one: FinishedExperiment, path: Path) -> None:
    console.print(f"\n[bold]{one.experiment.name}[/bold]: {one.experiment.title}")
    console.print(verdict_text(one), soft_wrap=True, markup=False)
    for table in one.presented.tables:
        console.print(f"\n{table.title}", markup=False)
        console.print(markdown_table(table), soft_wrap=True, markup=False)
    for i, note in enumerate(one.presented.notes, start=1):
        console.print(f"Note {i}. {note}", soft_wrap=True, markup=False)
    console.print(f"written: {path}", soft_wrap=True, markup=False)


def _compare(
    console: Console, data: Path | None, out: Path, *, quick: bool, runs: int | None, jobs: int, keep: bool
) -> None:
    """Run every method on every data set and split of the documentation, and print one line per method."""
    if data is not None:
        raise InputError(f"{COMPARE} reads no data folder. Run it without --data.")
    check(results_folder(out))
    experiment, sources = find(COMPARE), Sources()
    if keep and runs is None:
        runs = compare_methods.RECORDED
    (done,) = finish([experiment], sources, out, quick=quick, runs=runs, jobs=jobs, watch=progress_bar)
    head, *lines = compare_methods.short(Store(out).results(experiment.tasks(sources, quick, runs)))
    if keep:
        compare_methods.write_page([head, *lines], done.presented.figures)
    table = Table(*head, title=f"{done.runs_text}; the lowest inertia first")
    for line in lines:
        table.add_row(*line)
    console.print(table)
    console.print(f"written: {write(done, out)}", soft_wrap=True, markup=False)


def _list_of_experiments() -> Table:
    name = Column("experiment", no_wrap=True)
    table = Table(name, "content", "runs", "quick", "needs in --data")
    for e in map(find, (*NAMES, COMPARE)):
        table.add_row(e.name, e.title, str(e.full), str(e.quick), ", ".join(e.needs) or "nothing")
    return table


@contextmanager
def progress_bar(count: int) -> Iterator[Progress]:
    """Show a progress bar with the remaining time, if stderr is a terminal."""
    if not count or not sys.stderr.isatty():
        yield lambda task: None
        return
    display = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("· remaining"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with display:
        bar = display.add_task("starting", total=count)

        def advance(task: Task) -> None:
            display.update(bar, advance=1, description=task.experiment)

        yield advance
