"""The rules of a policy as guards of a site: each small, each refusal with a reason that may be shown."""

import json
import os
from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpooled.algorithms.minibatch import AskEpochs
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.data.transforms import Category, Preparation, Shaped
from unpooled.errors import InputError, QueryRefusedError
from unpooled.privacy import PrivateQuestion
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Transform, reads_missing
from unpooled.protocol.declarations import Box, Centers, Numbers, Point, declared_fields
from unpooled.protocol.exchange import Part, Request, Response
from unpooled.protocol.messages import Question
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.allow_list import SCHEMA, TRANSFORMS, aggregate_only, allowed
from unpooled.site.erasures import Erasures
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.policy import Policy, check_methods
from unpooled.site.site import Guard, request_digest
from unpooled.typing import FloatArray, Rows


class AllowListGuard(Guard):
    """Refuse questions other than those of the methods that the policy names."""

    def __init__(self, policy: Policy) -> None:
        check_methods(policy)
        self._names = allowed(policy.jobs.algorithms, policy.jobs.modules, describe=policy.jobs.describe)
        self._methods = (*policy.jobs.algorithms, *policy.jobs.modules)

    def check_questions(self, request: Request, views: tuple[Rows, ...]) -> None:
        for part in request.parts:
            name = codec.name_of(type(part.question))
            missing = part.question.undeclared()
            if missing:
                raise QueryRefusedError(
                    f"{name} does not declare {missing}; this site answers only questions that do"
                )
            if name not in self._names:
                hint = (
                    ""
                    if type(part.question).__module__.startswith("unpooled.")
                    else ", and what they say they ask"
                )
                raise QueryRefusedError(
                    f"the policy does not allow {name}; it allows {', '.join(self._methods)}{hint}"
                )
            if part.transform is not None and type(part.transform) not in TRANSFORMS:
                raise QueryRefusedError(
                    f"the policy does not know the view {codec.name_of(type(part.transform))}"
                )


def source_digest(protection: str, copy: str, rules: str, study: str) -> str:
    """The digest of what a site answers from; each part is a digest or a name, "" if there is none."""
    return sha256(json.dumps([protection, copy, rules, study]).encode()).hexdigest()


class SingleSourceGuard(Guard):
    """Refuse a run that was begun from another source; the ledger keeps the source of every run.

    A copy that was renewed, rules that were made stricter, a study that was withdrawn and another one of its
    name: what was begun under the one is over under the other. Repeated turns and stages of secure sums are
    refused too, so no sum that was masked before is opened afterwards.
    """

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger, self._source = ledger, source
        self._known: dict[str, str] = {}

    def check_request(self, request: Request) -> None:
        run = request.request_id.run
        if run not in self._known:
            begun = self._ledger.source(run)
            if begun is None:
                return
            self._known = {run: begun}
        if self._known[run] != self._source:
            raise QueryRefusedError(
                "this run was begun when the site answered from another copy, or under other rules or "
                "another study; begin a new run"
            )

    def before_release(self, request: Request, answer: Response) -> None:
        if request.request_id.run not in self._known and self._ledger.source(request.request_id.run) is None:
            self._ledger.begin(request.request_id.run, self._source)


class ErasureGuard(Guard):
    """Refuse everything once somebody was erased since the site was opened: he is in what it answers from."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._state = path, file_state(path)
        self._told = self._erasures()

    def check_request(self, request: Request) -> None:
        if (state := file_state(self._path)) == self._state:
            return
        if self._erasures() != self._told:
            raise QueryRefusedError(
                "somebody was erased from this site's copy during the run: the run must start anew"
            )
        self._state = state  # an erasure of before was finished

    def before_release(self, request: Request, answer: Response) -> None:
        self.check_request(request)

    def _erasures(self) -> tuple[tuple[Any, ...], ...]:
        return () if self._path is None else Erasures(self._path.parent).identifiers()


def file_state(path: Path | None) -> tuple[int, int, int] | None:
    """Marks that tell one state of a file from another; None if there is none."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class InputGuard(Guard):
    """Refuse a question that cannot be answered: about rows where a table is, of other widths, not finite.

    The copy protects whatever is asked; this gives a reason in place of an error.
    """

    def check_questions(self, request: Request, views: tuple[Rows, ...]) -> None:
        for part, X in zip(request.parts, views, strict=True):
            name = codec.name_of(type(part.question))
            if (part.question.reads == "table") is isinstance(X, np.ndarray):
                kind = "rows" if isinstance(X, np.ndarray) else "a table of named columns"
                raise QueryRefusedError(f"{name} is about {part.question.reads}, and here are {kind}")
            try:
                lengths = part.question.lengths()
            except InputError as error:
                raise QueryRefusedError(str(error)) from None
            if lengths.get("k") == 0:
                raise QueryRefusedError(f"{name} is about no centre")
            reads_missing(part.transform, part.question)
            if part.transform is not None:
                _check_view(part.transform)
            for centers in sent_centers(part.question):
                if centers.shape[2] != X.shape[1]:
                    raise QueryRefusedError(
                        f"centres of {centers.shape[2]} columns, the rows have {X.shape[1]}"
                    )
                if not np.isfinite(centers).all():
                    raise QueryRefusedError("a centre holds a number that is not finite")
            if part.question.reads == "rows" and lengths.get("d", X.shape[1]) != X.shape[1]:
                raise QueryRefusedError(f"{name} is about {lengths['d']} columns, the rows have {X.shape[1]}")


