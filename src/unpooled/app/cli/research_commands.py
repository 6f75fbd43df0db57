"""``unpooled methods`` and ``unpooled example``: the list of methods, and tables to try them on."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli.options import Overwrite
from unpooled.app.outputs import check
from unpooled.errors import InputError

_EXAMPLES = {"heart": "heart_disease.csv", "penguins": "penguins.csv"}
_WITH_RUN = "penguins"


def methods() -> None:
    """List the methods: when to use each, what it needs of the sites, and what to cite.

    unpooled methods
    """
    from rich.console import Console
    from rich.table import Table

    from unpooled.algorithms.registry import list_methods

    table = Table("method", "use it when", "what it needs")
    for entry in list_methods():
        table.add_row(entry.method, entry.advice, entry.visibility)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Methods that need only totals can run with secure sums. Without them the coordinator receives each "
        "site's answer."
    )
    console.print("Restarts of any method share its round trips: n_init, or Restarts(method, n) in Python.\n")
    for cited in dict.fromkeys(entry.citation for entry in list_methods()):
        names = [entry.method for entry in list_methods() if entry.citation == cited]
        console.print(f"[bold]{', '.join(names)}[/bold]: {cited}")


def example(
    name: Annotated[str, typer.Argument(help="Name of the example: heart or penguins.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="File to write (default: the table's own name, in this folder); with --run, the folder of "
            "the figure (default: penguins).",
        ),
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Cluster the penguins, one site per island, and compare with pooling."),
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write an example table and print what to cite for it, or run the example.

    unpooled example penguins --run
    """
    if name not in _EXAMPLES:
        raise InputError(f"the examples are {', '.join(_EXAMPLES)}, got {name!r}")
    if run and name != _WITH_RUN:
        raise InputError(f"example {name} has no run; {_WITH_RUN} has")
    if run:
        _run(out or Path(_WITH_RUN), overwrite)
    else:
        _write(_EXAMPLES[name], out or Path(_EXAMPLES[name]), overwrite)


def _run(folder: Path, overwrite: bool) -> None:
    from rich.console import Console

    from unpooled.app.demo import FIGURE, main

    check(folder / FIGURE, overwrite=overwrite, make_folders=True)
    main(folder, Console(highlight=False))


def _write(file: str, path: Path, overwrite: bool) -> None:
    from importlib.resources import files

    from unpooled.storage.atomic_files import write_atomically

    shipped = files("unpooled.data.examples")
    check(path, inputs=[str(shipped / file)], overwrite=overwrite)
    write_atomically(path, (shipped / file).read_bytes(), shared=True)
    about = (shipped / f"{file.removesuffix('.csv').upper()}.md").read_text(encoding="utf-8")
    typer.echo(f"{about}\nwritten: {path}")
