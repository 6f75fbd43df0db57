"""A relay as one node of the dual methods: its prices come down, its value and centroids go up.

A relay's cost at prices q is at least the sum of its members' costs at prices that add up to q, so every
division of the prices gives a valid bound. Members first share them in proportion to their rows in every
cluster, plus prices of their own that add up to zero: those of the references (2 times the sums of residuals
about them). If the relay's prices are those of the references, every site has the prices that it would have
in a flat federation. From there the relay moves its members' prices by the bundle step, a few times per
question. A relay of one site forwards its prices unchanged: the chain of the paper is a tree of such relays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from typing import Any

import numpy as np

from unpooled.algorithms.dual.bundle import step
from unpooled.algorithms.dual.dual_state import Evaluations
from unpooled.optimality.questions import AskNode, NodeSolution
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import Federation, Replies, RequestId
from unpooled.protocol.messages import Question, SiteId
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import AskClusterSums, ClusterSums
from unpooled.protocol.suppression import ContributorCounts
from unpooled.protocol.transform import Transform
from unpooled.typing import BoolArray, FloatArray

_EPS = 2.0**-52
_STEPS = 6  # how often the members are asked, at most, for one question from above
_CUTS = 40  # answers of the members that are kept
_GAIN = 1e-3  # the gain, relative to the value, that is worth another step


@dataclass(frozen=True, eq=False)
class PriceShares:
    """How the members of a relay share its prices: one entry for each, in the order of ``members``."""

    members: tuple[SiteId, ...]
    own: FloatArray  # (N, k, d) prices that sum to zero
    weights: FloatArray  # (N, k) that sum to one
    disclosed: BoolArray  # (k,) clusters that enough sites have rows in

    def prices(self, total: FloatArray) -> FloatArray:
        """Return the members' prices (N, k, d) for the relay's prices (k, d)."""
        prices: FloatArray = self.own + self.weights[..., None] * total
        return prices


def price_shares(gathered: Replies[Any], min_contributors: int) -> PriceShares:
    """Return the shares of the members from their sums about the references."""
    contributors, answers = ContributorCounts(min_contributors), list[ClusterSums]()
    for reply in gathered.replies:
        sites = reply.min_contributors if isinstance(reply, PartialSum) else 1
        answers.append(reply.reply() if isinstance(reply, PartialSum) else reply)
        names = ClusterSums.__match_args__
        contributors.add(ClusterSums, {name: getattr(answers[-1], name)[None] for name in names}, sites)
    sums = np.stack([2 * answer.sums[0] for answer in answers])
    mass = np.stack([answer.mass[0] for answer in answers])
    rows = mass.sum(axis=0)
    weights = np.where(rows > 0, mass / np.where(rows > 0, rows, 1.0), 1 / len(answers))
    own = sums - weights[..., None] * sums.sum(axis=0)
    disclosed = contributors.disclosed({"mass": rows[None]})["mass"][0]
    return PriceShares(gathered.sites, own, weights, disclosed)


class DualRelay:
    """The members of one relay at its prices; it keeps answers for the last references only."""

    def __init__(self, downstream: Federation, min_contributors: int) -> None:
        self._downstream, self._min_contributors = downstream, min_contributors
        self._about: Any = None
        self._shares: PriceShares | None = None
        self._past: Evaluations | None = None

    def ask(
        self,
        request_id: RequestId,
        members: tuple[SiteId, ...],
        place: int,
        question: AskNode,
        transform: Transform | None,
    ) -> tuple[Replies[Any], NodeSolution | None]:
        """Return the members' replies, to be counted, and the relay's own, or None if nobody answered."""
        known = (
            self._shared(request_id, members, place, question, transform)
            if question.symmetry != "none"
            else None
        )
        prices = np.zeros((0, *question.prices.shape)) if known is None else self._first(known, question)
        cap, best = float(np.linalg.norm(prices)), None
        for remaining in reversed(range(1 if known is None or len(known.members) == 1 else _STEPS)):
            by_site = {} if known is None else dict(zip(known.members, prices, strict=True))
            gathered = self._one(request_id, members, place, partial(_priced, question, by_site), transform)
            if not gathered.sites:
                break
            node, replies = combined(question, known, by_site, gathered.each()), gathered.each()
            if best is None or node.value[0] > best[1].value[0]:
                best = gathered, node, prices
            elif remaining:
                cap *= 0.5
            if known is None or not remaining or not self._record(known, question, prices, replies):
                break
            assert self._past is not None
            after = step(self._past, best[2], cap, quadratic=True, total=question.prices)
            height = float(best[1].value[0])
            if after is None or after[1] - height <= _GAIN * abs(height):
                break
            prices = after[0]
        return (gathered, None) if best is None else best[:2]

    def _first(self, shares: PriceShares, question: AskNode) -> FloatArray:
        """Return the members' initial prices: the last ones, moved by the shares to those of the relay."""
        if self._past is None or not len(self._past):
            return shares.prices(question.prices)
        last = self._past.prices[-1]
        moved: FloatArray = last + shares.weights[..., None] * (question.prices - last.sum(axis=0))
        return moved

    def _record(
        self,
        shares: PriceShares,
        question: AskNode,
        prices: FloatArray,
        replies: Mapping[SiteId, NodeSolution],
    ) -> bool:
        """Keep the members' answers for the model of the next step; return False if one is missing."""
        own = [replies[site] for site in shares.members if site in replies]
        if len(own) < len(shares.members) or not all(r.complete[0] and r.seen.all() for r in own):
            return False
        centroids, counts = np.stack([r.centroids for r in own]), np.stack([r.counts for r in own])
        edge = 1e-9 * (question.high - question.low)
        inside = ((centroids > question.low + edge) & (centroids < question.high - edge)).all(axis=2)
        values = np.array([float(r.value[0]) for r in own])
        past = self._past or Evaluations.none(len(own), *question.prices.shape)
        self._past = past.and_then(prices, centroids, values, np.where(inside, counts, 0.0), _CUTS)
        return True

    def _shared(
        self,
        request_id: RequestId,
        members: tuple[SiteId, ...],
        place: int,
        question: AskNode,
        transform: Transform | None,
    ) -> PriceShares | None:
        fixed = (question.references, question.low, question.high)
        about = (request_id.run, members, question.symmetry, *(array.tobytes() for array in fixed))
        if self._about != about:
            self._about, self._shares, self._past = None, None, None
            # down: the references; up: every member's sums about them
            gathered = self._one(
                request_id, members, place, AskClusterSums(question.references[None]), transform
            )
            if not gathered.sites:
                return None
            self._about, self._shares = about, price_shares(gathered, self._min_contributors)
        return self._shares

    def _one(
        self,
        request_id: RequestId,
        members: tuple[SiteId, ...],
        place: int,
        question: Question[Any] | Callable[[SiteId], Question[Any]],
        transform: Transform | None,
    ) -> Replies[Any]:
        """Ask every member one question, at the index in the exchange that it has above."""
        unused = [Ask[Any]("each", (), AskClusterSums(np.zeros((1, 1, 1)))) for _ in range(place)]
        return self._downstream.ask(request_id, (*unused, Ask("each", members, question, transform)))[place]


