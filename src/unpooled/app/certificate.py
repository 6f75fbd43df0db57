"""The certificate of a finished job: how much better could another clustering of the same rows be?"""

from collections.abc import Callable
from dataclasses import replace

from unpooled.app.job import Job
from unpooled.app.result import ClusterResult, JobResult
from unpooled.app.run_folder import RunFolder
from unpooled.app.run_job import Watcher
from unpooled.errors import BadInput
from unpooled.optimum.certificate import Certificate
from unpooled.optimum.certify import certify
from unpooled.optimum.parts import EFFORTS


def check_effort(job: Job, effort: str | None) -> None:
    """Raise BadInput for an effort that there is not, and for a certificate of a private job."""
    if effort is not None and job.epsilon is not None:
        raise BadInput("--certify asks for sums without noise; a private run has no certificate")
    if effort not in (None, *EFFORTS):
        raise BadInput(f"--certify must be one of {', '.join(EFFORTS)}, got {effort!r}")


def certified(result: JobResult, effort: str | None, folder: RunFolder | None, watcher: Watcher) -> JobResult:
    """The result with its certificate in words, in its folder too; as it is where no effort is asked for."""
    if effort is None or not isinstance(result, ClusterResult):
        return result
    try:
        proof = certificate_of(result, effort, say=watcher.say)
    except BadInput as error:
        watcher.warn(f"no certificate: {error}")
        return result
    result = replace(result, certified=words(proof, result))
    if folder is not None:
        folder.finish(result)
    return result


def certificate_of(
    result: ClusterResult,
    effort: str = "normal",
    *,
    tolerance: float = 1e-4,
    time_limit: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Certificate:
    """The certificate of a job on files, which are read again without protection, or as copies if the job was
    one on copies."""
    if result.job.between is not None:
        raise BadInput("the rows of a run between machines are not here; a run of unpooled fit has them")
    if result.agreement.preparation.keeps_holes:
        raise BadInput(
            "the run kept missing cells, and a certificate needs rows without them: fit with --missing fill "
            "or drop"
        )
    job = result.job if result.job.protect == "copy" else replace(result.job, protect="none")
    return certify(
        job.federation(threads=1),
        result.description.centers,
        effort=effort,
        view=result.agreement.preparation,
        tolerance=tolerance,
        time_limit=time_limit,
        say=say,
    )


def words(proof: Certificate, result: ClusterResult) -> str:
    """The certificate for people: its sentence, and what it is about."""
    said = proof.sentence
    if result.job.protect == "copy":
        said += " This is about the sites' copies, not about the rows behind them."
    gone = [site for site, _ in result.job.absent]
    if gone:
        said += f" It says nothing about the rows of {', '.join(gone)}, left out of the run."
    return said
