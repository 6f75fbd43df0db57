"""The guards of a site, in the order of its chain; each has a reason that the coordinator may read."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.errors import InputError, QueryRefusedError
from unpooled.privacy import PrivateQuestion
from unpooled.protocol import codec
from unpooled.protocol.declarations import Centers, declared_fields
from unpooled.protocol.messages import Question
from unpooled.protocol.transform import Transform, reads_missing
from unpooled.site.allow_list import SCHEMA, TRANSFORMS, aggregate_only, allowed
from unpooled.site.chain import Exchange, Guard
from unpooled.site.erasures import Erasures
from unpooled.site.ledger import Ledger
from unpooled.site.policy import Policy, check_methods
from unpooled.typing import FloatArray


class RequestIdGuard(Guard):
    """Refuse a request whose round or exchange is not a number that a ledger can hold."""

    name = "request id"

    def check(self, exchange: Exchange) -> None:
        request_id = exchange.request.request_id
        if not (0 <= request_id.round < 2**63 and 0 <= request_id.exchange < 2**63):
            raise QueryRefusedError("the round or the exchange of the request is not a valid number")


class SingleSourceGuard(Guard):
    """Refuse a run that began from another source; the ledger keeps the source of every run.

    After an update of the summary table, a change of the rules, or another study of the same name, a run that
    began before is over. Repeated requests and stages of secure sums are refused too, so no sum that was
    masked before is unmasked afterwards.
    """

    name = "source"

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger, self._source = ledger, source
        self._known: dict[str, str] = {}

    def check(self, exchange: Exchange) -> None:
        run = exchange.request.request_id.run
        if run not in self._known:
            begun = self._ledger.source(run)
            if begun is None:
                return
            self._known = {run: begun}
        if self._known[run] != self._source:
            raise QueryRefusedError(
                "this run began when the site answered from another summary table, or under other rules or "
                "another study. Start a new run."
            )

    def begin(self, run: str) -> None:
        """Record what a run is answered from, before its first answer leaves."""
        if run not in self._known and self._ledger.source(run) is None:
            self._ledger.begin(run, self._source)


def source_digest(protection: str, summary: str, rules: str, study: str) -> str:
    """Return the digest of what a site answers from; each part is a digest or a name, "" if there is none."""
    return sha256(json.dumps([protection, summary, rules, study]).encode()).hexdigest()


class ErasureGuard(Guard):
    """Refuse everything once somebody was erased since the site was opened: its table contains them."""

    name = "erasures"

    def __init__(self, path: Path | None) -> None:
        self._path, self._state = path, file_state(path)
        self._known = self._erasures()

    def check(self, exchange: Exchange) -> None:
        if (state := file_state(self._path)) == self._state:
            return
        if self._erasures() != self._known:
            raise QueryRefusedError(
                "somebody was erased from this site's summary table during the run. Start the run again."
            )
        self._state = state  # an earlier erasure was finished

    def _erasures(self) -> tuple[tuple[Any, ...], ...]:
        return () if self._path is None else Erasures(self._path.parent).identifiers()


def file_state(path: Path | None) -> tuple[int, int, int] | None:
    """Return numbers that identify a state of a file; None if there is no file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class AllowListGuard(Guard):
    """Refuse queries other than those of the methods that the policy names."""

    def __init__(self, policy: Policy) -> None:
        check_methods(policy)
        self._names = allowed(policy.jobs.algorithms, policy.jobs.modules, describe=policy.jobs.describe)
        self._methods = (*policy.jobs.algorithms, *policy.jobs.modules)

    def check(self, exchange: Exchange) -> None:
        for part in (asked.part for asked in exchange.parts):
            name = codec.name_of(type(part.question))
            missing = part.question.undeclared()
            if missing:
                raise QueryRefusedError(
                    f"{name} does not declare {missing}, and this site answers only queries that do"
                )
            if name not in self._names:
                own = type(part.question).__module__.startswith("unpooled.")
                hint = "" if own else ", and the queries that they declare"
                raise QueryRefusedError(
                    f"the policy does not allow {name}; it allows {', '.join(self._methods)}{hint}"
                )
            if part.transform is not None and type(part.transform) not in TRANSFORMS:
                raise QueryRefusedError(
                    f"the policy does not allow the transform {codec.name_of(type(part.transform))}"
                )


