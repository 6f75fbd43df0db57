"""``unpooled site review``, ``site approve`` and ``site decline``: the decisions of a site's officer."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli.ask import By, Yes, confirm, decided_by
from unpooled.app.cli.options import Overwrite
from unpooled.app.cli.serve_page import Port, serve_page
from unpooled.app.cli.site_commands import SiteFolderArgument, check_folder, site
from unpooled.app.outputs import check, inputs_of_table
from unpooled.errors import InputError
from unpooled.html.formatting import counted

if TYPE_CHECKING:
    from rich.table import Table

    from unpooled.site.study_store import ReceivedStudy, StudyFolder
    from unpooled.site.table_store import SummaryFolder

Study = Annotated[
    str,
    typer.Argument(
        help="A study: its number in unpooled site status, or the first 6 or more digits of its digest."
    ),
]
_LISTED = 10  # studies that an error lists
_GROUPS = 4  # of a summary table in a terminal of 80 columns


# ---------------------------------------------------------------- review


@site.command()
def review(
    folder: SiteFolderArgument,
    study: Study = "",
    html: Annotated[Path | None, typer.Option(help="Write a page of the summary table to this file.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the summary table to this CSV file, one row per group.")
    ] = None,
    current: Annotated[
        bool,
        typer.Option("--current", help="The summary table in use, even if an update of it is pending."),
    ] = False,
    text: Annotated[
        bool,
        typer.Option("--text", help="Print the facts on the summary table and the pending studies."),
    ] = False,
    port: Port = 0,
    overwrite: Overwrite = False,
) -> None:
    """Review the summary table and the studies of a site on a page that only this machine opens.

    The command prints a link that opens the page once. With a STUDY, --text, --html or --csv it prints or
    writes instead.

    unpooled site review hospital-a
    """
    from unpooled.app.pages.review_state import is_site
    from unpooled.app.pages.write_table_page import write_page
    from unpooled.site.table_store import SummaryFolder

    check_at_site(folder)
    if not is_site(folder):
        raise InputError(
            f"{folder}: not the folder of a site; unpooled site summarize or unpooled site join makes one"
        )
    _check_options(study, html, csv, text, current, port, overwrite)
    place = SummaryFolder(folder)
    if study:
        _print_study(_studies(folder).find(study), _risk(folder))
    elif html is not None:
        check(html, inputs=inputs_of_table(folder, html), overwrite=overwrite)
        write_page(place, html, update=place.pending and not current)
        _print_table(place, update=place.pending and not current)
        typer.echo(f"written: {html}")
    elif csv is not None:
        _write_csv(place, csv, update=place.pending and not current, overwrite=overwrite)
    elif text:
        _print_everything(place, _studies(folder), current)
    else:
        from unpooled.app.pages import review_page
        from unpooled.app.pages.review_state import SiteState

        serve_page(folder, SiteState(folder), review_page, port, " Or use --text, or --html FILE.")


def check_at_site(folder: Path) -> None:
    """Raise InputError if the folder does not exist, or is that of a federation."""
    check_folder(folder)
    if (folder / "federation.json").exists():
        raise InputError(
            f"{folder} is the folder of a federation; unpooled federation watch {folder} opens its monitor"
        )


def _check_options(
    study: str, html: Path | None, csv: Path | None, text: bool, current: bool, port: int, overwrite: bool
) -> None:
    chosen = [("a STUDY", study), ("--html", html), ("--csv", csv), ("--text", text)]
    options = [option for option, value in chosen if value]
    if len(options) > 1:
        raise InputError(f"{' and '.join(options)} exclude each other")
    if current and not (html or csv or text):
        raise InputError("--current needs --html, --csv or --text")
    if port and options:
        raise InputError(f"--port is for the page, and {options[0]} serves none")
    if overwrite and not (html or csv):
        raise InputError("--overwrite needs --html or --csv")


def _write_csv(place: "SummaryFolder", out: Path, *, update: bool, overwrite: bool) -> None:
    from unpooled.data.summary_table import to_csv
    from unpooled.storage.atomic_files import write_atomically

    table = place.read(renewed=update)
    check(out, inputs=inputs_of_table(place.folder, out), overwrite=overwrite)
    write_atomically(out, to_csv(table).encode())
    typer.echo(f"written: {out}")


def _print_table(place: "SummaryFolder", *, update: bool) -> None:
    from unpooled.app.pages.table_page import definition, facts, not_promised
    from unpooled.site.table_notes import rare_categories_in, risks_in

    table = place.read(renewed=update)
    path = place.renewal if update else place.path
    rare, risks = rare_categories_in(path), risks_in(path)
    typer.echo(definition(table.min_group_size))
    for line in (*facts(table, place.settings(), rare), *risks, *not_promised(table)):
        typer.echo(f"- {line}")
    if update:
        typer.echo("not approved yet: the site answers from the old table")
    else:
        typer.echo("approved" if place.approved else "not approved yet: the site answers nothing")


def _print_groups(place: "SummaryFolder", *, update: bool) -> None:
    """Print the first groups of the summary table, each as a column."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = place.read(renewed=update)
    shown = min(len(table), _GROUPS)
    lines = Table("", *(f"group {number}" for number in range(1, shown + 1)), box=None, pad_edge=False)
    for column in lines.columns[1:]:
        column.justify = "right"
    for heading, values in table.cells():
        cells = ("suppressed" if v != v else f"{v:.6g}" for v in values[:shown].tolist())
        lines.add_row(escape(heading), *cells)
    more = f" of {len(table)}; --csv FILE writes all" if len(table) > shown else ""
    typer.echo(f"the first {counted(shown, 'group')}{more}:")
    Console(highlight=False).print(lines)


