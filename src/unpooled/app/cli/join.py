"""A site of a federation between machines: ``join`` and ``leave``."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.copy import ROWS, Only, PolicyFile, StudyColumns, make, read_by, settings_of, write_page
from unpooled.app.cli.federation import say
from unpooled.app.cli.join_region import checked_relay, new_relay_settings, show_relay
from unpooled.app.cli.outputs import FolderOutput, check
from unpooled.errors import InputError, LedgerError
from unpooled.html.html import counted

if TYPE_CHECKING:
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.relay.relay_settings import RelaySettings
    from unpooled.site.session import SiteSettings

Where = Annotated[Path, typer.Argument(help="The folder of the site, or its invitation.")]

_ASK_WHY = 10.0  # seconds without a connection before a site looks for the reason
_ASK_AGAIN = 2.0  # seconds between two questions whether the site is admitted


@o.takes_options
def join(
    invitation: Annotated[Path, typer.Argument(help="The invitation, or the folder of a site that joined.")],
    reading: o.ReadingOptions,
    copying: o.CopyOptions,
    data: Annotated[str | None, typer.Option(help=ROWS)] = None,
    policy: PolicyFile = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the site, and of its copy; default: beside the invitation.")
    ] = None,
    background: Annotated[bool, typer.Option("--background", help="Run without this terminal.")] = False,
    columns: StudyColumns = None,
    only: Only = None,
    federation: Annotated[
        Path | None,
        typer.Option(help="A federation that takes part in the place of a site: its folder."),
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option(help="Another folder of this site: it has the same key here, so a tree finds it twice."),
    ] = None,
) -> None:
    """Take part in a federation: answer its questions from the site's copy, under the site's own rules.

    unpooled site join hospital-a.json --data patients.parquet --person patient_id

    unpooled site join region-north.json --downstream north --policy rules.toml
    """
    from unpooled.data.readers import is_file
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.provisioning.supervisor import supervise

    if not invitation.exists():
        raise InputError(f"{invitation}: no such file or folder")
    site = SiteFolder.from_path(folder if folder is not None else invitation)
    given = bool(data or columns or only or reading.given or copying.given)
    checked = checked_relay(site, invitation, federation, policy, given)
    if invitation.is_file():
        check(
            FolderOutput(
                site.path, "the folder of a site", site.is_replaceable(), site.enrolment_files(), resumed=True
            ),
            inputs=[invitation, data if is_file(data) else None, policy],
        )
        if identity is not None:
            site.import_key(identity)
        site.accept(invitation)
    elif identity is not None:
        raise InputError("--identity goes with an invitation: a site that joined has its key")
    settings: SiteSettings | RelaySettings
    if checked is not None:
        site.open_audit_trail()
        settings = new_relay_settings(site, *checked)
        show_relay(settings)
    else:
        settings = _settings(site, data, policy, reading, copying, columns, only)
        copied = settings.rules().protect.mode == "summary"
        site.open_audit_trail(copied)
        if copied:
            _copied(site, settings, copying, columns)
        show(site, settings)
        site.write_settings(settings)
    enrolment = _Enrolment(site)  # last: a site that is admitted has all its files
    enrolment.begin()
    if background:
        _detach(site)
        return
    where = site.invitation.address
    command = site.engine.site_command(site.engine_folder, where, settings.site)
    contact, studies = _Contact(site), _Studies(Path(settings.folder))

    def on_tick() -> None:
        contact()
        studies()

    supervise(command, site.path, say, on_tick, enrolment.done)


def leave(where: Where) -> None:
    """Stop the process of a site, or the server of a coordinator."""
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.provisioning.supervisor import stop_supervisor

    served = (where / "federation.json").exists()
    home = FederationFolder.read(where).server if served else SiteFolder.from_path(where).checked().path
    typer.echo("stopped" if stop_supervisor(home) else "was not running")


class _Enrolment:
    """Asks the server to enrol the site, until the coordinator has admitted it."""

    def __init__(self, site: "SiteFolder") -> None:
        self._site = site
        self._why = "" if site.enrolled else "not asked"
        self._asked = 0.0

    def begin(self) -> None:
        """Ask once, and say what to read out."""
        if not self._why:
            return
        typer.echo(f"the authority of {self._site.invitation.federation}: {self._site.authority()}")
        self._ask()
        typer.echo(f"the fingerprint to read out: {self._site.fingerprint()}")
        typer.echo(
            "Call the coordinator under a number that you know. If both of you read the same, the "
            "coordinator admits this site; if not, do not go on. The key stays in this site's folder."
        )

    def done(self) -> bool:
        """True once the site is admitted."""
        if self._why and time.monotonic() - self._asked > _ASK_AGAIN:
            self._ask()
        return not self._why

    def _ask(self) -> None:
        why = self._site.enrol()
        where = self._site.invitation.address
        if why and why != self._why:
            say(f"waiting to be admitted to {where.federation} at {where.host}:{where.port}: {why}")
        elif not why:
            say(f"admitted to {where.federation}")
        self._why, self._asked = why, time.monotonic()


def _settings(
    site: "SiteFolder",
    data: str | None,
    policy: Path | None,
    reading: o.ReadingOptions,
    copying: o.CopyOptions,
    columns: str | None,
    only: str | None,
) -> "SiteSettings":
    """The settings of the site: from the options, or as saved the last time."""
    from unpooled.data.readers import is_file
    from unpooled.site.session import SiteSettings
    from unpooled.site.table_store import SummaryFolder

    if site.was_enrolled and not site.has_settings and policy is None:
        raise InputError(
            f"{site.path}: the site took part before and its settings are gone, so its rules are not known: "
            "say them with --policy FILE (unpooled site init writes the usual ones), or restore a backup"
        )
    if data is None and not SummaryFolder(site.path).exists:
        if policy or columns or only or reading.given or copying.given:
            raise InputError("--data is needed where other options are given")
        return site.settings
    if data is None and (columns or only or reading.given or copying.given):
        raise InputError(f"the copy in {site.path} is made: options about reading or grouping change nothing")
    if data is None and policy is None and site.has_settings:
        return site.settings
    read = read_by(reading, only)
    return SiteSettings(
        site=site.invitation.site,
        data="" if data is None else str(Path(data).absolute()) if is_file(data) else data,
        folder=str(site.path),
        policy=None if policy is None else str(policy.absolute()),
        authority=site.invitation.authority,
        columns=read.columns,
        exclude=read.exclude,
        categorical=read.categorical,
        na=read.na,
        delimiter=read.delimiter,
        decimal=read.decimal,
        encoding=read.encoding,
        numbers=read.numbers,
        recode=read.recode,
        query=None if read.query is None else str(Path(read.query).absolute()),
        sheet=read.sheet,
        long=read.long,
    )


def _copied(
    site: "SiteFolder", settings: "SiteSettings", copying: o.CopyOptions, columns: str | None
) -> None:
    """Make the site's copy if there is none. A changed file changes nothing once there is one."""
    from unpooled.site.table_store import SummaryFolder

    place = SummaryFolder(Path(settings.folder))
    if place.exists:
        if settings.data:
            typer.echo(f"The copy of {place.about()['made']} is there; {settings.data} is not read again.")
        return
    if not settings.data:
        raise InputError(f"{site.path}: there is neither a copy nor --data to make one of")
    rules = settings.rules()
    make(
        Path(settings.folder),
        settings.data,
        rules,
        settings.reading(),
        settings_of(rules, copying, columns),
    )
    typer.echo(f"written: {write_page(place)}: open it, it shows the very table")


