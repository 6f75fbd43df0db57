"""The privacy budget of a site with mode = "dp": every answer is charged before it is computed."""

import math
from math import inf
from typing import Any

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
        rows = policy.dp.rows_per_person if policy.dp.privacy_unit == "person" else 0
        ledger.bind_unit(rows, policy.dp.sites_per_person)
        self._sites_per_person = policy.dp.sites_per_person
        self._unit = float(policy.dp.rows_per_person**2)  # a person shifts a reply by this factor of a row
        budget = gdp_mu(policy.dp.epsilon_total, policy.dp.delta) ** 2
        self._limits = RunLimits(policy.jobs.max_runs, policy.jobs.max_rounds, budget)
        self._study = None if study is None else _StudyBudget(study, policy.dp.delta, self._unit)

    def check(self, exchange: Exchange) -> None:
        for asked in exchange.parts:
            question = asked.part.question
            if isinstance(question, PrivateQuestion):
                question.check(self._sizes)
                self._check_people(question)
            elif not isinstance(question, SCHEMA):  # a schema is declared
                raise QueryRefusedError(
                    f"the policy requires differential privacy, and {codec.name_of(type(question))} "
                    "is answered without noise"
                )

    def _check_people(self, question: PrivateQuestion[Any]) -> None:
        """Refuse a query that counts a person's rows at fewer sites than the policy, or unlike the study.

        All sites of a secure sum answer the same query, so all of them charge for the same people.
        """
        stated, own = question.sites_per_person, self._sites_per_person
        if stated < own:
            raise QueryRefusedError(
                f"the query counts each person at {stated} of the sites, and this site's policy states that "
                f"a person may have rows at {own} ([dp] sites_per_person). Run with --sites-per-person {own}."
            )
        if stated > 1 and self._unit > 1:
            raise QueryRefusedError(
                f"the query counts one row at each of up to {stated} sites for each person, and this site's "
                "policy allows several ([dp] rows_per_person)"
            )
        if self._study is not None:
            self._study.check_people(question)

    def accountant(self, request: Request) -> BudgetAccountant:
        """The accountant that charges the answer to this request."""
        return _RequestAccountant(self._ledger, request, self._limits, self._study, self._unit, self._rows)


class _StudyBudget:
    """The epsilon that an approved study may spend, for one row at each of its sites per person.

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

    def check_people(self, question: PrivateQuestion[Any]) -> None:
        """Raise QueryRefusedError if the question's privacy unit is not that of the study."""
        stated, approved = question.sites_per_person, self._study.sites_per_person
        if stated != approved:
            raise QueryRefusedError(
                f"the query counts a person at up to {stated} sites, and the approved study at up to "
                f"{approved}"
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
