"""Commands on a finished run: ``predict``, ``export``, ``report``; and ``example``, which writes a table."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import Overwrite, check
from unpooled.errors import InputError

# endings that promise another kind of file than CSV
_TABLES = (".xlsx", ".xls", ".ods", ".parquet", ".pq", ".npy", ".npz", ".sqlite", ".sqlite3", ".duckdb")
_OTHER_KINDS = (*_TABLES, ".db", ".json", ".html", ".tsv", ".gz", ".zst", ".zip")


def predict(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    file: Annotated[Path, typer.Argument(help="New rows, with the columns of the model.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="CSV with the cluster of every row.")],
    overwrite: Overwrite = False,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column to join by; it is written as in the file.")
    ] = None,
    keep: Annotated[str | None, typer.Option(help="Further columns to write: age,sex")] = None,
    na: Annotated[list[str] | None, typer.Option(help="As for fit; default: as in that run.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of CSV; default: detected from the header.")] = None,
    decimal: Annotated[str | None, typer.Option(help="Of CSV: . or , (default: detected)")] = None,
    encoding: Annotated[str | None, typer.Option(help="Of CSV; default: detected")] = None,
) -> None:
    """Find the cluster of each row of a new file."""
    from dataclasses import replace

    import numpy as np

    from unpooled.app.run_folder import RunFolder
    from unpooled.data.readers import read_cells, read_table
    from unpooled.storage.atomic_files import write_atomically
    from unpooled.storage.spreadsheet import csv_text

    kept = RunFolder(folder)
    check(out, inputs=[file, *kept.inputs(out)], overwrite=overwrite)
    if out.suffix.lower() in _OTHER_KINDS:
        raise InputError(
            f"{out}: clusters are written as CSV, and {out.suffix} is another kind; name it .csv"
        )
    model, job = kept.load_model(), kept.load_job()
    given = o.ReadingOptions(delimiter=delimiter, decimal=decimal, encoding=encoding).reading()
    reading = replace(
        model.reading(job.reading),
        na=tuple(na) if na else job.reading.na,
        delimiter=given.delimiter or job.reading.delimiter,
        decimal=given.decimal or job.reading.decimal,
        encoding=given.encoding or job.reading.encoding,
    )
    handed = tuple(dict.fromkeys([*([id_column] if id_column else []), *o.names(keep)]))
    twice = [name for name in handed if name in ("row", "cluster", "distance")]
    if twice:
        raise InputError(f"{out} has a column {twice[0]} of its own: rename that of {file}")
    table = read_table(file, reading)
    try:
        clusters, distances = model.predict(table, lacking=job.preparation_options.columns == "any")
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    cells = read_cells(file, handed, reading)
    rows: list[list[object]] = [[*handed, "row", "cluster", "distance"]]
    for i, (c, x) in enumerate(zip(clusters.tolist(), distances.tolist(), strict=True)):
        rows.append([*(cells[name][i] for name in handed), i + 1, *((c, f"{x:.9g}") if c else ("", ""))])
    write_atomically(out, csv_text(rows).encode(), shared=True)
    counts = np.bincount(clusters, minlength=len(model.centers) + 1)
    summary = ", ".join(f"{n} in cluster {j}" for j, n in enumerate(counts.tolist()) if j and n)
    lost = f"; {counts[0]} lack a value and have none" if counts[0] else ""
    typer.echo(f"{len(table)} rows: {summary}{lost}; written: {out}")


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    to: Annotated[str, typer.Option(help="sklearn (a Python module), onnx or json")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Default: in the folder of the run.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the model for other programs, and check that it gives the same clusters there."""
    from unpooled.app.export import FORMATS
    from unpooled.app.export import export as write
    from unpooled.app.run_folder import RunFolder

    if to not in FORMATS:
        raise InputError(f"--to must be one of {', '.join(FORMATS)}, got {to!r}")
    kept = RunFolder(folder)
    path = out or folder / FORMATS[to]
    check(path, inputs=kept.inputs(path), overwrite=overwrite)  # raises if the folder holds no run
    checked = write(kept.load_model(), to, path)
    typer.echo(f"written: {path} (read back: the same clusters for {checked} rows)")


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Default: report.html in the folder.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the report of a finished run again."""
    from unpooled.app.run_folder import RunFolder
    from unpooled.storage.atomic_files import write_atomically

    kept = RunFolder(folder)
    path = out or kept.report
    inputs = [file for file in kept.inputs(path) if file != kept.report]  # raises if the folder holds no run
    check(path, inputs=inputs, overwrite=overwrite)
    write_atomically(path, kept.load_result().report().encode(), shared=True)
    typer.echo(f"written: {path}")


def example(
    name: Annotated[str, typer.Argument(help="heart or penguins")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Default: its own name, in this folder.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write an example table, and print what to cite for it."""
    from importlib.resources import files

    from unpooled.storage.atomic_files import write_atomically

    examples = {"heart": "heart_disease.csv", "penguins": "penguins.csv"}
    if name not in examples:
        raise InputError(f"examples are {', '.join(examples)}, got {name!r}")
    path, shipped = out or Path(examples[name]), files("unpooled.data.examples")
    check(path, inputs=[str(shipped / examples[name])], overwrite=overwrite)
    write_atomically(path, (shipped / examples[name]).read_bytes(), shared=True)
    about = (shipped / f"{examples[name].removesuffix('.csv').upper()}.md").read_text(encoding="utf-8")
    typer.echo(f"{about}\nwritten: {path}")
