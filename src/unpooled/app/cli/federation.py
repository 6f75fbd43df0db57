"""A federation between machines: ``federation``, ``serve``, ``join``, ``status``, ``leave``."""

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.copy import Only, PolicyFile, StudyColumns, make, read_by, settings_of
from unpooled.app.cli.outputs import FolderOutput, check
from unpooled.errors import BadInput

if TYPE_CHECKING:
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder
    from unpooled.runtimes.provisioning.site_folder import SiteFolder
    from unpooled.site.site_process import SiteSettings

federation = typer.Typer(no_args_is_help=True, help="Set up a federation: its sites and their keys.")

Folder = Annotated[Path, typer.Argument(help="The folder of the federation.")]
Where = Annotated[Path, typer.Argument(help="The folder of the site, or its invitation.")]
WithKeys = Annotated[
    bool,
    typer.Option(
        "--with-keys",
        help="Make the sites' private keys here too: one step less, but invitations are then secret.",
    ),
]


_ASK_WHY = 10.0  # seconds without a connection before a site looks for the reason


def _say(text: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {text}")


@federation.command()
def init(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Name of the federation.")],
    address: Annotated[
        str, typer.Option(help="Address at which sites reach this machine: host or host:port.")
    ],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for every site.")],
    with_keys: WithKeys = False,
    engine: Annotated[str, typer.Option(help="Engine that carries messages.")] = "nvflare",
) -> None:
    """Create a federation: keys and certificates on this machine, and one invitation per site.

    unpooled federation init heart --name heart --address 10.0.0.1 --site hospital-a --site hospital-b
    """
    from unpooled.runtimes.provisioning.federation_folder import create

    created = create(folder, name, address, tuple(site), engine_name=engine, with_keys=with_keys)
    where = created.address
    typer.echo(f"{where.federation} will be served at {where.host}, port {where.port}")
    for one in created.sites:
        typer.echo(f"send to {one}: {created.invitation(one)}")
    if with_keys:
        typer.echo("The invitations hold private keys: send them by a way that nobody else reads.")


@federation.command()
def invite(
    folder: Folder,
    site: Annotated[str, typer.Argument(help="The new site's name.")],
    with_keys: WithKeys = False,
) -> None:
    """Invite one more site."""
    from unpooled.runtimes.provisioning.federation_folder import add

    typer.echo(f"send to {site}: {add(folder, site, with_keys).invitation(site)}")


@federation.command()
def approve(
    folder: Folder, request: Annotated[Path, typer.Argument(help="The request that a site sent.")]
) -> None:
    """Approve the request of a site: give it a certificate."""
    from unpooled.runtimes.provisioning.federation_folder import approve as grant

    site, fingerprint, granted = grant(folder, request)
    typer.echo(f"the key of {site}: {fingerprint}")
    typer.echo("Ask the site, by telephone, whether this is what it reads too. If not, send nothing.")
    typer.echo(f"send to {site}: {granted}")


def serve(folder: Folder) -> None:
    """Run the server of a federation in the foreground; print which sites connect and disconnect."""
    from unpooled.runtimes.ports import port_taken
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder, check_path
    from unpooled.runtimes.provisioning.supervisor import keep

    served = FederationFolder.read(check_path(folder))
    where = served.address
    _say(f"serving {where.federation} at {where.host}, port {where.port}; Ctrl-C ends it")
    command = served.engine.server_command(served.server, where)
    keep(command, served.server, _say, _comings(served), lambda: port_taken(where.port))


@o.takes_options
def join(
    invitation: Annotated[Path, typer.Argument(help="The invitation, or the folder of a site that joined.")],
    reading: o.ReadingOptions,
    copying: o.CopyOptions,
    data: Annotated[Path | None, typer.Option(help="The site's rows: CSV, Parquet, .npy or .npz.")] = None,
    policy: PolicyFile = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the site, and of its copy; default: beside the invitation.")
    ] = None,
    background: Annotated[bool, typer.Option("--background", help="Run without this terminal.")] = False,
    columns: StudyColumns = None,
    only: Only = None,
) -> None:
    """Take part in a federation: answer its questions from the site's copy, under the site's own rules.

    unpooled join hospital-a.json --data patients.parquet --person patient_id
    """
    from unpooled.runtimes.provisioning.site_folder import SiteFolder
    from unpooled.runtimes.provisioning.supervisor import keep

    site = SiteFolder.of(folder if folder is not None else invitation)
    if invitation.is_file():
        check(
            FolderOutput(
                site.path, "the folder of a site", site.own(), site.letters(invitation), resumed=True
            ),
            inputs=[invitation, data, policy],
        )
        request = site.accept(invitation)
        if request is not None:
            typer.echo(f"the key of this site: {site.fingerprint()}")
            typer.echo(f"It is in {site.path} and stays there. Send to the coordinator: {request}")
            typer.echo("Join again with the invitation that comes back.")
            return
    settings = _settings(site, data, policy, reading, copying, columns, only)
    if settings.rules().protect.mode == "copy":
        _copied(site, settings, copying, columns)
    _show(site, settings)
    settings.write(site.engine.settings_file(site.engine_folder))
    if background:
        _detach(site)
        return
    where = site.invitation.address
    command = site.engine.site_command(site.engine_folder, where, settings.site)
    keep(command, site.path, _say, _contact(site))


