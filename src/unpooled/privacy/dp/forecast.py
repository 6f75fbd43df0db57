"""Forecast of a private clustering's accuracy: before any budget is spent, and better after its start.

A = n mu / k is how many standard deviations of one count the average cluster holds. Where clusters lie
apart the centres end about 4 c^2 d / A^2 above the inertia without noise (5.6 for up to three columns),
with c the radius to which residuals are cut in units of their root mean square. Where they overlap, many
clusterings are nearly as good, and noise decides among them: 0.03 sqrt(d k / A) more. Which case applies is
not known beforehand, so both are reported. The release for the start then shows how far clusters lie apart,
and a trial of the remaining steps on it refines the forecast (trial.py).
"""

from dataclasses import dataclass

import numpy as np

from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.privacy.dp.gaussian import Gaussian

_REFUSE, _FEW, _CAREFUL = 25.0, 50.0, 80.0
_OVERLAP, _CLEAR, _TRIAL = 0.03, 0.1, 0.6
_MAX_MU = 6.0  # a larger mu is hardly private, so no epsilon is suggested beyond it


def reach(d: int) -> float:
    """The radius c to which residuals are cut, in units of their root mean square.

    >>> reach(4), reach(10_000)
    (1.75, 1.15)
    """
    return float(np.clip(1 + 1.5 / np.sqrt(d), 1.15, 2.0))


@dataclass(frozen=True)
class Forecast:
    """A forecast of the inertia that noise adds to a clustering.

    >>> print(Forecast(n=10_000, d=10, k=10, epsilon=1.0, delta=1e-6, mu=0.237))
    about 0.15% above the inertia without noise, or 2.1% if clusters overlap (n mu / k = 237)
    """

    n: float
    d: int
    k: int
    epsilon: float
    delta: float
    mu: float  # of a row, after division by the root of the number of noises
    separation: float = float("nan")  # the clusters' silhouette; nan until the start is released
    trial_excess: float = float("nan")  # the excess of a trial on the released start; nan if there was none

    @property
    def strength(self) -> float:
        """A = n mu / k."""
        return self.n * self.mu / self.k

    @property
    def excess_apart(self) -> float:
        """Expected inertia over that without noise, less 1, for clusters that lie apart."""
        factor = 4.0 if self.d > 3 else 5.6
        return factor * reach(self.d) ** 2 * self.d / max(self.strength, 1e-9) ** 2

    @property
    def excess_overlapping(self) -> float:
        """The same for clusters that overlap, up to data without clusters."""
        more: float = _OVERLAP * (self.d * self.k / max(self.strength, 1e-9)) ** 0.5
        return self.excess_apart + more

    @property
    def excess(self) -> float:
        """The best estimate: ``excess_apart`` if nothing is known, otherwise between the two by the
        silhouette, and with a trial the weighted geometric mean with its result."""
        if np.isnan(self.separation):
            return self.excess_apart
        none = min(float(self.d) ** -0.8, 0.55)  # about the silhouette of one blob cut into pieces
        share = float(np.clip(1 - (self.separation - none) / (1 - none) / _CLEAR, 0.0, 1.0))
        guess = (1 - share) * self.excess_apart + share * self.excess_overlapping
        if np.isnan(self.trial_excess):
            return guess
        # a trial that ends at the best inertia, or below, only shows that the excess is small
        return float(max(self.trial_excess, self.excess_apart / 3) ** _TRIAL * guess ** (1 - _TRIAL))

    @property
    def hopeless(self) -> bool:
        return self.strength < _REFUSE

    @property
    def warning(self) -> str | None:
        """A warning for the user before the run continues; None if none is needed."""
        if self.hopeless or self.strength >= _CAREFUL:
            return None
        fewer = f", or ask for at most {max(1, int(self.n * self.mu / _CAREFUL))} clusters"
        advice = self.needed(_CAREFUL) + (fewer if self.strength < _FEW else "")
        return f"noise may obscure or shift some clusters: {self}. {advice}."

    def needed(self, strength: float = _REFUSE) -> str:
        """The epsilon, or the number of rows, at which A would be ``strength``."""
        more = strength / max(self.strength, 1e-9)
        rows = int(np.ceil(self.n * more))
        mu = Gaussian(self.epsilon, self.delta).mu * more
        enough = f"epsilon = {gdp_epsilon(mu, self.delta):.2g} or " if mu < _MAX_MU else ""
        return f"{enough}{rows:,} rows would suffice"

    def refusal(self) -> str:
        return (
            f"the noise of epsilon = {self.epsilon:g} would obscure {self.k} clusters of {self.n:,.0f} rows: "
            f"n mu / k = {self.strength:.3g}, and below {_REFUSE:g} no cluster is found. {self.needed()} "
            "(accept_noise=True, or the option --accept-noise, runs it regardless)."
        )

    def __str__(self) -> str:
        known = not np.isnan(self.separation)
        other = "" if known else f", or {_percent(self.excess_overlapping)} if clusters overlap"
        above = f"about {_percent(self.excess)} above the inertia without noise{other}"
        return f"{above} (n mu / k = {self.strength:.3g})"


def _percent(excess: float) -> str:
    """
    >>> _percent(0.00153), _percent(2.1)
    ('0.15%', '2.1 times')
    """
    return f"{100 * excess:.2g}%" if excess < 1 else f"{excess:.2g} times"


def forecast(dp: Gaussian, n: float, d: int, k: int, noises: float = 1.0) -> Forecast:
    """Return a forecast for n rows, d columns, k clusters; ``noises``: 1 with secure sums, else the sites."""
    return Forecast(max(float(n), 1.0), d, k, dp.epsilon, dp.delta, dp.row_mu / float(np.sqrt(noises)))
