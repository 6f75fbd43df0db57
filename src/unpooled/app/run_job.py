"""Execution of a job, in this process or by a federation's server: from its files to its folder.

``unpooled fit`` and ``unpooled.cluster`` both come here. Only a line of progress is printed.
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

from unpooled.app.certificate import certificate_of, improvable
from unpooled.app.dask_job import release
from unpooled.app.job import AUTO, Between, Job
from unpooled.app.result import ClusterResult, JobResult, result_of
from unpooled.app.run_folder import RunFolder
from unpooled.app.study import seconds_until
from unpooled.core.disk import write_atomically
from unpooled.core.run import Record, run
from unpooled.errors import BadInput, EngineFailed, ModelError, TooFewAnswers, UnpooledError
from unpooled.optimum.parts import progress as parts_bounded

if TYPE_CHECKING:  # runs between machines need packages that need not be installed
    from unpooled.runtimes.coordinator_run import RunTask
    from unpooled.site.site_process import RunTerms


ROUND = "rounds"  # the phase of every round


class Watcher(Protocol):
    """An observer of a job: called with every round, with each activity, news and warning as text."""

    def __call__(self, record: Record) -> None: ...
    def say(self, what: str, phase: str = "") -> None: ...
    def tell(self, what: str) -> None: ...
    def warn(self, what: str) -> None: ...


class LiveLine:
    """A line that shows the current activity and every finished round; ``shown`` shows it, None: nobody.

    ``marks`` are the phases of the job and the rounds, with the times at which they began.
    """

    def __init__(self, shown: Callable[[str], None] | None) -> None:
        self._shown = shown
        self.marks: list[tuple[str, float]] = []

    def say(self, text: str, phase: str = "") -> None:
        if phase:
            self.marks.append((phase, time.monotonic()))
        if self._shown is not None:
            self._shown(text)

    def tell(self, text: str) -> None:
        """Show what somebody must know who waits, also where there is no line."""
        if self._shown is not None:
            self._shown(text)
        else:
            print(f"unpooled: {text}", file=sys.stderr)

    def warn(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)

    def __call__(self, record: Record) -> None:
        self.marks.append((ROUND, time.monotonic()))
        asked = len(record.answered) + len(record.silent)
        moved = "" if record.movement == float("inf") else f" · movement {record.movement:.3g}"
        inertia = "" if not record.inertia < float("inf") else f" · inertia {record.inertia:.6g}"
        silent = "".join(f" · {site}: {why}" for site, why in list(record.silent.items())[:3])
        self.say(
            f"round {record.round}{moved}{inertia} · {len(record.answered)} of {asked} sites answered{silent}"
        )


@contextmanager
def progress(quiet: bool) -> Iterator[LiveLine]:
    """A line in a notebook, or on stderr; none if ``quiet``, or if stderr is neither."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules and not quiet else None
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
        try:
            yield LiveLine(lambda text: handle.update({"text/plain": text}, raw=True))
        finally:
            handle.update({"text/plain": ""}, raw=True)
    elif quiet or not sys.stderr.isatty():
        yield LiveLine(None)
    else:
        with Console(stderr=True, highlight=False).status("") as status:
            yield LiveLine(lambda text: status.update(text))


def execute(
    job: Job,
    folder: RunFolder | None,
    watcher: Watcher,
    *,
    new: bool,
    threads: int | None = None,
    stopped: Callable[[str], None] = lambda how: None,
) -> JobResult:
    """Do a job and write all its files; ``new`` is False for a run that is resumed.

    If the user stops the job, ``stopped`` is called with a message that says how to resume it.
    """
    done = _here if job.between is None else _between
    result = done(job, folder, watcher, new, threads, stopped)
    watcher.say("writing", "files")
    if folder is not None:
        result = folder.with_certificate(result)
        folder.finish(result)
    if not job.certify or not isinstance(result, ClusterResult) or not improvable(result):
        return result
    watcher.say("bounding the inertia", "certificate")
    try:
        result = replace(result, kept_proof=certificate_of(result, job.certify, say=watcher.say))
    except UnpooledError as error:  # the clustering is done, and stays
        watcher.warn(f"no certificate: {error}")
        return result
    if folder is not None:
        folder.keep_certificate(result)
    return result