def status(where: Where) -> None:
    """Show the connected sites and the runs of a coordinator, or the state and the rules of a site."""
    from unpooled.core.disk import is_held
    from unpooled.runtimes.coordinator_run import ProgressFile
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder
    from unpooled.runtimes.provisioning.follow_run import present
    from unpooled.runtimes.provisioning.site_folder import SiteFolder

    if (where / "federation.json").exists():
        served = FederationFolder.read(where)
        connected_sites = present(served)
        if connected_sites is None:
            typer.echo("the server is not up")
        for site in served.sites if connected_sites is not None else ():
            typer.echo(f"{site}: {'connected' if site in (connected_sites or ()) else 'not connected'}")
        for run in sorted(path for path in served.runs.iterdir() if path.is_dir()):
            record = ProgressFile(run).read().get("record")
            reached = f"round {record['round']}" if record else "not begun"
            typer.echo(f"run {run.name}: {reached}{'' if is_held(run) else ', stopped'}")
        return
    place = SiteFolder.of(where)
    invitation = place.invitation
    running, heard = is_held(place.path), place.engine.heard(place.engine_folder)
    state = "stopped" if not running else "connected" if (heard or 1e9) < 30 else "trying to connect"
    typer.echo(f"{invitation.site} in {invitation.federation}: {state}")
    _show(place, place.settings)


def leave(where: Where) -> None:
    """Stop the process of a site, or the server of a coordinator."""
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder
    from unpooled.runtimes.provisioning.site_folder import SiteFolder
    from unpooled.runtimes.provisioning.supervisor import ended

    served = (where / "federation.json").exists()
    home = FederationFolder.read(where).server if served else SiteFolder.of(where).path
    typer.echo("stopped" if ended(home) else "was not running")


def _settings(
    site: "SiteFolder",
    data: Path | None,
    policy: Path | None,
    reading: o.ReadingOptions,
    copying: o.CopyOptions,
    columns: str | None,
    only: str | None,
) -> "SiteSettings":
    """The settings of the site: from the options, or as saved the last time."""
    from unpooled.site.copy_folder import CopyFolder
    from unpooled.site.site_process import SiteSettings

    if data is None and not CopyFolder(site.path).exists:
        if policy or columns or only or reading.given or copying.given:
            raise BadInput("--data is needed where other options are given")
        return site.settings
    if data is None and (columns or only or reading.given or copying.given):
        raise BadInput(f"the copy in {site.path} is made: options about reading or grouping change nothing")
    if data is None and policy is None and site.has_settings:
        return site.settings
    read = read_by(reading, only)
    return SiteSettings(
        site=site.invitation.site,
        data="" if data is None else str(data.absolute()),
        folder=str(site.path),
        policy=None if policy is None else str(policy.absolute()),
        authority=site.invitation.authority,
        columns=read.columns,
        exclude=read.exclude,
        categories=read.categories,
        na=read.na,
        delimiter=read.delimiter,
        decimal=read.decimal,
        encoding=read.encoding,
        numbers=read.numbers,
        recode=read.recode,
    )


def _copied(
    site: "SiteFolder", settings: "SiteSettings", copying: o.CopyOptions, columns: str | None
) -> None:
    """Make the site's copy if there is none. A changed file changes nothing once there is one."""
    from unpooled.site.copy_folder import CopyFolder

    place = CopyFolder(Path(settings.folder))
    if place.exists:
        if settings.data:
            typer.echo(f"The copy of {place.about()['made']} is there; {settings.data} is not read again.")
        return
    if not settings.data:
        raise BadInput(f"{site.path}: there is neither a copy nor --data to make one of")
    rules = settings.rules()
    make(
        Path(settings.folder),
        Path(settings.data),
        rules,
        settings.reading(),
        settings_of(rules, copying, columns),
    )