def _priced(question: AskNode, prices: Mapping[SiteId, FloatArray], site: SiteId) -> AskNode:
    return replace(question, prices=prices.get(site, np.zeros_like(question.prices)))


def combined(
    question: AskNode,
    shares: PriceShares | None,
    prices: Mapping[SiteId, FloatArray],
    replies: Mapping[SiteId, NodeSolution],
) -> NodeSolution:
    """Return the relay's answer: a lower bound on its cost at its prices, and the slope of that bound.

    A member that does not answer, or suppresses its value, costs at least what its prices pay in the box; a
    member without prices costs at least 0.
    """
    k, d = question.prices.shape
    values = [
        _value(question, prices.get(site, np.zeros((k, d))), replies.get(site))
        for site in sorted({*prices, *replies})
    ]
    centroids, counts, seen = np.zeros((k, d)), np.zeros(k), np.zeros(k)
    if shares is not None:
        values += _unpaid(question, np.stack([prices[site] for site in shares.members]))
        centroids, counts, seen = _slope(shares, replies)
    value = fsum(values)
    return NodeSolution(
        np.array([value if len(values) == 1 else np.nextafter(value, -np.inf)]),
        centroids,
        counts,
        seen,
        np.array([1.0, float(all(reply.complete[1] for reply in replies.values()))]),
    )


def _value(question: AskNode, prices: FloatArray, reply: NodeSolution | None) -> float:
    paid = np.minimum(prices * question.low, prices * question.high)
    lower_bound = fsum(paid.ravel()) - _EPS * (paid.size + 2) * float(np.abs(paid).sum())
    return max(lower_bound, float(reply.value[0])) if reply is not None and reply.complete[0] else lower_bound


def _unpaid(question: AskNode, prices: FloatArray) -> list[float]:
    """Return what the rounding difference between the relay's prices and its members' sum pays in the box."""
    both = np.concatenate([question.prices[None], -prices])
    rest = np.array([fsum(column) for column in both.reshape(len(both), -1).T]).reshape(question.prices.shape)
    if not rest.any():
        return []
    paid = np.minimum(rest * question.low, rest * question.high)
    return [fsum(paid.ravel()) - 4 * _EPS * (paid.size + 2) * float(np.abs(paid).sum())]


def _slope(
    shares: PriceShares, replies: Mapping[SiteId, NodeSolution]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return centroids (k, d), counts and whether they are disclosed (k,): means by the members' shares."""
    own: Sequence[NodeSolution | None] = [replies.get(site) for site in shares.members]
    k, d = shares.own.shape[1:]
    zero = NodeSolution(np.zeros(1), np.zeros((k, d)), np.zeros(k), np.zeros(k), np.zeros(2))
    answers = [zero if reply is None else reply for reply in own]
    known = np.stack([reply.seen for reply in answers]) > 0
    seen = shares.disclosed & (known | (shares.weights == 0)).all(axis=0)
    counts = np.stack([reply.counts for reply in answers]).sum(axis=0)
    centroids = np.einsum("nk,nkd->kd", shares.weights, np.stack([reply.centroids for reply in answers]))
    return np.where(seen[:, None], centroids, 0.0), np.where(seen, counts, 0.0), seen.astype(np.float64)
