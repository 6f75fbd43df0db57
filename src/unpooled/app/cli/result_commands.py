"""Commands on a finished run: ``predict``, ``export``, ``certify`` and ``release``."""

import json
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.options import Overwrite
from unpooled.app.outputs import FolderOutput, check, whole_folder
from unpooled.errors import InputError

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]

# endings that promise another kind of file than CSV
_TABLES = (".xlsx", ".xls", ".ods", ".parquet", ".pq", ".npy", ".npz", ".sqlite", ".sqlite3", ".duckdb")
_OTHER_KINDS = (*_TABLES, ".db", ".json", ".html", ".tsv", ".gz", ".zst", ".zip")
_HTML, _TABLE = "html", "table"  # the report and Table 1; every other format of export is a model


def predict(
    folder: Run,
    file: Annotated[Path, typer.Argument(help="New rows, with the columns of the model.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="CSV file to write (default: print to standard output)."),
    ] = None,
    overwrite: Overwrite = False,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column to join by; written as it is in the file.")
    ] = None,
    keep: Annotated[str | None, typer.Option(help="More columns to write: age,sex")] = None,
    na: Annotated[
        list[str] | None, typer.Option(help="A text that means missing (default: as in the run).")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of CSV files (default: detect).")] = None,
    decimal: Annotated[
        str | None, typer.Option(help="Decimal mark in CSV files, . or , (default: detect).")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of CSV files (default: detect).")] = None,
) -> None:
    """Find the cluster of each row of a new file, and print or write them as CSV.

    The label of the largest cluster, A in reports, is 0, that of B is 1. A row that is left out has -1.

    unpooled predict run new.csv -o labels.csv
    """
    from dataclasses import replace

    import numpy as np

    from unpooled.app.model import unknown_categories
    from unpooled.app.run_folder import RunFolder
    from unpooled.data.readers import read_cells, read_table
    from unpooled.html.formatting import cluster_letter
    from unpooled.storage.atomic_files import write_atomically
    from unpooled.storage.spreadsheet import csv_text

    kept = RunFolder(folder)
    check(out, inputs=[file, *kept.inputs(*([out] if out is not None else []))], overwrite=overwrite)
    if out is not None and out.suffix.lower() in _OTHER_KINDS:
        raise InputError(
            f"{out}: labels are written as CSV, and {out.suffix} is another kind of file. Use .csv."
        )
    model, job = kept.load_model(), kept.load_job()
    options = o.ReadingOptions(delimiter=delimiter, decimal=decimal, encoding=encoding).reading()
    reading = replace(
        model.reading(job.reading),
        na=tuple(na) if na else job.reading.na,
        delimiter=options.delimiter or job.reading.delimiter,
        decimal=options.decimal or job.reading.decimal,
        encoding=options.encoding or job.reading.encoding,
    )
    copied = tuple(dict.fromkeys([*([id_column] if id_column else []), *o.names(keep)]))
    twice = [name for name in copied if name in ("row", "label", "distance")]
    if twice:
        raise InputError(f"the output has a column {twice[0]} of its own. Rename that column of {file}.")
    table = read_table(file, reading)
    try:
        labels, distances = model.predict(table, lacking=job.preparation_options.columns == "any")
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    cells = read_cells(file, copied, reading)
    fuzzy = [] if model.fuzzifier is None else model.memberships(table).tolist()
    heads = [f"membership_{j}" for j in range(len(model.centers))] if fuzzy else []
    rows: list[list[object]] = [[*copied, "row", "label", "distance", *heads]]
    for i, (label, x) in enumerate(zip(labels.tolist(), distances.tolist(), strict=True)):
        numbers = [x, *(fuzzy[i] if fuzzy else [])]
        shown = [f"{number:.9g}" if label >= 0 else "" for number in numbers]
        rows.append([*(cells[name][i] for name in copied), i + 1, label, *shown])
    if out is not None:
        write_atomically(out, csv_text(rows).encode(), shared=True)
    else:
        typer.echo(csv_text(rows), nl=False)
    counts = np.bincount(labels[labels >= 0], minlength=len(model.centers)).tolist()
    sizes = ", ".join(f"{n} in cluster {cluster_letter(j)}" for j, n in enumerate(counts) if n)
    left_out = len(table) - sum(counts)
    lost = f"; {left_out} have a missing value and no cluster: label -1" if left_out else ""
    written = f"; written: {out}" if out is not None else ""
    typer.echo(f"{len(table)} rows: {sizes}{lost}{written}", err=out is None)
    for sentence in unknown_categories(model, table):
        typer.echo(f"warning: {sentence}", err=True)


def export(
    folder: Run,
    to: Annotated[
        str,
        typer.Option(
            help="Format: sklearn (a Python module), onnx, json, html (the report), or table (Table 1: .csv, "
            ".md or .html)."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write (default: in the folder of the run).")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the model for other programs, or the report or Table 1 of a finished run.

    The command reads a model back and checks that it gives the same clusters.

    unpooled export run --to onnx
    """
    from unpooled.app.export import FORMATS
    from unpooled.app.export import export as write
    from unpooled.app.run_folder import RunFolder
    from unpooled.storage.atomic_files import write_atomically

    kept = RunFolder(folder)
    if to == _HTML:
        path = out or kept.report
        inputs = [file for file in kept.inputs(path) if file != kept.report]  # raises if there is no run
        check(path, inputs=inputs, overwrite=overwrite)
        write_atomically(path, kept.load_result().report().encode(), shared=True)
        typer.echo(f"written: {path}")
        return
    if to == _TABLE:
        from unpooled.app.table_one import written_as

        path = out or folder / "table1.csv"
        check(path, inputs=kept.inputs(path), overwrite=overwrite)
        result = kept.load_result()
        write_atomically(path, written_as(result, result.names, path).encode(), shared=True)
        typer.echo(f"written: {path}")
        return
    if to not in FORMATS:
        raise InputError(f"--to must be one of {', '.join((*FORMATS, _HTML, _TABLE))}, got {to!r}")
    path = out or folder / FORMATS[to]
    check(path, inputs=kept.inputs(path), overwrite=overwrite)  # raises if the folder holds no run
    checked = write(kept.load_model(), to, path)
    typer.echo(f"written: {path} (read back: the same clusters for {checked} rows)")


def certify(
    folder: Run,
    effort: Annotated[
        str,
        typer.Option(help="Effort: quick, normal or thorough. More effort gives a tighter bound."),
    ] = "normal",
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the search that follows if there are few rows. With a limit, the bound may "
            "differ between runs."
        ),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Stop once the gap is below this share.")] = 1e-4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Prove how much better another clustering could be, at most.

    The command reads the files again and suppresses nothing: the certificate is about all their rows, or
    about the summary tables if the run used them.

    unpooled certify run --effort quick
    """
    from unpooled.app.certify_result import certificate_of, words
    from unpooled.app.progress import progress
    from unpooled.app.run_folder import RunFolder

    kept = RunFolder(folder)
    result = kept.load_result()
    kept.check_unchanged(result.job)
    with progress(quiet=as_json) as observer:
        proof = certificate_of(
            result, effort, tolerance=tolerance, time_limit=time_limit, report=observer.activity
        )
    n, k = result.agreement.used, result.k
    if as_json:
        names = "inertia input_inertia lower_bound gap input_gap condition proved boxes seconds sites missing"
        certificate = {name: getattr(proof, name) for name in names.split()}
        typer.echo(json.dumps({**certificate, "sentence": words(proof, result), "k": k, "rows": n}))
        return
    where = "in the summary tables of" if result.job.protect == "summary" else "at"
    typer.echo(
        f"k = {k}, {n:,.0f} rows {where} {len(proof.sites)} sites: inertia {proof.input_inertia:.6g} in "
        "prepared columns."
    )
    typer.echo(words(proof, result))
    typer.echo(f"Proved: no {k} centres go below {_below(proof.lower_bound)} ({proof.condition}).")
    if proof.input_gap <= tolerance:
        typer.echo(f"This clustering is within {100 * tolerance:g}% of the best possible.")
    elif proof.inertia < proof.input_inertia:
        typer.echo(f"The search found better centres, of inertia {proof.inertia:.6g}.")
    elif effort != "thorough":
        typer.echo("A tighter bound may be found with --effort thorough.")


def _below(value: float) -> str:
    """Return the number with six digits, rounded down.

    >>> _below(3.5799996), _below(0.0)
    ('3.57999', '0')
    """
    return f"{float(Context(6, ROUND_FLOOR).create_decimal(value)):.6g}"


def names(
    folder: Run,
    file: Annotated[
        Path,
        typer.Argument(
            help='TOML file with sections \\[columns], such as bmi = "Body mass index", and \\[clusters], '
            'such as A = "Younger".'
        ),
    ],
) -> None:
    """Name the columns and clusters of a finished run, in its report and its tables.

    A later run with --names and this folder keeps the names of columns, and those of clusters that match.

    unpooled names run names.toml
    """
    from dataclasses import replace

    from unpooled.app.keep_names import check_names
    from unpooled.app.result_names import Names
    from unpooled.app.run_folder import RunFolder

    kept = RunFolder(folder)
    result, given = kept.load_result(), Names.read(file)
    check_names(result, given)
    kept.finish(replace(result, names=given))
    named = f"{len(given.columns)} columns and {len(given.clusters)} clusters"
    typer.echo(f"{folder}: {named} have names; written: {kept.report}")


def compare_runs(
    old: Annotated[Path, typer.Argument(help="The folder of an earlier run.")],
    new: Annotated[Path, typer.Argument(help="The folder of a later run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the matches as JSON.")] = False,
) -> None:
    """Match the clusters of two runs by their means, and show what changed.

    Two clusters match if each is the nearest of the other, in standard deviations of the columns that both
    runs have.

    unpooled compare-runs run-2026 run-2027
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from unpooled.app.match_clusters import match_clusters
    from unpooled.app.run_folder import RunFolder
    from unpooled.html.formatting import cluster_letter

    before, after = (RunFolder(folder).load_result() for folder in (old, new))
    found = match_clusters(before, after)
    if as_json:
        matched = [
            {
                "old": m.old,
                "new": m.new,
                "rows_old": float(before.sizes[m.old]),
                "rows_new": float(after.sizes[m.new]),
                "distance": m.distance,
                "changes": [
                    {"column": b.column, **({"category": b.category} if b.category else {}),
                     "old": a.value, "new": b.value, "difference": d}
                    for a, b, d in m.changes
                ],
            }
            for m in found.matched
        ]  # fmt: skip
        rest = {"only_old": list(found.only_old), "only_new": list(found.only_new)}
        typer.echo(json.dumps({"columns": list(found.columns), "matched": matched, **rest}))
        return
    table = Table(title="Clusters of the two runs")
    for head in ("old", "new", f"{before.unit} old", f"{after.unit} new", "distance"):
        table.add_column(head, justify="right")
    table.add_column("largest changes", overflow="fold")
    for m in found.matched:
        changes = "; ".join(f"{b.name} {a.shown} to {b.shown}" for a, b, d in m.changes[:3] if abs(d) >= 0.1)
        letters = cluster_letter(m.old), cluster_letter(m.new)
        table.add_row(
            *letters,
            f"{before.sizes[m.old]:.0f}",
            f"{after.sizes[m.new]:.0f}",
            f"{m.distance:.2f}",
            escape(changes or "none of 0.1 or more"),
        )
    for i in found.only_old:
        table.add_row(cluster_letter(i), "-", f"{before.sizes[i]:.0f}", "-", "-", "no counterpart")
    for j in found.only_new:
        table.add_row("-", cluster_letter(j), "-", f"{after.sizes[j]:.0f}", "-", "no counterpart")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"Distance: root mean square of the differences of the means of {len(found.columns)} columns, in "
        "standard deviations of the later run."
    )


def release(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    preset: Annotated[
        str, typer.Option(help="Published rule to follow; unpooled site init --list-presets lists them.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write.")],
    consumption: Annotated[
        str | None, typer.Option(help="Consumption columns, for a rule on dominance: kwh,gas")
    ] = None,
    uncertain: Annotated[
        str | None,
        typer.Option(help="Columns in which a count of nobody or everybody in a cluster is redacted."),
    ] = None,
    register: Annotated[
        Path | None,
        typer.Option(
            help="Register of earlier releases (default: releases.jsonl beside the folder of the run)."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write tables and figures of a run that follow a published rule, for an output checker.

    unpooled release run --preset opensafely --out release
    """
    from unpooled.app.release import release as make_release
    from unpooled.app.release.release_folder import CONTROLS, REGISTER
    from unpooled.app.release.release_register import add
    from unpooled.app.run_folder import RunFolder
    from unpooled.privacy.presets import preset as find_preset
    from unpooled.storage.atomic_files import write_atomically

    rule, kept = find_preset(preset), RunFolder(run)
    kept.load_job()  # raises if the folder holds no run
    beside = register or run.resolve().parent / REGISTER
    target = FolderOutput(out, "the folder of a release", own=(out / CONTROLS).exists())
    check(target, inputs=[run, *kept.files, beside], overwrite=overwrite)
    if not beside.parent.is_dir():
        raise InputError(f"{beside}: there is no folder {beside.parent}")
    files, entries, warnings = make_release(
        run, rule, out.resolve().name, o.names(consumption), beside, o.names(uncertain)
    )
    with whole_folder(out) as building:
        for name, text in files.items():
            write_atomically(building / name, text.encode(), shared=True)
        add(beside, entries)
    for line in warnings:
        typer.echo(f"warning: {line}")
    typer.echo(f"written: {out}: {', '.join(files)}")
    typer.echo(f"recorded in {beside}, which holds true numbers: keep it inside")
