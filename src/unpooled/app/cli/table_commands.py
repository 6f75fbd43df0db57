"""``unpooled site summarize``, ``site erase`` and ``site prune``: the summary table of a site."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.ask import By, Yes, confirm, decided_by
from unpooled.app.cli.options import Overwrite
from unpooled.app.cli.site_commands import POLICY, SiteFolderArgument, site
from unpooled.app.outputs import check
from unpooled.errors import InputError, PolicyError
from unpooled.html.formatting import counted
from unpooled.options.declaration import PROTECT

if TYPE_CHECKING:
    from unpooled.data.readers import Reading
    from unpooled.data.summary_table import SummaryTable
    from unpooled.data.table import Table
    from unpooled.privacy.microaggregation import SummarySettings
    from unpooled.privacy.microaggregation.renew import Renewal
    from unpooled.site.folder_register import DataSource
    from unpooled.site.policy import Policy
    from unpooled.site.table_store import SummaryFolder

ROWS = "The site's rows: CSV, Parquet, .xlsx, .npy, a SQLite or DuckDB file, or postgresql://user@host/db"
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", help="The site's policy (default: policy.toml in its folder, if it is there)."),
]
StudyColumns = Annotated[
    str | None,
    typer.Option(help="Columns that studies are about; the grouping weighs the others a third: age,bmi"),
]
Columns = Annotated[str | None, typer.Option(help="The only columns to read: age,bmi,sex")]
NoSensitiveColumns = Annotated[
    bool,
    typer.Option(
        "--no-sensitive-columns",
        help="Declare that no column is sensitive. The declaration is recorded.",
        rich_help_panel=PROTECT,
    ),
]
AllowSecondFolder = Annotated[
    bool,
    typer.Option(
        "--allow-second-folder",
        help="Accept data of which another site folder of yours holds a summary table or answers queries.",
    ),
]
_UPDATE = "Updates"


@site.command()
@o.takes_options
def summarize(
    folder: SiteFolderArgument,
    data: Annotated[str, typer.Option(help=ROWS)],
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    policy: PolicyFile = None,
    columns: Columns = None,
    study_columns: StudyColumns = None,
    no_sensitive_columns: NoSensitiveColumns = False,
    second_table: Annotated[
        str,
        typer.Option(help="Make a second, unrelated table. The error message names the text to give here."),
    ] = "",
    allow_second_folder: AllowSecondFolder = False,
    keep_changed: Annotated[
        bool,
        typer.Option(
            "--keep-changed",
            help="Withdraw no group because values changed; the old values stay disclosed.",
            rich_help_panel=_UPDATE,
        ),
    ] = False,
    extra_spread: Annotated[
        float | None,
        typer.Option(
            help="How much wider new groups may be than the first ones: from 0 (not at all) to 1 (any "
            "width). More spread leaves fewer people pending and loses more detail.",
            rich_help_panel=_UPDATE,
        ),
    ] = None,
    people_out: Annotated[
        Path | None,
        typer.Option(
            help="Write the state of each person, by id, to this CSV file.", rich_help_panel=_UPDATE
        ),
    ] = None,
    data_config: o.DataConfig = None,
    save_data_config: o.SaveDataConfig = None,
    overwrite: Overwrite = False,
) -> None:
    """Make the summary table of a site (microaggregation), or update it from a changed file.

    It needs no federation, and nothing leaves this machine. The site answers from a new or updated table only
    after unpooled site approve. Until then, the command makes it anew. An update reads the file as the first
    time, unless options change that. The first table needs --person or --one-row-per-person, and its
    sensitive columns: --diverse, --sensitive or --no-sensitive-columns.

    unpooled site summarize hospital-a --data patients.csv --person patient_id --diverse diagnosis
    """
    from unpooled.site.table_store import SummaryFolder

    if data_config is not None:
        from unpooled.options.data_file import read_data_file

        reading.add(read_data_file(data_config))
    inputs = [file for file in (data, policy, data_config) if file is not None]
    o.save_data_file(save_data_config, reading.reading(), inputs=inputs, overwrite=overwrite)
    place = SummaryFolder(folder)
    if second_table or not place.exists or place.replaceable:
        if keep_changed or extra_spread is not None or people_out is not None:
            raise InputError(
                f"{folder}: --keep-changed, --extra-spread and --people-out are for updates, and there is no "
                "approved summary table to update"
            )
        rules = find_policy(folder, policy)
        settings = settings_of(rules, grouping, study_columns, no_sensitive_columns)
        make(
            folder,
            data,
            rules,
            read_by(reading, columns),
            settings,
            second_table,
            allow_second_folder=allow_second_folder,
        )
        typer.echo(f"unpooled site approve {folder} lets the site answer from it.")
        return
    if policy is not None or grouping.is_set or study_columns or columns or no_sensitive_columns:
        settings = settings_of(find_policy(folder, policy), grouping, study_columns, no_sensitive_columns)
        _check_unchanged(place, settings, o.names(columns))
    _update(place, data, reading, keep_changed, extra_spread, people_out, overwrite, allow_second_folder)


def find_policy(folder: Path, policy: Path | None) -> "Policy":
    """Return the rules of ``policy``, or those in the site's folder, or the default ones."""
    from unpooled.site.policy import Policy, load

    file = policy or folder / POLICY
    return load(file) if policy is not None or file.exists() else Policy()


