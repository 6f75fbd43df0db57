"""Execution of a job, in this process or by a federation's server: from its files to its folder.

``unpooled fit``, ``unpooled federation run`` and ``unpooled.cluster`` call ``execute``. It prints a line of
progress and warnings, nothing else.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console

from unpooled.app.certify_result import certificate_of, improvable
from unpooled.app.dask_job import release
from unpooled.app.job import AUTO, Job, RemoteRunOptions
from unpooled.app.propose_study import seconds_until
from unpooled.app.result import ClusterResult, JobResult, result_of
from unpooled.app.run_folder import RunFolder
from unpooled.errors import EngineError, InputError, ModelError, TooFewAnswersError, UnpooledError
from unpooled.optimality.parts import progress as parts_bounded
from unpooled.protocol.run_loop import RoundRecord, run
from unpooled.storage.atomic_files import write_atomically

if TYPE_CHECKING:  # runs between machines need optional packages
    from unpooled.federation.coordinator_run import RunTask
    from unpooled.site.session import RunTerms


ROUND = "rounds"  # the phase of every round


class Observer(Protocol):
    """An observer of a job: called with every round, every activity, every notice and every warning."""

    def __call__(self, record: RoundRecord) -> None: ...
    def activity(self, text: str, phase: str = "") -> None: ...
    def notify(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...


class ProgressLine:
    """A line with the current activity or the last finished round.

    ``display`` shows the line; None shows nothing. ``marks`` are the phases of the job and the rounds, with
    the times at which they began.
    """

    def __init__(self, display: Callable[[str], None] | None) -> None:
        self._display = display
        self.marks: list[tuple[str, float]] = []

    def activity(self, text: str, phase: str = "") -> None:
        """Show what the job is doing, and note the beginning of a phase."""
        if phase:
            self.marks.append((phase, time.monotonic()))
        if self._display is not None:
            self._display(text)

    def notify(self, text: str) -> None:
        """Show a notice to the person who waits, even without a line of progress."""
        if self._display is not None:
            self._display(text)
        else:
            print(f"unpooled: {text}", file=sys.stderr)

    def warn(self, text: str) -> None:
        """Print a warning."""
        print(f"warning: {text}", file=sys.stderr)

    def __call__(self, record: RoundRecord) -> None:
        self.marks.append((ROUND, time.monotonic()))
        asked = len(record.answered) + len(record.silent)
        moved = "" if record.movement == float("inf") else f" · movement {record.movement:.3g}"
        inertia = "" if not record.inertia < float("inf") else f" · inertia {record.inertia:.6g}"
        silent = "".join(f" · {site}: {why}" for site, why in list(record.silent.items())[:3])
        self.activity(
            f"round {record.round}{moved}{inertia} · {len(record.answered)} of {asked} sites answered{silent}"
        )


@contextmanager
def progress(quiet: bool) -> Iterator[ProgressLine]:
    """Yield a line of progress in a notebook or on a terminal; elsewhere, or if ``quiet``, a silent one."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules and not quiet else None
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
        try:
            yield ProgressLine(lambda text: handle.update({"text/plain": text}, raw=True))
        finally:
            handle.update({"text/plain": ""}, raw=True)
    elif quiet or not sys.stderr.isatty():
        yield ProgressLine(None)
    else:
        with Console(stderr=True, highlight=False).status("") as status:
            yield ProgressLine(lambda text: status.update(text))


def execute(
    job: Job,
    folder: RunFolder | None,
    observer: Observer,
    *,
    new: bool,
    threads: int | None = None,
    stopped: Callable[[str], None] = lambda how: None,
) -> JobResult:
    """Run a job, write all its files and return its result; ``new`` is False for a run that is resumed.

    If the user stops the job, ``stopped`` is called with a message that explains how to resume it.
    """
    run_job = _run_local if job.remote is None else _run_remote
    result = run_job(job, folder, observer, new, threads, stopped)
    observer.activity("writing", "files")
    if folder is not None:
        result = folder.with_certificate(result)
        folder.finish(result)
    if not job.certify or not isinstance(result, ClusterResult) or not improvable(result):
        return result
    observer.activity("bounding the inertia", "certificate")
    try:
        result = replace(result, later_proof=certificate_of(result, job.certify, report=observer.activity))
    except UnpooledError as error:  # the clustering itself is done
        observer.warn(f"no certificate: {error}")
        return result
    if folder is not None:
        folder.keep_certificate(result)
    return result


