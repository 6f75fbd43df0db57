"""The health of a federation, or of a site, for people, scripts and monitoring."""

import contextlib
import datetime
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.coordinator_run import FAILED, FINISHED, ProgressFile
from unpooled.federation.provisioning.enrolment import awaiting_admission, enrolments
from unpooled.federation.provisioning.federation_folder import FederationFolder, connected_sites
from unpooled.federation.provisioning.follow_run import describe_waiting, is_followed
from unpooled.federation.provisioning.keys import valid_until
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.site.study_store import StudyFolder
from unpooled.site.table_store import ReadOnlySummaryFolder
from unpooled.storage.file_locks import is_locked

DOWN, DISCONNECTED, RUN_FAILED, ACTION_NEEDED = 3, 4, 5, 6  # exit codes, the worst first
_SOON = 30  # days before a certificate ends at which it is said
STATES = ("starting", "running", "finished", "failed", "stopped")  # of a run
_HEARD = 30.0  # seconds without contact after which a site counts as not connected


@dataclass(frozen=True)
class HealthIssue:
    """Something that is not well: its exit code, and a line with the cause and the way out."""

    code: int
    text: str


@dataclass(frozen=True)
class RunState:
    """A run in the coordinator's folder."""

    name: str
    state: str  # one of STATES
    round: int | None  # the last one that is done
    cause: str
    changed: float  # when, in seconds since 1970
    waiting: str = ""  # whom it waits for to approve the study, and since when


@dataclass(frozen=True)
class Health:
    """The state of a federation (with ``sites`` and ``runs``) or of a site."""

    name: str
    federation: str
    up: bool
    sites: dict[str, str]  # at the coordinator: the state of each; at a site: its own
    runs: tuple[RunState, ...]
    certificates: dict[str, str]  # when each ends
    problems: tuple[HealthIssue, ...]
    log_bytes: int | None = None  # at a site

    @property
    def code(self) -> int:
        """0 if all is well, else the code of the worst problem."""
        return min((problem.code for problem in self.problems), default=0)

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, **asdict(self)}


def federation_health(federation: FederationFolder) -> Health:
    """The health of a federation, as its coordinator's folder shows it."""
    connected, asked, known = (
        connected_sites(federation),
        awaiting_admission(federation),
        enrolments(federation),
    )
    problems, sites, ends = [], {}, {}
    if connected is None:
        problems.append(
            HealthIssue(DOWN, f"the server is not up; unpooled federation serve {federation.path} starts it")
        )
    elif wrong := federation.engine.server_problem(federation.server):
        problems.append(HealthIssue(DOWN, wrong))
    for site in federation.sites:
        record = known.get(site)
        if record is not None and record.certificate:
            ends[site] = valid_until(record.certificate).isoformat()
        if site in (connected or ()):
            sites[site] = "connected"
        elif site in asked:
            sites[site] = "awaiting admission"
            problems.append(
                HealthIssue(
                    ACTION_NEEDED, f"{site} waits to be admitted: unpooled federation admit {federation.path}"
                )
            )
        elif record is None or not record.certificate:
            sites[site] = "invited"
            what = (
                "has not joined yet" if record is None or not record.expired else "let its invitation run out"
            )
            problems.append(
                HealthIssue(
                    DISCONNECTED,
                    f"{site} {what}: it joins with {federation.invitation(site)}; unpooled federation invite "
                    f"{federation.path} {site} --again makes a new one",
                )
            )
        else:
            sites[site] = "not connected"
            if connected is not None:
                problems.append(
                    HealthIssue(
                        DISCONNECTED, f"{site} is not connected; unpooled site status at the site says why"
                    )
                )
    certificate, _ = federation.engine.server_identity(federation.server)
    ends["server"] = valid_until(certificate.read_text()).isoformat()
    runs = []
    for path in run_folders(federation):
        with contextlib.suppress(FileNotFoundError):  # a run that ends well is removed meanwhile
            runs.append(_run(path))
    for run in runs:
        if run.state in ("failed", "stopped"):
            problems.append(
                HealthIssue(
                    RUN_FAILED,
                    f"run {run.name} {run.state}: {run.cause}; unpooled resume goes on with it, unpooled "
                    f"federation remove {federation.path} --run {run.name} removes it",
                )
            )
    problems += _ending(
        ends, lambda who: f"unpooled federation invite {federation.path} {who} --again renews it"
    )
    where = federation.address.federation
    return Health(where, where, connected is not None, sites, tuple(runs), ends, tuple(problems))


