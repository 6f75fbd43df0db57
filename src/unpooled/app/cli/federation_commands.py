"""``unpooled federation``: set up and serve a federation; other modules add ``run`` and ``status``."""

import time
from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli.ask import YesCompared
from unpooled.app.cli.commands import Commands, OnLinux
from unpooled.app.cli.log_options import LogOptions
from unpooled.app.cli.options import takes_options
from unpooled.app.cli.serve_page import Port, serve_page
from unpooled.errors import InputError

federation = Commands(
    no_args_is_help=True, help="Coordinate a federation: invite and admit sites, serve it, run studies."
)

FederationArgument = Annotated[Path, typer.Argument(help="The folder of the federation.")]
ValidDays = Annotated[
    float, typer.Option(help="Number of days that the invitation is valid.", min=0.01, max=365)
]
_VALID_DAYS = 14.0


def check_federation(folder: Path, site_command: str) -> None:
    """Raise InputError if the folder does not exist, or is that of a site; names the command for a site."""
    from unpooled.app.pages.review_state import is_site

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not (folder / "federation.json").exists() and is_site(folder):
        raise InputError(f"{folder} is the folder of a site; use unpooled site {site_command} {folder}")


@federation.command(cls=OnLinux)
def init(
    folder: FederationArgument,
    name: Annotated[str, typer.Option(help="Name of the federation.")],
    address: Annotated[
        str, typer.Option(help="Address at which sites reach this machine: host or host:port.")
    ],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for every site.")],
    valid_days: ValidDays = _VALID_DAYS,
    engine: Annotated[str, typer.Option(help="Engine that carries the messages.")] = "nvflare",
) -> None:
    """Create a federation: keys and certificates on this machine, one invitation per site.

    unpooled federation init heart --name heart --address 10.0.0.1 --site hospital-a --site hospital-b
    """
    from unpooled.federation.provisioning.enrolment import invite as make_invitation
    from unpooled.federation.provisioning.federation_folder import create

    created = create(folder, name, address, tuple(site), engine_name=engine)
    at = created.address
    typer.echo(f"{at.federation} will be served at {at.host}, port {at.port}")
    for one in created.sites:
        typer.echo(f"send to {one}: {make_invitation(created, one, days=valid_days)}")


@federation.command(cls=OnLinux)
def invite(
    folder: FederationArgument,
    site: Annotated[str, typer.Argument(help="The name of the site.")],
    again: Annotated[
        bool,
        typer.Option("--again", help="Invite a site again; its earlier invitation becomes void."),
    ] = False,
    valid_days: ValidDays = _VALID_DAYS,
) -> None:
    """Invite one more site, or a site again.

    Invite a site again if its invitation expired or was lost, or before its certificate ends.

    unpooled federation invite heart hospital-c
    """
    from unpooled.federation.provisioning.enrolment import invite as make_invitation
    from unpooled.federation.provisioning.federation_folder import add

    typer.echo(f"send to {site}: {make_invitation(add(folder, site, again), site, days=valid_days)}")


@federation.command(cls=OnLinux)
def admit(
    folder: FederationArgument,
    site: Annotated[
        str | None, typer.Argument(help="The site to admit (default: all that ask, one by one).")
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(help="The fingerprint that the site read out; without it, unpooled asks you."),
    ] = None,
    wait_for: Annotated[
        float, typer.Option("--wait", help="Seconds to wait until all invited sites have asked.", min=0)
    ] = 0.0,
    again: Annotated[
        bool,
        typer.Option("--again", help="Admit a site again whose log was lost or restored from an old backup."),
    ] = False,
    reason: Annotated[
        str, typer.Option(help="With --again: what happened; recorded with the log heads.")
    ] = "",
    yes: YesCompared = False,
) -> None:
    """Admit the sites that ask to join, after each has read out its fingerprint by phone.

    With --again the new log of a site counts from now on. The heads of its old log stay in log_heads.jsonl,
    followed by this decision.

    unpooled federation admit heart

    unpooled federation admit heart hospital-a --again --reason "disk lost"
    """
    if again:
        if site is None or not reason:
            raise InputError("--again needs a SITE and a --reason")
        if fingerprint is not None or wait_for:
            raise InputError("--again admits a site that is known: leave out --fingerprint and --wait")
        _admit_again(folder, site, reason)
    elif reason:
        raise InputError("--reason needs --again")
    else:
        _admit(folder, site, fingerprint, wait_for, yes)