def read_by(reading: o.ReadingOptions, columns: str | None) -> "Reading":
    """Return how to read the file: all columns, or only some."""
    from dataclasses import replace

    return replace(reading.reading(), columns=o.names(columns) if columns else None)


def settings_of(
    rules: "Policy", grouping: o.SummaryOptions, study_columns: str | None, no_sensitive_columns: bool = False
) -> "SummarySettings":
    """Return how to make the summary table: as the policy sets it, and where it sets nothing, the options."""
    from unpooled.privacy.microaggregation import SummarySettings
    from unpooled.site.policy import check_declared

    if rules.protect.mode != "summary":
        raise PolicyError(
            f'the policy has [protect] mode = "{rules.protect.mode}": such a site has no summary table'
        )
    fixed, chosen = rules.protect.settings(), grouping.settings(o.names(study_columns))
    for name in ("person", "sensitive", "diverse", "log_transform", "consumption"):
        value, option = getattr(fixed, name), getattr(chosen, name)
        if value and option and value != option:
            raise PolicyError(f"--{name.replace('_', '-')}: the policy has [protect] {name} = {value!r}")
    if fixed.person and chosen.one_row_per_person:
        raise PolicyError(
            f"--one-row-per-person: the policy has [protect] person = {fixed.person!r}. Leave the option "
            "out, or edit the policy."
        )
    if fixed.one_row_per_person and chosen.person:
        raise PolicyError(
            "--person: the policy has [protect] one_row_per_person = true. Leave the option out, or edit the "
            "policy."
        )
    consumption = chosen.consumption or fixed.consumption
    check_declared(rules, consumption)
    return SummarySettings(
        max(chosen.min_group_size, fixed.min_group_size),
        chosen.person or fixed.person,
        chosen.study_columns or fixed.study_columns,
        chosen.sensitive or fixed.sensitive,
        chosen.log_transform or fixed.log_transform,
        consumption,
        fixed.max_share,
        chosen.one_row_per_person or fixed.one_row_per_person,
        chosen.not_a_person,
        chosen.diverse or fixed.diverse,
        fixed.diverse_by,
        no_sensitive_columns or fixed.no_sensitive_columns,
    )


def _check_sensitive_declared(data: str, settings: "SummarySettings") -> None:
    if not settings.sensitive_declared:
        raise InputError(
            f"{data}: nobody declared which columns are sensitive. Use --diverse COLUMN for a column that "
            "nobody may learn of a person, such as a diagnosis: no group then has too many equal values. Use "
            "--sensitive COLUMN to let the grouping only ignore a column, or --no-sensitive-columns."
        )


# ---------------------------------------------------------------- the first table


