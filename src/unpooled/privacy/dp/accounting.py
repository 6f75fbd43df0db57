"""Privacy accounting: mu-GDP, and its exact conversion to (epsilon, delta).

Dong, Roth, Su: Gaussian differential privacy. J. R. Stat. Soc. B 84 (2022): a release whose Gaussian noise
has standard deviation s, and which one row shifts by at most D, is mu-GDP with mu = D / s; several
releases, each chosen after seeing the earlier ones, are mu-GDP with mu^2 the sum of theirs (corollary 3.3).
The conversion to (epsilon, delta) is their eq. 6, the analytic Gaussian of Balle, Wang (ICML 2018), theorem
8. Both are exact, so a budget is one number, mu^2, and shares of it add.

Neighbouring data sets differ by one added or removed row. A reported epsilon is a ten-thousandth above the
exact one, as a margin for floating-point rounding.
"""

import math

from unpooled.errors import InputError

_MARGIN = 1 + 1e-4


def gdp_delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which mu-GDP is (epsilon, delta)-differentially private.

    >>> f"{gdp_delta(1.0, 1.0):.4f}"
    '0.1269'
    """
    from scipy.special import log_ndtr

    if mu <= 0:
        return 0.0
    high = float(log_ndtr(mu / 2 - epsilon / mu))
    low = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(high) * max(-math.expm1(min(low - high, 0.0)), 0.0)


def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose mu-GDP is (epsilon, delta)-differentially private.

    >>> [round(gdp_mu(epsilon, 1e-6), 3) for epsilon in (0.5, 1, 2, 4)]
    [0.124, 0.237, 0.448, 0.838]
    """
    check_budget(epsilon, delta)
    epsilon /= _MARGIN
    low, high = 0.0, 1.0
    while gdp_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gdp_delta(middle, epsilon) <= delta else (low, middle)
    return low


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which mu-GDP is (epsilon, delta)-differentially private.

    >>> round(gdp_epsilon(gdp_mu(1.0, 1e-6), 1e-6), 9)
    1.0
    """
    check_budget(1.0, delta)
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gdp_delta(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gdp_delta(mu, middle) > delta else (low, middle)
    return high * _MARGIN


def check_budget(epsilon: float, delta: float) -> None:
    """Raise InputError unless epsilon and delta are in range."""
    if not (isinstance(epsilon, int | float) and 0 < epsilon <= 100):
        raise InputError(f"epsilon must be a number above 0 and at most 100, got {epsilon!r}")
    if not (isinstance(delta, int | float) and 0 < delta < 0.5):
        raise InputError(f"delta must be a number above 0 and below 0.5, got {delta!r}")