def _check_view(transform: Transform) -> None:
    """Refuse a view whose scaling is not finite and positive."""
    shift, scale = transform.scaling()
    if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise QueryRefusedError("the scaling of a column is not a positive number")


class SecureSumsOnlyGuard(Guard):
    """Refuse all but the schema, where only secure sums are allowed and a site has no part in them."""

    def __init__(self, allows: str = "the policy allows only secure sums") -> None:
        self._allows = allows

    def check_questions(self, request: Request, views: tuple[Rows, ...]) -> None:
        for part in request.parts:
            if isinstance(part.question, SCHEMA):
                continue  # a schema holds names of columns, no rows
            if part.verb != "total":
                raise QueryRefusedError(
                    f"{self._allows}, and this asks to see a single site's reply; methods that need only "
                    f"sums: {', '.join(aggregate_only())}"
                )
            raise QueryRefusedError(f"{self._allows}, and this is not asked in one")


def sent_centers(question: Question[Any]) -> list[FloatArray]:
    """All sets of centres that a question declares to send, in any field, as (R, k, d)."""
    return [value.reshape(-1, *value.shape[-2:]) for _, _, value in declared_fields(question, Centers)]


class LimitsGuard(Guard):
    """Where rows are asked and not a copy: refuse past rounds, and what is beyond the policy's limits."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._ledger = ledger
        self._limits = RunLimits(policy.jobs.max_runs, policy.jobs.max_rounds, inf)

    def check_questions(self, request: Request, views: tuple[Rows, ...]) -> None:
        latest = self._ledger.latest(request.request_id.run)
        if request.request_id.round < latest:
            raise QueryRefusedError(f"round {request.request_id.round} is over: round {latest} was answered")

    def before_release(self, request: Request, answer: Response) -> None:
        self._ledger.charge(request.request_id, request_digest(request), 0.0, self._limits)


class NoNoiseGuard(Guard):
    """Refuse questions that add noise: the site answers from its copy, which has no noise and no budget."""

    def check_questions(self, request: Request, views: tuple[Rows, ...]) -> None:
        if any(isinstance(part.question, PrivateQuestion) for part in request.parts):
            raise QueryRefusedError(
                "the site answers from its copy, not with noise: a private run goes without it"
            )


# ---------------------------------------------------------------- secure sums

# Sums travel in steps of 2^-64 and modulo 2^64. In units so large that a site's sum is near one step, the
# total would count the sites whose sum is above it. In units so small that a sum of squares leaves the range
# of a float, a site could only refuse, or send something else; a search over units would find where. So a
# site refuses both by what is public: the question, and the sizes that it states in its schema.

COARSEST = 2.0**30  # unit or scale, over the size of the values
NOTHING = 2.0**200  # the same from which on all sums of the column are 0, at every site
LARGEST = 2.0**500  # unit or scale: its square is a number
FINEST = 2.0**-42  # unit or scale, over the size of the values and of what is subtracted from them
FARTHEST = 2.0**33  # of centres, origins and other numbers of a question, in units of what it sees


class _Column(NamedTuple):
    """How a column is scaled: what a coordinator chose, and the size that the site states; 0: none."""

    label: str | int
    size: float
    shift: float
    scale: float


class FixedPointRange:
    """Refuse a question of a secure sum whose numbers are out of proportion to the stated sizes of ``X``.

    With at most 2^28 rows every sum of squares that is left is below 2^116: it is finite, and none is a
    multiple of 2^64 for its size alone, and so vanishes from the sum. A scale so large that nothing is left
    of a column, at any site, is how a column is left out, and is answered.
    """

    def __init__(self, X: Any) -> None:
        self._sizes = stated_sizes(X)
        self._names: tuple[str, ...] = X.names if isinstance(X, Table | SummaryTable) else ()
        self._width = X.shape[1] if isinstance(X, np.ndarray) else 0

    def __call__(self, part: Part) -> None:
        """Check one part of a secure sum, before it is answered."""
        for column in self._columns(part):
            if not (np.isfinite(column.shift) and np.isfinite(column.scale) and column.scale > 0):
                raise QueryRefusedError("the scaling of a column is not a positive number")
            size = max(column.size, abs(column.shift))
            if NOTHING * size <= column.scale <= LARGEST:
                continue
            if column.scale > LARGEST or (column.size and not column.scale <= COARSEST * column.size):
                raise QueryRefusedError(
                    f"the unit of column {column.label} is far above the size of its values"
                )
            if not column.scale >= FINEST * size:
                raise QueryRefusedError(
                    f"the unit of column {column.label} is far below the size of its values"
                )
        name = codec.name_of(type(part.question))
        if isinstance(part.question, AskEpochs) and not 0 < part.question.rate <= 1:
            raise QueryRefusedError(
                f"{name}: with such a rate centres leave the rows, farther where there are more"
            )
        for numbers in _numbers(part.question):
            if not (np.abs(numbers) <= FARTHEST).all():  # not finite, too
                raise QueryRefusedError(f"{name} holds a number that is too large for secure sums")

    def _columns(self, part: Part) -> Iterator[_Column]:
        question, transform = part.question, part.transform
        if isinstance(question, AskColumns):
            try:
                question.lengths()
            except InputError as error:
                raise QueryRefusedError(str(error)) from None
            for label, origin, unit in zip(question.numbers, question.origin, question.unit, strict=True):
                yield _Column(label, self._size(label), float(origin), float(unit))
        elif isinstance(transform, Preparation):
            yield from self._prepared(transform)
        elif self._width:
            yield from self._scaled(transform)

    def _size(self, name: str | int) -> float:
        """The size of a column; 0 if all its values are 0, or the site has no such column."""
        known = name in self._names if isinstance(name, str) else True
        return self._sizes.get(name, 1.0) if known else 0.0

    def _prepared(self, transform: Preparation) -> Iterator[_Column]:
        for column in transform.columns:
            if isinstance(column, Category):
                yield _Column(column.label, 1.0, 0.0, column.scale)
                continue
            size, shaped = self._size(column.name), isinstance(column, Shaped)
            if isinstance(column, Shaped) and column.knots:
                spread = float(np.abs(column.knots).max())
                if not (np.isfinite(spread) and (not size or spread <= COARSEST * size)):
                    raise QueryRefusedError(
                        f"the ranks of column {column.name} are far above the size of its values"
                    )
            shift = max(abs(column.shift), abs(column.fill)) if np.isfinite(column.fill) else column.shift
            yield _Column(column.label, 1.0 if shaped and size else size, shift, column.scale)

    def _scaled(self, transform: Transform | None) -> Iterator[_Column]:
        """The columns of an array; without a view nobody chose its scale, and it may be small."""
        if transform is None:
            for j in range(self._width):
                yield _Column(j, 0.0, self._size(j), 1.0)
            return
        try:
            shift, scale = (np.broadcast_to(a, self._width) for a in transform.scaling())
        except ValueError:
            return  # the view refuses it, by its shape
        for j in range(self._width):
            yield _Column(j, self._size(j), float(shift[j]), float(scale[j]))


def _numbers(question: Any) -> Iterator[FloatArray]:
    """All numbers of a question, but the origins and units of columns, which have sizes."""
    if isinstance(question, AskColumns):
        return
    for kind in (Centers, Point, Box, Numbers):
        yield from (np.asarray(value) for _, _, value in declared_fields(question, kind))
    for field in fields(question):
        if isinstance(value := getattr(question, field.name), float):
            yield np.array([value])


def stated_sizes(X: Any) -> dict[str | int, float]:
    """The root mean square of every column of numbers, as coarse as a schema states it, by name or place.

    Of a copy's column without a stated size (all means between 0 and 1) it is a power of 1000.
    """
    if isinstance(X, np.ndarray):
        with np.errstate(divide="ignore", over="ignore"):
            largest = np.abs(X).max(axis=0, initial=0.0).astype(np.float64)
            part = X / np.where(largest > 0, largest, 1.0)  # squares of X itself may overflow
            sizes = np.round(4 * np.log10(largest * np.sqrt(np.mean(part**2, axis=0)))) / 4
        return {j: float(10**size) for j, size in enumerate(sizes)}
    schema = AskSchema().answer(SiteBatch(X, np.array([0, len(X)]), None, None))
    found: dict[str | int, float] = {
        name: float(10 ** (np.round(4 * size) / 4))
        for name, size in zip(schema.names, schema.size, strict=True)
        if not np.isnan(size)
    }
    for name in X.means if isinstance(X, SummaryTable) else ():
        if name not in found and (present := X.people_with_value(name) > 0).any():
            mean = float(np.sqrt(np.mean(X.means[name][present] ** 2)))
            found[name] = 1000.0 ** np.floor(np.log10(mean) / 3) if mean > 0 else 0.0
    return found
