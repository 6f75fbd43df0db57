"""Execution of a job by a federation's server: it is submitted and followed, and its checkpoint is copied."""

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
from unpooled.federation.coordinator_run import RunTask
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.follow_run import follow
from unpooled.federation.provisioning.member_keys import known_members
from unpooled.protocol.messages import SiteId
from unpooled.site.session import RunTerms
from unpooled.storage.atomic_files import write_atomically


@dataclass(frozen=True)
class RemoteRun:
    """A run that is ready to be submitted: to which federation, the coordinator's task, the sites' terms."""

    federation: FederationFolder
    task: RunTask
    terms: RunTerms

    @classmethod
    def from_job(
        cls, job: Job, federation: FederationFolder, keys: Mapping[SiteId, str] | None = None
    ) -> "RemoteRun":
        """Return the run of a job; ``keys`` are the known fingerprints of the sites, None: read them."""
        keys = known_members(federation)[0] if keys is None else keys
        return cls(federation, *task_and_terms(job, federation, keys))


def task_and_terms(
    job: Job, federation: FederationFolder | None = None, keys: Mapping[SiteId, str] | None = None
) -> tuple[RunTask, RunTerms]:
    """Return the task of the coordinator and the terms for the sites; the study is in the terms.

    Without a federation the console of another program submits the job.
    """
    remote = job.remote
    assert remote is not None
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
    )
    return task, RunTerms.from_study(*propose_study(job, federation))


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
            checkpoint = _followed(prepared or _prepared_again(job), job.remote.wait, observer)
            write_atomically(folder.checkpoint, checkpoint.read_bytes())
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
        return result_of(job, folder.load_run(job, NO_FACTS), NO_FACTS)
    except KeyboardInterrupt:
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
    return RemoteRun.from_job(job, FederationFolder.read(Path(job.remote.federation)))


def _followed(run: RemoteRun, patience: float, observer: Observer) -> Path:
    """Run a job at the federation's server and return the checkpoint of the finished run."""
    return follow(
        run.federation,
        run.task,
        run.terms,
        patience=patience,
        say=observer.activity,
        on_waiting=observer.notify,
        progress=observer,
    )
