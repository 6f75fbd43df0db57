"""``unpooled site join``, ``site start`` and ``site stop``: a site takes part in a federation."""

import contextlib
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.federation_commands import print_event
from unpooled.app.cli.join_relay import checked_relay, new_relay_settings, print_relay
from unpooled.app.cli.outputs import FolderOutput, check
from unpooled.app.cli.review_commands import write_page
from unpooled.app.cli.site_commands import POLICY, SiteFolderArgument, site
from unpooled.app.cli.table_commands import (
    ROWS,
    AllowSecondFolder,
    Only,
    PolicyFile,
    StudyColumns,
    data_source,
    make,
    read_by,
    settings_of,
)
from unpooled.errors import InputError, LedgerError
from unpooled.html.html import counted

if TYPE_CHECKING:
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.relay.relay_settings import RelaySettings
    from unpooled.site.session import SiteSettings

Rows = Annotated[str | None, typer.Option("--data", help=ROWS)]
Background = Annotated[bool, typer.Option("--background", help="Run without this terminal.")]
Downstream = Annotated[
    Path | None,
    typer.Option(help="The folder of a federation that takes part as a member, through a relay."),
]
START_LOG = "start.log"  # of a site in the background

_ASK_WHY = 10.0  # seconds without a connection before a site looks for the reason
_ASK_AGAIN = 2.0  # seconds between two requests for admission


@site.command(cls=o.OnLinux)
@o.takes_options
def join(
    invitation: Annotated[Path, typer.Argument(help="The invitation, a .json file.")],
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    data: Rows = None,
    policy: PolicyFile = None,
    folder: Annotated[
        Path | None, typer.Option(help="The folder of the site (default: beside the invitation).")
    ] = None,
    background: Background = False,
    columns: StudyColumns = None,
    only: Only = None,
    downstream: Downstream = None,
    identity: Annotated[
        Path | None,
        typer.Option(
            help="Another folder of the same site, to use its key here too: relays then recognise one site."
        ),
    ] = None,
    allow_second_folder: AllowSecondFolder = False,
) -> None:
    """Join a federation by invitation, and answer its queries under the site's own rules.

    The site answers from its summary table. --data makes one if there is none.

    unpooled site join hospital-a.json --data patients.parquet --person patient_id

    unpooled site join region-north.json --downstream north --policy rules.toml
    """
    from unpooled.federation.provisioning.site_folder import SiteFolder

    if invitation.is_dir():
        raise InputError(
            f"{invitation} is a folder, not an invitation. If the site has joined, use unpooled site start "
            f"{invitation}."
        )
    if not invitation.exists():
        raise InputError(f"{invitation}: no such file")
    place = SiteFolder.from_path(folder if folder is not None else invitation)
    _take_part(
        place,
        invitation,
        reading,
        grouping,
        data,
        policy,
        columns,
        only,
        downstream,
        identity,
        background,
        allow_second_folder=allow_second_folder,
    )


@site.command(cls=o.OnLinux)
@o.takes_options
def start(
    folder: SiteFolderArgument,
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    data: Rows = None,
    policy: PolicyFile = None,
    background: Background = False,
    columns: StudyColumns = None,
    only: Only = None,
    downstream: Downstream = None,
) -> None:
    """Start a site that has joined, with its last settings unless options change them.

    unpooled site start hospital-a
    """
    from unpooled.federation.provisioning.site_folder import SiteFolder

    if folder.is_file():
        raise InputError(f"{folder} is a file. Use unpooled site join {folder} to accept an invitation.")
    _check_not_federation(folder, f"unpooled federation serve {folder} starts its server")
    place = SiteFolder.from_path(folder).checked()
    _take_part(place, None, reading, grouping, data, policy, columns, only, downstream, None, background)


def _take_part(
    place: "SiteFolder",
    invitation: Path | None,
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    data: str | None,
    policy: Path | None,
    columns: str | None,
    only: str | None,
    downstream: Path | None,
    identity: Path | None,
    background: bool,
    *,
    allow_second_folder: bool = False,
) -> None:
    """Accept the invitation if there is one, make the files that the site lacks, and run the site."""
    from unpooled.data.readers import is_file
    from unpooled.federation.provisioning.supervisor import supervise
    from unpooled.site.folder_register import one_folder

    about_data = bool(data or columns or only or reading.is_set or grouping.is_set)
    relay = checked_relay(place, invitation, downstream, policy, about_data)
    if invitation is not None:
        check(
            FolderOutput(
                place.path,
                "the folder of a site",
                place.is_replaceable(),
                place.enrolment_files(),
                resumed=True,
            ),
            inputs=[invitation, data if is_file(data) else None, policy],
        )
        if identity is not None:
            place.import_key(identity)
        place.accept(invitation)
    settings: SiteSettings | RelaySettings
    if relay is not None:
        place.open_audit_trail()
        settings = new_relay_settings(place, *relay)
        print_relay(settings)
    else:
        settings = _settings(place, data, policy, reading, grouping, columns, only)
        from_summary = settings.rules().protect.mode == "summary"
        place.open_audit_trail(from_summary)
        if from_summary:
            _make_table(place, settings, grouping, columns, allow_second_folder=allow_second_folder)
        else:
            source = data_source(settings.data, settings.reading())
            with one_folder(place.path, source, allow_second=allow_second_folder):
                pass  # the site answers from its rows
        print_site(settings)
        place.write_settings(settings)
    enrolment = _Enrolment(place)  # last: a site that is admitted has all its files
    enrolment.begin()
    if background:
        _detach(place)
        return
    address = place.invitation.address
    command = place.engine.site_command(place.engine_folder, address, settings.site)
    connection, studies = _Connection(place), _Studies(Path(settings.folder))

    def on_tick() -> None:
        connection()
        studies()

    supervise(command, place.path, print_event, on_tick, enrolment.done)