def _show(site: "SiteFolder", settings: "SiteSettings") -> None:
    """Print what the site answers from, and its rules. Reading them also finds any error in them."""
    from unpooled.site.copy_folder import CopyFolder

    rules = settings.rules()
    methods = (*rules.jobs.algorithms, *rules.jobs.modules)
    if rules.protect.mode == "copy":
        place = CopyFolder(Path(settings.folder))
        copy = place.read()
        typer.echo(
            f"copy of {copy.made}: {copy.persons.sum():.0f} persons in {len(copy)} groups of at least "
            f"{copy.group_size}; columns: {', '.join(copy.names)}"
        )
        if rules.protect.auto:
            typer.echo("the policy has auto = true: it is answered from without approval")
        elif not place.approved:
            typer.echo(
                f"NOT APPROVED: the site answers nothing before. unpooled copy show {settings.folder} opens "
                f"the copy, unpooled copy approve {settings.folder} approves it."
            )
        else:
            typer.echo(f"approved at {place.approved}")
    else:
        table = settings.table()
        typer.echo(f"data: {settings.data}, {len(table)} rows; columns: {', '.join(table.names)}")
    if rules.protect.mode == "trusted":
        typer.echo(
            f"TRUSTED: answers come from the rows; groups below {rules.protect.min_cluster_size} are not "
            "shown, and yet sums can be taken apart: unpooled audit attack says how far"
        )
    typer.echo(
        f"rules: {settings.policy or 'the usual'}; methods {', '.join(methods)}; secure sums "
        f"{rules.aggregation.secure}"
    )
    typer.echo(f"what leaves is logged in {Path(settings.folder) / 'log.jsonl'}")


def _detach(site: "SiteFolder") -> None:
    """Start the site in the background, and wait until it runs."""
    from unpooled.core.disk import is_held

    with (site.path / "join.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "unpooled", "join", str(site.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not is_held(site.path):
        if child.poll() is not None:
            raise BadInput(f"the site did not start; {site.path / 'join.log'} says why")
        time.sleep(0.1)
    typer.echo(f"running in the background (process {child.pid}); unpooled leave {site.path} ends it")


class _comings:  # noqa: N801
    """Prints which sites connected and disconnected since the last call."""

    def __init__(self, served: "FederationFolder") -> None:
        self._served = served
        self._here: tuple[str, ...] = ()
        self._strangers: set[str] = set()
        self._up = False

    def __call__(self) -> None:
        from unpooled.runtimes.provisioning.follow_run import present

        connected = present(self._served)
        if connected is None:
            self._up = False
            return
        if not self._up:
            _say("the server is up")
            self._up = True
        for stranger in self._served.engine.refused(self._served.server):
            if stranger not in self._strangers:
                self._strangers.add(stranger)
                _say(f"refused: {stranger} has a certificate, but is no site of this federation")
        for site in sorted(set(connected) ^ set(self._here)):
            what = "connected" if site in connected else "is gone"
            _say(f"{site} {what} ({len(connected)} of {len(self._served.sites)})")
        self._here = connected


class _contact:  # noqa: N801
    """Prints when the site connects to the coordinator or loses it, and why it cannot connect."""

    def __init__(self, site: "SiteFolder") -> None:
        self._site, self._engine = site, site.engine
        self._where = site.invitation.address
        self._since = self._asked = time.time()
        self._connected = False
        self._said = ""

    def __call__(self) -> None:
        from unpooled.runtimes.provisioning.diagnose import obstacle

        heard = self._engine.heard(self._site.engine_folder)
        connected = heard is not None and heard < min(30.0, time.time() - self._since)
        where = self._where
        if connected != self._connected:
            _say(f"{'connected to' if connected else 'lost'} {where.federation} at {where.host}:{where.port}")
            self._connected = connected
        if not connected and time.time() - self._asked > _ASK_WHY:
            self._asked = time.time()
            reason = obstacle(where, *self._engine.identity(self._site.engine_folder))
            if reason != self._said:
                self._said = reason
                _say(f"not connected to {where.federation} at {where.host}:{where.port}: {reason}")
