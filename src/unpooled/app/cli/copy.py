"""``unpooled copy``: make, open, export and approve the one table that a site answers from."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import Overwrite, check, inputs_of_copy
from unpooled.errors import InputError, PolicyError
from unpooled.html.html import counted

if TYPE_CHECKING:
    from unpooled.data.readers import Reading
    from unpooled.data.repeated_ids import RepeatedId
    from unpooled.data.summary_table import SummaryTable
    from unpooled.data.table import Table
    from unpooled.privacy.microaggregation import SummarySettings
    from unpooled.site.policy import Policy
    from unpooled.site.table_store import SummaryFolder

copy = typer.Typer(
    no_args_is_help=True, help="Make, open and approve the copy: the one table that a site answers from."
)

Folder = Annotated[Path, typer.Argument(help="The site's own folder; the copy is in FOLDER/copy.")]
ROWS = "The site's rows: CSV, Parquet, .xlsx, .npy, a SQLite or DuckDB file, or postgresql://user@host/db"
Data = Annotated[str, typer.Option(help=ROWS)]
PolicyFile = Annotated[Path | None, typer.Option("--policy", help="The site's rules (TOML).")]
StudyColumns = Annotated[
    str | None,
    typer.Option(help="Columns that studies are about: groups suit them, the others count a third. age,bmi"),
]
Only = Annotated[str | None, typer.Option(help="The only columns that are read: age,bmi,sex")]
Further = Annotated[
    str,
    typer.Option(
        help="Make another copy although there is one; the message of the refusal says what to say."
    ),
]


@copy.command("make")
@o.takes_options
def copy_make(
    folder: Folder,
    data: Data,
    reading: o.ReadingOptions,
    copying: o.CopyOptions,
    policy: PolicyFile = None,
    columns: StudyColumns = None,
    only: Only = None,
    second_table: Further = "",
) -> None:
    """Make the copy of a file or of a query's rows. It needs no federation, and nothing leaves this machine.

    unpooled site summarize north --data patients.csv --person patient_id --columns age,bmi
    """
    from unpooled.site.policy import Policy, load

    rules = Policy() if policy is None else load(policy)
    make(folder, data, rules, read_by(reading, only), settings_of(rules, copying, columns), second_table)
    typer.echo(
        f"unpooled site review {folder} opens it; unpooled site approve {folder} lets the site answer from it."
    )


def read_by(reading: o.ReadingOptions, only: str | None) -> "Reading":
    from dataclasses import replace

    return replace(reading.reading(), columns=o.names(only) if only else None)


def settings_of(rules: "Policy", copying: o.CopyOptions, columns: str | None) -> "SummarySettings":
    """How the copy is made: as the policy says, and where it says nothing, as options say."""
    from unpooled.privacy.microaggregation import SummarySettings
    from unpooled.site.policy import check_declared

    if rules.protect.mode != "summary":
        raise PolicyError(f'the policy has [protect] mode = "{rules.protect.mode}": such a site has no copy')
    said, given = rules.protect.settings(), copying.settings(o.names(columns))
    for name in ("person", "sensitive", "log", "consumption"):
        wanted, option = getattr(said, name), getattr(given, name)
        if wanted and option and wanted != option:
            raise PolicyError(f"--{name}: the policy has [protect] {name} = {wanted!r}")
    consumption = given.consumption or said.consumption
    check_declared(rules, consumption)
    return SummarySettings(
        max(given.min_group_size, said.min_group_size),
        given.person or said.person,
        given.columns or said.columns,
        given.sensitive or said.sensitive,
        given.log or said.log,
        consumption,
        said.max_share,
    )


def make(
    folder: Path,
    data: str,
    rules: "Policy",
    reading: "Reading",
    settings: "SummarySettings",
    second_table: str = "",
) -> None:
    """Read a file and write its copy into the site's folder, with a line of progress."""
    from dataclasses import asdict, replace

    from unpooled.app.run_job import progress
    from unpooled.data.readers import read_table
    from unpooled.privacy.microaggregation.rare_categories import merged_categories
    from unpooled.site.table_notes import record_rare_categories
    from unpooled.site.table_store import SummaryFolder
    from unpooled.storage.portable_paths import portable

    place = SummaryFolder(folder)
    place.check_may_make(second_table)
    query = None if reading.query is None else portable(reading.query, folder, folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: not a folder")
    if settings.person:
        if settings.person in reading.exclude:
            raise InputError(f"--person {settings.person} is excluded: it must be read to tell persons apart")
        reading = replace(reading, categorical=(*reading.categorical, settings.person))
        if reading.columns is not None:
            reading = replace(reading, columns=(*reading.columns, settings.person))
    with progress(quiet=False) as line:
        line.activity(f"reading {data}")
        blank: list[int] = []
        table = read_table(data, reading, on_blank_rows=blank.append, whole=True)
        unsure = [] if settings.person else _repeated(data, table, reading)
        made = place.make(
            table,
            settings,
            second_table=second_table,
            progress=lambda step, share: line.activity(f"{step}: {share:.0%}"),
            reading=asdict(replace(reading, columns=table.names, exclude=(), query=query)),
        )
        merged = merged_categories(table, settings, made)
        record_rare_categories(place.path, merged)
    typer.echo(
        f"written: {place.path}: {made.people.sum():.0f} persons in {counted(len(made), 'group')} of at "
        f"least {made.min_group_size}; digest {place.digest[:16]}"
    )
    for rows in blank:
        typer.echo(f"{rows} rows at the end of {data} have no value and are left out")
    for one in unsure:
        typer.echo(
            f"column {one}: every row counts as a person here. If the column says whose row it is, do not "
            f"approve this copy: make one with --person {one.column}",
            err=True,
        )
    if not settings.person:
        typer.echo("without --person nobody can be recognised later: the copy cannot be renewed")
    if merged:
        rare = ", ".join(f"{name} ({counted(people, 'person')})" for name, people in merged.items())
        typer.echo(f"rare levels are counted under the commonest one: {rare}")
    for said in _without_cells(made):
        typer.echo(said)


def _without_cells(made: "SummaryTable") -> list[str]:
    """The columns of which a copy has no cells, with their kinds, and what could be done about each kind."""
    from unpooled.app.pages.table_page import without_categories

    kinds = dict(zip(made.names, made.kinds, strict=True)) | dict.fromkeys(without_categories(made), "text")
    lost = {name: kind for name, kind in kinds.items() if kind not in ("number", "category")}
    if not lost:
        return []
    said = [f"without cells in the copy: {', '.join(f'{name} ({kind})' for name, kind in lost.items())}"]
    if any(kind in ("id", "code") for kind in lost.values()):
        said.append("--numbers or --categorical takes a column that only looks like ids or codes")
    if "date" in lost.values():
        said.append("of a date, write what matters into a column of numbers: an age, days since admission")
    return said


def _repeated(data: str, table: "Table", reading: "Reading") -> "list[RepeatedId]":
    """Columns that may name persons, some of them twice; InputError for one whose name says that it does.

    A group of such rows would have fewer persons than it says. What the options name as a category or a
    number is taken for that.
    """
    from dataclasses import replace

    from unpooled.data.readers import is_file, read_table
    from unpooled.data.repeated_ids import code_id_columns, repeated_ids

    found, hidden = repeated_ids(table), code_id_columns(table)
    if hidden and is_file(data) and reading.long is None:
        found += repeated_ids(
            read_table(data, replace(reading, columns=hidden, categorical=hidden, numbers=(), recode=()))
        )
    told = (*reading.categorical, *reading.numbers)
    for one in found:
        if one.sure and one.column not in told:
            raise InputError(
                f"{data}: column {one} names some persons in several rows, and each row would count as a "
                f"person: --person {one.column} puts the rows of a person together; if the column does not "
                f"say whose row it is, --exclude {one.column}"
            )
    return [one for one in found if one.column not in told]


@copy.command("show")
def copy_show(
    folder: Folder,
    html: Annotated[Path | None, typer.Option(help="Write the page here and do not open it.")] = None,
    renewal: Annotated[bool, typer.Option(help="The renewed copy that waits for its approval.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Open the copy as a page: the very table, how it was made, what it costs, what it does not promise."""
    from unpooled.app.pages.table_page import facts, not_promised
    from unpooled.site.table_notes import rare_categories_in
    from unpooled.site.table_store import SummaryFolder

    place = SummaryFolder(folder)
    if renewal and not place.pending:
        raise InputError(f"{folder}: no renewal waits for its approval; unpooled site summarize plans one")
    kept, settings = place.read(renewed=renewal), place.settings()
    check(html, inputs=inputs_of_copy(folder, html), overwrite=overwrite)
    target = write_page(place, html, renewal=renewal)
    rare = rare_categories_in(place.renewal if renewal else place.path)
    for line in (*facts(kept, settings, rare), *not_promised(kept)):
        typer.echo(f"- {line}")
    if renewal:
        typer.echo("not approved yet: the site answers from the old copy")
    else:
        typer.echo("approved" if place.approved else "not approved yet: the site answers nothing")
    typer.echo(f"written: {target}")
    if html is None:
        webbrowser.open(target.absolute().as_uri())


def write_page(place: "SummaryFolder", html: Path | None = None, *, renewal: bool = False) -> Path:
    """Write the page of a copy, or of its renewal, by default beside its table."""
    from unpooled.app.pages.table_page import page
    from unpooled.site.table_notes import rare_categories_in
    from unpooled.site.table_store import PAGE
    from unpooled.storage.atomic_files import write_atomically

    path = place.renewal if renewal else place.path
    target = html or path / PAGE
    approved, digest = ("", place.renewal_digest) if renewal else (place.approved, place.digest)
    copy, settings = place.read(renewed=renewal), place.settings()
    shown = page(copy, settings, approved, digest, renewal=renewal, rare=rare_categories_in(path))
    write_atomically(target, shown.encode())
    return target


def approve(place: "SummaryFolder", by: str) -> str:
    """Approve a copy, so that its page, if there is one, says so; returns its digest."""
    from unpooled.site.table_store import PAGE

    digest = place.approve(by)
    if (place.path / PAGE).exists():
        write_page(place)
    return digest


@copy.command("export")
def copy_export(
    folder: Folder,
    out: Annotated[Path, typer.Argument(help="The CSV file to write.")],
    overwrite: Overwrite = False,
) -> None:
    """Write the copy as a CSV file, one row per group."""
    from unpooled.data.summary_table import to_csv
    from unpooled.site.table_store import SummaryFolder
    from unpooled.storage.atomic_files import write_atomically

    place = SummaryFolder(folder)
    kept = place.read()
    check(out, inputs=inputs_of_copy(folder, out), overwrite=overwrite)
    write_atomically(out, to_csv(kept).encode())
    typer.echo(f"written: {out}")


@copy.command("approve")
def copy_approve(
    folder: Folder, by: Annotated[str, typer.Option(help="Who approves; default: the account's name.")] = ""
) -> None:
    """Approve the copy, or its renewal if one waits: from now on the site answers from it."""
    from unpooled.site.table_store import SummaryFolder

    place = SummaryFolder(folder)
    digest = approve(place, by)
    typer.echo(f"approved: {place.path}, digest {digest[:16]}")
