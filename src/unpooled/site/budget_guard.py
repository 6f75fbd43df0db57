"""The privacy budget of a site with mode = "dp": every answer is charged before it is computed."""

import math
from math import inf

from unpooled.errors import QueryRefusedError
from unpooled.privacy import PrivateQuestion, PrivateQuestionLimits
from unpooled.privacy.dp.accounting import gdp_epsilon, gdp_mu
from unpooled.privacy.dp.noise import BudgetAccountant
from unpooled.protocol import codec
from unpooled.protocol.exchange import Request
from unpooled.site.allow_list import SCHEMA
from unpooled.site.chain import Exchange, Guard
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.policy import Policy
from unpooled.site.study import Study


class BudgetGuard(Guard):
    """Refuse queries without noise, and provide the accountant that charges the others in the ledger.

    A query is charged to two budgets: that of the policy and that of the approved study, if any. Refusals
    depend only on the query, the policy and the ledger, and not on rows.
    """

    def __init__(self, policy: Policy, ledger: Ledger, study: Study | None = None) -> None:
        self._ledger, self._rows = ledger, policy.domain.rows
        # the ledger limits the budget
        self._sizes = PrivateQuestionLimits(remaining=inf, rows=policy.domain.rows)
        ledger.bind_unit(policy.dp.rows_per_person if policy.dp.privacy_unit == "person" else 0)
        self._unit = float(policy.dp.rows_per_person**2)  # a person shifts a reply by this factor of a row
        budget = gdp_mu(policy.dp.epsilon_total, policy.dp.delta) ** 2
        self._limits = RunLimits(policy.jobs.max_runs, policy.jobs.max_rounds, budget)
        self._study = None if study is None else _StudyBudget(study, policy.dp.delta, self._unit)

    def check(self, exchange: Exchange) -> None:
        for asked in exchange.parts:
            question = asked.part.question
            if isinstance(question, PrivateQuestion):
                question.check(self._sizes)
            elif not isinstance(question, SCHEMA):  # a schema is declared
                raise QueryRefusedError(
                    f"the policy requires differential privacy, and {codec.name_of(type(question))} "
                    "is answered without noise"
                )

    def accountant(self, request: Request) -> BudgetAccountant:
        """The accountant that charges the answer to this request."""
        return _RequestAccountant(self._ledger, request, self._limits, self._study, self._unit, self._rows)


class _StudyBudget:
    """The epsilon that an approved study may spend, for one row.

    A study has one run (``StudyGuard``), so the ledger's sum over that run is what the study has spent.
    """

    def __init__(self, study: Study, delta: float, unit: float) -> None:
        self._study, self._delta, self._unit = study, delta, unit
        self._max = gdp_mu(study.epsilon, delta) ** 2 if study.epsilon else 0.0

    def check(self, ledger: Ledger, charge: float) -> None:
        """Raise QueryRefusedError if the charge would exceed what the study may spend."""
        before = ledger.spent(self._study.run) / self._unit
        after = before + charge / self._unit
        if after <= self._max * (1 + 1e-9):
            return
        title, epsilon, spent = self._study.title, self._study.epsilon, self._epsilon(before)
        raise QueryRefusedError(
            f"the approved study {title!r} may spend epsilon {epsilon:g} at delta {self._delta:g}. "
            f"It has {max(epsilon - spent, 0.0):.3g} left, and this query would raise what it has spent "
            f"from {spent:.3g} to {self._epsilon(after):.3g}. Propose a study with a larger epsilon."
        )

    def _epsilon(self, spent: float) -> float:
        return gdp_epsilon(math.sqrt(spent), self._delta)


class _RequestAccountant(BudgetAccountant):
    """The accountant of one request: charges the ledger for it."""

    def __init__(
        self,
        ledger: Ledger,
        request: Request,
        limits: RunLimits,
        study: _StudyBudget | None,
        unit: float,
        rows: int,
    ) -> None:
        self._ledger, self._request, self._limits, self._study = ledger, request, limits, study
        self._unit, self.rows = unit, rows

    def _charge(self, price: float) -> None:
        charge = price * self._unit
        with self._ledger.transaction():  # no other charge between the check and this one
            if self._study is not None:
                self._study.check(self._ledger, charge)
            request = self._request
            self._ledger.charge(request.request_id, request.digest, charge, self._limits)
