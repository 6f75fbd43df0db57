"""The rules of a policy as guards of a site: each small, each refusal with a reason that may be shown."""

import os
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.declarations import Centers, sent
from unpooled.core.exchange import Answer, Envelope
from unpooled.core.messages import Question
from unpooled.core.protocol import View, has_holes
from unpooled.errors import BadInput, Refused
from unpooled.privacy import Spending
from unpooled.site.allow_list import SCHEMA, VIEWS, allowed, only_totals
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.policy import Policy, check_methods
from unpooled.site.site import Guard, request_digest

MOST_CLUSTERS = 100_000  # of one question: more would only keep the site busy


class Allowed(Guard):
    """Refuse questions other than those of the methods that the policy names."""

    def __init__(self, policy: Policy) -> None:
        check_methods(policy)
        self._names = allowed(policy.jobs.algorithms, policy.jobs.modules, describe=policy.jobs.describe)
        self._methods = (*policy.jobs.algorithms, *policy.jobs.modules)

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        for part in post.parts:
            name = codec.name_of(type(part.question))
            missing = part.question.undeclared()
            if missing:
                raise Refused(f"{name} does not declare {missing}; this site answers only questions that do")
            if name not in self._names:
                hint = (
                    ""
                    if type(part.question).__module__.startswith("unpooled.")
                    else ", and what they say they ask"
                )
                raise Refused(f"the policy does not allow {name}; it allows {', '.join(self._methods)}{hint}")
            if part.view is not None and type(part.view) not in VIEWS:
                raise Refused(f"the policy does not know the view {codec.name_of(type(part.view))}")


class NobodyErased(Guard):
    """Refuse everything once somebody was erased since the site was opened: he is in what it answers from."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._state = path, _state(path)

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        if _state(self._path) != self._state:
            raise Refused("somebody was erased from this site's copy during the run: the run must start anew")

    def leaving(self, post: Envelope, answer: Answer) -> None:
        self.before(post, ())


def _state(path: Path | None) -> tuple[int, int, int] | None:
    """What tells one state of a file from another; None if there is none."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Sight(Guard):
    """Refuse a question that cannot be answered: about rows where a table is, of other widths, not finite.

    The copy protects whatever is asked; this gives a reason in place of an error.
    """

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        for part, X in zip(post.parts, views, strict=True):
            name = codec.name_of(type(part.question))
            if (part.question.sees == "table") is isinstance(X, np.ndarray):
                kind = "rows" if isinstance(X, np.ndarray) else "a table of named columns"
                raise Refused(f"{name} is about {part.question.sees}, and here are {kind}")
            try:
                lengths = part.question.lengths()
            except BadInput as error:
                raise Refused(str(error)) from None
            if lengths.get("k", 0) > MOST_CLUSTERS:
                raise Refused(f"{name} asks for more than {MOST_CLUSTERS} clusters")
            has_holes(part.view, part.question)
            if part.view is not None:
                _check_view(part.view)
            for centers in sent_centers(part.question):
                if centers.shape[2] != X.shape[1]:
                    raise Refused(f"centres of {centers.shape[2]} columns, the rows have {X.shape[1]}")
                if not np.isfinite(centers).all():
                    raise Refused("a centre holds a number that is not finite")


def _check_view(view: View) -> None:
    """Refuse a view whose scaling is not finite and positive."""
    shift, scale = view.scaling()
    if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise Refused("the scaling of a column is not a positive number")


class SumsOnly(Guard):
    """Refuse all but the schema: ``secure = "required"`` at a site that has no part in secure sums."""

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        for part in post.parts:
            if isinstance(part.question, SCHEMA):
                continue  # a schema holds names of columns, no rows
            if part.verb != "total":
                raise Refused(
                    "the policy allows only secure sums, and this asks to see a single site's reply; methods "
                    f"that need only sums: {', '.join(only_totals())}"
                )
            raise Refused("the policy allows only secure sums, and this run does not use them")


def sent_centers(question: Question[Any]) -> list[FloatArray]:
    """All sets of centres that a question declares to send, in any field, as (R, k, d)."""
    return [value.reshape(-1, *value.shape[-2:]) for _, _, value in sent(question, Centers)]


class Limits(Guard):
    """Where rows are asked and not a copy: refuse past rounds, and what is beyond the policy's limits."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._ledger = ledger
        self._limits = RunLimits(policy.jobs.max_runs, policy.jobs.max_rounds, inf)

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        latest = self._ledger.latest(post.turn.run)
        if post.turn.round < latest:
            raise Refused(f"round {post.turn.round} is over: round {latest} was answered")

    def leaving(self, post: Envelope, answer: Answer) -> None:
        self._ledger.charge(post.turn, request_digest(post), 0.0, self._limits)


class NoNoise(Guard):
    """Refuse questions that add noise: the site answers from its copy, which has no noise and no budget."""

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        if any(isinstance(part.question, Spending) for part in post.parts):
            raise Refused("the site answers from its copy, not with noise: a private run goes without it")
