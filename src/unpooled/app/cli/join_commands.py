"""``unpooled site join``, ``start``, ``answer`` and ``stop``: a site takes part in a federation."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.ask import By, confirm, decided_by
from unpooled.app.cli.commands import OnLinux
from unpooled.app.cli.join_relay import checked_relay, new_relay_settings, print_relay
from unpooled.app.cli.log_options import LogOptions, Verbose
from unpooled.app.cli.site_commands import POLICY, FederationName, SiteFolderArgument, site
from unpooled.app.cli.table_commands import (
    ROWS,
    AllowSecondFolder,
    Columns,
    NoSensitiveColumns,
    StudyColumns,
    data_source,
    make,
    read_by,
    settings_of,
)
from unpooled.app.event_log import EventLog
from unpooled.app.outputs import FolderOutput, check
from unpooled.errors import InputError
from unpooled.html.formatting import counted

if TYPE_CHECKING:
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.file_membership import FileMembership
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.provisioning.site_membership import SiteMembership
    from unpooled.federation.relay.relay_folder import RelaySettings
    from unpooled.site.session import SiteSettings

Rows = Annotated[str | None, typer.Option("--data", help=ROWS)]
Background = Annotated[bool, typer.Option("--background", help="Run without this terminal.")]
Downstream = Annotated[
    Path | None,
    typer.Option(help="The folder of a federation that takes part as a member, through a relay."),
]
START_LOG = "start.log"  # of a site in the background

_FIRST_PAUSE, _MAX_PAUSE = 0.02, 1.0  # seconds between two looks for files; it grows while none comes


@site.command(cls=OnLinux)
@o.takes_options
def join(
    folder: Annotated[Path, typer.Argument(help="The folder of the site, made if needed.")],
    invitation: Annotated[
        Path,
        typer.Argument(
            help="The invitation, a .json file; for runs over files, the coordinator's key instead."
        ),
    ],
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    log_options: LogOptions,
    data: Rows = None,
    policy: Annotated[
        Path | None, typer.Option(help="Rules of a new site, copied to policy.toml in its folder.")
    ] = None,
    background: Background = False,
    columns: Columns = None,
    study_columns: StudyColumns = None,
    no_sensitive_columns: NoSensitiveColumns = False,
    downstream: Downstream = None,
    set_up_anew: Annotated[
        bool,
        typer.Option(
            "--set-up-anew",
            help="The federation was set up anew, with another authority: end the membership in the old one.",
        ),
    ] = False,
    allow_second_folder: AllowSecondFolder = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="With a key: do not ask. The fingerprint was compared by telephone."),
    ] = False,
) -> None:
    """Join a federation by invitation, and answer its queries under the site's own rules.

    The site answers from its summary table. --data makes one if there is none. A site has one folder and
    joins any number of federations with it: all are answered from one table, and charged to one budget.

    The key of a coordinator without a server takes the place of an invitation. unpooled site answer then
    answers the requests that come as files.

    unpooled site join hospital-a hospital-a.json --data patients.csv --person patient_id --diverse diagnosis

    unpooled site join region region.json --downstream heart --policy rules.toml

    unpooled site join hospital-a heart-key.json --data patients.csv --person patient_id --diverse diagnosis
    """
    if invitation.is_dir() and folder.is_file():
        raise InputError(f"{folder} is a file. Use unpooled site join {invitation} {folder}.")
    if not invitation.exists():
        raise InputError(f"{invitation}: no such file")
    _check_not_federation(folder, "a site has a folder of its own")
    place = _opened(folder)
    if not place.path.exists() and data is None and downstream is None:
        raise InputError(
            f"{folder}: no such folder. Give the folder of the site, or begin a new site with --data FILE."
        )
    given = _DataOptions(
        data, reading, grouping, columns, study_columns, no_sensitive_columns, allow_second_folder
    )
    if _is_key(invitation):
        if downstream is not None or place.is_federation:
            raise InputError(
                f"{folder}: a relay does not take part over files. While a query from above waits, it asks "
                "its members through the server of their federation. Join with an invitation."
            )
        if background or set_up_anew:
            raise InputError("--background and --set-up-anew need an invitation, not a key")
        _check_outputs(place, invitation, data, policy)
        membership_by_key = _checked_key(place, invitation, policy, yes)
        rules = policy or (place.policy if place.policy.exists() else None)
        by_files = _prepared(place, rules, given)
        _write_policy(place, policy, relay=False)
        _recorded(place, None, by_files)
        _pin(membership_by_key)
        return
    if yes:
        raise InputError("--yes is for the key of a coordinator. An invitation asks nothing.")
    relay = checked_relay(place, invitation, downstream, policy, given.any)
    _check_outputs(place, invitation, data, policy)
    rules = _checked_rules(place, invitation, policy, relay is not None)
    place.check_invitation(invitation, set_up_anew=set_up_anew)
    own = None  # what is wrong with its data must not leave a membership behind
    if relay is None:
        own = _prepared(place, rules, given)
    membership = place.accept(invitation, set_up_anew=set_up_anew)
    _write_policy(place, policy, relay is not None)
    _recorded(place, relay, own)
    _serve(place, membership, background, log_options)


@site.command(cls=OnLinux)
@o.takes_options
def start(
    folder: SiteFolderArgument,
    reading: o.ReadingOptions,
    grouping: o.SummaryOptions,
    log_options: LogOptions,
    federation: FederationName = "",
    data: Rows = None,
    background: Background = False,
    columns: Columns = None,
    study_columns: StudyColumns = None,
    no_sensitive_columns: NoSensitiveColumns = False,
    downstream: Downstream = None,
    allow_second_folder: AllowSecondFolder = False,
) -> None:
    """Start a site that has joined, with its last settings unless options change them.

    The site takes part in all federations that it joined, or in the one that --federation names.

    unpooled site start hospital-a
    """
    if folder.is_file():
        raise InputError(
            f"{folder} is a file. Use unpooled site join FOLDER {folder} to accept an invitation."
        )
    _check_not_federation(folder, f"unpooled federation serve {folder} starts its server")
    place = _opened(folder)
    memberships = place.chosen(federation)
    given = _DataOptions(
        data, reading, grouping, columns, study_columns, no_sensitive_columns, allow_second_folder
    )
    relay = checked_relay(place, None, downstream, None, given.any)
    _check_rules_exist(place)
    own = None
    if relay is None:
        own = _prepared(place, place.policy, given)
    _recorded(place, relay, own)
    if len(memberships) > 1 and not background:
        _serve_all(place, memberships, log_options)
        return
    for membership in memberships:
        _serve(place, membership, background, log_options)


def _is_key(file: Path) -> bool:
    """Return True for the key of a coordinator, which may take the place of an invitation."""
    from unpooled.site.signed_file import KEY

    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("unpooled") == KEY


def _checked_key(place: "SiteFolder", file: Path, policy: Path | None, yes: bool) -> "FileMembership":
    """Return the membership by a coordinator's key, after somebody compared its fingerprint."""
    from unpooled.federation.provisioning.file_membership import FileMembership
    from unpooled.site.export_table import site_name
    from unpooled.site.policy import Policy, load
    from unpooled.site.signed_file import RecipientKey

    if place.policy.exists() and policy is not None and place.policy.read_bytes() != policy.read_bytes():
        raise InputError(
            f"{place.policy} already exists, and differs from {policy}. A site has one policy for all "
            f"federations. Edit {place.policy}, or join without --policy."
        )
    rules = policy or (place.policy if place.policy.exists() else None)
    name = site_name(place.path, Policy() if rules is None else load(rules))
    membership = FileMembership(place.path, name, RecipientKey.read(file))
    membership.check_new()
    key = membership.coordinator
    typer.echo(f"coordinator: {key.name}, fingerprint {key.fingerprint}")
    confirm("Did the coordinator read this fingerprint to you by telephone?", yes)
    place.path.mkdir(parents=True, exist_ok=True)
    place.path.chmod(0o700)
    return membership


