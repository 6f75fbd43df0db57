"""The rules of a policy as guards of a site: each small, each refusal with a reason that may be shown."""

from math import inf
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.declarations import Centers, sent
from unpooled.core.exchange import STAGE, Answer, Envelope
from unpooled.core.messages import Question
from unpooled.core.protocol import View
from unpooled.errors import BadInput, Refused
from unpooled.privacy import Spending, SpendingLimits
from unpooled.privacy.dp.accounting import mu_of
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


SIZES = SpendingLimits(left=inf)  # limits the size of noisy replies; the ledger limits their budget


class Limits(Guard):
    """Where rows are asked and not a copy: refuse past rounds and requests beyond the policy's limits.

    Each release is entered into the ledger, with its price in privacy budget. An answer with noise is kept
    there with its charge, under all that it depends on, and given again in the same bytes; anything else is
    paid again.
    """

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._private, self._ledger = policy.private, ledger
        budget = mu_of(policy.dp.epsilon_total, policy.dp.delta) ** 2 if policy.private else 0.0
        self._limits = RunLimits(policy.jobs.max_runs, policy.jobs.max_rounds, budget)

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        latest = self._ledger.latest(post.turn.run)
        if post.turn.round < latest:
            raise Refused(f"round {post.turn.round} is over: round {latest} was answered")
        self._price(post)

    def kept(self, post: Envelope) -> Answer | None:
        paid = self._ledger.paid(post.turn, request_digest(post)) if self._private else None
        return None if paid is None else codec.decode(paid, expect=Answer)

    def leaving(self, post: Envelope, answer: Answer) -> Answer:
        spends = self._price(post)
        paid = codec.encode(answer) if spends else b""
        kept = self._ledger.charge(post.turn, request_digest(post), spends, self._limits, paid)
        return codec.decode(kept, expect=Answer) if kept else answer

    def _price(self, post: Envelope) -> float:
        """The privacy budget that this envelope spends (mu^2)."""
        spends = 0.0
        for part in post.parts:
            if part.verb == STAGE:
                continue
            if isinstance(part.question, Spending):
                part.question.check(SIZES)
                spends += part.question.spends
            elif self._private:
                raise Refused(
                    f"the policy asks for differential privacy, and {codec.name_of(type(part.question))} "
                    "is answered without noise"
                )
        return spends


class NoNoise(Guard):
    """Refuse questions that add noise: the site answers from its copy, which has no noise and no budget."""

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        if any(isinstance(part.question, Spending) for part in post.parts):
            raise Refused("the site answers from its copy, not with noise: a private run goes without it")