def _print_everything(place: "SummaryFolder", studies: "StudyFolder", current: bool) -> None:
    if place.exists:
        _print_table(place, update=place.pending and not current)
        _print_groups(place, update=place.pending and not current)
    if pending := studies.pending():
        for study in pending:
            _print_study(study, _risk(place.folder))
        return
    for line in studies_lines(studies):
        typer.echo(line)


_DECIDES = (
    *("title", "purpose", "contact", "federation"),
    *("columns", "protection", "coordinator", "limits", "expires"),
)
_NAMED = 12  # columns on the screen with the question


def _print_study(received: "ReceivedStudy", risk: str) -> None:
    """Print a study: first what an officer decides on, then the rest, and the queries that it allows."""
    from rich.console import Console

    from unpooled.site.study import allowed_queries, sentences

    console = Console(highlight=False)
    statement, queries = dict(sentences(received.study)), allowed_queries(received.study)
    console.print(_decides(received, statement, risk))
    rest = [(name, value) for name, value in statement.items() if name not in _DECIDES]
    console.print(_grid([*rest, ("digest", received.study.digest)]))
    for stage in dict.fromkeys(query.stage for query in queries):
        console.print(f"{stage}, it may ask for:")
        named = [(one, f"{one.name}, {one.limit}" if one.limit else one.name) for one in queries]
        lines = [(" -", f"{one.asks_for} ({name})") for one, name in named if one.stage == stage]
        console.print(_grid(lines))


def _print_decision(received: "ReceivedStudy", risk: str, folder: Path) -> None:
    """Print what an officer decides on; with the question it fits on a terminal of 80 columns, 24 lines."""
    from rich.console import Console

    from unpooled.site.study import allowed_queries, sentences

    statement, columns = dict(sentences(received.study)), received.study.columns
    if len(columns) > _NAMED:
        statement["columns"] = f"{', '.join(columns[:_NAMED])} and {len(columns) - _NAMED} more"
    console = Console(highlight=False)
    console.print(_decides(received, statement, risk))
    kinds = counted(len(allowed_queries(received.study)), "kind")
    console.print(
        f"unpooled site review {folder} {received.study.digest[:16]}\n"
        f"names all columns and the {kinds} of queries that the study allows.",
        soft_wrap=True,
        markup=False,
    )


