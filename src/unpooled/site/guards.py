"""The rules of a policy as guards of a site: each small, each refusal with a reason that may be shown."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.declarations import Centers, Count, Sum, sent
from unpooled.core.exchange import Envelope, Part
from unpooled.core.messages import Question, Reply
from unpooled.core.protocol import View
from unpooled.errors import BadInput, Refused
from unpooled.privacy import Spending, SpendingLimits
from unpooled.privacy.dp.accounting import mu_of
from unpooled.site.allow_list import SCHEMA, VIEWS, allowed, only_totals
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.policy import Domain, Policy, check_methods
from unpooled.site.site import Guard, Labels, request_digest

MARGIN = 1.0  # distance that a centre may lie outside a column's stated range, in widths of the range


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
    """Refuse a question that declares rows and would see a table, or the reverse; or of unequal arrays."""

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        for part, X in zip(post.parts, views, strict=True):
            name = codec.name_of(type(part.question))
            if (part.question.sees == "table") is isinstance(X, np.ndarray):
                kind = "rows" if isinstance(X, np.ndarray) else "a table of named columns"
                raise Refused(f"{name} is about {part.question.sees}, and here are {kind}")
            try:
                part.question.lengths()
            except BadInput as error:
                raise Refused(str(error)) from None


class Sizes(Guard):
    """Refuse if the site has fewer rows than the policy's minimum, or too many numbers per row are asked."""

    def __init__(self, policy: Policy) -> None:
        self._rows = policy.disclosure.min_site_rows
        self._share = policy.jobs.max_parameters_per_row

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        for part, X in zip(post.parts, views, strict=True):
            if len(X) < self._rows:
                raise Refused(f"the site has fewer than the {self._rows} rows that its policy asks for")
            for declared, centers in sent_centers(part.question):
                k, d = centers.shape[1:]
                if self._share and declared.by != "noise" and k * (d + 1) > self._share * len(X):
                    raise Refused(
                        f"{k} clusters of {d} columns are {k * (d + 1)} numbers, more than "
                        f"{self._share:g} for every row of the site"
                    )


class Centroids(Guard):
    """Refuse centres that are not finite, of another width than the rows, repeated, or outside the domain."""

    def __init__(self, policy: Policy) -> None:
        self._domain = policy.domain

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        for part, X in zip(post.parts, views, strict=True):
            _check_view(part.view)
            for declared, centers in sent_centers(part.question):
                if centers.shape[2] != X.shape[1]:
                    raise Refused(f"centres of {centers.shape[2]} columns, the rows have {X.shape[1]}")
                if not np.isfinite(centers).all():
                    raise Refused("a centre holds a number that is not finite")
                if declared.by == "nearest":  # centres for memberships or noise may coincide
                    for one_set in centers:
                        _check_distinct(one_set)
                _check_domain(self._domain, part.view, centers)


def _check_distinct(centers: FloatArray) -> None:
    """Refuse equal centres; only the last may repeat, since it pads sets of unequal size in one array."""
    last = (centers == centers[-1]).all(axis=1)[::-1]
    padding = len(last) if last.all() else int(last.argmin())
    rest = centers[: len(centers) - padding + 1]
    if len({center.tobytes() for center in rest + 0.0}) < len(rest):  # + 0.0: -0 is 0
        raise Refused("two centres of one set are the same")


def _check_view(view: View | None) -> None:
    """Refuse a view whose scaling is not finite and positive."""
    if view is None:
        return
    shift, scale = view.scaling()
    if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise Refused("the scaling of a column is not a positive number")


def _check_domain(domain: Domain, view: View | None, centers: FloatArray) -> None:
    if not domain.columns:
        return
    flat = centers.reshape(-1, centers.shape[2])
    own = flat if view is None else view.undo(flat)
    names = None if view is None else view.names
    if names is None:
        if own.shape[1] != len(domain.columns):
            raise Refused(f"centres of {own.shape[1]} columns, the policy's domain has {len(domain.columns)}")
        names = domain.columns
    for column, low, high in zip(domain.columns, domain.lower, domain.upper, strict=True):
        slack = MARGIN * (high - low)
        for j in (j for j, name in enumerate(names) if name == column):
            if own[:, j].min() < low - slack or own[:, j].max() > high + slack:
                raise Refused(f"a centre lies outside of the policy's domain in {column}")


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


class Rounded(Guard):
    """Round counts to a multiple, and scale sums over the counted rows alike, so that means do not change."""

    def __init__(self, policy: Policy) -> None:
        self._to = policy.disclosure.round_counts_to

    def after(self, part: Part, reply: Reply) -> Reply:
        return reply if self._to <= 1 else rounded(part.question, reply, self._to)


def rounded(question: Question[Any], reply: Reply, to: int) -> Reply:
    """The reply with every declared count a multiple of ``to``."""
    figures = question.figures()
    changed: dict[str, Any] = {}
    ratios: dict[str, FloatArray] = {}
    for name, figure in figures.items():
        if isinstance(figure, Count):
            count = getattr(reply, name)
            changed[name] = np.round(count / to) * to
            ratios[name] = np.divide(changed[name], count, out=np.zeros_like(count), where=count > 0)
    for name, figure in figures.items():
        if isinstance(figure, Sum) and figure.rows in ratios:
            value, ratio = getattr(reply, name), ratios[figure.rows]
            if ratio.shape != (1,):  # a count per cell; a single count belongs to the whole reply
                ratio = ratio.reshape(ratio.shape + (1,) * (value.ndim - ratio.ndim))
            changed[name] = value * ratio
    return replace(reply, **changed)  # type: ignore[type-var]


def sent_centers(question: Question[Any]) -> list[tuple[Centers, FloatArray]]:
    """All sets of centres that a question declares to send, in any field, as (R, k, d)."""
    return [(kind, value.reshape(-1, *value.shape[-2:])) for _, kind, value in sent(question, Centers)]


SIZES = SpendingLimits(left=inf)  # limits the size of noisy replies; the ledger limits their budget


class Charging(Guard):
    """Refuse past rounds and requests beyond the policy's limits; enter each release into the ledger."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._private, self._ledger = policy.private, ledger
        budget = mu_of(policy.dp.epsilon_total, policy.dp.delta) ** 2 if policy.private else 0.0
        self._limits = RunLimits(policy.jobs.max_runs, policy.jobs.max_rounds, budget)

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        latest = self._ledger.latest(post.turn.run)
        if post.turn.round < latest:
            raise Refused(f"round {post.turn.round} is over: round {latest} was answered")
        self._price(post)

    def leaving(self, post: Envelope, views: tuple[Rows, ...], labels: tuple[Labels | None, ...]) -> None:
        self._ledger.charge(post.turn, request_digest(post), self._price(post), self._limits)

    def _price(self, post: Envelope) -> float:
        """The privacy budget that this envelope spends (mu^2)."""
        spends = 0.0
        for part in post.parts:
            if isinstance(part.question, Spending):
                part.question.check(SIZES)
                spends += part.question.spends
            elif self._private:
                raise Refused(
                    f"the policy asks for differential privacy, and {codec.name_of(type(part.question))} "
                    "is answered without noise"
                )
        return spends