def _pin(membership: "FileMembership") -> None:
    """Keep a membership by a coordinator's key, and print what comes next."""
    from unpooled.site.identity import identity_in
    from unpooled.site.signed_file import sender_fingerprint

    membership.write()
    fingerprint = sender_fingerprint(identity_in(membership.folder).public.hex())
    typer.echo(f"this site is {membership.site}; its fingerprint, to read to the coordinator: {fingerprint}")
    typer.echo(
        f"unpooled site answer {membership.folder} DIR answers the requests in DIR, the folder "
        f"{membership.site} of the shared folder"
    )


@site.command(cls=OnLinux)
def answer(
    folder: SiteFolderArgument,
    shared: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of this site in the shared folder.")
    ],
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on, and answer requests as they come; Ctrl-C stops it.")
    ] = False,
    federation: FederationName = "",
    verbose: Verbose = False,
) -> None:
    """Answer the requests that a coordinator writes into a folder as files.

    The folder may be on a network share, synchronised, or on a stick. The site joined with the coordinator's
    key before.

    unpooled site answer hospital-a share/hospital-a --watch
    """
    from unpooled.app.answer_events import AnswerEvents
    from unpooled.federation.file_responder import FileResponder
    from unpooled.federation.provisioning.file_membership import FileMembership
    from unpooled.site.message_file import INTRODUCTION

    _check_not_federation(folder, "a site has a folder of its own")
    place = _opened(folder)
    membership = FileMembership.find(place.path, federation)
    if not shared.is_dir():
        raise InputError(f"{shared}: no such folder. Give the folder of this site in the shared folder.")
    if shared.resolve().name != membership.site:
        raise InputError(f"{shared}: the folder of {membership.site} must have its name.")
    responder = FileResponder(membership, shared, lambda text: typer.echo(f"not used: {text}", err=True))
    if responder.introduce():
        typer.echo(f"written: {shared / INTRODUCTION}, which the coordinator receives once")
    answers = AnswerEvents(place.path, EventLog(membership.site, verbose=verbose))
    pause, reported = _FIRST_PAUSE, set[str]()
    try:
        while True:
            answered = responder.answer_all()
            answers()
            if answered and not watch:
                typer.echo(f"answered: {counted(answered, 'request')}")
            for title in sorted(responder.pending - reported):
                typer.echo(f"a study is pending: {title}: unpooled site review {folder}")
            reported = set(responder.pending)
            if not watch:
                break
            pause = _FIRST_PAUSE if answered else min(1.5 * pause, _MAX_PAUSE)
            time.sleep(pause)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
    finally:
        responder.close()
    if responder.problems:
        raise typer.Exit(1)


