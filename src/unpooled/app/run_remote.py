"""Execution of a job between machines: by a federation's server, or by this process over files.

A server's run is submitted and followed. In both cases the checkpoint of the finished run is copied.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unpooled.app.job import Job
from unpooled.app.local_sites import NO_FACTS
from unpooled.app.progress import Observer
from unpooled.app.propose_study import propose_study, seconds_until
from unpooled.app.result import JobResult, result_of
from unpooled.app.run_folder import RunFolder
from unpooled.errors import EngineError, ModelError, TooFewAnswersError, UnpooledError
from unpooled.federation.coordinator_run import RunTask, coordinate
from unpooled.federation.file_transport import FileTransport
from unpooled.federation.progress_file import FINISHED, ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.follow_run import describe_waiting, failure_in, follow, following
from unpooled.federation.provisioning.member_keys import known_members
from unpooled.federation.recipient import Recipient
from unpooled.protocol.messages import SiteId
from unpooled.site.session import RunTerms
from unpooled.storage.atomic_files import write_atomically


@dataclass(frozen=True)
class RemoteRun:
    """A run that is ready to begin: in which federation, the coordinator's task, the sites' terms."""

    federation: FederationFolder | Recipient
    task: RunTask
    terms: RunTerms

    @classmethod
    def from_job(
        cls, job: Job, federation: FederationFolder | Recipient, keys: Mapping[SiteId, str] | None = None
    ) -> "RemoteRun":
        """Return the run of a job; ``keys`` are the known fingerprints of the sites, None: read them."""
        if keys is None:
            keys = {} if isinstance(federation, Recipient) else known_members(federation)[0]
        return cls(federation, *task_and_terms(job, federation, keys))


def task_and_terms(
    job: Job,
    federation: FederationFolder | Recipient | None = None,
    keys: Mapping[SiteId, str] | None = None,
) -> tuple[RunTask, RunTerms]:
    """Return the task of the coordinator and the terms for the sites; the study is in the terms.

    Without a federation the console of another program submits the job.
    """
    remote = job.remote
    assert remote is not None
    study, signature = propose_study(job, federation)
    task = RunTask(
        run=remote.run,
        algorithm=job.algorithm,
        sites=remote.sites,
        seed=job.seed,
        quorum=remote.quorum,
        deadline=remote.deadline,
        secure=job.secure,
        exact_sums=job.exact_sums,
        min_cluster_size=job.minimum,
        approval_timeout=remote.approval_timeout or seconds_until(remote.expires),
        federations=remote.federations,
        keys=tuple(sorted((site, key) for site, key in (keys or {}).items() if site in remote.sites)),
        transfer=study.transfers,
        columns=study.table_columns,
    )
    return task, RunTerms.from_study(study, signature)


def run_remote(
    job: Job,
    folder: RunFolder,
    observer: Observer,
    prepared: RemoteRun | None,
    stopped: Callable[[str], None],
) -> JobResult:
    """Run a job at the sites of a federation; ``prepared`` is the run if it is new, None if it is resumed."""
    assert job.remote is not None
    new = prepared is not None
    created = folder.begin(job) if new else False
    try:
        if prepared is not None:
            prepared.federation.note_run(job.remote.run, folder.path)
        if not folder.checkpoint.exists():
            checkpoint = _finished(job, prepared or _prepared_again(job), observer)
            write_atomically(folder.checkpoint, checkpoint.read_bytes())
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
        return result_of(job, folder.load_run(job, NO_FACTS), NO_FACTS)
    except KeyboardInterrupt:
        if job.remote.files:
            stopped(f"stopped. Continue the run with unpooled resume {folder.path}.")
        else:
            stopped(f"the run continues at the server. Follow it with unpooled resume {folder.path}.")
        raise
    except (EngineError, TooFewAnswersError) as error:
        text = str(error).removesuffix(".")
        raise type(error)(f"{text}. Continue the run with unpooled resume {folder.path}.") from error
    except UnpooledError:
        if prepared is not None:
            folder.give_up(created)
            if not folder.job.exists():
                prepared.federation.forget_run(job.remote.run)
            shutil.rmtree(prepared.federation.runs / job.remote.run, ignore_errors=True)
        raise


def _prepared_again(job: Job) -> RemoteRun:
    """Return the run of a job that is resumed."""
    assert job.remote is not None
    if not job.remote.federation:
        raise ModelError(
            "the run is another console's. Copy its checkpoint from the server's workspace into this folder: "
            f"runs/{job.remote.run}/checkpoint"
        )
    place = Path(job.remote.federation)
    federation = Recipient.read(place) if job.remote.files else FederationFolder.read(place)
    return RemoteRun.from_job(job, federation)


def _finished(job: Job, run: RemoteRun, observer: Observer) -> Path:
    """Run a job and return the checkpoint of the finished run."""
    assert job.remote is not None
    if isinstance(run.federation, Recipient):
        return _over_files(Path(job.remote.files), run.federation, run, observer)
    return follow(
        run.federation,
        run.task,
        run.terms,
        patience=job.remote.wait,
        say=observer.activity,
        on_waiting=observer.notify,
        progress=observer,
    )


def _over_files(shared: Path, coordinator: Recipient, run: RemoteRun, observer: Observer) -> Path:
    """Run a job in this process, over files in a shared folder."""
    coordinator.check_shared(shared)
    if gone := [site for site in run.task.sites if site not in coordinator.members]:
        raise ModelError(f"{', '.join(gone)}: not known any more at {coordinator.folder}")
    observer.activity(f"asking the sites over files in {shared}")
    work = coordinator.runs / run.task.run
    with following(work):
        progress = ProgressFile(work)
        transport = FileTransport(
            shared,
            coordinator.name,
            coordinator.identity,
            {site: coordinator.members[site] for site in run.task.sites},
            run.terms,
            deadline=run.task.deadline,
            approval_timeout=run.task.approval_timeout,
            on_problem=observer.warn,
        )
        done = over = progress.read()["state"] == FINISHED  # by a process that was killed afterwards
        try:
            done = done or coordinate(
                run.task,
                transport,
                work,
                home=coordinator.path,
                on_round=observer,
                on_wait=lambda waiting: observer.notify(
                    describe_waiting(waiting) if waiting else "the run continues"
                ),
            )
            over = True
        finally:
            transport.close(remove=over)  # a run that was stopped finds the responses that come meanwhile
        if not done:
            raise failure_in(progress.read())
    return work / "checkpoint"