def make(
    folder: Path,
    data: str,
    rules: "Policy",
    reading: "Reading",
    settings: "SummarySettings",
    second_table: str = "",
    *,
    allow_second_folder: bool = False,
) -> None:
    """Read a file and write its summary table into the site's folder, with a line of progress."""
    from dataclasses import asdict, replace

    from unpooled.app.pages.risk_sentences import measured
    from unpooled.app.pages.write_table_page import write_page
    from unpooled.app.progress import progress
    from unpooled.data.readers import read_table
    from unpooled.privacy.microaggregation.rare_categories import merged_categories
    from unpooled.site.folder_register import one_folder
    from unpooled.site.table_notes import record_notes
    from unpooled.site.table_store import SummaryFolder
    from unpooled.storage.portable_paths import portable

    _check_sensitive_declared(data, settings)
    place = SummaryFolder(folder)
    place.check_may_make(second_table)
    query = None if reading.query is None else portable(reading.query, folder, folder)
    if reading.long is not None and not settings.person:  # one row of each person is made of its rows
        settings = replace(settings, one_row_per_person=True)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: not a folder")
    if settings.person:
        if settings.person in reading.exclude:
            raise InputError(
                f"--exclude leaves out {settings.person}, and --person must be read to tell people apart"
            )
        reading = replace(reading, categorical=(*reading.categorical, settings.person))
        if reading.columns is not None:
            reading = replace(reading, columns=(*reading.columns, settings.person))
    with progress(quiet=False) as line:
        line.activity(f"reading {data}")
        blank: list[int] = []
        table = read_table(data, reading, on_blank_rows=blank.append, whole=True)
        line.activity("looking for columns that identify people")
        table, left_out = _checked_people(data, table, reading, settings)
        with one_folder(
            folder, data_source(data, reading, table, settings), allow_second=allow_second_folder
        ):
            made = place.make(
                table,
                settings,
                second_table=second_table,
                progress=lambda step, share: line.activity(f"{step}: {share:.0%}"),
                reading=asdict(replace(reading, columns=table.names, exclude=(), query=query)),
            )
        merged = merged_categories(table, settings, made)
        line.activity("measuring risks")
        risks = measured(table, settings)
        record_notes(place.path, merged, risks)
    typer.echo(
        f"written: {place.path}: {counted(made.people.sum(), 'person')} in {counted(len(made), 'group')} of "
        f"at least {made.min_group_size}; digest {place.digest[:16]}"
    )
    _print_blank(blank, data)
    if left_out:
        typer.echo(f"left out, because they identify people as {settings.person} does: {', '.join(left_out)}")
    if not settings.person:
        typer.echo("without --person nobody can be recognised later: the table cannot be updated")
    if merged:
        rare = ", ".join(f"{name} ({counted(people, 'person')})" for name, people in merged.items())
        typer.echo(f"rare categories count as the most common one: {rare}")
    for sentence in (*_without_cells(made), *risks):
        typer.echo(sentence)
    typer.echo(f"written: {write_page(place)}: open it to review the table")


def data_source(
    data: str, reading: "Reading", table: "Table | None" = None, settings: "SummarySettings | None" = None
) -> "DataSource":
    """Return the data of a site for the register of site folders, with the ids of its people if known."""
    from unpooled.privacy.microaggregation.people import People
    from unpooled.site.folder_register import DataSource

    part = reading.sheet or ("" if reading.query is None else Path(reading.query).read_text(encoding="utf-8"))
    if table is None or settings is None or not settings.person:
        return DataSource(data, part)
    return DataSource(data, part, tuple(map(str, People(table, settings).ids)))


def _print_blank(blank: list[int], data: str) -> None:
    for rows in blank:
        typer.echo(f"{rows} rows at the end of {data} have no value and are left out")


def _without_cells(made: "SummaryTable") -> list[str]:
    """Return sentences on the columns without cells in the table, and what to do about each kind."""
    from unpooled.app.pages.table_page import without_categories
    from unpooled.data.column_kinds import has_cells

    kinds = dict(zip(made.names, made.kinds, strict=True)) | dict.fromkeys(without_categories(made), "text")
    lost = {name: kind for name, kind in kinds.items() if not has_cells(kind)}
    if not lost:
        return []
    names = ", ".join(f"{name} ({kind})" for name, kind in lost.items())
    sentences = [f"columns without cells in the summary table: {names}"]
    if any(kind in ("id", "code") for kind in lost.values()):
        sentences.append("if a column only looks like ids or codes, name it with --numbers or --categorical")
    if "date" in lost.values():
        sentences.append(
            "if a date matters, add a column of numbers to the file: an age, days since admission"
        )
    return sentences


