"""``unpooled compare``: all methods side by side, on files of your own, on a suite of sets, or on all sets of
the documentation."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import option_types as t
from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import FolderOutput, Overwrite, check
from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.app.compare import Comparison, Problem

_DATA, _WHAT = "Data", "What is compared"


@o.takes_options
def compare(
    reading: o.ReadingOptions,
    files: Annotated[list[str] | None, typer.Argument(help=f"{t.FILES}; every file is a site.")] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="shapes, tabular, images, private or debian (sets of R packages), or all; or a folder: "
            "every table in it is a set.",
            rich_help_panel=_DATA,
        ),
    ] = "",
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            help="Number of clusters of the files; of a folder's sets: default as many as labels.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    site_column: o.SiteColumn = None,
    label: Annotated[
        str,
        typer.Option(help="Column with true labels: for the ARI, never clustered.", rich_help_panel=_DATA),
    ] = "",
    split: Annotated[
        str,
        typer.Option(
            help="Divide the rows anew: iid, dirichlet:.3, power-law:1.5, by-kmeans, half-iid, shards:2 or "
            "labels:2; sets without sites of their own: dirichlet:.3, or iid without labels.",
            rich_help_panel=_DATA,
        ),
    ] = "",
    sites: Annotated[int, typer.Option(help="Sites of a split.", rich_help_panel=_DATA)] = 10,
    data: Annotated[
        Path | None, typer.Option(help="Folder with further sets for a suite.", rich_help_panel=_DATA)
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="Methods, with commas between; dwf:published is DWF as its authors ran it. Default: all "
            "methods.",
            rich_help_panel=_WHAT,
        ),
    ] = "",
    module: t.Module = None,
    protect: Annotated[
        str, typer.Option(help="Protections, with commas between.", rich_help_panel=_WHAT)
    ] = "none,summary,raw,dp",
    epsilon: Annotated[float, typer.Option(help="Budget of noise.", rich_help_panel=_WHAT)] = 1.0,
    runs: Annotated[int | None, typer.Option(help="Number of seeds.", rich_help_panel=_WHAT)] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Without files and suite: fewer seeds.", rich_help_panel=_WHAT)
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(help="Without files and suite: number of processes.", rich_help_panel=_WHAT),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and results.")] = Path("compared"),
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
) -> None:
    """Run every method on the same rows, and compare quality, cost, and the rows that an attack rebuilds.

    Most of the time goes into the attacks: minutes for some hundred rows; --method and --protect name fewer.

    unpooled compare hospital-*.csv -k 3 --label diagnosis --out compared/

    unpooled compare --suite my-sets/ --label class     (every table in the folder is a set)

    Without files and --suite: the sets, splits and methods of the documentation.
    """
    if not files and not suite:
        if data is not None:
            raise InputError("--data is a folder with further sets for --suite images or debian")
        _documented(quick, jobs, out, runs)
        return
    if files and suite:
        raise InputError("give files or --suite, not both")
    if not files and not _is_folder(suite):
        for name, given in (("-k", k), ("--label", label), ("--site-column", site_column)):
            if given:
                raise InputError(
                    f"{name} is of files or a folder; the sets of --suite {suite} have their own"
                )
    if files and k is None:
        raise InputError("-k says how many clusters the files have, e.g. -k 3")
    from unpooled.algorithms.method import import_methods
    from unpooled.app.compare import PROTECTIONS, methods_and_presets
    from unpooled.app.compare import compare as measure

    import_methods(module or [])
    chosen, protections = o.names(method), o.names(protect)
    for said, known, what in (
        (chosen, methods_and_presets(), "method"),
        (protections, PROTECTIONS, "protect"),
    ):
        for name in said:
            if name not in known:
                raise InputError(f"--{what} must be of {', '.join(known)}, got {name!r}")
    if runs is not None and runs < 1:
        raise InputError(f"--runs must be >= 1, got {runs}")
    problems = _problems(files, suite, k, reading.reading(site_column), label, split, sites, data)
    folder = FolderOutput(out, "a folder of comparisons", own=(out / _JSON).is_file())
    inputs = [*(files or ()), data, Path(suite) if _is_folder(suite) else None]
    check(folder, inputs=inputs, overwrite=overwrite)
    found = []
    for problem in problems:
        typer.echo(f"{problem.name}: {len(problem.X)} rows", err=True)
        seeds = range(1 if runs is None else runs)
        with _saying() as say:
            found.append(
                measure(
                    problem, methods=chosen, protections=protections, seeds=seeds, epsilon=epsilon, say=say
                )
            )
    _write(found, out, as_json)


_JSON = "comparison.json"


@contextmanager
def _saying() -> Iterator[Callable[[str], None]]:
    """A line of progress; without a terminal, a line on stderr for everything that is begun."""
    from unpooled.app.run_job import progress

    with progress(quiet=False) as line:
        yield line.activity if sys.stderr.isatty() else lambda what: typer.echo(f"  {what}", err=True)


def _is_folder(suite: str) -> bool:
    """Whether a folder was said: one that is there, or a path as such."""
    from unpooled.app.compare import SUITES

    return suite not in ("", "all", *SUITES) and (os.sep in suite or Path(suite).is_dir())


def _problems(
    files: list[str] | None,
    suite: str,
    k: int | None,
    reading: object,
    label: str,
    split: str,
    sites: int,
    data: Path | None,
) -> "list[Problem]":
    from unpooled.app import compare
    from unpooled.app.job import expand

    if data is not None and suite not in ("images", "debian", "all"):
        said = suite or "files"
        raise InputError(
            f"--data is a folder with further sets for --suite images or debian; {said} takes none"
        )
    if files:
        paths = [Path(file) for file in expand(files)]
        found = [compare.from_files(paths, k or 0, reading=reading, label=label)]  # type: ignore[arg-type]
    elif _is_folder(suite):
        found = list(compare.from_folder(Path(suite), k=k, reading=reading, label=label))  # type: ignore[arg-type]
    else:
        from unpooled.app.compare.r_sets import any_installed, missing_packages

        more = {"images": data, "debian": data if suite == "debian" else None}
        gone = missing_packages(more["debian"]) if suite in ("debian", "all") else []
        wanted = tuple(compare.SUITES) if suite == "all" else (suite,)
        found = []
        for name in wanted:
            if suite == "all" and name == "debian" and not any_installed():
                continue
            found += compare.suite(name, data=more.get(name))
        if gone:
            typer.echo(f"left out, of the suite debian: apt install {' '.join(gone)}", err=True)
    return [
        compare.split_of(p, split or ("iid" if p.y is None else "dirichlet:.3"), sites)
        if split or p.site is None
        else p
        for p in found
    ]


def _write(found: "list[Comparison]", out: Path, as_json: bool) -> None:
    import json

    from reproduction.output import aligned, standing_alone
    from rich.console import Console

    from unpooled.app import compare
    from unpooled.app.compare.comparison_table import notes
    from unpooled.storage.atomic_files import write_atomically

    out.mkdir(parents=True, exist_ok=True)
    console, parts = Console(highlight=False), []
    content = json.dumps(compare.to_json(found), indent=1)
    for i, measured in enumerate(found):
        said = aligned(compare.table(measured), 2) + "\n" + "\n".join(notes(measured)) + "\n"
        drawn = compare.figure(measured)
        link = ""
        if drawn:
            name = f"figure-{i + 1}.svg"
            write_atomically(out / name, standing_alone(drawn).encode())
            link = f"\n![quality against rows rebuilt]({name})\n"
        parts.append(f"## {measured.problem}\n\n{said}{link}")
        if not as_json:
            console.print(f"\n[bold]{measured.problem}[/bold]")
            console.print(said, soft_wrap=True, markup=False)
    write_atomically(out / "comparison.md", ("# All methods side by side\n\n" + "\n".join(parts)).encode())
    write_atomically(out / _JSON, content.encode())
    if as_json:
        typer.echo(content)
    else:
        console.print(f"written: {out / 'comparison.md'}", soft_wrap=True, markup=False)


def _documented(quick: bool, jobs: int | None, out: Path, runs: int | None) -> None:
    """The comparison of the documentation: every method on every data set and split."""
    from reproduction.compare_methods import EXPERIMENT, short
    from reproduction.data_sources import Sources
    from reproduction.output import write
    from reproduction.result_store import Store
    from reproduction.runner import finish
    from rich.console import Console
    from rich.table import Table

    from unpooled.app.cli.reproduce import bar, results_output

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