@site.command(cls=o.OnLinux)
def stop(
    folder: Annotated[Path, typer.Argument(help="The folder of the site, or its invitation.")],
) -> None:
    """Stop the process of a site.

    unpooled site stop hospital-a
    """
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.provisioning.supervisor import stop_supervisor

    _check_not_federation(folder, f"unpooled federation serve {folder} --stop stops its server")
    place = SiteFolder.from_path(folder).checked()
    typer.echo("stopped" if stop_supervisor(place.path) else "was not running")


def _check_not_federation(folder: Path, otherwise: str) -> None:
    if (folder / "federation.json").exists():
        raise InputError(f"{folder} is the folder of a federation; {otherwise}")


class _Enrolment:
    """Asks the server to enrol the site until the coordinator has admitted it."""

    def __init__(self, place: "SiteFolder") -> None:
        self._place = place
        self._reason = "" if place.enrolled else "not asked"  # why it is not admitted
        self._asked = 0.0

    def begin(self) -> None:
        """Ask once, and print the fingerprint to read out."""
        if not self._reason:
            return
        typer.echo(f"the authority of {self._place.invitation.federation}: {self._place.authority()}")
        self._ask()
        typer.echo(f"the fingerprint to read out: {self._place.fingerprint()}")
        typer.echo(
            "Call the coordinator at a number that you know. If both of you read the same fingerprint, the "
            "coordinator admits this site; if not, stop here. The key stays in this site's folder."
        )

    def done(self) -> bool:
        """Return True once the site is admitted."""
        if self._reason and time.monotonic() - self._asked > _ASK_AGAIN:
            self._ask()
        return not self._reason

    def _ask(self) -> None:
        reason = self._place.enrol()
        at = self._place.invitation.address
        if reason and reason != self._reason:
            print_event(f"waiting to be admitted to {at.federation} at {at.host}:{at.port}: {reason}")
        elif not reason:
            print_event(f"admitted to {at.federation}")
        self._reason, self._asked = reason, time.monotonic()


