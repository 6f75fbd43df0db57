"""``unpooled fit`` and ``unpooled resume``: files in, clusters and a report out, and a summary of them."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from unpooled.app.cli import option_types as t
from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import Overwrite, beside_run, check, run_output

if TYPE_CHECKING:  # not imported at run time, so that --help is fast
    from unpooled.app.job import Job
    from unpooled.app.private_result import PrivateResult
    from unpooled.app.result import ClusterResult, JobResult
    from unpooled.app.run_folder import RunFolder


@o.takes_options
def fit(
    files: Annotated[
        list[str],
        typer.Argument(help=f"{t.FILES}, postgresql://...: each is a site."),
    ],
    options: o.JobOptions,
    reading: o.ReadingOptions,
    copying: o.CopyOptions,
    out: o.Out = None,
    report: o.Report = None,
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
    protect: o.Protect = "none",
    threads: o.Threads = None,
    timings: o.Timings = False,
    site_column: o.SiteColumn = None,
    dask: o.Dask = None,
) -> None:
    """Cluster files as if they were pooled; every file is a site that keeps its rows.

    unpooled fit hospital-*.csv -k 3 --report report.html --out run/
    """
    from unpooled.app.job import expand
    from unpooled.app.run_folder import RunFolder

    job = options.job(
        protect,
        dask=dask or "",
        files=expand(files),
        reading=reading.reading(site_column),
        summary=copying.settings() if copying.given or protect == "summary" else None,
    )
    o.check_report(options.epsilon, report)
    folder = RunFolder(out) if out is not None else None
    check(
        run_output(folder) if folder is not None else None,
        beside_run(report, folder),
        inputs=[*job.inputs, *o.policies(options.bounds)],
        overwrite=overwrite,
    )
    perform(job, folder, report, new=True, as_json=as_json, threads=threads, timings=timings)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    report: o.Report = None,
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
    threads: Annotated[int | None, typer.Option(help="Default: all cores.")] = None,
) -> None:
    """Continue a run that was stopped; the result is the same as without the stop."""
    from unpooled.app.run_folder import RunFolder
    from unpooled.app.run_job import federation_files

    kept = RunFolder(folder)
    job = kept.load_job()
    check(
        beside_run(report, kept),
        inputs=[*job.inputs, *kept.files, *federation_files(job)],
        overwrite=overwrite,
    )
    kept.check_unchanged(job)
    kept.tidy()
    perform(job, kept, report, new=False, as_json=as_json, threads=threads)


def perform(
    job: "Job",
    folder: "RunFolder | None",
    report: Path | None,
    *,
    new: bool,
    as_json: bool,
    threads: int | None,
    timings: bool = False,
) -> "JobResult":
    """Do a job, write all its files, and print the summary or the JSON; ``timings`` too if asked for."""
    from unpooled.app.run_job import execute, progress
    from unpooled.storage.atomic_files import write_atomically

    with progress(quiet=as_json) as observer:
        result = execute(job, folder, observer, new=new, threads=threads, stopped=_stopped)
        if report is not None:
            observer.activity("writing", "report")
        page = result.report() if report is not None else None
        if report is not None and page is not None:
            write_atomically(report, page.encode(), shared=True)
        seconds = phases(observer.marks, time.monotonic(), result)
    if timings:
        table = Table("phase", Column("seconds", justify="right"), title="Timings")
        for name, took in (*seconds.items(), ("all", sum(seconds.values()))):
            table.add_row(name, f"{took:.3f}")
        Console(stderr=True, highlight=False).print(table)
    if as_json:
        typer.echo(json.dumps(result.to_json(), ensure_ascii=False))
        return result
    console = Console(highlight=False)
    show(result, console)
    for path in ([folder.path] if folder else []) + ([report] if report else []):
        console.print(f"written: {path}", soft_wrap=True, markup=False)
    return result


def phases(marks: Sequence[tuple[str, float]], end: float, result: "JobResult | None") -> dict[str, float]:
    """Seconds of each phase of a job, in their order; an analysis ends with rounds that have their own names.

    >>> phases([("reading", 0.0), ("columns and starts", 2.0), ("rounds", 3.0), ("files", 3.5)], 4.0, None)
    {'reading': 2.0, 'columns and starts': 1.0, 'rounds': 0.5, 'files': 0.5}
    """
    from unpooled.app.result import ClusterResult
    from unpooled.app.run_job import ROUND

    names = [name for name, _ in marks]
    rounds = [i for i, name in enumerate(names) if name == ROUND]
    if isinstance(result, ClusterResult) and rounds:
        last = ["choice of k", "description", *(["certificate"] if result.job.certify else [])]
        for i, name in zip(reversed(rounds), reversed([*last, "result"]), strict=False):
            names[i] = name
    seconds: dict[str, float] = {}
    for i, name in enumerate(names):
        until = marks[i + 1][1] if i + 1 < len(marks) else end
        seconds[name] = seconds.get(name, 0.0) + until - marks[i][1]
    return seconds


def _stopped(how: str) -> None:
    typer.echo(f"unpooled: {how}", err=True)


def show(result: "JobResult", console: Console) -> None:
    """Print the summary of a result."""
    from unpooled.app.result import ClusterResult

    if isinstance(result, ClusterResult):
        _show_clusters(result, console)
    else:
        _show_private(cast("PrivateResult", result), console)


def _show_clusters(result: "ClusterResult", console: Console) -> None:
    first, second = result.headline()
    console.print(f"[bold]{escape(first)}[/bold] {escape(f'{second} {result.certified}'.strip())}\n")
    console.print(_clusters(result))
    if len(result.choice.scores) > 1:
        console.print()
        console.print(_scores(result))
        console.print(_deciding(result))
    console.print()
    for line in notes(result):
        console.print(escape(line))


def _show_private(result: "PrivateResult", console: Console) -> None:
    console.print(f"[bold]{escape(result.headline())}[/bold]\n")
    table = Table(title="Clusters: rows and centres")
    for name in ("cluster", "rows", *result.method.columns):
        table.add_column(escape(name), justify="right")
    for row in result.rows():
        table.add_row(*row)
    console.print(table)
    for line in result.notes():
        console.print(escape(line))


def _clusters(result: "ClusterResult") -> Table:
    from unpooled.html.html import natural

    table = Table(title="Clusters")
    table.add_column("cluster")
    d = result.description
    order = sorted(range(len(d.sites)), key=lambda i: natural(d.sites[i]))
    shown = order if len(order) <= 6 and not result.job.aggregate_only else []
    for name in (*(d.sites[i] for i in shown), result.unit):
        table.add_column(escape(name), justify="right")
    table.add_column("what sets it apart", overflow="fold")
    for j in range(result.k):
        by_site = [_count(result.size_at(i, j)) for i in shown]
        table.add_row(str(j + 1), *by_site, f"{result.sizes[j]:.0f}", escape(result.distinctive_traits(j)))
    return table


def _count(rows: float) -> str:
    """
    >>> _count(12.0), _count(0.0), _count(float("nan"))
    ('12', '-', 'not shown')
    """
    return "not shown" if rows != rows else f"{rows:.0f}" if rows else "-"


def _scores(result: "ClusterResult") -> Table:
    table = Table(title="Choice of k (* what a criterion would take)")
    heads = ["k", "inertia per row", "gain", "border", "stability"]
    heads += ["silhouette", "calinski harabasz", "davies bouldin"]
    for head in heads:
        table.add_column(head, justify="right")
    votes, c = result.choice.votes, result.choice
    for i, s in enumerate(c.scores):
        cells = [str(s.k), f"{s.per_row:.4g}", f"{c.gains[i]:.2f}", f"{s.border:.2f}", f"{s.stability:.2f}"]
        cells += [f"{s.silhouette:.3f}", f"{s.calinski_harabasz:.1f}", f"{s.davies_bouldin:.3f}"]
        cells = ["-" if cell == "nan" else cell for cell in cells]
        for name, k in votes.items():
            if k == s.k:
                cells[heads.index(name.replace("-", " "))] += " *"
        table.add_row(*cells, style="bold" if i == c.best else "")
    return table


def _deciding(result: "ClusterResult") -> str:
    """The figures that decide about k, and what they say."""
    gain = "gain (how much better than one group k clusters describe the rows)"
    if not any(value == value for value in result.choice.gains[1:]):  # with very many columns there is none
        gain = "silhouette"
    return (
        f"What decides: {gain}, border (rows between clusters: 0 none, 1 as many as where they lie densest), "
        "stability (how far restarts agree: 1 fully)."
    )


def notes(result: "ClusterResult") -> list[str]:
    """Notes for the reader, one line each; what is left out of files was told when they were read."""
    from unpooled.data.table import called

    a = result.agreement
    lines = [f"warning: {text}" for text in result.warnings]
    lines += [f"{called(name)} is left out: {why}" for name, why in a.left_out]
    lines += [f"rare levels of {name} are merged: {', '.join(categories)}" for name, categories in a.merged]
    if a.preparation.drop:
        lost = float(a.rows.sum()) - a.used
        lines.append(f"{lost:.0f} of {a.rows.sum():.0f} rows lack a value and are left out" if lost else "")
    elif result.missing_cells:
        cells = float(a.rows.sum()) * len(a.preparation.columns)
        how = "filled: by the mean over all sites, or the most frequent level"
        if result.keeps_missing:
            how = "kept: rows are compared by the cells that they have (--missing fill fills them)"
        lines.append(
            f"{result.missing_cells} missing cells ({100 * result.missing_cells / cells:.1f} %) are {how}"
        )
    lost = round(float(a.rows.sum()) - a.used) if result.keeps_missing else 0
    lines.append(f"{lost} rows have no value in any column and are left out" if lost else "")
    if result.suppressed > 0:
        where = "over all sites" if result.job.secure else "at their site, or hide such a one"
        lines.append(f"{result.suppressed} rows are in groups that are not shown: they are too small {where}")
    if a.from_summaries:
        dates = sorted({made for mode, made in a.protection if mode == "summary"})
        lines.append(
            f"sites answer from copies of {', '.join(dates)}: a row is a group of persons. Inertia is "
            f"{result.inertia:.6g} of the copies, about {result.inertia_of_rows:.6g} for the rows behind them"
        )
    trusted = [site for site, (mode, _) in zip(a.sites, a.protection, strict=True) if mode == "raw"]
    if trusted:
        lines.append(
            f"warning: {', '.join(trusted)}: trusted, answers come from rows as they are; who reads all "
            "messages can take sums apart into rows"
        )
    silent: dict[str, list[str]] = {}
    for record in result.run.records:
        for site, why in record.silent.items():
            silent.setdefault(site, []).append(why)
    lines += [
        f"warning: {site} is missing from {len(reasons)} of {len(result.run.records)} rounds: {reasons[-1]}"
        for site, reasons in silent.items()
    ]
    leaves = "would leave" if result.job.remote is None else "left"
    left = result.run.sent()
    most = max(left.values(), key=lambda pair: pair[1])
    lines.append(
        f"{result.run.rounds} rounds, {result.run.exchanges} exchanges; what {leaves} a site: at most "
        f"{most[0]:,} numbers, {_bytes(most[1])}"
    )
    return [line for line in lines if line]


def _bytes(n: int) -> str:
    """
    >>> _bytes(900), _bytes(120_000)
    ('900 bytes', '120 kB')
    """
    size = float(n)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