def show(site: "SiteFolder", settings: "SiteSettings") -> None:
    """Print what the site answers from, and its rules. Reading them also finds any error in them."""
    from unpooled.site.table_store import SummaryFolder

    rules = settings.rules()
    methods = (*rules.jobs.algorithms, *rules.jobs.modules)
    if rules.protect.mode == "summary":
        place = SummaryFolder(Path(settings.folder))
        copy = place.read()
        typer.echo(
            f"copy of {copy.made}: {copy.people.sum():.0f} persons in {counted(len(copy), 'group')} of at "
            f"least {copy.min_group_size}; columns: {', '.join(copy.names)}"
        )
        if rules.protect.auto_approve:
            typer.echo("the policy has auto_approve = true: it is answered from without approval")
        elif not place.approved:
            typer.echo(
                f"NOT APPROVED: the site answers nothing before. unpooled site review {settings.folder} opens "
                f"the copy, unpooled site approve {settings.folder} approves it."
            )
        else:
            typer.echo(f"approved at {place.approved}")
    else:
        table = settings.table()
        typer.echo(f"data: {settings.data}, {len(table)} rows; columns: {', '.join(table.names)}")
    if rules.protect.mode == "raw":
        typer.echo(
            f"TRUSTED: answers come from the rows; groups below {rules.protect.min_cluster_size} are not "
            "shown, and yet sums can be taken apart: unpooled site log --attack says how far"
        )
    typer.echo(
        f"rules: {settings.policy or 'the usual'}; methods {', '.join(methods)}; secure sums "
        f"{rules.aggregation.secure}"
    )
    typer.echo(f"what leaves is logged in {Path(settings.folder) / 'log.jsonl'}")