def _opened(folder: Path) -> "SiteFolder":
    """Return the folder of a site, which must be where it was."""
    from unpooled.federation.provisioning.site_folder import SiteFolder

    place = SiteFolder.from_path(folder)
    if place.path.exists():
        place.check_place()
    return place


def _check_outputs(place: "SiteFolder", invitation: Path, data: str | None, policy: Path | None) -> None:
    """Raise InputError if joining would replace a file that is not a site's, or that it reads."""
    from unpooled.data.readers import is_file
    from unpooled.federation.provisioning.file_membership import FileMembership
    from unpooled.site.study_store import FEDERATIONS

    joined = place.memberships() or FileMembership.every(place.path)
    own = bool(joined) or not (place.path / FEDERATIONS).exists()
    written = tuple(membership.path / "invitation.json" for membership in place.memberships())
    check(
        FolderOutput(place.path, "the folder of a site", own, written, resumed=True),
        inputs=[invitation, data if is_file(data) else None, policy],
    )


def _checked_rules(place: "SiteFolder", invitation: Path, policy: Path | None, relay: bool) -> Path | None:
    """Return the file of the rules that a site joins with; None: the default ones.

    Raises an error if --policy names rules that are not valid, or other rules than those of the site.
    """
    from unpooled.federation.provisioning.invitations import Invitation
    from unpooled.site.policy import load

    if policy is None and place.was_enrolled:
        _check_rules_exist(place)
    rules = policy or (place.policy if place.policy.exists() else None)
    if rules is not None and not relay:
        named, invited = load(rules).site.id, Invitation.read(invitation).site
        if named and named != invited:
            raise InputError(
                f"{rules} is the policy of {named}, and the invitation is for {invited}. Ask the coordinator "
                f"for an invitation of {named}, or remove id from [site] in the policy."
            )
    if policy is not None and place.policy.exists() and place.policy.read_bytes() != policy.read_bytes():
        raise InputError(
            f"{place.policy} already exists, and differs from {policy}. A site has one policy for all "
            f"federations. Edit {place.policy}, or join without --policy."
        )
    return rules