def _settings(
    place: "SiteFolder",
    data: str | None,
    policy: Path | None,
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    columns: str | None,
    only: str | None,
) -> "SiteSettings":
    """Return the settings of the site: from the options, or as saved the last time."""
    from unpooled.data.readers import is_file
    from unpooled.site.session import SiteSettings
    from unpooled.site.table_store import SummaryFolder

    in_folder, has_table = place.path / POLICY, SummaryFolder(place.path).exists
    rules = policy or (in_folder if in_folder.exists() else None)
    about_reading = bool(columns or only or reading.is_set or grouping.is_set)
    if place.was_enrolled and not place.has_settings and rules is None:
        raise InputError(
            f"{place.path}: the site took part before, and its settings are lost, including its rules. Name "
            "the rules with --policy FILE (unpooled site init writes the default ones), or restore a backup "
            "with unpooled site restore."
        )
    if data is None and about_reading and has_table:
        raise InputError(
            f"{place.path}: the summary table exists, so options about reading or grouping change nothing"
        )
    if data is None and (about_reading or policy is not None) and not has_table:
        raise InputError("--data is needed with the other options")
    if data is None and policy is None and (place.has_settings or not has_table):
        saved = place.settings
        return (
            saved
            if saved.policy is not None or rules is None
            else replace(saved, policy=str(rules.absolute()))
        )
    read = read_by(reading, only)
    return SiteSettings(
        site=place.invitation.site,
        data="" if data is None else str(Path(data).absolute()) if is_file(data) else data,
        folder=str(place.path),
        policy=None if rules is None else str(rules.absolute()),
        authority=place.invitation.authority,
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


def _make_table(
    place: "SiteFolder",
    settings: "SiteSettings",
    grouping: o.SummaryOptions,
    columns: str | None,
    *,
    allow_second_folder: bool,
) -> None:
    """Make the site's summary table if there is none. A changed file changes nothing once there is one."""
    from unpooled.site.table_store import SummaryFolder

    folder = Path(settings.folder)
    table = SummaryFolder(folder)
    if table.exists:
        if settings.data:
            typer.echo(
                f"The summary table of {table.about()['made']} exists; {settings.data} is not read again."
            )
        return
    if not settings.data:
        raise InputError(f"{place.path}: there is no summary table. Make one with --data FILE.")
    rules = settings.rules()
    make(
        folder,
        settings.data,
        rules,
        settings.reading(),
        settings_of(rules, grouping, columns),
        allow_second_folder=allow_second_folder,
    )
    typer.echo(f"written: {write_page(table)}: open it to review the table")


def print_site(settings: "SiteSettings") -> None:
    """Print the source of a site's answers, and its rules; raises for any error in them."""
    rules, folder = settings.rules(), Path(settings.folder)
    methods = (*rules.jobs.algorithms, *rules.jobs.modules)
    if rules.protect.mode == "summary":
        print_table(folder, auto_approve=rules.protect.auto_approve)
    else:
        rows = settings.table()
        typer.echo(f"data: {settings.data}, {len(rows)} rows; columns: {', '.join(rows.names)}")
    if rules.protect.mode == "raw":
        typer.echo(
            f"RAW: the site answers from its rows. Groups below {rules.protect.min_cluster_size} are "
            f"suppressed, and yet rows can be reconstructed from sums: unpooled site log {folder} --attack "
            "counts them."
        )
    typer.echo(
        f"rules: {settings.policy or 'the defaults'}; methods {', '.join(methods)}; secure sums "
        f"{rules.aggregation.secure}"
    )
    typer.echo(f"the site logs all that it sends in {folder / 'log.jsonl'}")


def print_table(folder: Path, *, auto_approve: bool) -> None:
    """Print the facts on a site's summary table, and whether it is approved."""
    from unpooled.site.table_store import SummaryFolder

    place = SummaryFolder(folder)
    table = place.read()
    typer.echo(
        f"summary table of {table.made}: {counted(table.people.sum(), 'person')} in "
        f"{counted(len(table), 'group')} of at least {table.min_group_size}; "
        f"columns: {', '.join(table.names)}"
    )
    if auto_approve:
        typer.echo("the policy has auto_approve = true: the site answers from it without approval")
    elif not place.approved:
        typer.echo(
            f"NOT APPROVED: the site answers nothing yet. unpooled site review {folder} opens the summary "
            f"table, unpooled site approve {folder} approves it."
        )
    else:
        typer.echo(f"approved at {place.approved}")


def _detach(place: "SiteFolder") -> None:
    """Start the site in the background, and wait until it runs."""
    from unpooled.storage.file_locks import is_locked

    with (place.path / START_LOG).open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "unpooled", "site", "start", str(place.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not is_locked(place.path):
        if child.poll() is not None:
            raise InputError(f"the site did not start; {place.path / START_LOG} names the reason")
        time.sleep(0.1)
    typer.echo(f"running in the background (process {child.pid}); unpooled site stop {place.path} stops it")


class _Studies:
    """Prints which studies came and are pending."""

    def __init__(self, folder: Path) -> None:
        from unpooled.site.study_store import StudyFolder

        self._place = StudyFolder(folder)
        self._printed: set[str] = set()

    def __call__(self) -> None:
        for path in self._place.path.glob("[0-9a-f]*.json"):
            if path.stem not in self._printed:
                self._printed.add(path.stem)
                with contextlib.suppress(LedgerError):  # a damaged file: unpooled site status reports it
                    if (received := self._place.read(path.stem)).is_pending:
                        print_event(
                            f"a study is pending: {received.study.title}: unpooled site review "
                            f"{self._place.folder} {path.stem[:16]}"
                        )


class _Connection:
    """Prints when the site connects to the coordinator or loses it, and why it cannot connect."""

    def __init__(self, place: "SiteFolder") -> None:
        self._place, self._engine = place, place.engine
        self._address = place.invitation.address
        self._since = self._asked = 0.0  # from the first call on, when the engine is started
        self._connected = False
        self._reason = ""  # printed last

    def __call__(self) -> None:
        from unpooled.federation.provisioning.diagnose import diagnose_connection

        if not self._since:
            self._since = self._asked = time.time()
        heard = self._engine.seconds_since_contact(self._place.engine_folder)
        connected = heard is not None and heard < min(30.0, time.time() - self._since)
        at = self._address
        if connected != self._connected:
            print_event(f"{'connected to' if connected else 'lost'} {at.federation} at {at.host}:{at.port}")
            self._connected = connected
        if not connected and time.time() - self._asked > _ASK_WHY:
            self._asked = time.time()
            reason = diagnose_connection(at, *self._engine.identity(self._place.engine_folder))
            if reason != self._reason:
                self._reason = reason
                print_event(f"not connected to {at.federation} at {at.host}:{at.port}: {reason}")