def _detach(site: "SiteFolder") -> None:
    """Start the site in the background, and wait until it runs."""
    from unpooled.storage.atomic_files import is_locked

    with (site.path / "join.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "unpooled", "site", "start", str(site.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not is_locked(site.path):
        if child.poll() is not None:
            raise InputError(f"the site did not start; {site.path / 'join.log'} says why")
        time.sleep(0.1)
    typer.echo(f"running in the background (process {child.pid}); unpooled site stop {site.path} ends it")


class _Studies:
    """Prints which studies came and wait for somebody at the site."""

    def __init__(self, folder: Path) -> None:
        from unpooled.site.study_store import StudyFolder

        self._place = StudyFolder(folder)
        self._said: set[str] = set()

    def __call__(self) -> None:
        for path in self._place.path.glob("[0-9a-f]*.json"):
            if path.stem not in self._said:
                self._said.add(path.stem)
                with contextlib.suppress(LedgerError):  # a damaged file: whoever lists them reads of it
                    if (kept := self._place.read(path.stem)).is_pending:
                        words = f"study show {self._place.folder} {path.stem[:16]}"
                        say(f"a study waits to be approved: {kept.study.title}: unpooled {words}")


class _Contact:
    """Prints when the site connects to the coordinator or loses it, and why it cannot connect."""

    def __init__(self, site: "SiteFolder") -> None:
        self._site, self._engine = site, site.engine
        self._where = site.invitation.address
        self._since = self._asked = 0.0  # from the first call on, when the engine is started
        self._connected = False
        self._said = ""

    def __call__(self) -> None:
        from unpooled.federation.provisioning.diagnose import diagnose_connection

        if not self._since:
            self._since = self._asked = time.time()
        heard = self._engine.seconds_since_contact(self._site.engine_folder)
        connected = heard is not None and heard < min(30.0, time.time() - self._since)
        where = self._where
        if connected != self._connected:
            say(f"{'connected to' if connected else 'lost'} {where.federation} at {where.host}:{where.port}")
            self._connected = connected
        if not connected and time.time() - self._asked > _ASK_WHY:
            self._asked = time.time()
            reason = diagnose_connection(where, *self._engine.identity(self._site.engine_folder))
            if reason != self._said:
                self._said = reason
                say(f"not connected to {where.federation} at {where.host}:{where.port}: {reason}")