def _write_policy(place: "SiteFolder", policy: Path | None, relay: bool) -> None:
    """Write the rules of a new site into its folder: those of --policy, or the default ones."""
    from unpooled.federation.relay.relay_policy import TEMPLATE
    from unpooled.site.explain_policy import template
    from unpooled.storage.atomic_files import create_atomically

    default = TEMPLATE if relay else template("")
    create_atomically(place.policy, default.encode() if policy is None else policy.read_bytes())


def _check_rules_exist(place: "SiteFolder") -> None:
    if not place.policy.exists():
        raise InputError(
            f"{place.path}: the site took part before, and its rules are lost. Put {place.policy} back, "
            "restore a backup with unpooled site restore, or write new rules with unpooled site init "
            f"{place.path}."
        )


@dataclass(frozen=True)
class _DataOptions:
    """The options about a site's data, and about the summary table that is made of them."""

    data: str | None
    reading: o.ReadingOptions
    grouping: o.SummaryOptions
    columns: str | None
    study_columns: str | None
    no_sensitive_columns: bool
    allow_second_folder: bool

    @property
    def how(self) -> bool:
        """True if an option about reading or grouping is set."""
        declared = self.study_columns or self.no_sensitive_columns
        return bool(self.columns or declared or self.reading.is_set or self.grouping.is_set)

    @property
    def any(self) -> bool:
        """True if the data or an option about them is given."""
        return bool(self.data) or self.how


def _prepared(place: "SiteFolder", rules: Path | None, given: _DataOptions) -> "SiteSettings":
    """Return the settings of a site, after making the summary table that it lacks or reading its rows.

    Prints what the site answers from. ``rules`` is the file of its policy; None: the default rules.
    """
    from unpooled.site.folder_register import one_folder

    own = _settings(place, rules, given)
    from_summary = own.rules().protect.mode == "summary"
    place.check_audit_trail(from_summary)
    if from_summary:
        _make_table(place, own, given)
        print_site(own)
        return own
    source = data_source(own.data, own.reading)
    with one_folder(place.path, source, allow_second=given.allow_second_folder or given.data is None):
        print_site(own)
        place.make()
    return own


def _recorded(
    place: "SiteFolder", relay: "FederationFolder | None", own: "SiteSettings | None"
) -> "SiteSettings | RelaySettings":
    """Return the settings of a site or a relay, after writing them; opens its log and its ledger."""
    if own is None:
        assert relay is not None
        place.open_audit_trail()
        settings = new_relay_settings(place, relay)
        print_relay(settings)
        return settings
    place.open_audit_trail()
    own.write()
    return own


def _serve(
    place: "SiteFolder",
    membership: "SiteMembership",
    background: bool,
    log_options: LogOptions,
) -> None:
    """Enrol with one federation, and run the engine's process for it."""
    from unpooled.app import lasting_process, site_process
    from unpooled.federation.provisioning.supervisor import check_free

    if background:
        log = log_options.opened(membership.invitation.site)
        site_process.Admission(membership, place.is_federation, log).begin()
        _detach(membership, log_options)
        return
    check_free(membership.path)
    values = site_process.values_of(membership, place.is_federation, log_options.values)
    lasting_process.begin(site_process.__name__, values)  # last: an admitted site has all its files


def _serve_all(place: "SiteFolder", memberships: "list[SiteMembership]", log_options: LogOptions) -> None:
    """Run a process for each federation, in the foreground."""
    from unpooled.app import lasting_process, memberships_process, site_process

    if running := place.running():
        raise InputError(
            f"{running[0].path} is already in use. Stop the site first with unpooled site stop {place.path}."
        )
    values = [site_process.values_of(one, place.is_federation, log_options.values) for one in memberships]
    lasting_process.begin(memberships_process.__name__, {"folder": str(place.path), "memberships": values})


@site.command(cls=OnLinux)
def stop(folder: SiteFolderArgument, federation: FederationName = "") -> None:
    """Stop the processes of a site, for all federations or for one.

    unpooled site stop hospital-a
    """
    from unpooled.federation.provisioning.supervisor import stop_supervisor

    _check_not_federation(folder, f"unpooled federation serve {folder} --stop stops its server")
    from unpooled.federation.provisioning.site_folder import SiteFolder

    place = SiteFolder.from_path(folder)
    homes = [membership.path for membership in place.chosen(federation)]
    if not federation:
        homes = [place.path, *homes]  # first the process that would start the others again
    stopped = [stop_supervisor(home) for home in homes]
    typer.echo("stopped" if any(stopped) else "was not running")


