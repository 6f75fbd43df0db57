"""``unpooled fit`` and ``unpooled resume``: files in, clusters and a report out."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.errors import BadInput

_HOW, _READ, _PREPARE = "Clustering", "Reading files", "Preparation"
_PRIVATE = "Differential privacy"


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _bounds(given: list[str], columns: tuple[str, ...]) -> tuple[tuple[str, float, float], ...]:
    """column=low:high, low:high for all columns that are named, or a site's policy with its domain."""
    found: list[tuple[str, float, float]] = []
    for text in given:
        if text.endswith(".toml"):
            found += _domain(text)
            continue
        name, _, span = text.rpartition("=")
        low, _, high = span.partition(":")
        try:
            pair = float(low), float(high)
        except ValueError:
            raise BadInput(f"bounds are said as column=low:high, got {text!r}") from None
        if not name and not columns:
            raise BadInput(f"bounds {text} are for all columns: name these by --columns age,bmi")
        found += [(each, *pair) for each in ((name.strip(),) if name else columns)]
    return tuple(found)


def _domain(path: str) -> list[tuple[str, float, float]]:
    from unpooled.site.policy import load

    domain = load(path).domain
    if not domain.columns:
        raise BadInput(f"{path}: the policy has no [domain] with columns, lower and upper")
    return list(zip(domain.columns, domain.lower, domain.upper, strict=True))


def fit(
    files: Annotated[list[str], typer.Argument(help="CSV, Parquet, .npy or .npz; every file is a site.")],
    k: Annotated[str, typer.Option("-k", help="How many clusters: 3, or 2..10 to have it chosen.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for model, preparation, history and report.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report here too.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    method: Annotated[
        str, typer.Option(help="`unpooled methods` says which.", rich_help_panel=_HOW)
    ] = "lloyd",
    restarts: Annotated[
        int, typer.Option(help="All in the same exchanges; the best one wins.", rich_help_panel=_HOW)
    ] = 10,
    max_rounds: Annotated[int, typer.Option(help="Stop after so many rounds.", rich_help_panel=_HOW)] = 300,
    min_cluster_size: Annotated[
        int,
        typer.Option(
            help="A site shows no group of fewer rows; 1 hides nothing and equals pooling.",
            rich_help_panel=_HOW,
        ),
    ] = 5,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.", rich_help_panel=_HOW)] = 0,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Secure sums: no site's own numbers are seen, and its groups are not hidden. From 3 sites.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    threads: Annotated[int | None, typer.Option(help="Default: all cores.", rich_help_panel=_HOW)] = None,
    site_column: Annotated[
        str | None,
        typer.Option(help="Split by this column instead: each value a site.", rich_help_panel=_READ),
    ] = None,
    na: Annotated[
        list[str] | None,
        typer.Option(
            help="A text that means missing, e.g. -9, or chol=0 for one column.", rich_help_panel=_READ
        ),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Of CSV; default: seen from the header.", rich_help_panel=_READ)
    ] = None,
    decimal: Annotated[str, typer.Option(help="Of CSV: . or ,", rich_help_panel=_READ)] = ".",
    columns: Annotated[
        str,
        typer.Option(
            help="same (all sites must have the same), common (those that all have), or names: age,bmi",
            rich_help_panel=_PREPARE,
        ),
    ] = "same",
    exclude: Annotated[
        str | None, typer.Option(help="Columns to leave out: id,date", rich_help_panel=_PREPARE)
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Columns whose numbers are codes: cp,thal", rich_help_panel=_PREPARE)
    ] = None,
    scale: Annotated[
        str, typer.Option(help="standard, min-max (needs --bounds) or none", rich_help_panel=_PREPARE)
    ] = "standard",
    bounds: Annotated[
        list[str] | None, typer.Option(help="Declared: age=0:110; or policy.toml", rich_help_panel=_PREPARE)
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            help="fill (mean or most frequent over all sites), drop or refuse", rich_help_panel=_PREPARE
        ),
    ] = "fill",
    rare: Annotated[
        float,
        typer.Option(
            help="Levels that a smaller share of the rows has are merged.", rich_help_panel=_PREPARE
        ),
    ] = 0.01,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Add noise for this budget; needs --bounds of all columns.", rich_help_panel=_PRIVATE
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Well below 1 / rows.", rich_help_panel=_PRIVATE)] = 1e-6,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows in all, if no secret: forecast before spending.", rich_help_panel=_PRIVATE),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Go on where noise would win.", rich_help_panel=_PRIVATE)
    ] = False,
) -> None:
    """Cluster files as if they were pooled, each a site that keeps its rows.

    unpooled fit hospital-*.csv -k 3 --report report.html --out run/
    """
    from unpooled.commands.doing import perform
    from unpooled.files import Reading
    from unpooled.jobs import Job, expand, parse_ks
    from unpooled.runfolder import RunFolder, check_writable
    from unpooled.tables import Wishes

    if decimal not in (".", ","):
        raise BadInput(f"--decimal must be . or , got {decimal!r}")
    chosen: str | tuple[str, ...] = columns if columns in ("same", "common") else _names(columns)
    if delimiter == "\\t":
        delimiter = "\t"
    if delimiter is not None and len(delimiter) != 1:
        raise BadInput(f"--delimiter must be one character, got {delimiter!r}")
    job = Job(
        files=expand(files),
        ks=parse_ks(k),
        reading=Reading(
            columns=None if isinstance(chosen, str) else chosen,
            exclude=_names(exclude),
            categories=_names(categories),
            na=tuple(na or ()),
            delimiter=delimiter,
            decimal=decimal,
            site_column=site_column,
        ),
        wishes=Wishes(
            columns=chosen,
            scale=scale,
            bounds=_bounds(bounds or [], _names(columns) if not isinstance(chosen, str) else ()),
            missing=missing,
            rare=rare,
        ),
        method=method,
        n_init=restarts,
        max_rounds=max_rounds,
        min_cluster_size=min_cluster_size,
        seed=seed,
        secure=secure,
        epsilon=epsilon,
        delta=delta,
        rows=rows,
        force=force,
    )
    if epsilon is not None and report is not None:
        raise BadInput("--report asks for sums without noise: with --epsilon there is none")
    job.algorithm()
    folder = RunFolder(out) if out is not None else None
    if folder is not None:
        folder.check_free(overwrite)
    if report is not None and (out is None or report.parent != out):
        check_writable(report)
    perform(job, folder, report, new=True, as_json=as_json, threads=threads)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    report: Annotated[Path | None, typer.Option(help="Write the report here too.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
    ] = False,
    threads: Annotated[int | None, typer.Option(help="Default: all cores.")] = None,
) -> None:
    """Go on with a run that was stopped; it ends as if it never had been."""
    from unpooled.commands.doing import perform
    from unpooled.runfolder import RunFolder, check_writable

    kept = RunFolder(folder)
    job = kept.load_job()
    kept.check_unchanged(job)
    kept.tidy()
    if report is not None:
        check_writable(report)
    perform(job, kept, report, new=False, as_json=as_json, threads=threads)
