"""The health of a federation, or of a site, for people, scripts and monitoring."""

import contextlib
import datetime
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.log_heads import forked_logs
from unpooled.federation.progress_file import FAILED, FINISHED, ProgressFile
from unpooled.federation.provisioning.enrolment import awaiting_admission, enrolments
from unpooled.federation.provisioning.federation_folder import FederationFolder, connected_sites
from unpooled.federation.provisioning.follow_run import describe_waiting, is_followed
from unpooled.federation.provisioning.keys import valid_until
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.federation.provisioning.site_membership import SiteMembership
from unpooled.federation.run_history import RunTotals, read_events, run_totals, totals_text
from unpooled.html.formatting import counted
from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.site.folder_place import FolderMovedError
from unpooled.site.ledger import Ledger
from unpooled.site.study_store import StudyFolder
from unpooled.site.table_store import ReadOnlySummaryFolder
from unpooled.storage.file_locks import is_locked
from unpooled.storage.full_disk import is_full

DOWN, DISCONNECTED, RUN_FAILED, ACTION_NEEDED = 3, 4, 5, 6  # exit codes, the worst first
_EXPIRES_SOON = 30  # days before a certificate expires at which a warning begins
STATES = ("starting", "running", "finished", "failed", "stopped")  # of a run
_DISCONNECTED_AFTER = 30.0  # seconds without contact after which a site counts as not connected


@dataclass(frozen=True)
class HealthIssue:
    """A problem: its exit code, and a line with the cause and the way out."""

    code: int
    text: str


@dataclass(frozen=True)
class RunState:
    """A run in the coordinator's folder."""

    name: str
    state: str  # one of STATES
    round: int | None  # the last finished one
    cause: str
    changed: float  # when, in seconds since 1970
    waiting: str = ""  # the sites that have not approved the study yet, and since when the run waits


@dataclass(frozen=True)
class Health:
    """The state of a federation (with ``sites`` and ``runs``) or of a site."""

    name: str
    federation: str
    up: bool
    sites: dict[str, str]  # at the coordinator: the state of each; at a site: its own
    runs: tuple[RunState, ...]
    certificates: dict[str, str]  # when each expires
    problems: tuple[HealthIssue, ...]
    log_bytes: int | None = None  # at a site
    free_bytes: int = 0  # of the disk that has the folder
    history: RunTotals | None = None  # at the coordinator
    pending: tuple[float, ...] = ()  # at a site: when the studies came that wait to be approved
    budget: tuple[float, float] | None = None  # at a site with differential privacy: epsilon in all, left

    @property
    def code(self) -> int:
        """0 if there is no problem, else the code of the worst one."""
        return min((problem.code for problem in self.problems), default=0)

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, **asdict(self)}


def figures(found: Sequence[Health]) -> list[str]:
    """Return lines about runs, budget, disk and certificates; the federations of a site share the disk."""
    lines: list[str] = []
    now = datetime.datetime.now(datetime.UTC)
    for one in found:
        if one.history is not None:
            lines.append(totals_text(one.history))
        if one.budget is not None:
            total, left = one.budget
            lines.append(f"privacy budget: epsilon {left:.4g} of {total:.4g} left")
        for who, end in one.certificates.items():
            days = (datetime.datetime.fromisoformat(end) - now).days
            lines.append(f"certificate of {who} in {one.federation}: {days} days left")
        lines.append(f"free disk: {one.free_bytes / 1e9:.1f} GB")
    return list(dict.fromkeys(lines))


def worst_code(found: Sequence[Health]) -> int:
    """Return 0 if there is no problem, else the code of the worst one in any federation."""
    return min((one.code for one in found if one.code), default=0)