def _checked_people(
    data: str, table: "Table", reading: "Reading", settings: "SummarySettings"
) -> "tuple[Table, tuple[str, ...]]":
    """Return the rows without other ids of their people, and the names of these columns.

    InputError if nobody declared which rows belong to one person, if columns contradict the declaration, or
    if a column of texts that nobody named may be names, ids or remarks.
    """
    from unpooled.data.person_columns import distinct_texts, other_ids, person_columns

    named = {*reading.categorical, *reading.numbers, *(name for name, _, _ in reading.recode)}
    left_out = other_ids(table, settings.person) if settings.person else ()
    table = table.without(left_out)
    if not settings.person:
        found = person_columns(_with_codes(data, table, reading), settings.not_a_person)
        person = found[0].columns[0] if found and len(found[0].columns) == 1 else "COLUMN"
        columns = "; ".join(map(str, found[:3])) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
        if not settings.one_row_per_person:
            raise InputError(
                f"{data}: nobody declared which rows belong to one person. "
                + (f"These columns seem to identify people: {columns}. " if found else "")
                + f"Use --person {person} to combine the rows of a person, or --one-row-per-person if every "
                "row is a different person."
            )
        if found:
            names = ",".join(dict.fromkeys(name for one in found for name in one.columns))
            raise InputError(
                f"{data}: some people seem to have several rows, and each row would count as a person. These "
                f"columns seem to identify people: {columns}. Use --person {person} to combine the rows of a "
                f"person. If you know that every row is a different person, add --not-a-person {names}; the "
                "table's page and the DPIA report state it."
            )
    for one in distinct_texts(table, settings.person):
        if one.column not in named and one.column not in settings.not_a_person:
            as_person = "" if settings.person else f"--person {one.column} if it identifies people, "
            raise InputError(
                f"{data}: column {one} may hold names, ids or remarks. Use {as_person}--exclude {one.column} "
                f"to leave it out, or --categorical {one.column} if its texts are categories."
            )
    return table, left_out


def _with_codes(data: str, table: "Table", reading: "Reading") -> "Table":
    """Return the table with its codes and dates as categories: a table does not hold their values."""
    from dataclasses import replace

    from unpooled.data.column_kinds import CODE, DATE
    from unpooled.data.readers import is_file, read_table

    kinds = zip(table.names, table.kinds, strict=True)
    codes = tuple(name for name, kind in kinds if kind in (CODE, DATE))
    if not codes or not is_file(data) or reading.long is not None:
        return table
    again = replace(reading, columns=codes, categorical=codes, numbers=(), recode=(), exclude=())
    codes_read = read_table(data, again, on_blank_rows=lambda rows: None)
    return table.with_columns(codes_read) if len(codes_read) == len(table) else table


# ---------------------------------------------------------------- updates


def _check_unchanged(place: "SummaryFolder", settings: "SummarySettings", columns: tuple[str, ...]) -> None:
    """Raise InputError if options or the policy ask for another table than the one to update."""
    from unpooled.site.table_store import SECOND_TABLE

    made = place.settings()
    different = [
        name
        for name in (
            "min_group_size",
            "person",
            "one_row_per_person",
            "not_a_person",
            "study_columns",
            "sensitive",
            "diverse",
            "no_sensitive_columns",
            "log_transform",
            "consumption",
        )
        if getattr(settings, name) and getattr(settings, name) != getattr(made, name)
    ]
    if settings.consumption and settings.max_share != made.max_share:
        different.append("max_share")
    if settings.diverse and settings.diverse_by != made.diverse_by:
        different.append("diverse_by")
    known = _first_reading(place.folder).get("columns")
    if columns and known and {*columns, made.person} - {""} != set(known):
        different.append("columns")
    if different:
        raise InputError(
            f"{place.folder}: the summary table was made with other settings ({', '.join(different)}), and "
            "an update keeps them. Leave these options out, or make a second table with --second-table "
            f'"{SECOND_TABLE}"'
        )


