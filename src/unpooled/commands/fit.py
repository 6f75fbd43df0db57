"""``unpooled fit`` and ``unpooled resume``: files in, clusters and a report out."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.commands import options as o
from unpooled.commands.outputs import Overwrite, beside_run, check, run_output


def fit(
    files: Annotated[list[str], typer.Argument(help="CSV, Parquet, .npy or .npz; every file is a site.")],
    k: o.K,
    out: o.Out = None,
    report: o.Report = None,
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
    method: o.Method = "lloyd",
    restarts: o.Restarts = 10,
    max_rounds: o.MaxRounds = 300,
    min_cluster_size: o.MinClusterSize = 5,
    seed: o.Seed = 0,
    secure: o.Secure = False,
    threads: o.Threads = None,
    site_column: o.SiteColumn = None,
    na: o.Na = None,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = ".",
    columns: o.Columns = "same",
    exclude: o.Exclude = None,
    categories: o.Categories = None,
    scale: o.Scale = "standard",
    bounds: o.Bounds = None,
    missing: o.Missing = "fill",
    rare: o.Rare = 0.01,
    epsilon: o.Epsilon = None,
    delta: o.Delta = 1e-6,
    rows: o.RowsInAll = None,
    force: o.Force = False,
) -> None:
    """Cluster files as if they were pooled, each a site that keeps its rows.

    unpooled fit hospital-*.csv -k 3 --report report.html --out run/
    """
    from unpooled.commands.doing import perform
    from unpooled.jobs import expand
    from unpooled.runfolder import RunFolder

    job = o.make_job(
        files=expand(files),
        k=k,
        method=method,
        restarts=restarts,
        max_rounds=max_rounds,
        min_cluster_size=min_cluster_size,
        seed=seed,
        secure=secure,
        site_column=site_column,
        na=na,
        delimiter=delimiter,
        decimal=decimal,
        columns=columns,
        exclude=exclude,
        categories=categories,
        scale=scale,
        bounds=bounds,
        missing=missing,
        rare=rare,
        epsilon=epsilon,
        delta=delta,
        rows=rows,
        force=force,
    )
    o.check_report(epsilon, report)
    folder = RunFolder(out) if out is not None else None
    check(
        run_output(folder) if folder is not None else None,
        beside_run(report, folder),
        inputs=[*job.files, *o.policies(bounds)],
        overwrite=overwrite,
    )
    perform(job, folder, report, new=True, as_json=as_json, threads=threads)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    report: o.Report = None,
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
    threads: Annotated[int | None, typer.Option(help="Default: all cores.")] = None,
) -> None:
    """Go on with a run that was stopped; it ends as if it never had been."""
    from unpooled.commands.between import read_between
    from unpooled.commands.doing import perform
    from unpooled.runfolder import RunFolder

    kept = RunFolder(folder)
    job = kept.load_job()
    check(
        beside_run(report, kept),
        inputs=[*job.files, *kept.files, *read_between(job)],
        overwrite=overwrite,
    )
    kept.check_unchanged(job)
    kept.tidy()
    perform(job, kept, report, new=False, as_json=as_json, threads=threads)
