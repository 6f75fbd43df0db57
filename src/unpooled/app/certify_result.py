"""The certificate of a finished job: how much better could another clustering of the same rows be?"""

from collections.abc import Callable
from dataclasses import replace

from unpooled.app.local_sites import local_sites
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
    """Return the certificate of a job on files.

    The files are read again: as summary tables if the job used them, else without protection.
    """
    if result.job.remote is not None:
        raise InputError(
            "the rows of a run between machines are not here. Ask the sites for a certificate during a "
            "run, with unpooled federation run --certify."
        )
    if result.agreement.preparation.keeps_missing:
        raise InputError(NEEDS_COMPLETE_ROWS)
    job = result.job if result.job.protect == "summary" else replace(result.job, protect="none")
    return certify(
        local_sites(job, threads=1).federation,
        result.description.centers,
        effort=effort,
        transform=result.agreement.preparation,
        tolerance=tolerance,
        time_limit=time_limit,
        report=report,
    )


def improvable(result: ClusterResult) -> bool:
    """Return True if a better certificate can be made from the files after the run.

    Few rows allow the search by prices, and sites that answer from raw rows are read without their minimum.
    """
    job, proof = result.job, result.proof
    if not job.certify or job.remote is not None or result.later_proof is not None:
        return False
    if proof is None:
        return not result.run.state.uncertified
    few = uses_price_search(job.certify, len(proof.sites), result.agreement.used, len(proof.centers))
    return few and proof.gap > TOLERANCE


def words(proof: Certificate, result: ClusterResult) -> str:
    """Return the certificate in words, and which rows it covers."""
    text = proof.sentence
    if result.agreement.from_summaries:
        text += " It covers the sites' summary tables, not the rows behind them."
    absent = [site for site, _ in result.facts.left_out]
    if absent:
        text += f" It does not cover the rows of {', '.join(absent)}, which are left out of the run."
    return text