def federation_health(federation: FederationFolder) -> Health:
    """Return the health of a federation, from its coordinator's folder."""
    connected, waiting = connected_sites(federation), awaiting_admission(federation)
    known = enrolments(federation)
    problems, sites, ends = [], {}, {}
    if connected is None:
        problems.append(
            HealthIssue(
                DOWN, f"the server is not up. Start it with unpooled federation serve {federation.path}."
            )
        )
    elif problem := federation.engine.server_problem(federation.server):
        problems.append(HealthIssue(DOWN, problem))
    for site in federation.sites:
        record = known.get(site)
        if record is not None and record.certificate:
            ends[site] = valid_until(record.certificate).isoformat()
        if site in (connected or ()):
            sites[site] = "connected"
        elif site in waiting:
            sites[site] = "awaiting admission"
            problems.append(
                HealthIssue(
                    ACTION_NEEDED,
                    f"{site} waits to be admitted. Admit it with unpooled federation admit "
                    f"{federation.path}.",
                )
            )
        elif record is None or not record.certificate:
            sites[site] = "invited"
            expired = record is not None and record.expired
            invite = f"unpooled federation invite {federation.path} {site} --again"
            problems.append(
                HealthIssue(
                    DISCONNECTED,
                    f"{site} has not joined, and its invitation has expired. Make a new one with {invite}."
                    if expired
                    else f"{site} has not joined yet. Send it {federation.invitation(site)}, or make a new "
                    f"invitation with {invite}.",
                )
            )
        else:
            sites[site] = "not connected"
            if connected is not None:
                problems.append(
                    HealthIssue(
                        DISCONNECTED,
                        f"{site} is not connected. At the site, unpooled site status names the reason.",
                    )
                )
    certificate, _ = federation.engine.server_identity(federation.server)
    ends["server"] = valid_until(certificate.read_text()).isoformat()
    runs = []
    for path in run_folders(federation):
        with contextlib.suppress(FileNotFoundError):  # a run that ends well is removed meanwhile
            runs.append(_run(path))
    for run in runs:
        if run.waiting:
            problems.append(HealthIssue(ACTION_NEEDED, f"run {run.name} waits: {run.waiting}"))
        if run.state in ("failed", "stopped"):
            problems.append(
                HealthIssue(
                    RUN_FAILED,
                    f"run {run.name} {run.state}: {run.cause}. Continue it with unpooled resume, or remove "
                    f"it with unpooled federation remove {federation.path} --run {run.name}.",
                )
            )
    for site, number in forked_logs(federation.log_heads).items():
        problems.append(
            HealthIssue(
                ACTION_NEEDED,
                f"two folders of {site} have answered: line {number + 1} of its log came with two contents. "
                "Call its officer, who ends one of them. To let the other one continue, use unpooled "
                f"federation admit {federation.path} {site} --again --reason ...",
            )
        )
    problems += _expiring(
        ends, lambda who: f"Renew it with unpooled federation invite {federation.path} {who} --again."
    )
    where = federation.address.federation
    return Health(
        where,
        where,
        connected is not None,
        sites,
        tuple(runs),
        ends,
        tuple(problems),
        free_bytes=shutil.disk_usage(federation.path).free,
        history=run_totals(read_events(federation.path)[0]),
    )


def site_health(site: SiteFolder, membership: SiteMembership) -> Health:
    """Return the health of a site in one federation, from its own folder."""
    invitation, problems = membership.invitation, []
    up = is_locked(membership.path)
    silence = membership.engine.seconds_since_contact(membership.engine_folder)
    connected = up and silence is not None and silence < _DISCONNECTED_AFTER
    where = f"{invitation.federation} at {invitation.host}:{invitation.port}"
    ends = {}
    if membership.enrolled:
        certificate, _, _ = membership.engine.identity(membership.engine_folder)
        ends[invitation.site] = valid_until(certificate.read_text()).isoformat()
        state = "stopped" if not up else "connected" if connected else "trying to connect"
    else:
        state = "awaiting admission" if up else "stopped, not admitted yet"
        fingerprint = membership.fingerprint()
        problems.append(
            HealthIssue(
                ACTION_NEEDED,
                f"not admitted to {where}. Read this fingerprint to the coordinator: {fingerprint}",
            )
        )
    if not up:
        problems.append(
            HealthIssue(
                DOWN,
                f"the site is stopped in {membership.name}. Start it with unpooled site start {site.path}.",
            )
        )
    elif membership.enrolled and not connected:
        problems.append(
            HealthIssue(
                DISCONNECTED,
                f"not connected to {where}. The output of unpooled site start names the reason.",
            )
        )
    problems += _folder_problems(site)
    if is_full(site.path):
        text = f"{site.path}: No space left on device. The site answers again as soon as it can write."
        problems.append(HealthIssue(DOWN, text))
    studies = StudyFolder(site.path, membership.path).pending()
    for pending in studies:
        command = f"unpooled site approve {site.path} {pending.study.digest[:16]}"
        problems.append(
            HealthIssue(
                ACTION_NEEDED,
                f"the study {pending.study.title!r} waits to be approved. Approve it with {command}. "
                f"It came {_age(pending.received)} ago.",
            )
        )
    problems += _expiring(
        ends, lambda who: f"Ask the coordinator for unpooled federation invite FOLDER {who} --again."
    )
    size = sum(file.stat().st_size for file in site.path.glob("log*.jsonl"))
    sites = {invitation.site: state}
    return Health(
        invitation.site,
        invitation.federation,
        up,
        sites,
        (),
        ends,
        tuple(problems),
        size,
        free_bytes=shutil.disk_usage(site.path).free,
        pending=tuple(datetime.datetime.fromisoformat(one.received).timestamp() for one in studies),
        budget=_budget(site),
    )