def _here(
    job: Job,
    folder: RunFolder | None,
    watcher: Watcher,
    new: bool,
    threads: int | None,
    stopped: Callable[[str], None],
) -> JobResult:
    many = len(job.files) > 1
    watcher.say(f"reading {len(job.files)} sources" if many else f"reading {job.files[0]}", "reading")
    absent: dict[str, str] = {}
    blank: dict[str, int] = {}
    federation = job.federation(threads, absent.__setitem__, blank.__setitem__)
    job = replace(job, absent=tuple(absent.items()), blank=tuple(blank.items()))
    if job.ks == AUTO:
        most = min(max(AUTO), federation.rows)
        job = replace(job, ks=AUTO[:most])
        if most < len(AUTO):
            watcher.warn(f"k is compared from 1 to {most} only: there are {federation.rows} rows")
    elif len(job.ks) > 1 and max(job.ks) > federation.rows:
        asked = f"k = {min(job.ks)} to {max(job.ks)}"
        raise BadInput(f"{asked} is asked for, and there are {federation.rows} rows: k is at most that")
    for site, why in absent.items():
        watcher.warn(f"{site} is left out: {why}")
    for source, rows in blank.items():
        watcher.warn(f"{source}: {rows} rows at its end have no value and are left out")
    created = folder.begin(job) if folder is not None and new else False
    watcher.say("agreeing on columns and scales, looking for starts", "columns and starts")
    heard = parts_bounded.set(
        lambda done, of: watcher.say(f"certificate: {done} of {of} parts of a site's rows are bounded")
    )
    try:
        done = run(
            job.algorithm(),
            federation,
            seed=job.seed,
            checkpoint=folder.checkpoint if folder is not None else None,
            progress=watcher,
        )
    except BaseException as error:
        if folder is not None and new:
            folder.give_up(created)
        if isinstance(error, KeyboardInterrupt) and folder is not None and folder.checkpoint.exists():
            stopped(f"stopped; unpooled resume {folder.path} goes on")
        raise
    finally:
        parts_bounded.reset(heard)
        if job.dask:
            release(federation)
    return result_of(job, done)


def _between(
    job: Job,
    folder: RunFolder | None,
    watcher: Watcher,
    new: bool,
    threads: int | None,
    stopped: Callable[[str], None],
) -> JobResult:
    """Run the job at the sites of a federation, and copy its checkpoint from the server."""
    assert job.between is not None
    assert folder is not None
    created = folder.begin(job) if new else False
    try:
        if new:
            note_run(job.between, folder)
        if not folder.checkpoint.exists():
            checkpoint = _followed(job, job.between, watcher)
            write_atomically(folder.checkpoint, checkpoint.read_bytes())
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
        return result_of(job, folder.load_run(job))
    except KeyboardInterrupt:
        stopped(f"the run goes on; unpooled resume {folder.path} follows it")
        raise
    except (EngineFailed, TooFewAnswers) as error:
        raise type(error)(f"{error}; unpooled resume {folder.path} goes on") from error
    except UnpooledError:
        if new:
            folder.give_up(created)
            forget_run(job.between, folder)
            shutil.rmtree(Path(job.between.federation) / "runs" / job.between.run, ignore_errors=True)
        raise


def note_run(between: Between, folder: RunFolder) -> None:
    """Tell the federation's folder where the files of a run are, for its desk."""
    if between.federation:
        from unpooled.runtimes.provisioning.federation_folder import FederationFolder

        FederationFolder.read(Path(between.federation)).note_run(between.run, folder.path)


def forget_run(between: Between, folder: RunFolder) -> None:
    """Take a run that left nothing out of the federation's list."""
    if between.federation and not folder.job.exists():
        from unpooled.runtimes.provisioning.federation_folder import FederationFolder

        FederationFolder.read(Path(between.federation)).forget_run(between.run)


def _followed(job: Job, between: Between, watcher: Watcher) -> Path:
    """Run a job at the federation's server and return the checkpoint of the finished run."""
    if not between.federation:
        raise ModelError(
            "the run is another console's: copy the checkpoint from the server's workspace here, "
            f"runs/{between.run}/checkpoint"
        )
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder
    from unpooled.runtimes.provisioning.follow_run import follow

    federation = FederationFolder.read(Path(between.federation))
    task, terms = tasks(job, between)
    return follow(
        federation,
        task,
        terms,
        patience=between.wait,
        say=watcher.say,
        tell=watcher.tell,
        progress=watcher,
    )


def tasks(job: Job, between: Between) -> "tuple[RunTask, RunTerms]":
    """The task for the coordinator's end and the terms for the sites' ends of a job."""
    from unpooled.app.study import proposed
    from unpooled.runtimes.coordinator_run import RunTask
    from unpooled.site.site_process import RunTerms

    keys: dict[str, str] = {}
    if between.federation:
        from unpooled.runtimes.provisioning.federation_folder import FederationFolder
        from unpooled.runtimes.provisioning.members import members_of

        keys = members_of(FederationFolder.read(Path(between.federation)))[0]
    task = RunTask(
        run=between.run,
        algorithm=job.algorithm(),
        sites=between.sites,
        seed=job.seed,
        quorum=between.quorum,
        deadline=between.deadline,
        secure=job.secure,
        exact_sums=job.exact_sums,
        min_cluster_size=job.minimum,
        approval=between.approval or seconds_until(between.expires),
        federations=between.federations,
        keys=tuple(sorted((site, key) for site, key in keys.items() if site in between.sites)),
    )
    return task, RunTerms.now(*proposed(job, between))


def federation_files(job: Job) -> list[Path]:
    """The files of the federation that does a job; none if another console submits it."""
    if job.between is None or not job.between.federation:
        return []
    from unpooled.runtimes.provisioning.federation_folder import files_of

    return files_of(Path(job.between.federation))
