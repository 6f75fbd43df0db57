"""``unpooled site summarize``, ``erase`` and ``forget``: the copy of a table that changes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.copy import Data, Folder, copy
from unpooled.app.cli.outputs import Overwrite, check
from unpooled.html.html import counted

if TYPE_CHECKING:
    from unpooled.data.readers import Reading
    from unpooled.data.summary_table import SummaryTable
    from unpooled.privacy.microaggregation.renew import Renewal


@copy.command("renew")
@o.takes_options
def copy_renew(
    folder: Folder,
    data: Data,
    reading: o.ReadingOptions,
    keep_changed: Annotated[
        bool,
        typer.Option(help="Take no group out because values changed; the old ones stay shown."),
    ] = False,
    extra_spread: Annotated[
        float | None,
        typer.Option(
            help="How wide further groups may be: 0 as the first ones, 1 any. Fewer wait, more is lost."
        ),
    ] = None,
    people: Annotated[
        Path | None,
        typer.Option(help="Write what becomes of each person, by id, to this CSV file."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Plan the renewal of the copy from a changed file, and say who waits and what is lost.

    The site goes on answering from the old copy until unpooled site approve. The file is read as it was for
    the first copy, unless options say otherwise.

    unpooled site summarize north --data patients.csv
    """
    from unpooled.app.run_job import progress
    from unpooled.data.readers import read_table
    from unpooled.privacy.microaggregation.renew import NEW_PENDING, PENDING
    from unpooled.site.table_changes import check_registered, renew
    from unpooled.site.table_store import SummaryFolder

    place = SummaryFolder(folder)
    check_registered(place)
    check(people, inputs=[data], overwrite=overwrite)
    before = place.read()
    with progress(quiet=False) as line:
        line.activity(f"reading {data}")
        blank: list[int] = []
        table = read_table(
            data, _reading(folder, reading, place.settings().person), on_blank_rows=blank.append
        )
        line.activity("planning the renewal")
        found = renew(place, table, keep_changed=keep_changed, extra_spread=extra_spread)
    if people is not None:
        _write_persons(people, found)
    for rows in blank:
        typer.echo(f"{rows} rows at the end of {data} have no value and are left out")
    for text in forecast(found, before):
        typer.echo(text)
    if waiting := sum(state in (PENDING, NEW_PENDING) for state in found.states.values()):
        wait = f"{counted(waiting, 'person')} {'waits' if waiting == 1 else 'wait'}"
        more = (
            ""
            if extra_spread is not None and extra_spread >= 1
            else "; a larger --extra-spread shows more of them"
        )
        typer.echo(f"{wait} until others come they can be with{more}.")
    if found.empty:
        typer.echo(f"Nothing changes: {place.path} stays as it is.")
    else:
        typer.echo(f"written: {place.renewal}; the site answers from the old copy until it is approved.")
        typer.echo(f"unpooled site review {folder} opens it; unpooled site approve {folder} approves it.")


def _reading(folder: Path, given: o.ReadingOptions, person: str) -> "Reading":
    """How the file is read: as options say, or as for the first copy."""
    from dataclasses import replace

    from unpooled.data.readers import Reading
    from unpooled.site.people_register import Registry
    from unpooled.storage.portable_paths import located

    with Registry.open(folder) as registry:
        kept = registry.reading
    if kept and not given.given:
        read = Reading(**{name: _tuples(value) for name, value in kept.items()})
        return read if read.query is None else replace(read, query=located(read.query, folder))
    reading = given.reading()
    columns = _tuples(kept.get("columns")) if kept else None
    return replace(reading, columns=columns, categorical=(*reading.categorical, person))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def forecast(found: "Renewal", before: "SummaryTable") -> list[str]:
    """A table of who is shown, waits, leaves and is lost, and of the copy before and after."""
    from unpooled.privacy.microaggregation import renew as plan

    states, figures = list(found.states.values()), found.figures
    count = int(figures["people"])
    lines = [f"{'people':40}{'':>10}{'share':>10}", f"{'in the file':40}{count:>10}"]
    for state in plan.STATES:
        n = states.count(state)
        lines.append(f"{'  ' + state:40}{n:>10}{n / count:>10.1%}")
    going = len(found.retired)
    lines += [
        f"{'left since they were shown':40}{int(figures[plan.GONE]):>10}",
        f"{'changed since they were shown':40}{int(figures[plan.CHANGED]):>10}",
        "",
        f"{'the copy':40}{'before':>10}{'after':>10}",
        f"{'groups':40}{len(before):>10}{len(found.summary):>10}",
        f"{'groups taken out, and further ones':40}{going:>10}{len(found.added):>10}",
        f"{'persons of the file who are shown':40}{figures['shown before'] / count:>10.1%}"
        f"{sum(states.count(s) for s in plan.DISCLOSED) / count:>10.1%}",
        f"{'variance remote groups':40}{figures['kept before']:>10.1%}{figures['kept']:>10.1%}",
        "",
    ]
    return lines


def _write_persons(path: Path, found: "Renewal") -> None:
    from unpooled.storage.atomic_files import write_atomically
    from unpooled.storage.spreadsheet import csv_text

    write_atomically(path, csv_text([("person", "state"), *found.states.items()]).encode())
    typer.echo(f"written: {path}: it has the ids of persons and must stay at the site")


@copy.command("erase")
def copy_erase(
    folder: Folder,
    people: Annotated[list[str], typer.Argument(help="Ids of persons, as the file has them.")],
    block_unknown: Annotated[
        bool,
        typer.Option("--block-unknown", help="Also bar ids that were never shown from all later copies."),
    ] = False,
    by: Annotated[str, typer.Option(help="Who orders it; default: the account's name.")] = "",
) -> None:
    """Take persons out of the copy at once, each with the whole group, and never show them again.

    A run that is under way gets no further answer from this site. Delete the persons from the file as well.
    """
    from unpooled.site.table_changes import erase
    from unpooled.site.table_store import SummaryFolder
    from unpooled.storage.atomic_files import account

    place = SummaryFolder(folder)
    done = erase(place, people, by or account(), block_unknown=block_unknown)
    known = len(set(people)) - len(done.never_disclosed)
    if known:
        typer.echo(
            f"erased: {counted(known, 'person')}; out of the copy: {counted(done.groups, 'group')} with "
            f"{counted(done.people, 'person')}; digest {place.digest[:16]}"
        )
    for person in done.never_disclosed:
        typer.echo(f"barred: {person}, of whom nothing was ever shown, and nothing will be")
    for path in done.emptied:
        typer.echo(f"deleted: {path / 'table.csv'}, which had, or may have had, a group of theirs")
    typer.echo(
        "What left before cannot be taken back: means of groups, in answers that are in the log and with the "
        "coordinator. The registry keeps a keyed digest of each person, so that none of them is shown again."
    )


@copy.command("forget")
def copy_forget(
    folder: Folder, before: Annotated[str, typer.Option(help="Copies made before this date: 2026-11-16.")]
) -> None:
    """Delete the tables of earlier copies; that they were, and who was in which group, stays known."""
    from unpooled.site.table_changes import forget
    from unpooled.site.table_store import SummaryFolder

    gone = forget(SummaryFolder(folder), before)
    for path in gone:
        typer.echo(f"deleted: {path / 'table.csv'}")
    if not gone:
        typer.echo(f"there is no table of an earlier copy of before {before}")