def _decides(received: "ReceivedStudy", statement: dict[str, str], risk: str) -> "Table":
    """Return the lines on which an officer decides, and earlier decisions."""
    rows = [(name, statement[name]) for name in _DECIDES]
    rows += [("risk", risk), ("state", received.display_state)]
    for one in received.decisions:
        rows.append(("", f"{one.decision} by {one.by} at {one.at} {one.reason}".rstrip()))
    return _grid(rows)


def _grid(rows: list[tuple[str, str]]) -> "Table":
    """Return names and values as two columns of a terminal."""
    from rich.markup import escape
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(name, escape(value))
    return grid


def studies_lines(studies: "StudyFolder") -> list[str]:
    """Return a numbered line for each study that came to a site, with its state."""
    every = studies.every()
    return [
        f"{number}. {one.display_state}: {one.study.title} ({one.study.purpose}); received {one.received} "
        f"from {one.study.federation}, digest {one.study.digest[:16]}"
        for number, one in enumerate(every, start=1)
    ] or ["the site has not received a study yet"]


# ---------------------------------------------------------------- decisions


@site.command()
def approve(
    folder: SiteFolderArgument,
    study: Study = "",
    table: Annotated[
        bool,
        typer.Option(
            "--table", help="Approve the summary table or its pending update; without STUDY, only that."
        ),
    ] = False,
    by: By = "",
    yes: Yes = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for a study to come.", min=0)] = 0.0,
) -> None:
    """Show what is pending with its figures and risks, and approve it: the summary table, the study, or both.

    From then on the site answers from the table, and answers the run of the study until the study expires.

    unpooled site approve hospital-a
    """
    from unpooled.app.pages.write_table_page import approve_table
    from unpooled.site.study_store import APPROVED
    from unpooled.site.table_store import SummaryFolder

    check_at_site(folder)
    place, studies = SummaryFolder(folder), _studies(folder)
    if table and not study:
        if wait:
            raise InputError("--wait waits for a study, and --table approves none. Leave one of them out.")
        chosen, with_table = None, True
    else:
        _wait_for_study(studies, wait)
        chosen = studies.find(study) if study else _only(studies.pending(), folder)
        with_table = (table or not study) and _is_pending(place)
        if chosen is None and not with_table:
            other = "the summary table is approved" if place.exists else "there is no summary table"
            raise InputError(f"{folder}: there is no study to approve, and {other}")
    if with_table and not place.pending and (first := place.approval()):
        typer.echo(f"{place.path} was approved at {first['utc']} by {first['by']}; nothing changes")
        with_table = False
    digest = ""
    if with_table:
        digest = place.renewal_digest if place.pending else place.digest
        _ask_about_table(place, digest, yes)
    if chosen is not None and not yes:
        _print_decision(chosen, _risk(folder), folder)
        confirm("Approve the study?", yes)
    by = decided_by(by, yes)
    if with_table:
        typer.echo(f"approved: {place.path}, digest {approve_table(place, by, digest)[:16]}")
    if chosen is not None:
        studies.decide(chosen.study.digest, APPROVED, by)
        typer.echo(f"approved: {chosen.study.title}, digest {chosen.study.digest[:16]}")
        if place.exists and not place.approved:
            typer.echo(
                f"the summary table is not approved yet: unpooled site approve {folder} --table", err=True
            )


def _is_pending(place: "SummaryFolder") -> bool:
    return place.exists and (place.pending or not place.approved)


def _ask_about_table(place: "SummaryFolder", digest: str, yes: bool) -> None:
    from unpooled.app.pages.table_page import definition
    from unpooled.site.table_notes import risks_in

    if yes:
        return
    table = place.read(renewed=place.pending)
    for risk in risks_in(place.renewal if place.pending else place.path):
        typer.echo(f"- {risk}")
    typer.echo(f"columns: {', '.join(table.names)}")
    typer.echo(definition(table.min_group_size))
    typer.echo(
        f"{'update of ' if place.pending else ''}{place.path}: {counted(table.people.sum(), 'person')} in "
        f"{counted(len(table), 'group')} of at least {table.min_group_size}; made on {table.made}; "
        f"digest {digest}"
    )
    typer.echo(f"unpooled site review {place.folder} shows the whole table")
    confirm("Approve the summary table?", yes)