def _update(
    place: "SummaryFolder",
    data: str,
    reading: o.ReadingOptions,
    keep_changed: bool,
    extra_spread: float | None,
    people_out: Path | None,
    overwrite: bool,
    allow_second_folder: bool,
) -> None:
    """Plan the update of a summary table, write it beside the table, and print its effect."""
    from unpooled.app.pages.write_table_page import write_page
    from unpooled.app.progress import progress
    from unpooled.data.readers import read_table
    from unpooled.privacy.microaggregation.renew import NEW_PENDING, PENDING
    from unpooled.site.folder_register import one_folder
    from unpooled.site.table_changes import check_registered, renew

    folder = place.folder
    check_registered(place)
    check(people_out, inputs=[data], overwrite=overwrite)
    before = place.read()
    with progress(quiet=False) as line:
        line.activity(f"reading {data}")
        blank: list[int] = []
        how = _reading(folder, reading, place.settings().person)
        table = read_table(data, how, on_blank_rows=blank.append)
        line.activity("planning the update")
        source = data_source(data, how, table, place.settings())
        with one_folder(folder, source, allow_second=allow_second_folder):
            plan = renew(place, table, keep_changed=keep_changed, extra_spread=extra_spread)
    if people_out is not None:
        _write_people(people_out, plan)
    _print_blank(blank, data)
    for text in forecast(plan, before):
        typer.echo(text)
    if pending := sum(state in (PENDING, NEW_PENDING) for state in plan.states.values()):
        is_are = "is" if pending == 1 else "are"
        widest = extra_spread is not None and extra_spread >= 1
        more = "" if widest else " A larger --extra-spread discloses more of them."
        typer.echo(f"{counted(pending, 'person')} {is_are} pending until enough similar people come.{more}")
    if plan.empty:
        typer.echo(f"Nothing changes: {place.path} stays as it is.")
    else:
        typer.echo(
            f"written: {place.renewal}; the site answers from the old table until this one is approved."
        )
        typer.echo(f"written: {write_page(place, update=True)}: open it to review the update")
        typer.echo(f"unpooled site approve {folder} approves it.")


def _first_reading(folder: Path) -> dict[str, Any]:
    """Return how the file was read for the first table; empty if that is not known."""
    from unpooled.site import people_register
    from unpooled.site.people_register import Registry

    if not (folder / people_register.FILE).exists():
        return {}
    with Registry.open(folder) as registry:
        return dict(registry.reading)


def _reading(folder: Path, options: o.ReadingOptions, person: str) -> "Reading":
    """Return how to read the file: by the options, or as for the first table."""
    from dataclasses import replace

    from unpooled.data.readers import Reading
    from unpooled.storage.portable_paths import located

    first = _first_reading(folder)
    if first and not options.is_set:
        read = Reading.from_json(first)
        return read if read.query is None else replace(read, query=located(read.query, folder))
    reading = options.reading()
    columns = Reading.from_json(first).columns
    return replace(reading, columns=columns, categorical=(*reading.categorical, person))


def forecast(plan: "Renewal", before: "SummaryTable") -> list[str]:
    """Return the lines of a table: people by state, and the summary table before and after."""
    from unpooled.privacy.microaggregation import renew

    states, figures = list(plan.states.values()), plan.figures
    count = int(figures["people"])
    lines = [f"{'people':40}{'':>10}{'share':>10}", f"{'in the file':40}{count:>10}"]
    for state in renew.STATES:
        n = states.count(state)
        lines.append(f"{'  ' + state:40}{n:>10}{n / count:>10.1%}")
    lines += [
        f"{'left since they were disclosed':40}{int(figures[renew.GONE]):>10}",
        f"{'changed since they were disclosed':40}{int(figures[renew.CHANGED]):>10}",
        "",
        f"{'the summary table':40}{'before':>10}{'after':>10}",
        f"{'groups':40}{len(before):>10}{len(plan.summary):>10}",
        f"{'groups withdrawn, and groups added':40}{len(plan.retired):>10}{len(plan.added):>10}",
        f"{'people of the file who are disclosed':40}{figures['disclosed before'] / count:>10.1%}"
        f"{sum(states.count(s) for s in renew.DISCLOSED) / count:>10.1%}",
        f"{'variance between groups':40}{figures['kept before']:>10.1%}{figures['kept']:>10.1%}",
        "",
    ]
    return lines


