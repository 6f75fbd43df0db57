"""``unpooled fit`` and ``unpooled resume``: cluster files, and continue a run that was stopped."""

import json
from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.commands import HelpAll
from unpooled.app.cli.log_options import Verbose
from unpooled.app.cli.options import Overwrite
from unpooled.app.cli.run_and_print import run_and_print
from unpooled.app.outputs import beside_run, check, run_output


@o.takes_options
def fit(
    files: Annotated[
        list[str],
        typer.Argument(
            help=f"{o.FILES}, postgresql://..., or signed summary files (.unpooled); each is a site."
        ),
    ],
    options: o.JobOptions,
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    out: o.Out = None,
    report: o.Report = None,
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
    protect: o.Protect = "none",
    threads: o.Threads = None,
    timings: o.Timings = False,
    plan: o.Plan = False,
    site_column: o.SiteColumn = None,
    dask: o.Dask = None,
    data_config: o.DataConfig = None,
    save_data_config: o.SaveDataConfig = None,
    help_all: HelpAll = False,
) -> None:
    """Cluster files as if they were pooled; every file is a site that keeps its rows.

    unpooled fit hospital-*.csv -k 3 --report report.html --out run
    """
    from unpooled.app.job import expand
    from unpooled.app.run_folder import RunFolder

    if data_config is not None:
        from unpooled.options.data_file import read_data_file

        given = read_data_file(data_config)
        reading.add(given)
        options.add(given)
        site_column = site_column or given.get("site_column")
    job = options.job(
        protect,
        dask=dask or "",
        files=expand(files),
        reading=reading.reading(site_column),
        summary=grouping.settings() if grouping.is_set or protect == "summary" else None,
    )
    if plan:
        from unpooled.app.private_plan import PrivatePlan

        planned = PrivatePlan.from_job(job)
        typer.echo(json.dumps(planned.to_json()) if as_json else "\n".join(planned.lines()))
        return
    o.check_report(options, report)
    inputs: list[str | Path] = [*job.inputs, *options.inputs, *([data_config] if data_config else [])]
    folder = RunFolder(out) if out is not None else None
    check(
        run_output(folder) if folder is not None else None,
        beside_run(report, folder),
        inputs=inputs,
        overwrite=overwrite,
    )
    chosen = reading.reading(site_column), options.preparation()
    o.save_data_file(save_data_config, *chosen, inputs=inputs, overwrite=overwrite, quiet=as_json)
    run_and_print(job, folder, report, new=True, as_json=as_json, threads=threads, timings=timings)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    report: o.Report = None,
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
    threads: Annotated[int | None, typer.Option(help="Number of threads (default: all cores).")] = None,
    verbose: Verbose = False,
) -> None:
    """Continue a run that was stopped; the result is the same as without the stop.

    unpooled resume run
    """
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
    run_and_print(job, kept, report, new=False, as_json=as_json, threads=threads, verbose=verbose)
