"""``unpooled study``: the studies that came to a site, and what its officer decides about each."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.site.study_store import ReceivedStudy, StudyFolder

study = typer.Typer(
    no_args_is_help=True, help="The studies that came to a site: approve, decline or withdraw each."
)

Folder = Annotated[Path, typer.Argument(help="The site's own folder.")]
Which = Annotated[
    str, typer.Argument(help="The study: its number in the list, or its digest; default: the only one.")
]
By = Annotated[str, typer.Option(help="Who decides; default: the account's name.")]
Reason = Annotated[str, typer.Option(help="Why; the coordinator reads it, too.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@study.command("list")
def study_list(folder: Folder) -> None:
    """List the studies that came to a site, with their numbers and what was decided about each."""
    every = _studies(folder).every()
    if not every:
        typer.echo("no study has come yet")
    for number, kept in enumerate(every, start=1):
        s = kept.study
        typer.echo(
            f"{number}. {kept.display_state}: {s.title} ({s.purpose}); came {kept.received}, {s.digest[:16]}"
        )


@study.command("show")
def study_show(folder: Folder, which: Which = "") -> None:
    """Show a study: what it is for, who answers for it, and the most that it will ask."""
    place = _studies(folder)
    _show(place.find(which) if which else _only(place, place.pending() or place.every(), "show"))


@study.command("approve")
def study_approve(
    folder: Folder,
    which: Which = "",
    with_copy: Annotated[
        bool, typer.Option("--with-copy", help="Approve the site's copy as well, if nobody has.")
    ] = False,
    by: By = "",
    yes: Yes = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for a study to come.")] = 0.0,
) -> None:
    """Approve a study: from now on the site answers its run, within what the study says, until it expires.

    unpooled site approve hospital-a
    """
    from unpooled.app.cli.copy import approve as approve_copy
    from unpooled.site.study_store import APPROVED
    from unpooled.site.table_store import SummaryFolder

    place, copy = _studies(folder), SummaryFolder(folder)
    until = time.monotonic() + wait
    while time.monotonic() < until and not place.pending():
        time.sleep(0.2)
    kept = place.find(which) if which else _only(place, place.pending(), "approve")
    if not which and not yes:
        _show(kept)
        typer.confirm("Approve it?", abort=True)
    if with_copy and not copy.approved:
        typer.echo(f"approved: {copy.path}, digest {approve_copy(copy, by)[:16]}")
    place.decide(kept.study.digest, APPROVED, by)
    typer.echo(f"approved: {kept.study.title}, digest {kept.study.digest[:16]}")
    if copy.exists and not copy.approved:
        typer.echo(f"the copy is not approved yet: unpooled site approve {folder}", err=True)


@study.command("decline")
def study_decline(folder: Folder, which: Which = "", reason: Reason = "", by: By = "") -> None:
    """Decline a study that waits: its run goes on without this site, and is told why."""
    from unpooled.site.study_store import DECLINED, checked_reason

    place = _studies(folder)
    kept = place.find(which) if which else _only(place, place.pending(), "decline")
    place.decide(kept.study.digest, DECLINED, by, checked_reason(reason))
    typer.echo(f"declined: {kept.study.title}, digest {kept.study.digest[:16]}")


@study.command("withdraw")
def study_withdraw(folder: Folder, which: Which = "", reason: Reason = "", by: By = "") -> None:
    """Withdraw the approval of a study: the next question of its run is refused, also in the middle."""
    from unpooled.site.study_store import APPROVED, WITHDRAWN, checked_reason

    place = _studies(folder)
    approved = [kept for kept in place.every() if kept.state == APPROVED and not kept.study.expired]
    kept = place.find(which) if which else _only(place, approved, "withdraw")
    place.decide(kept.study.digest, WITHDRAWN, by, checked_reason(reason))
    typer.echo(f"withdrawn: {kept.study.title}, digest {kept.study.digest[:16]}")


def _studies(folder: Path) -> "StudyFolder":
    from unpooled.site.study_store import StudyFolder

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    return StudyFolder(folder)


def _only(place: "StudyFolder", found: "list[ReceivedStudy]", what: str) -> "ReceivedStudy":
    if len(found) == 1:
        return found[0]
    many = f"{len(found)} studies could be meant" if found else f"there is no study to {what}"
    raise InputError(f"{place.folder}: {many}; unpooled site status {place.folder} numbers them")


def _show(kept: "ReceivedStudy") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from unpooled.site.study import allowed_questions, sentences

    console = Console(highlight=False)
    facts = Table.grid(padding=(0, 2))
    for name, value in sentences(kept.study):
        facts.add_row(name, escape(value))
    facts.add_row("digest", kept.study.digest)
    facts.add_row("state", kept.display_state)
    for said in kept.decisions:
        facts.add_row("", escape(f"{said.decision} by {said.by} at {said.at} {said.reason}".rstrip()))
    console.print(facts)
    head = ("it may ask for", "question", "centres at once, at most", "work at the site, at most")
    table = Table(*head, title="All that it may ask")
    for meaning, name, most, work in allowed_questions(kept.study):
        table.add_row(escape(meaning), name, most, escape(work))
    console.print(table)
