"""``unpooled copy``: make, open, export and approve the one table that a site answers from."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import Overwrite, check, inputs_of_copy
from unpooled.errors import BadInput, PolicyError
from unpooled.pages.markup import counted

if TYPE_CHECKING:
    from unpooled.data.copy import Copy
    from unpooled.data.readers import Reading
    from unpooled.data.repeated_ids import Repeated
    from unpooled.data.table import Table
    from unpooled.privacy.copy import CopySettings
    from unpooled.site.copy_folder import CopyFolder
    from unpooled.site.policy import Policy

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
    further: Further = "",
) -> None:
    """Make the copy of a file or of a query's rows. It needs no federation, and nothing leaves this machine.

    unpooled copy make north --data patients.csv --person patient_id --columns age,bmi
    """
    from unpooled.site.policy import Policy, load

    rules = Policy() if policy is None else load(policy)
    make(folder, data, rules, read_by(reading, only), settings_of(rules, copying, columns), further)
    typer.echo(
        f"unpooled copy show {folder} opens it; unpooled copy approve {folder} lets the site answer from it."
    )


def read_by(reading: o.ReadingOptions, only: str | None) -> "Reading":
    from dataclasses import replace

    return replace(reading.reading(), columns=o.names(only) if only else None)


def settings_of(rules: "Policy", copying: o.CopyOptions, columns: str | None) -> "CopySettings":
    """How the copy is made: as the policy says, and where it says nothing, as options say."""
    from unpooled.privacy.copy import CopySettings
    from unpooled.site.policy import check_declared

    if rules.protect.mode != "copy":
        raise PolicyError(f'the policy has [protect] mode = "{rules.protect.mode}": such a site has no copy')
    said, given = rules.protect.settings(), copying.settings(o.names(columns))
    for name in ("person", "sensitive", "log", "consumption"):
        wanted, option = getattr(said, name), getattr(given, name)
        if wanted and option and wanted != option:
            raise PolicyError(f"--{name}: the policy has [protect] {name} = {wanted!r}")
    consumption = given.consumption or said.consumption
    check_declared(rules, consumption)
    return CopySettings(
        max(given.g, said.g),
        given.person or said.person,
        given.columns or said.columns,
        given.sensitive or said.sensitive,
        given.log or said.log,
        consumption,
        said.largest_share,
    )


def make(
    folder: Path, data: str, rules: "Policy", reading: "Reading", settings: "CopySettings", further: str = ""
) -> None:
    """Read a file and write its copy into the site's folder, with a line of progress."""
    from dataclasses import asdict, replace

    from unpooled.app.run_job import progress
    from unpooled.core.portable_paths import portable
    from unpooled.data.readers import read_table
    from unpooled.privacy.copy.merged import merged_levels
    from unpooled.site.copy_folder import CopyFolder
    from unpooled.site.copy_notes import note_rare

    place = CopyFolder(folder)
    place.check_may_make(further)
    query = None if reading.query is None else portable(reading.query, folder, folder)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: not a folder")
    if settings.person:
        if settings.person in reading.exclude:
            raise BadInput(f"--person {settings.person} is excluded: it must be read to tell persons apart")
        reading = replace(reading, categories=(*reading.categories, settings.person))
        if reading.columns is not None:
            reading = replace(reading, columns=(*reading.columns, settings.person))
    with progress(quiet=False) as line:
        line.say(f"reading {data}")
        blank: list[int] = []
        table = read_table(data, reading, blank=blank.append, whole=True)
        unsure = [] if settings.person else _repeated(data, table, reading)
        made = place.make(
            table,
            settings,
            further=further,
            progress=lambda step, share: line.say(f"{step}: {share:.0%}"),
            reading=asdict(replace(reading, columns=table.names, exclude=(), query=query)),
        )
        merged = merged_levels(table, settings, made)
        note_rare(place.path, merged)
    typer.echo(
        f"written: {place.path}: {made.persons.sum():.0f} persons in {counted(len(made), 'group')} of at "
        f"least {made.group_size}; digest {place.digest[:16]}"
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
        rare = ", ".join(f"{name} ({counted(persons, 'person')})" for name, persons in merged.items())
        typer.echo(f"rare levels are counted under the commonest one: {rare}")
    for said in _without_cells(made):
        typer.echo(said)


def _without_cells(made: "Copy") -> list[str]:
    """The columns of which a copy has no cells, with their kinds, and what could be done about each kind."""
    from unpooled.site.copy_page import without_levels

    kinds = dict(zip(made.names, made.kinds, strict=True)) | dict.fromkeys(without_levels(made), "text")
    lost = {name: kind for name, kind in kinds.items() if kind not in ("number", "category")}
    if not lost:
        return []
    said = [f"without cells in the copy: {', '.join(f'{name} ({kind})' for name, kind in lost.items())}"]
    if any(kind in ("id", "code") for kind in lost.values()):
        said.append("--numbers or --categories takes a column that only looks like ids or codes")
    if "date" in lost.values():
        said.append("of a date, write what matters into a column of numbers: an age, days since admission")
    return said


def _repeated(data: str, table: "Table", reading: "Reading") -> "list[Repeated]":
    """Columns that may name persons, some of them twice; BadInput for one whose name says that it does.

    A group of such rows would have fewer persons than it says. What the options name as a category or a
    number is taken for that.
    """
    from dataclasses import replace

    from unpooled.data.readers import is_file, read_table
    from unpooled.data.repeated_ids import may_hide_ids, repeated_ids

    found, hidden = repeated_ids(table), may_hide_ids(table)
    if hidden and is_file(data) and reading.long is None:
        found += repeated_ids(
            read_table(data, replace(reading, columns=hidden, categories=hidden, numbers=(), recode=()))
        )
    told = (*reading.categories, *reading.numbers)
    for one in found:
        if one.sure and one.column not in told:
            raise BadInput(
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
    from unpooled.site.copy_folder import CopyFolder
    from unpooled.site.copy_notes import rare_in
    from unpooled.site.copy_page import facts, promises

    place = CopyFolder(folder)
    if renewal and not place.waiting:
        raise BadInput(f"{folder}: no renewal waits for its approval; unpooled copy renew plans one")
    kept, settings = place.read(renewed=renewal), place.settings()
    check(html, inputs=inputs_of_copy(folder, html), overwrite=overwrite)
    target = write_page(place, html, renewal=renewal)
    rare = rare_in(place.renewal if renewal else place.path)
    for line in (*facts(kept, settings, rare), *promises(kept)):
        typer.echo(f"- {line}")
    if renewal:
        typer.echo("not approved yet: the site answers from the old copy")
    else:
        typer.echo("approved" if place.approved else "not approved yet: the site answers nothing")
    typer.echo(f"written: {target}")
    if html is None:
        webbrowser.open(target.absolute().as_uri())


def write_page(place: "CopyFolder", html: Path | None = None, *, renewal: bool = False) -> Path:
    """Write the page of a copy, or of its renewal, by default beside its table."""
    from unpooled.core.disk import write_atomically
    from unpooled.site.copy_folder import PAGE
    from unpooled.site.copy_notes import rare_in
    from unpooled.site.copy_page import page

    path = place.renewal if renewal else place.path
    target = html or path / PAGE
    approved, digest = ("", place.renewal_digest) if renewal else (place.approved, place.digest)
    copy, settings = place.read(renewed=renewal), place.settings()
    shown = page(copy, settings, approved, digest, renewal=renewal, rare=rare_in(path))
    write_atomically(target, shown.encode())
    return target


def approve(place: "CopyFolder", by: str) -> str:
    """Approve a copy, so that its page, if there is one, says so; returns its digest."""
    from unpooled.site.copy_folder import PAGE

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
    from unpooled.core.disk import write_atomically
    from unpooled.data.copy import to_csv
    from unpooled.site.copy_folder import CopyFolder

    place = CopyFolder(folder)
    kept = place.read()
    check(out, inputs=inputs_of_copy(folder, out), overwrite=overwrite)
    write_atomically(out, to_csv(kept).encode())
    typer.echo(f"written: {out}")


@copy.command("approve")
def copy_approve(
    folder: Folder, by: Annotated[str, typer.Option(help="Who approves; default: the account's name.")] = ""
) -> None:
    """Approve the copy, or its renewal if one waits: from now on the site answers from it."""
    from unpooled.site.copy_folder import CopyFolder

    place = CopyFolder(folder)
    digest = approve(place, by)
    typer.echo(f"approved: {place.path}, digest {digest[:16]}")
