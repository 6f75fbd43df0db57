"""Submit a run to a federation's server, and follow it until it is done.

The server owns the run: this process only submits it, reads the server's progress file, and resubmits the run
if it died. If this process is stopped, nothing is lost: the next process that follows the run continues.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from unpooled import errors
from unpooled.errors import (
    EngineError,
    EngineUnreachableError,
    SchemaMismatchError,
    TooFewAnswersError,
    UnpooledError,
)
from unpooled.federation.coordinator_run import AnyTask, RunTask
from unpooled.federation.progress_file import FAILED, FINISHED, RUNNING, WAITING, ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder, connected_sites
from unpooled.federation.run_history import SUBMITTED, append_event
from unpooled.protocol.messages import SiteId
from unpooled.protocol.run_loop import RoundRecord
from unpooled.site.session import RunTerms
from unpooled.storage.file_locks import LockOwner, is_locked

_POLL = 0.05
_START_TIMEOUT = 600.0  # seconds in which a submitted run must begin; on a busy machine it takes minutes
_JOB_INTERVAL = 2.0  # seconds between questions to the server whether it gave up a run that did not begin
_MAX_SAME_CAUSE = 3  # failures to start a run for the same cause before giving up
_MAX_SUBMISSIONS = 5  # submissions without progress before giving up

_FOLLOWED = "followed"  # the file in a run's folder that names the process which follows it

Say = Callable[[str], None]


def is_followed(work: Path) -> bool:
    """Return True while a process follows a run, i.e. submits it, waits for it, and submits it again."""
    follower = LockOwner.read(work / _FOLLOWED)
    return follower is not None and follower.is_alive


@contextlib.contextmanager
def following(work: Path) -> Iterator[None]:
    """Mark a run as followed by this process."""
    _mark_followed(work)
    try:
        yield
    finally:
        (work / _FOLLOWED).unlink(missing_ok=True)


def _mark_followed(work: Path) -> None:
    """Write the mark in one step: the folder of a new run, without a mark, would count as a stopped run."""
    work.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=work.parent, prefix=f".{work.name}."))
    try:
        with (draft / _FOLLOWED).open("wb") as file:
            LockOwner.me("unpooled federation run").write(file.fileno())
        try:
            os.rename(draft, work)
        except OSError:  # the folder exists and is not empty
            os.replace(draft / _FOLLOWED, work / _FOLLOWED)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def follow(
    federation: FederationFolder,
    task: RunTask,
    terms: RunTerms,
    *,
    patience: float,
    say: Say = lambda text: None,
    on_waiting: Say = lambda text: None,
    progress: Callable[[RoundRecord], None] = lambda record: None,
) -> Path:
    """Follow a task to its end, and return the path of its checkpoint.

    Parameters
    ----------
    federation, task, terms
        Where and what to run, and the terms that the sites approve.
    patience
        Seconds to wait for the server and for sites that are not connected.
    say
        Called with messages for the user.
    on_waiting
        Called with the sites that have not approved the study yet, whenever that changes.
    progress
        Called with the record of every round.
    """
    study = terms.study
    with following(federation.runs / task.run):
        append_event(federation.path, task.run, SUBMITTED, title=study.title, contact=study.contact)
        return _follow(federation, task, terms, patience, say, on_waiting, progress)


def _follow(
    federation: FederationFolder,
    task: RunTask,
    terms: RunTerms,
    patience: float,
    say: Say,
    on_waiting: Say,
    progress: Callable[[RoundRecord], None],
) -> Path:
    work = federation.runs / task.run
    written = ProgressFile(work)
    submissions, best = 0, -1
    causes: list[str] = []
    while True:
        if not is_locked(work):
            if written.read()["state"] == FINISHED:
                return work / "checkpoint"
            submissions += 1
            if submissions > _MAX_SUBMISSIONS:
                raise EngineError(f"the run was submitted {_MAX_SUBMISSIONS} times and made no progress")
            wait_for_sites(federation, task, patience, say)
            written.path.unlink(missing_ok=True)
            try:
                submit(federation, task, terms, written, say)
            except EngineUnreachableError as gone:
                causes.append(str(gone))
                hopeless = causes[-_MAX_SAME_CAUSE:].count(causes[-1]) == _MAX_SAME_CAUSE
                if submissions >= _MAX_SUBMISSIONS or patience <= 0 or hopeless:
                    raise
                say(f"{gone}; trying again")
                time.sleep(2.0)
                continue
        reached, failure, retry = _watch(work, written, progress, on_waiting)
        if reached > best:
            submissions, best = 0, reached
        if failure is None:
            continue
        curable = retry and isinstance(failure, TooFewAnswersError)  # a site that declines will decline again
        if not curable or submissions >= _MAX_SUBMISSIONS or patience <= 0:
            raise failure
        say(f"{failure}; asking again")


def wait_for_sites(federation: FederationFolder, task: AnyTask, patience: float, say: Say) -> None:
    """Wait until all sites are connected; after ``patience`` seconds the quorum is enough."""
    until = time.monotonic() + patience
    needed = max(1, -int(-task.quorum * len(task.sites) // 1))
    while True:
        connected = connected_sites(federation)
        missing = [site for site in task.sites if site not in (connected or ())]
        if connected is not None and not missing:
            return
        if time.monotonic() >= until:
            break
        say("waiting for the server" if connected is None else f"waiting for {', '.join(missing)}")
        time.sleep(0.2)
    if connected is None:
        raise EngineUnreachableError(
            f"the server is not up. Start it with unpooled federation serve {federation.path}."
        )
    if len(task.sites) - len(missing) < needed:
        raise TooFewAnswersError(
            f"{len(task.sites) - len(missing)} of {len(task.sites)} sites are connected, {needed} needed; "
            f"missing: {', '.join(missing)}"
        )


def submit(
    federation: FederationFolder, task: AnyTask, terms: RunTerms, written: ProgressFile, say: Say
) -> None:
    """Submit the job to the engine, and wait until it has begun."""
    say("handing the run to the server")
    staging = Path(tempfile.mkdtemp(dir=federation.runs / task.run, prefix=".job."))
    try:
        job = staging / f"unpooled-{task.run}"
        federation.engine.write_job(job, task, terms)
        with federation.engine.submitted_job(
            federation.console, federation.server, job, timeout=15.0
        ) as ended:
            say("the run is starting at the sites")
            until, asked = time.monotonic() + _START_TIMEOUT, time.monotonic()
            while written.read()["state"] == WAITING:
                if time.monotonic() > until:
                    raise EngineError(f"the run did not begin within {_START_TIMEOUT:g} seconds")
                if time.monotonic() - asked > _JOB_INTERVAL:
                    if (end_state := ended()) is not None and written.read()["state"] == WAITING:
                        raise EngineUnreachableError(
                            f"the engine gave the run up before it began: {end_state}"
                        )
                    asked = time.monotonic()
                time.sleep(_POLL)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _watch(
    work: Path, written: ProgressFile, progress: Callable[[RoundRecord], None], on_waiting: Say
) -> tuple[int, UnpooledError | None, bool]:
    """Follow a run until the server's process ends.

    Returns the last round, the error if the run failed, and whether repeating it may help.
    """
    last_round = -1
    last_waiting: dict[SiteId, float] = {}
    while True:
        alive = is_locked(work)  # before the file is read, so that its last state is not missed
        status = written.read()
        record = status.get("record")
        if status["state"] == RUNNING and record is not None and record["round"] > last_round:
            last_round = record["round"]
            progress(_record(record))
        if status["state"] == RUNNING and (waiting := status.get("waiting", {})) != last_waiting:
            on_waiting(describe_waiting(waiting) if waiting else "the run continues")
            last_waiting = waiting
        if status["state"] == FAILED and not alive:
            return last_round, failure_in(status), bool(status.get("retry"))
        if not alive:
            return last_round, None, False
        time.sleep(_POLL)


def describe_waiting(waiting: Mapping[SiteId, float]) -> str:
    """Return the sites that a run waits for: "waiting for north since 9:12 to approve the study"."""
    today = datetime.now().date()
    entries = []
    for site, since in sorted(waiting.items()):
        when = datetime.fromtimestamp(since)
        day = "" if when.date() == today else f"{when:%d %b} "
        entries.append(f"{site} since {day}{when.hour}:{when:%M}")
    return f"waiting for {', '.join(entries)} to approve the study"


def _record(values: dict[str, Any]) -> RoundRecord:
    sent = {site: (int(numbers), int(size)) for site, (numbers, size) in values["sent"].items()}
    return RoundRecord(**{**values, "sent": sent})


def failure_in(failure: dict[str, Any]) -> UnpooledError:
    """Return the error of a run that failed, from its progress file."""
    kind = getattr(errors, failure["kind"], UnpooledError)
    if kind is SchemaMismatchError:
        return SchemaMismatchError(failure["text"], tuple(map(tuple, failure["table"])))
    return kind(failure["text"])
