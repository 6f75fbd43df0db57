"""A job done: here, or by a federation's server; from its files to its folder. It prints nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from unpooled.app.job import Between, Job
from unpooled.app.result import Result, result_of
from unpooled.app.run_folder import RunFolder
from unpooled.core.disk import write_atomically
from unpooled.core.run import Record, run
from unpooled.errors import EngineFailed, ModelError, TooFewAnswers, UnpooledError

if TYPE_CHECKING:  # what runs between machines has requirements of its own
    from unpooled.runtimes.remote_run import RunTask
    from unpooled.site.process import RunTerms


class Watcher(Protocol):
    """Whoever is told how a job goes: called with every round, and with what is being done."""

    def __call__(self, record: Record) -> None: ...
    def say(self, what: str) -> None: ...


def execute(
    job: Job,
    folder: RunFolder | None,
    watcher: Watcher,
    *,
    new: bool,
    threads: int | None = None,
    stopped: Callable[[str], None] = lambda how: None,
) -> Result:
    """Do a job and write all that it makes; ``new``: not one that goes on.

    ``stopped`` is told how to go on where the user stops it.
    """
    done = _here if job.between is None else _between
    result = done(job, folder, watcher, new, threads, stopped)
    watcher.say("writing")
    if folder is not None:
        folder.finish(result)
    return result


def _here(
    job: Job,
    folder: RunFolder | None,
    watcher: Watcher,
    new: bool,
    threads: int | None,
    stopped: Callable[[str], None],
) -> Result:
    watcher.say(f"reading {len(job.files)} files" if len(job.files) > 1 else f"reading {job.files[0]}")
    federation = job.federation(threads)
    made = folder.begin(job) if folder is not None and new else False
    watcher.say("agreeing on columns and scales, looking for starts")
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
            folder.give_up(made)
        if isinstance(error, KeyboardInterrupt) and folder is not None and folder.checkpoint.exists():
            stopped(f"stopped; unpooled resume {folder.path} goes on")
        raise
    return result_of(job, done)


def _between(
    job: Job,
    folder: RunFolder | None,
    watcher: Watcher,
    new: bool,
    threads: int | None,
    stopped: Callable[[str], None],
) -> Result:
    """Have the sites of a federation do the job, and take over what its server kept of it."""
    assert job.between is not None
    assert folder is not None
    made = folder.begin(job) if new else False
    try:
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
            folder.give_up(made)
            shutil.rmtree(Path(job.between.federation) / "runs" / job.between.run, ignore_errors=True)
        raise


def _followed(job: Job, between: Between, watcher: Watcher) -> Path:
    """Have the federation's server do a job; the checkpoint of the finished run."""
    if not between.federation:
        raise ModelError(
            "the run is another console's: copy the checkpoint from the server's workspace here, "
            f"runs/{between.run}/checkpoint"
        )
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder
    from unpooled.runtimes.provisioning.follow import follow

    federation = FederationFolder.read(Path(between.federation))
    task, terms = tasks(job, between)
    return follow(federation, task, terms, patience=between.wait, say=watcher.say, progress=watcher)


def tasks(job: Job, between: Between) -> "tuple[RunTask, RunTerms]":
    """What the coordinator's end and the sites' ends are told of a job."""
    from unpooled.runtimes.remote_run import RunTask
    from unpooled.site.process import RunTerms

    task = RunTask(
        run=between.run,
        algorithm=job.algorithm(),
        sites=between.sites,
        seed=job.seed,
        quorum=between.quorum,
        deadline=between.deadline,
        secure=job.secure,
        min_cluster_size=job.min_cluster_size,
    )
    return task, RunTerms.of(job.reading)


def federation_files(job: Job) -> list[Path]:
    """The files of the federation that does a job, where it is one of ours."""
    if job.between is None or not job.between.federation:
        return []
    from unpooled.runtimes.provisioning.federation_folder import files_of

    return files_of(Path(job.between.federation))
