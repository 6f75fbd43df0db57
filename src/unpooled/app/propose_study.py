"""The study of a job between machines. Sites answer its queries only after they have approved it."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from unpooled.algorithms import METHODS, Private
from unpooled.algorithms.method import WorkLimits
from unpooled.data.schema import AskSchema
from unpooled.data.summary_question import AskSummary
from unpooled.errors import InputError
from unpooled.optimality.bounds import AskPartsBound
from unpooled.protocol import codec
from unpooled.protocol.declarations import Work, declared
from unpooled.protocol.messages import Question
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskDrawnSums
from unpooled.protocol.questions.outcome_sums import AskOutcomes
from unpooled.protocol.questions.sums_with_missing import AskObservedSums
from unpooled.site.allow_list import DESCRIBE, EXACT, NOISY, PREPARE
from unpooled.site.study import UNSTATED, Study, signable

if TYPE_CHECKING:
    from unpooled.app.job import Job
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.recipient import Recipient

_CELLS = 500  # cells that a start uses, or eight for every cluster if that is more
_STARTING = (AskClusterSums, AskDrawnSums, AskObservedSums, *NOISY)  # a start asks them about its cells
_CLOSING = 4  # rounds after those of the method: compare restarts, choose k, describe, and the last sums


def propose_study(job: "Job", federation: "FederationFolder | Recipient | None" = None) -> tuple[Study, str]:
    """Return the study of a job and its signature by the federation's key, "" without a federation."""
    remote = job.remote
    assert remote is not None
    name, key, sign = "", "", None
    if federation is not None:
        from unpooled.site.identity import identity_in

        identity = identity_in(federation.path)
        name, key, sign = federation.name, identity.public.hex(), identity.sign
    asked = _questions(job)
    columns = (
        tuple(name for name, _, _ in job.preparation_options.bounds)
        if job.epsilon
        else job.preparation_options.columns
    )
    study = Study(
        federation=name,
        run=remote.run,
        title=remote.title or title_of(job, name),
        purpose=remote.purpose or UNSTATED,
        contact=remote.contact or UNSTATED,
        method=job.method,
        ks=job.ks,
        columns=() if isinstance(columns, str) else columns,
        outcomes=job.preparation_options.outcomes,
        protection="dp" if job.epsilon is not None else job.protect,
        epsilon=job.epsilon or 0.0,
        secure=job.secure,
        restarts=job.n_init,
        rounds=job.max_rounds + job.exact_rounds + _CLOSING,
        questions=tuple((name, centers) for name, (_, centers) in sorted(asked.items())),
        work=_work(job, [kind for kind, _ in asked.values()]),
        created=remote.created,
        expires=remote.expires,
        authority=key,
        sites_per_person=job.sites_per_person,
    )
    if fault := study.fault():
        raise InputError(f"--title, --purpose, --contact: {fault}")
    return study, "" if sign is None else sign(signable(study.digest)).hex()


def title_of(job: "Job", federation: str) -> str:
    """Return the title of a study without --title."""
    method = "k-means" if job.method == "lloyd" else job.method
    low, high = min(job.ks), max(job.ks)
    return f"{method} of {federation or 'a federation'}, k {low if low == high else f'{low}..{high}'}"


def _questions(job: "Job") -> dict[str, tuple[type[Question[Any]], int]]:
    """Return all questions that the job may ask by wire name, and the largest number of centres in each."""
    kinds: list[type[Question[Any]]]
    if job.epsilon is not None:
        kinds = [AskSchema, *NOISY, *Private.asks]
    else:
        describe = [k for k in DESCRIBE if k is not AskOutcomes or job.preparation_options.outcomes]
        exact = EXACT if job.exact_rounds else ()
        kinds = [*PREPARE, *describe, *exact, *METHODS[job.method].questions()]
        kinds += [AskSummary] if job.transfers else []
    max_k = max(job.ks)
    cells = max(_CELLS, 8 * max_k)
    return {
        codec.name_of(kind): (kind, cells if kind in _STARTING or not _ours(kind) else max_k)
        for kind in kinds
    }


def _work(job: "Job", kinds: list[type[Question[Any]]]) -> tuple[tuple[str, str, float], ...]:
    """Return (wire name, field, maximum) of every field that determines how long a site works on a question.

    A field that the method does not limit may have any value that sites accept.
    """
    stated: WorkLimits = {AskPartsBound: {"work": job.certifying}}
    if job.epsilon is None:
        stated |= job.method_for(max(job.ks)).work_limits()
    return tuple(
        sorted(
            (codec.name_of(kind), field, stated.get(kind, {}).get(field, declaration.max_value))
            for kind in kinds
            for field, declaration in declared(kind).items()
            if isinstance(declaration, Work)
        )
    )


def _ours(kind: type[Question[Any]]) -> bool:
    """Return True for a question of this package. How other methods start is unknown."""
    return kind.__module__.startswith("unpooled.")


def now_and_later(days: float) -> tuple[str, str]:
    """Return the time of now, when a study is proposed, and the time when it expires."""
    if not 0 < days <= 3660:
        raise InputError(f"--expires must be a number of days above 0 and up to 3660, got {days:g}")
    now = datetime.now(UTC)
    return now.isoformat(timespec="seconds"), (now + timedelta(days=days)).isoformat(timespec="seconds")


def seconds_until(expires: str) -> float:
    """Return the seconds until a time, at least 1."""
    return max((datetime.fromisoformat(expires) - datetime.now(UTC)).total_seconds(), 1.0)
