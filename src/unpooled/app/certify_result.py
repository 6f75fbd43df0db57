"""The certificate of a finished job: how much better could another clustering of the same rows be?"""

from collections.abc import Callable
from dataclasses import replace

from unpooled.app.result import ClusterResult
from unpooled.errors import InputError
from unpooled.evaluation.analysis import NEEDS_COMPLETE_ROWS
from unpooled.optimality.certificate import TOLERANCE, Certificate
from unpooled.optimality.certify import certify, uses_price_search


def certificate_of(
    result: ClusterResult,
    effort: str = "normal",
    *,
    tolerance: float = TOLERANCE,
    time_limit: float | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Certificate:
    """The certificate of a job on files, which are read again without protection, or as copies if the job was
    one on copies."""
    if result.job.remote is not None:
        raise InputError(
            "the rows of a run between machines are not here: unpooled federation run --certify asks the sites for a "
            "certificate in the same run"
        )
    if result.agreement.preparation.keeps_missing:
        raise InputError(NEEDS_COMPLETE_ROWS)
    job = result.job if result.job.protect == "summary" else replace(result.job, protect="none")
    return certify(
        job.federation(threads=1),
        result.description.centers,
        effort=effort,
        transform=result.agreement.preparation,
        tolerance=tolerance,
        time_limit=time_limit,
        report=report,
    )


def improvable(result: ClusterResult) -> bool:
    """Is a certificate to be made from the files, after that of the run? Of few rows, by prices; of trusted
    sites, without their minimum."""
    job, proof = result.job, result.proof
    if not job.certify or job.remote is not None or result.later_proof is not None:
        return False
    if proof is None:
        return not result.run.state.uncertified
    few = uses_price_search(job.certify, len(proof.sites), result.agreement.used, len(proof.centers))
    return few and proof.gap > TOLERANCE


def words(proof: Certificate, result: ClusterResult) -> str:
    """The certificate for people: its sentence, and what it is about."""
    said = proof.sentence
    if result.agreement.from_summaries:
        said += " This is about the sites' copies, not about the rows behind them."
    gone = [site for site, _ in result.job.absent]
    if gone:
        said += f" It says nothing about the rows of {', '.join(gone)}, left out of the run."
    return said