@site.command("confirm", cls=OnLinux)
def confirm_folder(
    folder: SiteFolderArgument,
    by: By = "",
) -> None:
    """Confirm that a folder that was moved, copied or restored is the one in which the site lives on.

    A site lives in one folder: two folders would answer from two tables and spend two budgets. Do not use
    another copy of the folder afterwards. The log records who confirmed it.

    unpooled site confirm hospital-a
    """
    from unpooled.federation.provisioning.file_membership import FileMembership
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.site.folder_place import PLACE, FolderMovedError, check_place, confirm_place

    place = SiteFolder.from_path(folder)
    if not (place.path / PLACE).exists() and not FileMembership.every(place.path):
        place.chosen()  # raises unless the site has joined
    try:
        check_place(place.path)
    except FolderMovedError:
        confirm_place(place.path, decided_by(by, False))
        typer.echo(f"confirmed: the site lives on in {place.path}. Delete all other copies of the folder.")
    else:
        typer.echo(f"{place.path} is where it was; nothing to confirm")


def _check_not_federation(folder: Path, otherwise: str) -> None:
    if (folder / "federation.json").exists():
        raise InputError(f"{folder} is the folder of a federation; {otherwise}")


def _settings(place: "SiteFolder", rules: Path | None, given: _DataOptions) -> "SiteSettings":
    """Return the settings of the site: from the options, or as saved the last time."""
    from dataclasses import replace

    from unpooled.data.readers import is_file
    from unpooled.site.session import SiteSettings
    from unpooled.site.table_store import SummaryFolder

    has_table = SummaryFolder(place.path).exists
    data = given.data
    if data is None and given.how and has_table:
        raise InputError(
            f"{place.path}: the summary table exists, so options about reading or grouping change nothing"
        )
    if data is None and given.how:
        raise InputError("--data is needed with the other options")
    file = None if rules is None else str(rules)
    if data is None and (place.has_settings or not has_table):
        return replace(place.settings, policy=file)
    read = read_by(given.reading, given.columns)
    settings = SiteSettings(
        site="",
        data="" if data is None else str(Path(data).absolute()) if is_file(data) else data,
        folder=str(place.path),
        policy=file,
        reading=replace(read, query=read.query and str(Path(read.query).absolute())),
    )
    if (
        place.has_settings
        and settings != replace(place.settings, policy=file)
        and (running := place.running())
    ):
        raise InputError(
            f"{place.path}: the site runs in {running[0].name}, and all its federations have the same data. "
            f"Stop it before you change the data: unpooled site stop {place.path}."
        )
    return settings


def _make_table(place: "SiteFolder", settings: "SiteSettings", given: _DataOptions) -> None:
    """Make the site's summary table if there is none. A changed file changes nothing once there is one."""
    from unpooled.site.table_store import SummaryFolder

    folder = place.path
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
        settings.reading,
        settings_of(rules, given.grouping, given.study_columns, given.no_sensitive_columns),
        allow_second_folder=given.allow_second_folder,
    )


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
        f"rules: {folder / POLICY}; methods {', '.join(methods)}; secure sums {rules.aggregation.secure}"
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


def _detach(place: "SiteMembership", log_options: LogOptions) -> None:
    """Start the site in the background for one federation, unless it runs, and wait until it does.

    Without ``--log-file`` its log is ``start.log`` in the subfolder of the federation.
    """
    from unpooled.storage.file_locks import is_locked, lock_owner

    if is_locked(place.path):
        typer.echo(
            f"already running for {place.name} ({lock_owner(place.path)}); unpooled site stop {place.site} "
            f"--federation {place.name} stops it"
        )
        return
    file = log_options.log_file or place.path / START_LOG
    with (place.path / START_LOG).open("ab") as log:
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "unpooled", "site", "start", str(place.site)),
                *("--federation", place.name, "--log-file", str(file), *log_options.words),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not is_locked(place.path):
        if child.poll() is not None:
            raise InputError(f"the site did not start; {place.path / START_LOG} names the reason")
        time.sleep(0.1)
    typer.echo(
        f"running in the background for {place.name} (process {child.pid}); unpooled site stop {place.site} "
        f"--federation {place.name} stops it"
    )
