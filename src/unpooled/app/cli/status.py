"""``unpooled status``: the health of a federation or a site.

Exit codes: 0 all is well; 3 the server or the site is not running; 4 a site is not connected; 5 a run failed
or stopped; 6 something waits for a person. The lowest that applies counts. 1 and 2 are errors as everywhere.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli.join import show
from unpooled.app.cli.join_region import show_relay
from unpooled.app.cli.outputs import check
from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.federation.provisioning.health import Health


def status(
    where: Annotated[
        Path, typer.Argument(help="The folder of a federation, or of a site, or the site's invitation.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help="Write metrics here too, for Prometheus: a .prom file that is replaced as a whole."
        ),
    ] = None,
) -> None:
    """Show the health of a federation (its sites and runs) or of a site (and its rules).

    Exit code: 0 all is well, 3 not running, 4 a site is not connected, 5 a run failed or stopped, 6 something
    waits for a person.
    """
    from unpooled.federation.provisioning import health
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.storage.atomic_files import write_atomically

    at_coordinator = (where / "federation.json").exists()
    if at_coordinator:
        found = health.federation_health(FederationFolder.read(where))
    else:
        place = SiteFolder.from_path(where)
        found = health.site_health(place)
    if metrics is not None:
        if metrics.is_file() and not metrics.read_bytes().startswith(b"# HELP unpooled_"):
            raise InputError(f"{metrics} exists, and is no file of metrics that unpooled status wrote")
        check(metrics, overwrite=True)
        write_atomically(metrics, health.metrics(found).encode(), shared=True)
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        raise typer.Exit(found.code)
    if at_coordinator:
        _coordinator(found)
    else:
        typer.echo(f"{found.name} in {found.federation}: {found.sites[found.name]}")
        if place.is_federation:
            show_relay(place.relay_settings)
        elif place.has_settings:
            show(place, place.settings)
    for problem in found.problems:
        typer.echo(problem.text, err=True)
    raise typer.Exit(found.code)


def _coordinator(found: "Health") -> None:
    for site, state in found.sites.items():
        typer.echo(f"{site}: {state}")
    for run in found.runs:
        reached = "not begun" if run.round is None else f"round {run.round}"
        waiting = f", {run.waiting}" if run.waiting else ""
        typer.echo(f"run {run.name}: {run.state}, {reached}{waiting}")
