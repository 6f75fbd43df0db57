"""The study of a job between machines: what sites are asked to approve before they answer anything."""

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.algorithms import METHODS, Private
from unpooled.algorithms.base import AtMost
from unpooled.core import codec, disk
from unpooled.core.declarations import Work, declared
from unpooled.core.messages import Question
from unpooled.data.schema import AskSchema
from unpooled.errors import BadInput
from unpooled.optimum.bounds import AskPartsBound
from unpooled.questions.clusters import AskClusterSums, AskDrawnSums
from unpooled.questions.observed import AskObservedSums
from unpooled.site.allow_list import DESCRIBE, NOISY, PREPARE
from unpooled.site.study import UNSTATED, Study, signable

if TYPE_CHECKING:
    from unpooled.app.job import Between, Job

_CELLS = 500  # that a start looks at, or eight for every cluster if that is more
_STARTING = (AskClusterSums, AskDrawnSums, AskObservedSums, *NOISY)  # asked about the cells of a start, too
_CLOSING = (
    4  # rounds after those of the method: comparing restarts, choosing k, describing, and the last sums
)


def proposed(job: "Job", between: "Between") -> tuple[Study, str]:
    """The study of a job, and its signature by the federation's key; "" where there is no federation."""
    name, key, sign = "", "", None
    if between.federation:
        from unpooled.runtimes.provisioning.federation_folder import FederationFolder
        from unpooled.site.identity import identity_in

        folder = Path(between.federation)
        identity = identity_in(folder)
        name, key = FederationFolder.read(folder).address.federation, identity.public.hex()
        sign = identity.sign
    asked = _questions(job)
    columns = tuple(name for name, _, _ in job.wishes.bounds) if job.epsilon else job.wishes.columns
    study = Study(
        federation=name,
        run=between.run,
        title=between.title or title_of(job, name),
        purpose=between.purpose or UNSTATED,
        contact=between.contact or account(),
        method=job.method,
        ks=job.ks,
        columns=() if isinstance(columns, str) else columns,
        protection="noise" if job.epsilon is not None else job.protect,
        epsilon=job.epsilon or 0.0,
        secure=job.secure,
        restarts=job.n_init,
        rounds=job.max_rounds + _CLOSING,
        questions=tuple((name, most) for name, (_, most) in sorted(asked.items())),
        work=_work(job, [kind for kind, _ in asked.values()]),
        created=between.created,
        expires=between.expires,
        authority=key,
    )
    if fault := study.fault():
        raise BadInput(f"--title, --purpose, --contact: {fault}")
    return study, "" if sign is None else sign(signable(study.digest)).hex()


def account() -> str:
    """Who answers for a study if nobody is named: this account."""
    return f"{disk.account() or 'somebody'} at {socket.gethostname()}"


def title_of(job: "Job", federation: str) -> str:
    """What a study is called if nobody said it."""
    method = "k-means" if job.method == "lloyd" else job.method
    low, high = min(job.ks), max(job.ks)
    return f"{method} of {federation or 'a federation'}, k {low if low == high else f'{low}..{high}'}"


def _questions(job: "Job") -> dict[str, tuple[type[Question[Any]], int]]:
    """All that the job may ask, by wire name, and about how many centres at once at most."""
    kinds: list[type[Question[Any]]]
    if job.epsilon is not None:
        kinds = [AskSchema, *NOISY, *Private.asks]
    else:
        kinds = [*PREPARE, *DESCRIBE, *METHODS[job.method].questions()]
    most = max(job.ks)
    cells = max(_CELLS, 8 * most)
    return {
        codec.name_of(kind): (kind, cells if kind in _STARTING or not _ours(kind) else most) for kind in kinds
    }


def _work(job: "Job", kinds: list[type[Question[Any]]]) -> tuple[tuple[str, str, float], ...]:
    """(wire name, field, most) of all that decides how long a site works on the job's questions.

    A field that the method does not state may have any value that a site answers.
    """
    stated: AtMost = {AskPartsBound: {"work": job.certifying}}
    if job.epsilon is None:
        stated |= job.method_for(max(job.ks)).asks_at_most()
    return tuple(
        sorted(
            (codec.name_of(kind), field, stated.get(kind, {}).get(field, declaration.most))
            for kind in kinds
            for field, declaration in declared(kind).items()
            if isinstance(declaration, Work)
        )
    )


def _ours(kind: type[Question[Any]]) -> bool:
    """True for a question of this package: of one's own methods it is not known how they start."""
    return kind.__module__.startswith("unpooled.")


def now_and_later(days: float) -> tuple[str, str]:
    """When a study is proposed, and when it expires."""
    if not 0 < days <= 3660:
        raise BadInput(f"--expires must be a number of days above 0 and up to ten years, got {days:g}")
    now = datetime.now(UTC)
    return now.isoformat(timespec="seconds"), (now + timedelta(days=days)).isoformat(timespec="seconds")


def seconds_until(expires: str) -> float:
    return max((datetime.fromisoformat(expires) - datetime.now(UTC)).total_seconds(), 1.0)
