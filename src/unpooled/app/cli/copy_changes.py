"""``unpooled copy renew``, ``erase`` and ``forget``: the copy of a table that changes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.copy import Data, Folder, copy
from unpooled.app.cli.outputs import Overwrite, check
from unpooled.pages.markup import counted

if TYPE_CHECKING:
    from unpooled.data.copy import Copy
    from unpooled.data.readers import Reading
    from unpooled.privacy.copy.renew import Renewal


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
    wider: Annotated[
        float | None,
        typer.Option(
            help="How wide further groups may be: 0 as the first ones, 1 any. Fewer wait, more is lost."
        ),
    ] = None,
    persons: Annotated[
        Path | None,
        typer.Option(help="Write what becomes of each person, by id, to this CSV file."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Plan the renewal of the copy from a changed file, and say who waits and what is lost.

    The site goes on answering from the old copy until unpooled copy approve. The file is read as it was for
    the first copy, unless options say otherwise.

    unpooled copy renew north --data patients.csv
    """
    from unpooled.app.run_job import progress
    from unpooled.data.readers import read_table
    from unpooled.privacy.copy.renew import NEW_WAITS, WAITS
    from unpooled.site.copy_changes import check_registered, renew
    from unpooled.site.copy_folder import CopyFolder

    place = CopyFolder(folder)
    check_registered(place)
    check(persons, inputs=[data], overwrite=overwrite)
    before = place.read()
    with progress(quiet=False) as line:
        line.say(f"reading {data}")
        blank: list[int] = []
        table = read_table(data, _reading(folder, reading, place.settings().person), blank=blank.append)
        line.say("planning the renewal")
        found = renew(place, table, keep_changed=keep_changed, wider=wider)
    if persons is not None:
        _write_persons(persons, found)
    for rows in blank:
        typer.echo(f"{rows} rows at the end of {data} have no value and are left out")
    for text in forecast(found, before):
        typer.echo(text)
    if waiting := sum(state in (WAITS, NEW_WAITS) for state in found.states.values()):
        wait = f"{counted(waiting, 'person')} {'waits' if waiting == 1 else 'wait'}"
        more = "" if wider is not None and wider >= 1 else "; a larger --wider shows more of them"
        typer.echo(f"{wait} until others come they can be with{more}.")
    if found.empty:
        typer.echo(f"Nothing changes: {place.path} stays as it is.")
    else:
        typer.echo(f"written: {place.renewal}; the site answers from the old copy until it is approved.")
        typer.echo(
            f"unpooled copy show {folder} --renewal opens it; unpooled copy approve {folder} approves it."
        )


def _reading(folder: Path, given: o.ReadingOptions, person: str) -> "Reading":
    """How the file is read: as options say, or as for the first copy."""
    from dataclasses import replace

    from unpooled.core.portable_paths import located
    from unpooled.data.readers import Reading
    from unpooled.site.registry import Registry

    with Registry.opened(folder) as registry:
        kept = registry.reading
    if kept and not given.given:
        read = Reading(**{name: _tuples(value) for name, value in kept.items()})
        return read if read.query is None else replace(read, query=located(read.query, folder))
    reading = given.reading()
    columns = _tuples(kept.get("columns")) if kept else None
    return replace(reading, columns=columns, categories=(*reading.categories, person))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def forecast(found: "Renewal", before: "Copy") -> list[str]:
    """A table of who is shown, waits, leaves and is lost, and of the copy before and after."""
    from unpooled.privacy.copy import renew as plan

    states, figures = list(found.states.values()), found.figures
    count = int(figures["persons"])
    lines = [f"{'persons':40}{'':>10}{'share':>10}", f"{'in the file':40}{count:>10}"]
    for state in plan.STATES:
        n = states.count(state)
        lines.append(f"{'  ' + state:40}{n:>10}{n / count:>10.1%}")
    going = len(found.retired)
    lines += [
        f"{'left since they were shown':40}{int(figures[plan.LEFT]):>10}",
        f"{'changed since they were shown':40}{int(figures[plan.CHANGED]):>10}",
        "",
        f"{'the copy':40}{'before':>10}{'after':>10}",
        f"{'groups':40}{len(before):>10}{len(found.copy):>10}",
        f"{'groups taken out, and further ones':40}{going:>10}{len(found.added):>10}",
        f"{'persons of the file who are shown':40}{figures['shown before'] / count:>10.1%}"
        f"{sum(states.count(s) for s in plan.SHOWN) / count:>10.1%}",
        f"{'variance between groups':40}{figures['kept before']:>10.1%}{figures['kept']:>10.1%}",
        "",
    ]
    return lines


def _write_persons(path: Path, found: "Renewal") -> None:
    from unpooled.core.disk import write_atomically
    from unpooled.pages.spreadsheet import csv_text

    write_atomically(path, csv_text([("person", "state"), *found.states.items()]).encode())
    typer.echo(f"written: {path}: it has the ids of persons and must stay at the site")


@copy.command("erase")
def copy_erase(
    folder: Folder,
    persons: Annotated[list[str], typer.Argument(help="Ids of persons, as the file has them.")],
    bar: Annotated[
        bool, typer.Option("--bar", help="Also bar ids that were never shown from all later copies.")
    ] = False,
    by: Annotated[str, typer.Option(help="Who orders it; default: the account's name.")] = "",
) -> None:
    """Take persons out of the copy at once, each with the whole group, and never show them again.

    A run that is under way gets no further answer from this site. Delete the persons from the file as well.
    """
    from unpooled.core.disk import account
    from unpooled.site.copy_changes import erase
    from unpooled.site.copy_folder import CopyFolder

    place = CopyFolder(folder)
    done = erase(place, persons, by or account(), bar=bar)
    known = len(set(persons)) - len(done.never_shown)
    if known:
        typer.echo(
            f"erased: {counted(known, 'person')}; out of the copy: {counted(done.groups, 'group')} with "
            f"{counted(done.persons, 'person')}; digest {place.digest[:16]}"
        )
    for person in done.never_shown:
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
    from unpooled.site.copy_changes import forget
    from unpooled.site.copy_folder import CopyFolder

    gone = forget(CopyFolder(folder), before)
    for path in gone:
        typer.echo(f"deleted: {path / 'table.csv'}")
    if not gone:
        typer.echo(f"there is no table of an earlier copy of before {before}")