def _age(received: str) -> str:
    """Return how long ago something came, in whole hours or days."""
    ago = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(received)
    return counted(ago.seconds // 3600, "hour") if ago.days < 1 else counted(ago.days, "day")


def _budget(site: SiteFolder) -> tuple[float, float] | None:
    """Return the privacy budget of a site over all runs and what is left of it; None if it has none."""
    if not site.has_settings or site.is_federation or not (policy := site.settings.rules()).private:
        return None
    total, path = policy.dp.epsilon_total, site.path / "ledger.sqlite"
    if not path.exists():
        return total, total
    with contextlib.closing(Ledger.open_read_only(path)) as ledger:
        spent = gdp_epsilon(math.sqrt(ledger.spent()), policy.dp.delta)
    return total, max(total - spent, 0.0)


def _folder_problems(site: SiteFolder) -> list[HealthIssue]:
    """Return the problems of a site's folder, which are the same in all its federations."""
    problems = []
    try:
        site.check_place()
    except FolderMovedError as error:
        problems.append(HealthIssue(ACTION_NEEDED, str(error)))
    if not site.has_settings:
        return problems
    if site.is_federation:
        downstream = site.relay_settings.downstream
        if not is_locked(FederationFolder.read(Path(downstream)).server):
            problems.append(
                HealthIssue(
                    DOWN,
                    "the server of the relay's own federation is not up. Start it with unpooled federation "
                    f"serve {downstream}.",
                )
            )
        return problems
    protect = site.settings.rules().protect
    unapproved = not protect.auto_approve and not ReadOnlySummaryFolder(site.path).approved
    if protect.mode == "summary" and unapproved:
        problems.append(
            HealthIssue(
                ACTION_NEEDED,
                f"the summary table is not approved. Approve it with unpooled site approve {site.path}.",
            )
        )
    return problems


def _expiring(ends: dict[str, str], way_out: Callable[[str], str]) -> list[HealthIssue]:
    """Return a problem for every certificate that has expired, or will soon."""
    now = datetime.datetime.now(datetime.UTC)
    problems = []
    for who, text in ends.items():
        remaining = datetime.datetime.fromisoformat(text) - now
        if remaining < datetime.timedelta(days=_EXPIRES_SOON):
            verb = "expired" if remaining < datetime.timedelta() else "expires"
            action = "Make a new federation: its server needs a new certificate."
            if who != "server":
                action = way_out(who)
            problems.append(
                HealthIssue(ACTION_NEEDED, f"the certificate of {who} {verb} at {text}. {action}")
            )
    return problems


def run_folders(federation: FederationFolder) -> list[Path]:
    """Return the folders of runs; a name that begins with a dot is not the name of a run."""
    return sorted(
        path for path in federation.runs.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _run(path: Path) -> RunState:
    """Return the state of a run; if its process was killed early, there may be only its folder."""
    progress = ProgressFile(path)
    progress_record = progress.read()
    reached = (progress_record.get("record") or {}).get("round")
    changed = float(progress_record.get("time", path.stat().st_mtime))
    if is_locked(path):
        waiting = progress_record.get("waiting")
        return RunState(
            path.name, "running", reached, "", changed, describe_waiting(waiting) if waiting else ""
        )
    if progress_record["state"] == FINISHED:
        return RunState(path.name, "finished", progress_record.get("rounds"), "", changed)
    if is_followed(path):
        return RunState(path.name, "starting", reached, "", changed)
    if progress_record["state"] == FAILED:
        return RunState(
            path.name, "failed", reached, f"{progress_record['kind']}: {progress_record['text']}", changed
        )
    where = "before its first round" if reached is None else f"after round {reached}"
    return RunState(path.name, "stopped", reached, f"its process ended {where}", changed)


def _is_worked_on(path: Path) -> bool:
    return is_locked(path) or is_followed(path)


def remove_runs(federation: FederationFolder, names: Sequence[str], days: float | None) -> list[str]:
    """Remove the named runs and all that ended at least ``days`` ago, but none that a process works on.

    Returns the names of the removed runs.
    """
    every = {path.name: path for path in run_folders(federation)}
    for name in names:
        if name not in every:
            raise InputError(
                f"there is no run {name}. unpooled federation status {federation.path} lists the runs."
            )
        if _is_worked_on(every[name]):
            raise InputError(f"run {name} is running. Remove it when it has ended.")
    old = [
        name
        for name, path in every.items()
        if days is not None and not _is_worked_on(path) and _run(path).changed <= time.time() - days * 86400
    ]
    removed = sorted({*names, *old})
    for name in removed:
        shutil.rmtree(every[name])
    return removed


_Families = list[tuple[str, str, dict[str, float]]]  # name (a counter's ends in _total), meaning, samples


def metrics(found: Sequence[Health]) -> str:
    """Return the health as metrics in the text format of Prometheus; a site has one for each federation."""
    lines = []
    for same in zip(*map(_families, found), strict=True):
        samples = {labels: value for _, _, part in same for labels, value in part.items()}
        if samples:
            name, meaning, _ = same[0]
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{labels}}} {value:.17g}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


