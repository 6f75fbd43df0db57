"""``unpooled site status`` and ``unpooled federation status``: health, for people and for monitoring.

Exit codes: 0 all is well; 3 the server or the site is not running; 4 a site is not connected; 5 a run failed
or stopped; 6 somebody must act. The lowest code that applies is returned. 1 and 2 are errors, as everywhere.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpooled.app.cli.commands import OnLinux
from unpooled.app.cli.federation_commands import FederationArgument, check_federation, federation
from unpooled.app.cli.join_commands import print_site, print_table
from unpooled.app.cli.join_relay import print_relay
from unpooled.app.cli.review_commands import studies_lines
from unpooled.app.cli.site_commands import SiteFolderArgument, site
from unpooled.app.outputs import check
from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.federation.provisioning.health import Health
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.site.study_store import StudyFolder

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Metrics = Annotated[
    Path | None,
    typer.Option(help="Also write metrics for Prometheus to this .prom file, which is replaced as a whole."),
]
_ACTION_NEEDED = 6


@site.command("status", cls=OnLinux)
def site_status(
    folder: SiteFolderArgument,
    as_json: AsJson = False,
    metrics: Metrics = None,
) -> None:
    """Show the health of a site, its rules, and the studies that came to it with their numbers.

    Exit code: 0 all is well, 3 not running, 4 not connected, 6 somebody must act.

    unpooled site status hospital-a
    """
    from unpooled.federation.provisioning import health
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.site.study_store import StudyFolder

    if (folder / "federation.json").exists():
        raise InputError(
            f"{folder} is the folder of a federation; unpooled federation status {folder} shows its health"
        )
    if _never_joined(folder):
        if metrics is not None:
            raise InputError(f"{folder}: --metrics needs a site that has joined a federation")
        _status_before_joining(folder, as_json)
        return
    place = SiteFolder.from_path(folder)
    found = [health.site_health(place, membership) for membership in place.chosen()]
    studies = StudyFolder(place.path)
    _write_metrics(metrics, found)
    if as_json:
        code = health.worst_code(found)
        states = [one.to_json() for one in found]
        typer.echo(json.dumps({"code": code, "federations": states, "studies": _studies_json(studies)}))
        raise typer.Exit(code)
    for one in found:
        typer.echo(f"{one.name} in {one.federation}: {one.sites[one.name]}")
    _print_settings(place)
    for line in (*studies_lines(studies), *health.figures(found)):
        typer.echo(line)
    _print_problems(found)


def _never_joined(folder: Path) -> bool:
    """Return True for the folder of a site without an invitation: before joining, or over files."""
    from unpooled.app.pages.review_state import is_site
    from unpooled.federation.provisioning.site_folder import SiteFolder

    return folder.is_dir() and not SiteFolder(folder).memberships() and is_site(folder)


def _status_before_joining(folder: Path, as_json: bool) -> None:
    from unpooled.app.cli.table_commands import find_policy
    from unpooled.federation.provisioning.file_membership import FileMembership
    from unpooled.site.study_store import StudyFolder
    from unpooled.site.table_store import SummaryFolder

    protect, studies, place = find_policy(folder, None).protect, StudyFolder(folder), SummaryFolder(folder)
    unapproved = place.exists and (place.pending or not place.approved) and not protect.auto_approve
    code = _ACTION_NEEDED if unapproved or studies.pending() else 0
    if as_json:
        table = {"digest": place.digest, "approved": place.approved} if place.exists else None
        values = {"code": code, "mode": protect.mode, "summary": table, "studies": _studies_json(studies)}
        typer.echo(json.dumps(values))
        raise typer.Exit(code)
    joined = [
        f"{one.site} in {one.coordinator.name}, over files" for one in FileMembership.every(folder.absolute())
    ]
    typer.echo(f"{'; '.join(joined) or f'{folder} has not joined a federation'}; mode {protect.mode}")
    if place.exists:
        print_table(folder, auto_approve=protect.auto_approve)
    for line in studies_lines(studies):
        typer.echo(line)
    raise typer.Exit(code)


def _print_settings(place: "SiteFolder") -> None:
    if place.is_federation:
        print_relay(place.relay_settings)
    elif place.has_settings:
        print_site(place.settings)


def _studies_json(studies: "StudyFolder") -> list[dict[str, Any]]:
    return [
        {
            "number": number,
            "state": one.display_state,
            "title": one.study.title,
            "purpose": one.study.purpose,
            "received": one.received,
            "digest": one.study.digest,
        }
        for number, one in enumerate(studies.every(), start=1)
    ]


@federation.command("status", cls=OnLinux)
def federation_status(folder: FederationArgument, as_json: AsJson = False, metrics: Metrics = None) -> None:
    """Show the health of a federation: its sites and its runs.

    Exit code: 0 all is well, 3 the server is not running, 4 a site is not connected, 5 a run failed or
    stopped, 6 somebody must act.

    unpooled federation status heart
    """
    from unpooled.federation.provisioning import health
    from unpooled.federation.provisioning.federation_folder import FederationFolder

    check_federation(folder, "status")
    found = health.federation_health(FederationFolder.read(folder))
    _write_metrics(metrics, [found])
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        raise typer.Exit(found.code)
    for name, state in found.sites.items():
        typer.echo(f"{name}: {state}")
    for run in found.runs:
        reached = "not begun" if run.round is None else f"round {run.round}"
        waiting = f", {run.waiting}" if run.waiting else ""
        typer.echo(f"run {run.name}: {run.state}, {reached}{waiting}")
    for line in health.figures([found]):
        typer.echo(line)
    _print_problems([found])


def _write_metrics(path: Path | None, found: "list[Health]") -> None:
    from unpooled.federation.provisioning import health
    from unpooled.storage.atomic_files import write_atomically

    if path is None:
        return
    if path.is_file() and not path.read_bytes().startswith(b"# HELP unpooled_"):
        raise InputError(f"{path} already exists, and is not a file of metrics that unpooled wrote")
    check(path, overwrite=True)
    write_atomically(path, health.metrics(found).encode(), shared=True)


def _print_problems(found: "list[Health]") -> None:
    """Print each problem once on stderr, and exit with the code of the worst."""
    from unpooled.federation.provisioning.health import worst_code

    for text in dict.fromkeys(problem.text for one in found for problem in one.problems):
        typer.echo(text, err=True)
    raise typer.Exit(worst_code(found))
