"""The state of a federation's folder as plain values: the server, sites, runs in progress, past runs."""

import contextlib
import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import unpooled.algorithms  # noqa: F401  importing it registers what a checkpoint may hold
from unpooled.app.job import Job
from unpooled.app.pages.cached_reading import CachedReading, signature
from unpooled.app.propose_study import title_of
from unpooled.app.run_folder import RunFolder
from unpooled.errors import UnpooledError
from unpooled.evaluation.analysis import AnalysisState
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.health import RunState, federation_health
from unpooled.protocol import checkpoint
from unpooled.protocol.algorithm import State
from unpooled.protocol.checkpoint import Checkpoint

_PAST = 100  # runs that are listed, the latest first
_TREND = 8  # rounds from which the convergence is extrapolated
_AFTER = 3  # rounds after convergence: compare restarts, choose k, describe


class FederationState:
    """Reads the folder of a federation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[str, LiveRun] = {}
        self._past: dict[str, CachedReading] = {}

    @property
    def gone(self) -> bool:
        return not is_federation(self.folder)

    def read(self) -> dict[str, Any]:
        """Return all values of the monitor; raise UnpooledError or OSError if a file cannot be read now."""
        federation = FederationFolder.read(self.folder)
        health = federation_health(federation)
        folders = federation.noted_runs()
        self._runs = {
            run.name: self._runs.get(run.name) or LiveRun(federation, run.name) for run in health.runs
        }
        return {
            "role": "federation",
            "name": health.name,
            "folder": str(self.folder),
            "address": f"{federation.address.host}:{federation.address.port}",
            "up": health.up,
            "sites": dict(health.sites),
            "certificates": dict(health.certificates),
            "problems": [problem.text for problem in health.problems],
            "runs": [self._runs[run.name].read(run, folders.get(run.name)) for run in health.runs],
            "past": self._ended(folders, set(self._runs)),
        }

    def _ended(self, folders: dict[str, Path], live: set[str]) -> list[dict[str, Any]]:
        runs = []
        for name in sorted(folders.keys() - live, reverse=True)[:_PAST]:
            folder = RunFolder(folders[name])
            reading = self._past.setdefault(name, CachedReading(partial(ended_run, name, folder)))
            runs.append(reading.get(signature([folder.job, folder.result, folder.report])))
        return [run for run in runs if run is not None]


class LiveRun:
    """A run in progress; the time of each round is noted when it is read."""

    def __init__(self, federation: FederationFolder, name: str) -> None:
        self._federation, self._work = federation, federation.runs / name
        self._history = CachedReading(self._load)
        self._finished: list[tuple[int, float]] = []  # rounds, and when they were finished

    def read(self, run: RunState, folder: Path | None) -> dict[str, Any]:
        """Return the values of the run; ``folder`` holds its files, if it is known."""
        progress = ProgressFile(self._work).read()
        record = progress.get("record") or {}
        saved: Checkpoint | None = self._history.get(signature([self._work / "checkpoint"]))
        rounds = figures_of(saved)
        number = int(record.get("round", -1))
        if number >= 0 and (not self._finished or number > self._finished[-1][0]):
            self._finished.append((number, float(progress.get("time", time.time()))))
        job = _job_of(folder)
        waiting = progress.get("waiting") or {}
        return {
            "run": run.name,
            "state": "waiting" if waiting and run.state == "running" else run.state,
            "cause": run.cause,
            **_described(job, self._federation.address.federation),
            "round": run.round,
            "max_rounds": None if job is None else job.max_rounds,
            "movement": _number(record.get("movement")),
            "inertia": _number(record.get("inertia")),
            "round_trips": sum(map(int, saved.exchanges)) if saved is not None else None,
            "rounds": rounds,
            "answered": {site: list(sent) for site, sent in (record.get("sent") or {}).items()},
            "silent": dict(record.get("silent") or {}),
            "waiting": {site: float(since) for site, since in waiting.items()},
            "asked": [] if job is None or job.remote is None else list(job.remote.sites),
            "waiting_text": run.waiting,
            "time_left": None if run.state != "running" or waiting else self._time_left(saved, rounds, job),
        }

    def _load(self) -> Checkpoint | None:
        with contextlib.suppress(UnpooledError, OSError):
            return checkpoint.load(self._work / "checkpoint")
        return None

    def _time_left(
        self, saved: Checkpoint | None, rounds: list[tuple[int, float | None, float | None]], job: Job | None
    ) -> tuple[float, bool] | None:
        """Return the seconds until the end if the run keeps converging at its recent rate, and True.

        If that cannot be estimated, return the largest number of seconds that it can take, and False; None if
        nothing is known yet.
        """
        recent = self._finished[-_TREND:]
        if saved is None or len(recent) < 3 or recent[-1][0] == recent[0][0]:
            return None
        pace = (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])
        movements = [movement for _, movement, _ in rounds if movement is not None]
        expected = rounds_to_rest(movements, rest_of(saved.state))
        limit = None if job is None else max(job.max_rounds - saved.round, 0)
        known = [rounds for rounds in (expected, limit) if rounds is not None]
        return (pace * (min(known) + _AFTER), expected is not None) if known else None


def figures_of(saved: Checkpoint | None) -> list[tuple[int, float | None, float | None]]:
    """Return (round, movement, inertia) of every round of a checkpoint; None where a round has none."""
    if saved is None:
        return []
    return [(i, _number(movement), _number(inertia)) for i, (movement, inertia) in enumerate(saved.figures)]


def rest_of(state: State) -> float | None:
    """Return the movement below which a method has converged, from its state; None if it has none."""
    clusterings = state.inner if isinstance(state, AnalysisState) else (state,)
    thresholds = [clustering.threshold for clustering in clusterings]
    return min((rest for rest in thresholds if rest is not None and rest > 0), default=None)


def rounds_to_rest(movements: list[float], rest: float | None) -> int | None:
    """Return the rounds until the movement is at ``rest`` if it keeps falling at its recent rate, else None.

    >>> rounds_to_rest([8.0, 4.0, 2.0, 1.0], 0.125), rounds_to_rest([1.0, 1.0, 1.0], 0.1)
    (3, None)
    """
    logs = [math.log(value) for value in movements[-_TREND:] if value > 0]
    if rest is None or len(logs) < 3:
        return None
    middle, mean = (len(logs) - 1) / 2, sum(logs) / len(logs)
    spread = sum((i - middle) ** 2 for i in range(len(logs)))
    slope = sum((i - middle) * (value - mean) for i, value in enumerate(logs)) / spread
    if logs[-1] <= math.log(rest):
        return 0
    return None if slope > -0.01 else math.ceil(round((logs[-1] - math.log(rest)) / -slope, 6))


def ended_run(name: str, folder: RunFolder) -> dict[str, Any] | None:
    """Return purpose and result of a run from its files; None if these were removed."""
    job = _job_of(folder.path)
    if job is None or job.remote is None:
        return None
    result: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        result = dict(json.loads(folder.result.read_text(encoding="utf-8")))
    return {
        "run": name,
        **_described(job, ""),
        "begun": job.remote.created,
        "finished": bool(result),
        "k": result.get("k"),
        "none": bool(result.get("no_clusters")),
        "sites": len(result.get("sites") or job.remote.sites),
        "report": folder.report.is_file() and not folder.report.is_symlink(),
        "folder": str(folder.path),
    }


def _described(job: Job | None, federation: str) -> dict[str, Any]:
    """Return title, purpose and settings of a job."""
    if job is None or job.remote is None:
        return {"title": "", "purpose": "", "contact": "", "expires": "", "method": "", "ks": []}
    remote = job.remote
    return {
        "title": remote.title or title_of(job, federation or Path(remote.federation).name),
        "purpose": remote.purpose,
        "contact": remote.contact,
        "expires": remote.expires,
        "method": job.method,
        "ks": list(job.ks),
    }


def _job_of(folder: Path | None) -> Job | None:
    with contextlib.suppress(UnpooledError, OSError):
        return None if folder is None else RunFolder(folder).load_job()
    return None


def _number(value: float | None) -> float | None:
    """Return a finite number, else None: before the first round there is no movement."""
    return float(value) if value is not None and math.isfinite(float(value)) else None


def is_federation(folder: Path) -> bool:
    """Return True for the folder of a federation."""
    return (folder / "federation.json").exists()