def _families(health: Health) -> _Families:
    coordinator = health.log_bytes is None
    common_labels = f'federation="{health.federation}",role="coordinator"'
    if not coordinator:
        common_labels = f'federation="{health.federation}",role="site",site="{health.name}"'
    ends = {
        who: datetime.datetime.fromisoformat(text).timestamp() for who, text in health.certificates.items()
    }
    return [
        ("unpooled_up", "Whether the process runs.", {common_labels: float(health.up)}),
        (
            "unpooled_status_code",
            "Exit code of unpooled site status or unpooled federation status; 0: no problem.",
            {common_labels: float(health.code)},
        ),
        (
            "unpooled_site_connected",
            "Whether a site is connected.",
            {
                f'{common_labels},site="{site}"' if coordinator else common_labels: float(
                    state == "connected"
                )
                for site, state in health.sites.items()
            },
        ),
        (
            "unpooled_runs",
            "Runs in the coordinator's folder, by state.",
            {
                f'{common_labels},state="{state}"': float(sum(run.state == state for run in health.runs))
                for state in STATES
            }
            if coordinator
            else {},
        ),
        *_history_families(health, common_labels),
        (
            "unpooled_disk_free_bytes",
            "Free space of the disk that has the folder.",
            {common_labels: float(health.free_bytes)},
        ),
        (
            "unpooled_studies_pending",
            "Studies that wait to be approved.",
            {} if coordinator else {common_labels: float(len(health.pending))},
        ),
        (
            "unpooled_study_pending_since_timestamp_seconds",
            "When the study came that has waited longest.",
            {common_labels: min(health.pending)} if health.pending else {},
        ),
        (
            "unpooled_privacy_budget_left_epsilon",
            "What is left of the privacy budget over all runs.",
            {} if health.budget is None else {common_labels: health.budget[1]},
        ),
        (
            "unpooled_certificate_expiry_timestamp_seconds",
            "When a certificate expires.",
            {f'{common_labels},subject="{who}"': end for who, end in ends.items()},
        ),
        (
            "unpooled_log_bytes",
            "Size of the site's log.",
            {} if health.log_bytes is None else {common_labels: float(health.log_bytes)},
        ),
        ("unpooled_checked_timestamp_seconds", "When this was written.", {common_labels: time.time()}),
    ]


def _history_families(health: Health, labels: str) -> _Families:
    """Return the metrics of the runs that ended; a site has none."""
    totals = health.history
    values = {} if totals is None else asdict(totals)

    def one(name: str) -> dict[str, float]:
        value = values.get(name)
        return {} if value is None else {labels: float(value)}

    outcomes = values.get("outcomes", {})
    return [
        (
            "unpooled_ended_runs_total",
            "Runs that ended, by outcome.",
            {f'{labels},outcome="{outcome}"': float(count) for outcome, count in outcomes.items()},
        ),
        (
            "unpooled_last_success_timestamp_seconds",
            "When a run finished for the last time.",
            one("last_success"),
        ),
        ("unpooled_last_run_seconds", "Duration of the last run that finished.", one("seconds")),
        ("unpooled_last_run_round_trips", "Round trips of the last run that finished.", one("round_trips")),
        ("unpooled_last_run_sent_bytes", "Bytes that its sites sent.", one("sent_bytes")),
    ]