def site_health(place: SiteFolder) -> Health:
    """The health of a site, as its own folder shows it."""
    invitation, problems = place.invitation, []
    up, heard = is_locked(place.path), place.engine.seconds_since_contact(place.engine_folder)
    connected = up and heard is not None and heard < _HEARD
    where = f"{invitation.federation} at {invitation.host}:{invitation.port}"
    ends = {}
    if place.enrolled:
        certificate, _, _ = place.engine.identity(place.engine_folder)
        ends[invitation.site] = valid_until(certificate.read_text()).isoformat()
        state = "stopped" if not up else "connected" if connected else "trying to connect"
    else:
        state = "awaiting admission" if up else "stopped, not admitted yet"
        problems.append(
            HealthIssue(
                ACTION_NEEDED,
                f"not admitted to {where}: the fingerprint to read out is {place.fingerprint()}",
            )
        )
    if not up:
        problems.append(HealthIssue(DOWN, f"the site is stopped; unpooled site start {place.path} starts it"))
    elif place.enrolled and not connected:
        problems.append(
            HealthIssue(DISCONNECTED, f"not connected to {where}; the output of unpooled site start names the reason")
        )
    if place.has_settings:
        folder = Path(place.relay_settings.folder if place.is_federation else place.settings.folder)
        if not place.is_federation:
            protect = place.settings.rules().protect
            if (
                protect.mode == "summary"
                and not protect.auto_approve
                and not ReadOnlySummaryFolder(folder).approved
            ):
                problems.append(
                    HealthIssue(ACTION_NEEDED, f"the copy is not approved: unpooled site approve {folder}")
                )
        elif not is_locked(FederationFolder.read(Path(place.relay_settings.federation)).server):
            downstream = place.relay_settings.federation
            problems.append(
                HealthIssue(
                    DOWN,
                    f"the server of its own federation is not up: unpooled federation serve {downstream}",
                )
            )
        for kept in StudyFolder(folder).pending():
            study = f"unpooled site approve {folder} {kept.study.digest[:16]}"
            problems.append(
                HealthIssue(ACTION_NEEDED, f"the study {kept.study.title!r} waits to be approved: {study}")
            )
    problems += _ending(ends, lambda who: f"ask for unpooled federation invite FOLDER {who} --again")
    size = sum(file.stat().st_size for file in place.path.glob("log*.jsonl"))
    sites = {invitation.site: state}
    return Health(invitation.site, invitation.federation, up, sites, (), ends, tuple(problems), size)


def _ending(ends: dict[str, str], way_out: Any) -> list[HealthIssue]:
    """Certificates that have run out, or will soon."""
    now = datetime.datetime.now(datetime.UTC)
    problems = []
    for who, text in ends.items():
        left = datetime.datetime.fromisoformat(text) - now
        if left < datetime.timedelta(days=_SOON):
            what = "ran out" if left < datetime.timedelta() else "ends"
            way = (
                "a federation whose server's certificate ends is made anew"
                if who == "server"
                else way_out(who)
            )
            problems.append(HealthIssue(ACTION_NEEDED, f"the certificate of {who} {what} at {text}; {way}"))
    return problems


def run_folders(federation: FederationFolder) -> list[Path]:
    """The folders of runs; a name that begins with a dot is no run's."""
    return sorted(
        path for path in federation.runs.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _run(path: Path) -> RunState:
    """The state of a run; a kill may have left only its folder."""
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
    """Remove the named runs, and all that ended so many days ago; none that a process works on."""
    every = {path.name: path for path in run_folders(federation)}
    for name in names:
        if name not in every:
            raise InputError(
                f"there is no run {name}; unpooled federation status {federation.path} names them"
            )
        if _is_worked_on(every[name]):
            raise InputError(f"run {name} is running; it is removed once it has ended")
    old = [
        name
        for name, path in every.items()
        if days is not None and not _is_worked_on(path) and _run(path).changed <= time.time() - days * 86400
    ]
    removed = sorted({*names, *old})
    for name in removed:
        shutil.rmtree(every[name])
    return removed


def metrics(health: Health) -> str:
    """The health as metrics in the text format of Prometheus."""
    coordinator = health.log_bytes is None
    common_labels = f'federation="{health.federation}",role="coordinator"'
    if not coordinator:
        common_labels = f'federation="{health.federation}",role="site",site="{health.name}"'
    ends = {
        who: datetime.datetime.fromisoformat(text).timestamp() for who, text in health.certificates.items()
    }
    families: list[tuple[str, str, dict[str, float]]] = [
        ("unpooled_up", "Whether the process runs.", {common_labels: float(health.up)}),
        (
            "unpooled_status_code",
            "Exit code of unpooled site status or unpooled federation status; 0: all is well.",
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
        (
            "unpooled_certificate_end_timestamp_seconds",
            "When a certificate ends.",
            {f'{common_labels},subject="{who}"': end for who, end in ends.items()},
        ),
        (
            "unpooled_log_bytes",
            "Size of the site's log.",
            {} if health.log_bytes is None else {common_labels: float(health.log_bytes)},
        ),
        ("unpooled_checked_timestamp_seconds", "When this was written.", {common_labels: time.time()}),
    ]
    lines = []
    for name, meaning, samples in families:
        if samples:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{labels}}} {value:.17g}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"