def _write_people(path: Path, plan: "Renewal") -> None:
    from unpooled.storage.atomic_files import write_atomically
    from unpooled.storage.spreadsheet import csv_text

    write_atomically(path, csv_text([("person", "state"), *plan.states.items()]).encode())
    typer.echo(f"written: {path}: it holds ids of people and must stay at the site")


# ---------------------------------------------------------------- erasure


@site.command()
def erase(
    folder: SiteFolderArgument,
    people: Annotated[list[str], typer.Argument(help="Ids of people, as they are in the file.")],
    block_unknown: Annotated[
        bool,
        typer.Option(
            "--block-unknown", help="Also block ids that were never disclosed from all later summary tables."
        ),
    ] = False,
    by: By = "",
    yes: Yes = False,
) -> None:
    """Show what an erasure withdraws, and erase people from the summary table at once.

    They are never disclosed again.
    Each person's whole group is withdrawn. This site answers no more queries of a run that is under way.
    Delete the people from the file as well.

    unpooled site erase hospital-a P0017
    """
    from unpooled.app.pages.write_table_page import write_page
    from unpooled.site.erase_people import erase as erase_people
    from unpooled.site.erase_people import plan_erasure
    from unpooled.site.export_table import write_notices
    from unpooled.site.table_store import SummaryFolder

    place = SummaryFolder(folder)
    planned = plan_erasure(place, people, block_unknown=block_unknown)
    if not yes:
        typer.echo(
            f"{place.path}: {counted(planned.groups, 'group')} with {counted(planned.people, 'person')} "
            f"would be withdrawn; {counted(planned.left, 'person')} would stay disclosed"
        )
        for person in planned.never_disclosed:
            typer.echo(f"{person}: nothing was ever disclosed; all later tables would leave this id out")
        confirm(f"Erase {counted(len(set(people)), 'person')} for ever?", yes)
    done = erase_people(place, people, decided_by(by, yes), block_unknown=block_unknown)
    write_page(place)
    known = len(set(people)) - len(done.never_disclosed)
    if known:
        typer.echo(
            f"erased: {counted(known, 'person')}; withdrawn: {counted(done.groups, 'group')} with "
            f"{counted(done.people, 'person')}; digest {place.digest[:16]}"
        )
    for person in done.never_disclosed:
        typer.echo(f"blocked: {person}, of whom nothing was ever disclosed, and nothing will be")
    for path in done.emptied:
        typer.echo(f"deleted: {path / 'table.csv'}, which held, or may have held, a group of theirs")
    for notice in write_notices(folder):
        files = counted(notice.files, "summary file")
        typer.echo(f"send to {notice.recipient}: {notice.path}, which asks to delete {files}")
    typer.echo(
        "An erasure does not reach what the site sent before: means of groups, in summary files and in "
        "answers that are in the log and at the coordinator. The registry keeps a keyed digest of each "
        "person, so that none of them is disclosed again."
    )


@site.command()
def prune(
    folder: SiteFolderArgument,
    before: Annotated[str, typer.Option(help="Delete tables that were made before this date: 2026-11-16.")],
) -> None:
    """Delete the contents of earlier summary tables.

    Their dates, and who was in which group, stay known.

    unpooled site prune hospital-a --before 2026-01-01
    """
    from unpooled.site.table_changes import forget
    from unpooled.site.table_store import SummaryFolder

    deleted = forget(SummaryFolder(folder), before)
    for path in deleted:
        typer.echo(f"deleted: {path / 'table.csv'}")
    if not deleted:
        typer.echo(f"there is no earlier summary table from before {before}")
