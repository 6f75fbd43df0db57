"""The coordinator of a federation between machines: ``federation`` and ``serve``."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from unpooled.errors import InputError

federation = typer.Typer(no_args_is_help=True, help="Set up a federation, and keep it in order.")

Folder = Annotated[Path, typer.Argument(help="The folder of the federation.")]
Days = Annotated[float, typer.Option(help="Days that the invitation is valid.", min=0.01, max=365)]
_DAYS = 14.0


def say(text: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {text}")


@federation.command()
def init(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Name of the federation.")],
    address: Annotated[
        str, typer.Option(help="Address at which sites reach this machine: host or host:port.")
    ],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for every site.")],
    days: Days = _DAYS,
    engine: Annotated[str, typer.Option(help="Engine that carries messages.")] = "nvflare",
) -> None:
    """Create a federation: keys and certificates on this machine, and one invitation per site.

    unpooled federation init heart --name heart --address 10.0.0.1 --site hospital-a --site hospital-b
    """
    from unpooled.federation.provisioning.enrolment import invite as make
    from unpooled.federation.provisioning.federation_folder import create

    created = create(folder, name, address, tuple(site), engine_name=engine)
    where = created.address
    typer.echo(f"{where.federation} will be served at {where.host}, port {where.port}")
    for one in created.sites:
        typer.echo(f"send to {one}: {make(created, one, days=days)}")


@federation.command()
def invite(
    folder: Folder,
    site: Annotated[str, typer.Argument(help="The site's name.")],
    again: Annotated[
        bool,
        typer.Option("--again", help="A new invitation for a site that has one; the old one is void."),
    ] = False,
    days: Days = _DAYS,
) -> None:
    """Invite one more site, or a site again: its invitation ran out or was lost, or its certificate ends."""
    from unpooled.federation.provisioning.enrolment import invite as make
    from unpooled.federation.provisioning.federation_folder import add

    typer.echo(f"send to {site}: {make(add(folder, site, again), site, days=days)}")


@federation.command()
def remove(
    folder: Folder,
    site: Annotated[str, typer.Argument(help="The site's name.")],
) -> None:
    """Take a site out of the federation: no run asks it any more, and the server does not let it in again.

    Its name in results and heads of logs stays. unpooled federation invite takes it back, with a new key.
    """
    from unpooled.federation.provisioning.federation_folder import remove as take_out

    left = take_out(folder, site)
    typer.echo(f"removed: {site}; sites are {', '.join(left.sites)}")


@federation.command()
def admit(
    folder: Folder,
    site: Annotated[
        str | None, typer.Argument(help="The site to admit; default: all that wait, one by one.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="The fingerprint that the site read out; without it you are asked.")
    ] = None,
    wait_for: Annotated[
        float, typer.Option("--wait", help="Seconds to wait until all invited sites have asked.", min=0)
    ] = 0.0,
) -> None:
    """Admit the sites that joined, after each has read its fingerprint out on the telephone.

    unpooled federation admit heart
    """
    from unpooled.federation.provisioning.enrolment import admit as grant
    from unpooled.federation.provisioning.enrolment import awaiting_admission, enrolments
    from unpooled.federation.provisioning.federation_folder import FederationFolder

    served = FederationFolder.read(folder)
    until = time.monotonic() + wait_for
    while any(not record.request for record in enrolments(served).values()) and time.monotonic() < until:
        time.sleep(0.2)
    wait = awaiting_admission(served)
    if site is None and not wait:
        raise InputError(
            "no site waits to be admitted: unpooled site join INVITATION asks for it, while serve runs"
        )
    if site is None and fingerprint is not None:
        raise InputError("a fingerprint is that of one site: say which")
    records = enrolments(served)
    left = []
    for name in [site] if site is not None else wait:
        if fingerprint is None and name in wait:
            for other in records[name].other_fingerprints:
                typer.echo(f"warning: another key came with the invitation of {name} later: {other}")
            kind = " (a federation)" if records[name].federation else ""
            typer.echo(f"{name}{kind}: {wait[name]}")
            if not typer.confirm(f"Does {name} read the same, on the telephone?"):
                left.append(name)
                continue
        grant(served, name, fingerprint if fingerprint is not None else wait.get(name, ""))
        typer.echo(f"admitted: {name}")
    if left:
        raise InputError(
            f"not admitted: {', '.join(left)}; if a site reads something else, somebody else used its "
            f"invitation: unpooled federation invite {folder} SITE --again makes a new one"
        )


@federation.command()
def readmit(
    folder: Folder,
    site: Annotated[str, typer.Argument(help="The site whose log was lost.")],
    reason: Annotated[str, typer.Option(help="What happened; it is kept with the heads.")],
) -> None:
    """Take a site back whose log was lost or restored from an old backup: its new log counts from now on.

    The heads of its old log stay in log_heads.jsonl, with this decision after them.
    """
    from unpooled.federation.coordinator_run import readmit as forget
    from unpooled.federation.provisioning.federation_folder import FederationFolder

    served = FederationFolder.read(folder)
    if site not in served.sites:
        raise InputError(f"{site} is not in the federation; sites are {', '.join(served.sites)}")
    lost = forget(served.log_heads, site, reason)
    typer.echo(
        f"readmitted: {site}; line {lost} of its old log was the last that came, and log_heads.jsonl says so"
    )
    typer.echo(
        "If its folder is new, it has a new key for secure sums: the other sites run unpooled sums forget."
    )


@federation.command()
def clean(
    folder: Folder,
    run: Annotated[list[str] | None, typer.Option(help="A run to remove; repeat for more.")] = None,
    days: Annotated[
        float | None, typer.Option(help="Remove all that ended so many days ago or earlier.", min=0)
    ] = None,
) -> None:
    """Remove runs that failed or stopped from the coordinator; they cannot be resumed any more.

    unpooled federation remove heart --older-than 30
    """
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.health import remove_runs

    if not run and days is None:
        raise InputError("say which runs: --run NAME, as unpooled status names them, or --days 30")
    removed = remove_runs(FederationFolder.read(folder), tuple(run or ()), days)
    typer.echo(f"removed: {', '.join(removed)}" if removed else "nothing to remove")


def serve(
    folder: Folder,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of this machine to listen at; repeat for more. Default: those of the federation's "
            "host name."
        ),
    ] = None,
) -> None:
    """Run the server of a federation in the foreground; print which sites connect and disconnect."""
    from unpooled.federation.provisioning import ingress
    from unpooled.federation.provisioning.enrolment import enrol
    from unpooled.federation.provisioning.enrolment_wire import server_context
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.names import check_path
    from unpooled.federation.provisioning.supervisor import supervise

    path = check_path(folder)
    served = FederationFolder.read(path)
    ingress.raise_open_file_limit()
    where, engine = served.address, served.engine
    addresses = listen or ingress.local_addresses(where.host)
    context = server_context(*map(str, engine.server_identity(served.server)))

    @contextlib.contextmanager
    def opened() -> Iterator[None]:
        """The front door, and the engine behind it; once this process is the only one that serves."""
        with (
            ingress.reserved_port() as port,
            ingress.Ingress(
                addresses, where.port, port, context, lambda asked: enrol(FederationFolder.read(path), asked)
            ),
        ):
            engine.listen_at(served.server, served.console, where, port)
            say(f"serving {where.federation} at {', '.join(addresses)}, port {where.port}; Ctrl-C ends it")
            if ingress.is_unreachable(where.host, addresses):
                say(
                    f"warning: {where.host} is {', '.join(addresses)} here, which no other machine reaches; "
                    "--listen ADDRESS says where to listen"
                )
            yield

    command = engine.server_command(served.server, where)
    supervise(command, served.server, say, _Comings(path), within=opened())


class _Comings:
    """Prints which sites connected, disconnected or asked to be admitted since the last call."""

    def __init__(self, path: Path) -> None:
        from unpooled.federation.provisioning.federation_folder import FederationFolder

        self._path = path
        self._served = FederationFolder.read(path)
        self._asked: dict[str, str] = {}
        self._here: tuple[str, ...] = ()
        self._strangers: set[str] = set()
        self._up = False
        self._wrong = ""  # what was said last to be wrong

    def __call__(self) -> None:
        from unpooled.federation.provisioning.federation_folder import connected_sites

        wrong = ""
        try:
            self._asking()
        except InputError as error:  # e.g. half saved by hand
            wrong = f"{error}; what was known before counts until it can be read again"
        connected = connected_sites(self._served)
        self._say_once(wrong or self._served.engine.server_problem(self._served.server))
        if connected is None:
            self._up = False
            return
        if not self._up:
            say("the server is up")
            self._up = True
        for stranger in self._served.engine.refused_names(self._served.server):
            if stranger not in self._strangers:
                self._strangers.add(stranger)
                say(f"refused: {stranger} has a certificate, but is no site of this federation")
        for site in sorted(set(connected) ^ set(self._here)):
            what = "connected" if site in connected else "is gone"
            say(f"{site} {what} ({len(connected)} of {len(self._served.sites)})")
        self._here = connected

    def _say_once(self, wrong: str) -> None:
        if wrong != self._wrong:
            say(wrong or "all is well again")
        self._wrong = wrong

    def _asking(self) -> None:
        from unpooled.federation.provisioning.enrolment import awaiting_admission
        from unpooled.federation.provisioning.federation_folder import FederationFolder

        self._served = FederationFolder.read(self._path)  # sites may have been added
        asked = awaiting_admission(self._served)
        for site in sorted(asked.keys() - self._asked.keys()):
            say(f"{site} asks to be admitted: unpooled federation admit {self._path}")
        self._asked = asked
