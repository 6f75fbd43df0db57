"""Execution of a job, in this process or by a federation's server: from its files to its folder.

``unpooled fit``, ``unpooled federation run`` and ``unpooled.cluster`` call ``execute``. It prints a line of
progress and warnings, nothing else.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.app.certify_result import certificate_of, improvable
from unpooled.app.job import Job
from unpooled.app.local_sites import local_sites
from unpooled.app.progress import Observer
from unpooled.app.result import ClusterResult, JobResult, result_of
from unpooled.app.run_folder import RunFolder
from unpooled.errors import UnpooledError
from unpooled.optimality.parts import progress as parts_bounded
from unpooled.protocol.run_loop import run

if TYPE_CHECKING:  # runs between machines need optional packages
    from unpooled.app.run_remote import RemoteRun


def execute(
    job: Job,
    folder: RunFolder | None,
    observer: Observer,
    *,
    new: bool,
    threads: int | None = None,
    prepared: "RemoteRun | None" = None,
    stopped: Callable[[str], None] = lambda how: None,
) -> JobResult:
    """Run a job, write all its files and return its result; ``new`` is False for a run that is resumed.

    ``prepared`` is a new run between machines. If the user stops the job, ``stopped`` is called with a
    message that explains how to resume it.
    """
    if job.remote is None:
        result = _run_local(job, folder, observer, new, threads, stopped)
    else:
        from unpooled.app.run_remote import run_remote

        assert folder is not None
        result = run_remote(job, folder, observer, prepared, stopped)
    if job.names:
        from unpooled.app.keep_names import read_names, with_names

        try:
            result = with_names(result, read_names(Path(job.names)))
        except UnpooledError as error:  # the clustering itself is done
            observer.warn(f"no names: {error}")
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
    opened = local_sites(job, threads)
    federation, facts = opened.federation, opened.facts
    if opened.warning:
        observer.warn(opened.warning)
    if facts.ks:
        observer.warn(f"k is compared from 1 to {len(facts.ks)} only: there are {federation.rows} rows")
    for site, why in facts.left_out:
        observer.warn(f"{site} is left out: {why}")
    for source, rows in facts.blank_rows:
        observer.warn(f"{source}: {rows} rows at its end have no value and are left out")
    created = folder.begin(job) if folder is not None and new else False
    observer.activity("agreeing on columns and scales, looking for starts", "columns and starts")
    token = parts_bounded.set(
        lambda done, of: observer.activity(f"certificate: {done} of {of} parts of a site's rows are bounded")
    )
    try:
        finished = run(
            job.algorithm_for(facts.ks),
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
        federation.close()
    return result_of(job, finished, facts)


def federation_files(job: Job) -> list[Path]:
    """Return the files of the federation that runs a job; none if another console submits it."""
    if job.remote is None or not job.remote.federation:
        return []
    from unpooled.federation.provisioning.federation_folder import federation_folder_files

    return federation_folder_files(Path(job.remote.federation))