class InputGuard(Guard):
    """Refuse a query that cannot be answered: of a wrong kind or width, or with numbers that are not finite.

    It does not protect the rows; it gives a reason in place of an error.
    """

    def check(self, exchange: Exchange) -> None:
        for asked in exchange.parts:
            part, X = asked.part, asked.rows
            name = codec.name_of(type(part.question))
            reads = part.question.reads
            if reads == "raw rows" and not asked.masked:
                raise QueryRefusedError(f"{name} is answered only in secure sums")
            if reads != "groups" and (reads == "table") is isinstance(X, np.ndarray):
                kind = "rows" if isinstance(X, np.ndarray) else "a table of named columns"
                raise QueryRefusedError(f"{name} reads {reads}, and this site has {kind}")
            try:
                lengths = part.question.lengths()
            except InputError as error:
                raise QueryRefusedError(str(error)) from None
            if lengths.get("k") == 0:
                raise QueryRefusedError(f"{name} has no centre")
            reads_missing(part.transform, part.question)
            if part.transform is not None:
                _check_scaling(part.transform)
            for centers in sent_centers(part.question):
                if centers.shape[2] != X.shape[1]:
                    raise QueryRefusedError(
                        f"the centres have {centers.shape[2]} columns, and the rows have {X.shape[1]}"
                    )
                if not np.isfinite(centers).all():
                    raise QueryRefusedError("a centre has a number that is not finite")
            if reads in ("rows", "raw rows") and lengths.get("d", X.shape[1]) != X.shape[1]:
                raise QueryRefusedError(
                    f"{name} is about {lengths['d']} columns, and the rows have {X.shape[1]}"
                )


def _check_scaling(transform: Transform) -> None:
    """Refuse a transform whose scaling is not finite and positive."""
    shift, scale = transform.scaling()
    if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise QueryRefusedError("the scaling of a column is not a positive number")


def sent_centers(question: Question[Any]) -> list[FloatArray]:
    """Return all sets of centres that a question declares to send, in any field, as (R, k, d)."""
    return [value.reshape(-1, *value.shape[-2:]) for _, _, value in declared_fields(question, Centers)]


class SecureSumsOnlyGuard(Guard):
    """Refuse all but the schema if only secure sums are allowed and the site does not take part in them."""

    def __init__(self, allows: str = "the policy allows only secure sums") -> None:
        self._allows = allows

    def check(self, exchange: Exchange) -> None:
        for part in (asked.part for asked in exchange.parts):
            if isinstance(part.question, SCHEMA):
                continue  # a schema has names of columns, not rows
            if part.verb != "total":
                raise QueryRefusedError(
                    f"{self._allows}, and this query discloses a single site's answer. These methods need "
                    f"only sums: {', '.join(aggregate_only())}."
                )
            raise QueryRefusedError(f"{self._allows}, and this query is not part of one")


class NoNoiseGuard(Guard):
    """Refuse queries with noise: the site answers from its summary table, which has no privacy budget."""

    def check(self, exchange: Exchange) -> None:
        if any(isinstance(asked.part.question, PrivateQuestion) for asked in exchange.parts):
            raise QueryRefusedError(
                "the site answers from its summary table, and a private run needs sites with differential "
                "privacy"
            )


class RoundGuard(Guard):
    """For answers from rows: refuse rounds that are over."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def check(self, exchange: Exchange) -> None:
        request_id = exchange.request.request_id
        latest = self._ledger.latest(request_id.run) if exchange.parts else -1
        if request_id.round < latest:
            raise QueryRefusedError(f"round {request_id.round} is over: round {latest} was answered")