def _admit(folder: Path, site: str | None, fingerprint: str | None, wait_for: float, yes: bool) -> None:
    from unpooled.federation.provisioning.enrolment import admit as admit_site
    from unpooled.federation.provisioning.enrolment import awaiting_admission, enrolments
    from unpooled.federation.provisioning.federation_folder import FederationFolder

    served = FederationFolder.read(folder)
    until = time.monotonic() + wait_for
    while any(not record.request for record in enrolments(served).values()) and time.monotonic() < until:
        time.sleep(0.2)
    asking = awaiting_admission(served)
    if site is None and not asking:
        raise InputError(
            "no site asks to be admitted. A site asks with unpooled site join FOLDER INVITATION, while "
            f"unpooled federation serve {folder} runs."
        )
    if site is None and fingerprint is not None:
        raise InputError("--fingerprint is that of one site. Name the SITE.")
    records = enrolments(served)
    refused = []
    for name in [site] if site is not None else asking:
        if fingerprint is None and name in asking:
            for other in records[name].other_fingerprints:
                typer.echo(f"warning: another key came with the invitation of {name} later: {other}")
            kind = " (a federation)" if records[name].federation else ""
            typer.echo(f"{name}{kind}: {asking[name]}")
            if not yes and not typer.confirm(f"Does {name} read the same, on the telephone?"):
                refused.append(name)
                continue
        admit_site(served, name, fingerprint if fingerprint is not None else asking.get(name, ""))
        typer.echo(f"admitted: {name}")
    if refused:
        raise InputError(
            f"not admitted: {', '.join(refused)}. If a site reads something else, somebody else used its "
            f"invitation: unpooled federation invite {folder} SITE --again makes a new one."
        )


def _admit_again(folder: Path, site: str, reason: str) -> None:
    from unpooled.federation.log_heads import readmit
    from unpooled.federation.provisioning.federation_folder import FederationFolder

    served = FederationFolder.read(folder)
    if site not in served.sites:
        raise InputError(f"{site} is not in the federation; its sites are {', '.join(served.sites)}")
    last = readmit(served.log_heads, site, reason)
    typer.echo(
        f"admitted again: {site}; log_heads.jsonl records line {last} of its old log as the last that came"
    )
    typer.echo(
        "If its folder is new, it has a new key for secure sums: each of the other sites runs unpooled site "
        f"keys FOLDER --forget {site}."
    )


@federation.command(cls=OnLinux)
def remove(
    folder: FederationArgument,
    site: Annotated[str | None, typer.Argument(help="The name of the site to remove.")] = None,
    run: Annotated[list[str] | None, typer.Option(help="A run to remove; repeat for more.")] = None,
    older_than: Annotated[
        float | None, typer.Option(help="Remove all runs that ended at least this many days ago.", min=0)
    ] = None,
) -> None:
    """Remove a site, or runs that failed or stopped, from a federation.

    No run queries a removed site any more, and the server refuses it. Its name in results and log heads
    stays. unpooled federation invite takes it back, with a new key. A removed run cannot be resumed.

    unpooled federation remove heart hospital-b

    unpooled federation remove heart --older-than 30
    """
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.federation_folder import remove as remove_site
    from unpooled.federation.provisioning.health import remove_runs

    runs = bool(run) or older_than is not None
    if site is None and not runs:
        raise InputError(
            f"say what to remove: a SITE, --run NAME as unpooled federation status {folder} names it, or "
            "--older-than 30"
        )
    if site is not None and runs:
        raise InputError("a SITE and runs are removed one after the other, by two commands")
    if site is not None:
        left = remove_site(folder, site)
        typer.echo(f"removed: {site}; the sites are {', '.join(left.sites)}")
    else:
        removed = remove_runs(FederationFolder.read(folder), tuple(run or ()), older_than)
        typer.echo(f"removed: {', '.join(removed)}" if removed else "nothing to remove")


@federation.command(cls=OnLinux)
def watch(folder: FederationArgument, port: Port = 0) -> None:
    """Watch the sites and runs of a federation on a page that only this machine opens.

    The command prints a link that opens the page once.

    unpooled federation watch heart
    """
    from unpooled.app.pages import monitor_page
    from unpooled.app.pages.monitor_state import FederationState, is_federation

    check_federation(folder, "review")
    if not is_federation(folder):
        raise InputError(f"{folder}: not the folder of a federation")
    serve_page(folder, FederationState(folder), monitor_page, port)


@federation.command(cls=OnLinux)
@takes_options
def serve(
    folder: FederationArgument,
    log_options: LogOptions,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of this machine to listen at; repeat for more (default: the addresses of the "
            "federation's host name)."
        ),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the server instead.")] = False,
) -> None:
    """Run the server of a federation, and log its sites and runs.

    unpooled federation serve heart
    """
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.names import check_path
    from unpooled.federation.provisioning.supervisor import check_free, stop_supervisor

    path = check_path(folder)
    served = FederationFolder.read(path)
    if stop:
        if listen:
            raise InputError("--stop and --listen exclude each other")
        typer.echo("stopped" if stop_supervisor(served.server) else "was not running")
    else:
        from unpooled.app import lasting_process, server_process

        check_free(served.server)
        values = {"folder": str(served.path), "listen": listen, "log": log_options.values}
        lasting_process.begin(server_process.__name__, values)
