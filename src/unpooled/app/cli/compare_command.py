"""``unpooled compare``: all methods side by side, on files of your own or on a suite of data sets."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.options import Overwrite
from unpooled.app.outputs import FolderOutput, check
from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.app.compare import Comparison, Problem

_DATA, _WHAT = "Data", "What is compared"


@o.takes_options
def compare(
    reading: o.ReadingOptions,
    files: Annotated[list[str] | None, typer.Argument(help=f"{o.FILES}; each is a site.")] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="Suite of data sets: shapes, tabular, images, private, debian (sets of R packages) or all; "
            "or a folder, in which every table is a data set.",
            rich_help_panel=_DATA,
        ),
    ] = "",
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            help="Number of clusters; for the sets of a folder the default is the number of labels.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    site_column: o.SiteColumn = None,
    label: Annotated[
        str,
        typer.Option(
            help="Column with the true labels: used for the ARI, and not clustered.", rich_help_panel=_DATA
        ),
    ] = "",
    split: Annotated[
        str,
        typer.Option(
            help="Split the rows into sites: iid, dirichlet:0.3, power-law:1.5, by-kmeans, half-iid, "
            "shards:2 or labels:2 (default for sets without sites: dirichlet:0.3, or iid without labels).",
            rich_help_panel=_DATA,
        ),
    ] = "",
    sites: Annotated[int, typer.Option(help="Number of sites of a split.", rich_help_panel=_DATA)] = 10,
    data_folder: Annotated[
        Path | None, typer.Option(help="Folder with more data sets for a suite.", rich_help_panel=_DATA)
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="Methods, separated by commas; dwf:published is DWF as its authors ran it (default: all "
            "methods).",
            rich_help_panel=_WHAT,
        ),
    ] = "",
    module: o.Module = None,
    protect: Annotated[
        str,
        typer.Option(
            help="Protections, separated by commas (default: none,summary,raw,dp, or summary for summary "
            "files).",
            rich_help_panel=_WHAT,
        ),
    ] = "",
    epsilon: Annotated[float, typer.Option(help="Privacy budget of dp.", rich_help_panel=_WHAT)] = 1.0,
    runs: Annotated[int | None, typer.Option(help="Number of seeds.", rich_help_panel=_WHAT)] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for tables, figures and results.")] = Path(
        "compared"
    ),
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
) -> None:
    """Run every method on the same rows; compare quality, cost, and rows that an attack finds.

    The attacks take most of the time: minutes for some hundred rows. --method and --protect select fewer.

    unpooled compare hospital-*.csv -k 3 --label diagnosis --out compared

    unpooled compare --suite my-sets --label class
    """
    if bool(files) == bool(suite):
        raise InputError("give files or --suite, not both" if files else "give files or --suite")
    if not files and not _is_folder(suite):
        for name, value in (("-k", k), ("--label", label), ("--site-column", site_column)):
            if value:
                raise InputError(
                    f"{name} is for files or a folder; the sets of --suite {suite} have their own"
                )
    if files and k is None:
        raise InputError("-k is missing. Set the number of clusters, such as -k 3.")
    from unpooled.algorithms.registry import import_methods
    from unpooled.app.compare import PROTECTIONS, methods_and_presets
    from unpooled.app.compare import compare as measure
    from unpooled.data.readers import is_summary_file

    import_methods(module or [])
    by_files = any(map(is_summary_file, files or ()))
    chosen, protections = o.names(method), o.names(protect) or (("summary",) if by_files else PROTECTIONS)
    for selected, known, option in (
        (chosen, methods_and_presets(), "method"),
        (protections, PROTECTIONS, "protect"),
    ):
        for name in selected:
            if name not in known:
                raise InputError(f"--{option} must be one of {', '.join(known)}, got {name!r}")
    if runs is not None and runs < 1:
        raise InputError(f"--runs must be at least 1, got {runs}")
    problems = _problems(files, suite, k, reading.reading(site_column), label, split, sites, data_folder)
    folder = FolderOutput(out, "a folder of comparisons", own=(out / _JSON).is_file())
    inputs = [*(files or ()), data_folder, Path(suite) if _is_folder(suite) else None]
    check(folder, inputs=inputs, overwrite=overwrite)
    measured = []
    for problem in problems:
        typer.echo(f"{problem.name}: {len(problem.X)} rows", err=True)
        seeds = range(1 if runs is None else runs)
        with _progress() as progress:
            measured.append(
                measure(
                    problem,
                    methods=chosen,
                    protections=protections,
                    seeds=seeds,
                    epsilon=epsilon,
                    progress=progress,
                )
            )
    _write(measured, out, as_json)


_JSON = "comparison.json"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line of progress; without a terminal, it prints lines on stderr."""
    from unpooled.app.progress import progress

    with progress(quiet=False) as line:
        yield line.activity if sys.stderr.isatty() else lambda step: typer.echo(f"  {step}", err=True)


