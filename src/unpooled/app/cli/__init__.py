"""The command line. Each command imports what it needs when it runs, so that ``unpooled --help`` is fast.

Exit codes: 0 for success, 1 for an error with one line on stderr, 2 for wrong usage; ``status`` has more.
"""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli import copy_changes  # noqa: F401  (adds its commands to copy)
from unpooled.app.cli import options as o
from unpooled.app.cli.backup import backup, restore
from unpooled.app.cli.certify import certify
from unpooled.app.cli.compare import compare
from unpooled.app.cli.copy import copy
from unpooled.app.cli.desk import desk
from unpooled.app.cli.federation import federation, serve
from unpooled.app.cli.fit import fit, resume
from unpooled.app.cli.join import join, leave
from unpooled.app.cli.model import example, export, predict, report
from unpooled.app.cli.officer import dossier, release
from unpooled.app.cli.outputs import Overwrite, check
from unpooled.app.cli.policy import audit, policy, sums
from unpooled.app.cli.reproduce import reproduce
from unpooled.app.cli.run import export_job, run
from unpooled.app.cli.status import status
from unpooled.app.cli.study import study

app = typer.Typer(
    cls=o.OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Cluster data that cannot be pooled.",
    epilog="Begin with: unpooled example heart, then "
    "unpooled fit heart_disease.csv --site-column site --exclude num --categorical cp,restecg,slope,thal "
    "--na chol=0 -k 2..6 --report report.html",
)


app.callback()(o.version)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure; created if needed.")] = Path("demo"),
    overwrite: Overwrite = False,
) -> None:
    """Cluster the penguins of three islands, one site per island, and compare with pooling."""
    from rich.console import Console

    from unpooled.app.demo import FIGURE, main

    check(out / FIGURE, overwrite=overwrite, make_folders=True)
    main(out, Console(highlight=False))


@app.command()
def methods() -> None:
    """List the methods: when to use each, what the coordinator sees, and what to cite."""
    from rich.console import Console
    from rich.table import Table

    from unpooled.algorithms.method import list_methods

    table = Table("method", "use it when", "the coordinator sees")
    for entry in list_methods():
        table.add_row(entry.method, entry.advice, entry.visibility)
    console = Console(highlight=False)
    console.print(table)
    console.print("Restarts of any of them, in the same exchanges: n_init, or BestOf(method, n) in Python.\n")
    for cited in dict.fromkeys(entry.citation for entry in list_methods()):
        names = [entry.method for entry in list_methods() if entry.citation == cited]
        console.print(f"[bold]{', '.join(names)}[/bold]: {cited}")


app.add_typer(copy, name="copy", cls=o.GroupOnLinux)
app.add_typer(study, name="study", cls=o.GroupOnLinux)
app.add_typer(policy, name="policy")
app.add_typer(sums, name="sums", cls=o.GroupOnLinux)
app.add_typer(audit, name="audit", cls=o.GroupOnLinux)
_FILES = (fit, resume, predict, export, report, certify, example)
_MACHINES = (serve, run, join, status, desk, leave, backup, restore, export_job)
_RESEARCH = (reproduce, compare)
for _command in (*_FILES, *_RESEARCH):
    app.command()(_command)
for _served in (*_MACHINES, dossier, release):
    app.command(cls=o.OnLinux)(_served)
app.add_typer(federation, name="federation", cls=o.GroupOnLinux)
