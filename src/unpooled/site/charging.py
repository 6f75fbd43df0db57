"""Charging: limits on runs and rounds, and the price of noisy answers, before anything leaves."""

from math import inf

from unpooled.core import codec
from unpooled.core.arrays import Rows
from unpooled.core.envelope import Envelope
from unpooled.errors import Refused
from unpooled.privacy import Spending, SpendingLimits
from unpooled.privacy.dp.accounting import mu_of
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.policy import Policy
from unpooled.site.site import Guard, Labels, request_digest

SIZES = SpendingLimits(left=inf)  # of noisy replies; the ledger looks after what is left


class Charging(Guard):
    """No turn of the past, no more than the policy allows, every release in the ledger before it leaves."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy, self._ledger = policy, ledger
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
        """What this envelope spends of the privacy budget."""
        spends = 0.0
        for part in post.parts:
            if isinstance(part.question, Spending):
                part.question.check(SIZES)
                spends += part.question.spends
            elif self._policy.private:
                raise Refused(
                    f"the policy asks for differential privacy, and {codec.name_of(type(part.question))} "
                    "is answered without noise"
                )
        return spends
