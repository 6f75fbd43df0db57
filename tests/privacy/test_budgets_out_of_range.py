"""Budgets that are none: the exchange of mu and (epsilon, delta) names what is wrong and does not search."""

import numpy as np
import pytest

from unpooled.errors import InputError, PolicyError
from unpooled.privacy.dp.accounting import gdp_delta, gdp_epsilon, gdp_mu
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse


@pytest.mark.parametrize("epsilon", [0, -1.0, 100.1, float("inf"), float("nan"), "1", None])
def test_no_mu_belongs_to_an_epsilon_out_of_range(epsilon):
    with pytest.raises(InputError, match="epsilon must be a number above 0 and at most 100"):
        gdp_mu(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0, -1e-6, 0.5, 1.0, float("nan"), "1", None])
def test_nothing_belongs_to_a_delta_out_of_range(delta):
    with pytest.raises(InputError, match=r"delta must be a number above 0 and below 0\.5"):
        gdp_mu(1.0, delta)
    with pytest.raises(InputError, match=r"delta must be a number above 0 and below 0\.5"):
        gdp_epsilon(1.0, delta)


def test_the_ends_of_the_range_are_in_it():
    assert gdp_delta(gdp_mu(100, 0.499), 100) <= 0.499
    assert gdp_epsilon(0.0, 1e-6) == 0.0
    assert gdp_epsilon(gdp_mu(100, 1e-6), 1e-6) == pytest.approx(100, rel=1e-9)


def test_a_policy_is_not_read_with_a_budget_that_promises_nothing():
    rules = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = {}\n[domain]\nrows = 100'
    with pytest.raises(PolicyError, match="epsilon_total must be a number above 0 and at most 100, got 1000"):
        parse(rules.format(1000))
    open_site("a", np.zeros((30, 2)), parse(rules.format(100))).close()
