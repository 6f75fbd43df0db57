"""The state of a federation's folder as plain values: the server, sites, runs in progress, past runs."""

import contextlib
import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import unpooled.algorithms
import unpooled.evaluation  # noqa: F401  importing them registers what a checkpoint may hold
from unpooled.app.job import Job
from unpooled.app.pages.cached_reading import CachedReading, signature
from unpooled.app.propose_study import title_of
from unpooled.app.run_folder import RunFolder
from unpooled.errors import UnpooledError
from unpooled.federation.coordinator_run import ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.health import RunState, federation_health
from unpooled.protocol import checkpoint
from unpooled.protocol.checkpoint import Checkpoint

_PAST = 100  # runs that are listed, the latest first
_TREND = 8  # rounds from which it is told how quickly the centres come to rest
_AFTER = 3  # rounds after the centres rest: comparing restarts, choosing k, describing


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
        """All that the desk shows; UnpooledError or OSError if it cannot be read just now."""
        federation = FederationFolder.read(self.folder)
        health = federation_health(federation)
        places = federation.noted_runs()
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
            "runs": [self._runs[run.name].read(run, places.get(run.name)) for run in health.runs],
            "past": self._ended(places, set(self._runs)),
        }

    def _ended(self, places: dict[str, Path], now: set[str]) -> list[dict[str, Any]]:
        found = []
        for name in sorted(places.keys() - now, reverse=True)[:_PAST]:
            folder = RunFolder(places[name])
            kept = self._past.setdefault(name, CachedReading(partial(ended_run, name, folder)))
            found.append(kept.get(signature([folder.job, folder.result, folder.report])))
        return [run for run in found if run is not None]


class LiveRun:
    """A run that is on its way; the time of each round is noted as it is seen."""

    def __init__(self, federation: FederationFolder, name: str) -> None:
        self._federation, self._work = federation, federation.runs / name
        self._history = CachedReading(self._load)
        self._seen: list[tuple[int, float]] = []  # rounds, and when they were seen to be done

    def read(self, run: RunState, place: Path | None) -> dict[str, Any]:
        said = ProgressFile(self._work).read()
        record = said.get("record") or {}
        saved: Checkpoint | None = self._history.get(signature([self._work / "checkpoint"]))
        rounds = figures_of(saved)
        number = int(record.get("round", -1))
        if number >= 0 and (not self._seen or number > self._seen[-1][0]):
            self._seen.append((number, float(said.get("time", time.time()))))
        job = _job_of(place)
        waiting = said.get("waiting") or {}
        return {
            "run": run.name,
            "state": "waiting" if waiting and run.state == "running" else run.state,
            "cause": run.cause,
            **_described(job, self._federation.address.federation),
            "round": run.round,
            "max_rounds": None if job is None else job.max_rounds,
            "movement": _number(record.get("movement")),
            "inertia": _number(record.get("inertia")),
            "exchanges": sum(map(int, saved.exchanges)) if saved is not None else None,
            "rounds": rounds,
            "answered": {site: list(left) for site, left in (record.get("sent") or {}).items()},
            "silent": dict(record.get("silent") or {}),
            "waiting": {site: float(since) for site, since in waiting.items()},
            "asked": [] if job is None or job.remote is None else list(job.remote.sites),
            "said": run.waiting,
            "sent": None if run.state != "running" or waiting else self._time_left(saved, rounds, job),
        }

    def _load(self) -> Checkpoint | None:
        with contextlib.suppress(UnpooledError, OSError):
            return checkpoint.load(self._work / "checkpoint")
        return None

    def _time_left(
        self, saved: Checkpoint | None, rounds: list[tuple[int, float | None, float | None]], job: Job | None
    ) -> tuple[float, bool] | None:
        """Seconds until the run will be done, if the centres come to rest as they did lately, and True.

        Where that is not to be told: the seconds that it can take at most, and False. None: not known yet.
        """
        seen = self._seen[-_TREND:]
        if saved is None or len(seen) < 3 or seen[-1][0] == seen[0][0]:
            return None
        pace = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
        movements = [movement for _, movement, _ in rounds if movement is not None]
        more = rounds_to_rest(movements, rest_of(saved.state))
        most = None if job is None else max(job.max_rounds - saved.round, 0)
        known = [rounds for rounds in (more, most) if rounds is not None]
        return (pace * (min(known) + _AFTER), more is not None) if known else None


def figures_of(saved: Checkpoint | None) -> list[tuple[int, float | None, float | None]]:
    """(round, movement, inertia) of every round of a checkpoint; None where a round has none."""
    if saved is None:
        return []
    return [(i, _number(movement), _number(inertia)) for i, (movement, inertia) in enumerate(saved.figures)]


def rest_of(state: Any) -> float | None:
    """The movement below which a run rests, by the state of its method; None if it does not say."""
    found = [
        getattr(getattr(inner, "leader", inner), "threshold", None)
        for inner in (getattr(state, "inner", None) or (state,))
    ]
    known = [float(value) for value in found if isinstance(value, int | float) and value > 0]
    return min(known) if known else None


def rounds_to_rest(movements: list[float], rest: float | None) -> int | None:
    """Rounds until the movement is at ``rest``, if it goes on falling at its latest pace; None: not known.

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
    """A run whose files are kept: what it was for, and what was found; None if they are gone."""
    job = _job_of(folder.path)
    if job is None or job.remote is None:
        return None
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        found = dict(json.loads(folder.result.read_text(encoding="utf-8")))
    return {
        "run": name,
        **_described(job, ""),
        "begun": job.remote.created,
        "finished": bool(found),
        "k": found.get("k"),
        "none": bool(found.get("no_clusters")),
        "sites": len(found.get("sites") or job.remote.sites),
        "report": folder.report.is_file() and not folder.report.is_symlink(),
        "folder": str(folder.path),
    }


def _described(job: Job | None, federation: str) -> dict[str, Any]:
    """What a job is for."""
    if job is None or job.remote is None:
        return {"title": "", "purpose": "", "contact": "", "expires": "", "method": "", "ks": []}
    told = job.remote
    return {
        "title": told.title or title_of(job, federation or Path(told.federation).name),
        "purpose": told.purpose,
        "contact": told.contact,
        "expires": told.expires,
        "method": job.method,
        "ks": list(job.ks),
    }


def _job_of(place: Path | None) -> Job | None:
    with contextlib.suppress(UnpooledError, OSError):
        return None if place is None else RunFolder(place).load_job()
    return None


def _number(value: Any) -> float | None:
    """A finite number; None otherwise: before the first round nothing has moved."""
    return float(value) if value is not None and math.isfinite(float(value)) else None


def is_federation(folder: Path) -> bool:
    return (folder / "federation.json").exists()
