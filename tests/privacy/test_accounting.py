"""Budgets: the exchange of mu and (epsilon, delta), against the definition and against another accountant."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from unpooled.errors import InputError
from unpooled.privacy import Gaussian
from unpooled.privacy.dp.accounting import gdp_delta, gdp_epsilon, gdp_mu


@pytest.mark.parametrize(("mu", "epsilon"), [(0.1, 0.3), (0.5, 1.0), (1.0, 0.0), (2.0, 3.0), (5.0, 20.0)])
def test_delta_is_the_largest_gap_between_two_normals(mu, epsilon):
    """P(N(mu, 1)) - e^eps P(N(0, 1)) is largest on the half line where the ratio passes e^eps."""
    edge = epsilon / mu + mu / 2
    by_hand = norm.sf(edge - mu) - np.exp(epsilon) * norm.sf(edge)
    assert gdp_delta(mu, epsilon) == pytest.approx(by_hand, rel=1e-6)


def test_delta_does_not_cancel_where_it_is_tiny():
    assert 0 < gdp_delta(0.02, 0.5) < 1e-140
    assert gdp_delta(0.01, 0.5) == 0.0  # below the smallest number
    assert gdp_delta(0.2, 1.0) == pytest.approx(1.3e-8, rel=0.5)
    assert gdp_delta(0.0, 1.0) == 0.0


@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-3])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 50.0])
def test_there_and_back(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    assert gdp_delta(mu, epsilon) <= delta


def test_what_another_accountant_says_of_a_whole_run():
    """PLD of dp-accounting composes the releases numerically; what we report is never less, hardly more."""
    for epsilon in (0.5, 1.0, 2.0):
        mu, whole = Gaussian(epsilon).mu, None
        for share in (0.05, 0.18, 0.18, 0.22, 0.37 / 3, 0.37 / 3, 0.37 / 3):
            one = pld.from_gaussian_mechanism(1 / (mu * share**0.5), value_discretization_interval=1e-4)
            whole = one if whole is None else whole.compose(one)
        assert 1 <= epsilon / whole.get_epsilon_for_delta(1e-6) <= 1.01


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 0.7}, "delta"),
        ({"lower": 1, "upper": 1}, "lower must be below upper, got 1 and 1"),
        ({"lower": [0, 5], "upper": [1, 2]}, "got 5 and 2 in column 1"),
        ({"lower": [0, 0], "upper": [1, 2, 3]}, "lower has 2 columns, upper has 3"),
        ({"lower": float("-inf")}, "lower must be finite"),
        ({"lower": "low"}, "lower must be a number"),
        ({"upper": [[1.0]]}, "shape"),
        ({"rows": 0}, "rows must be a whole number"),
        ({"rows": 10.5}, "rows must be a whole number"),
    ],
)
def test_bad_budgets_and_bounds_are_named(settings, says):
    with pytest.raises(InputError, match=says):
        Gaussian(**settings)