def _risk(folder: Path) -> str:
    """Return what can be learnt from the answers of a site at most, by the mode of its policy."""
    from unpooled.app.cli.site_commands import POLICY
    from unpooled.app.cli.table_commands import find_policy
    from unpooled.federation.relay.relay_policy import is_relay_policy, load_relay_policy

    if (folder / POLICY).exists() and is_relay_policy(folder / POLICY):
        if load_relay_policy(folder / POLICY).relay.exact:
            return "nearly all groups of single members can be computed from exact sums over the members"
        return "the answers disclose no more than one summary of the members' groups, three or more to a row"
    policy = find_policy(folder, None)
    if policy.protect.mode == "summary":
        return (
            "the answers disclose no more than the summary table, whatever is asked. unpooled site review "
            f"{folder} --text prints the table's risks."
        )
    if policy.protect.mode == "dp":
        return (
            f"someone who has all other rows learns of a row what epsilon {policy.dp.epsilon_total:g} "
            "allows, from all studies together"
        )
    if policy.groups_rows:
        return (
            "the coordinator reads only sums over all sites, of groups of rows. Exact rounds disclose at "
            f"most {policy.aggregation.max_equations * 100:g}% of the rows to linear algebra"
        )
    return (
        "rows can be reconstructed from exact answers; only the contract with the coordinator protects them"
    )


def _wait_for_study(studies: "StudyFolder", seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not studies.pending():
        time.sleep(0.2)


@site.command()
def decline(
    folder: SiteFolderArgument,
    study: Study = "",
    reason: Annotated[str, typer.Option(help="Why; a coordinator who asks again reads it.")] = "",
    by: By = "",
) -> None:
    """Decline a pending study, or withdraw the approval of one.

    The site answers no more queries of the study, even in the middle of a run. The coordinator gets the
    reason when it asks again; after the end of a run write to it.

    unpooled site decline hospital-a 2 --reason "no agreement with you"
    """
    from unpooled.site.study_store import APPROVED, DECLINED, WITHDRAWN, checked_reason

    check_at_site(folder)
    studies = _studies(folder)
    if study:
        chosen = studies.find(study)
    else:
        valid = [one for one in studies.every() if one.state == APPROVED and not one.study.expired]
        found = _only(studies.pending() or valid, folder)
        if found is None:
            raise InputError(f"{folder}: there is no study to decline or withdraw")
        chosen = found
    withdrawn = chosen.state == APPROVED and not chosen.study.expired
    decision = WITHDRAWN if withdrawn else DECLINED
    studies.decide(chosen.study.digest, decision, decided_by(by, False), checked_reason(reason))
    typer.echo(f"{decision}: {chosen.study.title}, digest {chosen.study.digest[:16]}")


def _studies(folder: Path) -> "StudyFolder":
    from unpooled.site.study_store import StudyFolder

    return StudyFolder(folder)


def _only(received: "list[ReceivedStudy]", folder: Path) -> "ReceivedStudy | None":
    """Return the only study, None if there is none; InputError that numbers them if there are several."""
    if len(received) < 2:
        return received[0] if received else None
    numbers = {one.study.digest: number for number, one in enumerate(_studies(folder).every(), start=1)}
    named = "; ".join(
        f"{numbers[one.study.digest]}. {one.study.title} (in {one.study.federation})"
        for one in received[:_LISTED]
    )
    more = f" and {len(received) - _LISTED} more" if len(received) > _LISTED else ""
    raise InputError(f"{folder}: {len(received)} studies are possible. Name one by its number: {named}{more}")