def _run_local(
    job: Job,
    folder: RunFolder | None,
    observer: Observer,
    new: bool,
    threads: int | None,
    stopped: Callable[[str], None],
) -> JobResult:
    many = len(job.files) > 1
    observer.activity(f"reading {len(job.files)} sources" if many else f"reading {job.files[0]}", "reading")
    absent: dict[str, str] = {}
    blank: dict[str, int] = {}
    federation = job.federation(threads, absent.__setitem__, blank.__setitem__, observer.warn)
    job = replace(job, absent=tuple(absent.items()), blank=tuple(blank.items()))
    if job.ks == AUTO:
        largest = min(max(AUTO), federation.rows)
        job = replace(job, ks=AUTO[:largest])
        if largest < len(AUTO):
            observer.warn(f"k is compared from 1 to {largest} only: there are {federation.rows} rows")
    elif len(job.ks) > 1 and max(job.ks) > federation.rows:
        raise InputError(
            f"k = {min(job.ks)} to {max(job.ks)} is too many for {federation.rows} rows. Use a k of at most "
            f"{federation.rows}."
        )
    for site, why in absent.items():
        observer.warn(f"{site} is left out: {why}")
    for source, rows in blank.items():
        observer.warn(f"{source}: {rows} rows at its end have no value and are left out")
    created = folder.begin(job) if folder is not None and new else False
    observer.activity("agreeing on columns and scales, looking for starts", "columns and starts")
    token = parts_bounded.set(
        lambda done, of: observer.activity(f"certificate: {done} of {of} parts of a site's rows are bounded")
    )
    try:
        finished = run(
            job.algorithm(),
            federation,
            seed=job.seed,
            checkpoint=folder.checkpoint if folder is not None else None,
            progress=observer,
        )
    except BaseException as error:
        if folder is not None and new:
            folder.give_up(created)
        if isinstance(error, KeyboardInterrupt) and folder is not None and folder.checkpoint.exists():
            stopped(f"stopped. Continue the run with unpooled resume {folder.path}.")
        raise
    finally:
        parts_bounded.reset(token)
        if job.dask:
            release(federation)
    return result_of(job, finished)


def _run_remote(
    job: Job,
    folder: RunFolder | None,
    observer: Observer,
    new: bool,
    threads: int | None,
    stopped: Callable[[str], None],
) -> JobResult:
    """Run the job at the sites of a federation, and copy its checkpoint from the server."""
    assert job.remote is not None
    assert folder is not None
    created = folder.begin(job) if new else False
    try:
        if new:
            note_run(job.remote, folder)
        if not folder.checkpoint.exists():
            checkpoint = _followed(job, job.remote, observer)
            write_atomically(folder.checkpoint, checkpoint.read_bytes())
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
        return result_of(job, folder.load_run(job))
    except KeyboardInterrupt:
        stopped(f"the run continues at the server. Follow it with unpooled resume {folder.path}.")
        raise
    except (EngineError, TooFewAnswersError) as error:
        text = str(error).removesuffix(".")
        raise type(error)(f"{text}. Continue the run with unpooled resume {folder.path}.") from error
    except UnpooledError:
        if new:
            folder.give_up(created)
            forget_run(job.remote, folder)
            shutil.rmtree(Path(job.remote.federation) / "runs" / job.remote.run, ignore_errors=True)
        raise


def note_run(remote: RemoteRunOptions, folder: RunFolder) -> None:
    """Note in the federation's folder where the files of a run are; the monitor lists them."""
    if remote.federation:
        from unpooled.federation.provisioning.federation_folder import FederationFolder

        FederationFolder.read(Path(remote.federation)).note_run(remote.run, folder.path)


def forget_run(remote: RemoteRunOptions, folder: RunFolder) -> None:
    """Remove a run without files from the federation's list."""
    if remote.federation and not folder.job.exists():
        from unpooled.federation.provisioning.federation_folder import FederationFolder

        FederationFolder.read(Path(remote.federation)).forget_run(remote.run)


def _followed(job: Job, remote: RemoteRunOptions, observer: Observer) -> Path:
    """Run a job at the federation's server and return the checkpoint of the finished run."""
    if not remote.federation:
        raise ModelError(
            "the run is another console's. Copy its checkpoint from the server's workspace into this folder: "
            f"runs/{remote.run}/checkpoint"
        )
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.follow_run import follow

    federation = FederationFolder.read(Path(remote.federation))
    task, terms = tasks(job, remote)
    return follow(
        federation,
        task,
        terms,
        patience=remote.wait,
        say=observer.activity,
        on_waiting=observer.notify,
        progress=observer,
    )


def tasks(job: Job, remote: RemoteRunOptions) -> "tuple[RunTask, RunTerms]":
    """Return the task of the coordinator and the terms for the sites of a job."""
    from unpooled.app.propose_study import proposed
    from unpooled.federation.coordinator_run import RunTask
    from unpooled.site.session import RunTerms

    keys: dict[str, str] = {}
    if remote.federation:
        from unpooled.federation.provisioning.federation_folder import FederationFolder
        from unpooled.federation.provisioning.member_keys import known_members

        keys = known_members(FederationFolder.read(Path(remote.federation)))[0]
    task = RunTask(
        run=remote.run,
        algorithm=job.algorithm(),
        sites=remote.sites,
        seed=job.seed,
        quorum=remote.quorum,
        deadline=remote.deadline,
        secure=job.secure,
        exact_sums=job.exact_sums,
        min_cluster_size=job.minimum,
        approval_timeout=remote.approval or seconds_until(remote.expires),
        federations=remote.federations,
        keys=tuple(sorted((site, key) for site, key in keys.items() if site in remote.sites)),
    )
    return task, RunTerms.from_study(*proposed(job, remote))


def federation_files(job: Job) -> list[Path]:
    """Return the files of the federation that runs a job; none if another console submits it."""
    if job.remote is None or not job.remote.federation:
        return []
    from unpooled.federation.provisioning.federation_folder import federation_folder_files

    return federation_folder_files(Path(job.remote.federation))
