"""``unpooled compare``: all methods, sets, splits and seeds, from the same starts with the same budget."""

import os
from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli.outputs import check


def compare(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds.")] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel processes; default: all cores.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, tables and figures.")] = Path("compared"),
    runs: Annotated[int | None, typer.Option(help="Number of seeds, instead.")] = None,
) -> None:
    """Run every method on every data set and split, and compare quality and cost."""
    from rich.console import Console
    from rich.table import Table

    from unpooled.app.cli.reproduce import bar, results_output
    from unpooled.experiments.papers.compare import EXPERIMENT, short
    from unpooled.experiments.papers.data_sources import Sources
    from unpooled.experiments.papers.output import write
    from unpooled.experiments.papers.result_store import Store
    from unpooled.experiments.papers.runner import finish

    count = jobs if jobs is not None else os.cpu_count() or 1
    sources = Sources()
    check(results_output(out))
    (done,) = finish([EXPERIMENT], sources, out, quick=quick, runs=runs, jobs=count, watch=bar)
    head, *lines = short(Store(out).results(EXPERIMENT.tasks(sources, quick, runs)))
    console = Console(highlight=False)
    table = Table(*head, title=f"{done.runs}; the best by inertia first")
    for line in lines:
        table.add_row(*line)
    console.print(table)
    console.print(f"written: {write(done, out)}", soft_wrap=True, markup=False)