def _is_folder(suite: str) -> bool:
    """Return True if the suite is a folder: one that exists, or a text with a separator of paths."""
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
    data_folder: Path | None,
) -> "list[Problem]":
    from unpooled.app import compare
    from unpooled.app.job import expand

    if data_folder is not None and suite not in ("images", "debian", "all"):
        raise InputError(
            "--data-folder is a folder with more sets for --suite images or debian; "
            f"{suite or 'files'} takes none"
        )
    if files:
        paths = [Path(file) for file in expand(files)]
        problems = [compare.from_files(paths, k or 0, reading=reading, label=label)]  # type: ignore[arg-type]
    elif _is_folder(suite):
        problems = list(compare.from_folder(Path(suite), k=k, reading=reading, label=label))  # type: ignore[arg-type]
    else:
        from unpooled.app.compare.r_sets import any_installed, missing_packages

        more = {"images": data_folder, "debian": data_folder if suite == "debian" else None}
        missing = missing_packages(more["debian"]) if suite in ("debian", "all") else []
        names = tuple(compare.SUITES) if suite == "all" else (suite,)
        problems = []
        for name in names:
            if suite == "all" and name == "debian" and not any_installed():
                continue
            problems += compare.suite(name, data=more.get(name))
        if missing:
            typer.echo(f"sets of the suite debian are left out: apt install {' '.join(missing)}", err=True)
    return [
        compare.split_of(p, split or ("iid" if p.y is None else "dirichlet:.3"), sites)
        if split or p.site is None
        else p
        for p in problems
    ]


def _write(comparisons: "list[Comparison]", out: Path, as_json: bool) -> None:
    import json

    from rich.console import Console

    from unpooled.app import compare
    from unpooled.app.compare.comparison_files import aligned_table, standalone_svg
    from unpooled.app.compare.comparison_table import notes
    from unpooled.storage.atomic_files import write_atomically

    out.mkdir(parents=True, exist_ok=True)
    console, parts = Console(highlight=False), []
    content = json.dumps(compare.to_json(comparisons), indent=1)
    for i, measured in enumerate(comparisons):
        text = aligned_table(compare.table(measured), 2) + "\n" + "\n".join(notes(measured)) + "\n"
        drawn = compare.figure(measured)
        link = ""
        if drawn:
            name = f"figure-{i + 1}.svg"
            write_atomically(out / name, standalone_svg(drawn).encode())
            link = f"\n![quality against rows reconstructed]({name})\n"
        parts.append(f"## {measured.problem}\n\n{text}{link}")
        if not as_json:
            console.print(f"\n[bold]{measured.problem}[/bold]")
            console.print(text, soft_wrap=True, markup=False)
    write_atomically(out / "comparison.md", ("# All methods side by side\n\n" + "\n".join(parts)).encode())
    write_atomically(out / _JSON, content.encode())
    if as_json:
        typer.echo(content)
    else:
        console.print(f"written: {out / 'comparison.md'}", soft_wrap=True, markup=False)
