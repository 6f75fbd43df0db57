"""What to expect of a private clustering, before anything is spent.

A = n mu / k is how many standard deviations of one count the average cluster holds. Clusters of equal size that
lie apart end about 4 c^2 d / A^2 above the inertia without noise (5.6 for up to three columns), with c the
radius to which residuals are cut in units of their root mean square.
"""

from dataclasses import dataclass, replace

import numpy as np

from unpooled.privacy.accounting import epsilon_of
from unpooled.privacy.gaussian import Gaussian

_REFUSE, _FEW, _CAREFUL = 25.0, 50.0, 80.0


def reach(d: int) -> float:
    """c: to how many root mean squares residuals are cut.

    >>> reach(4), reach(10_000)
    (1.75, 1.15)
    """
    return float(np.clip(1 + 1.5 / np.sqrt(d), 1.15, 2.0))


@dataclass(frozen=True)
class Forecast:
    """How well the clusters will stand out from the noise.

    >>> print(Forecast(n=10_000, d=10, k=10, epsilon=1.0, delta=1e-6, mu=0.237))
    about 0.2 % above the inertia without noise, where clusters lie apart (n mu / k = 237)
    """

    n: float
    d: int
    k: int
    epsilon: float
    delta: float
    mu: float  # with what the sites' noises add up to taken off

    @property
    def strength(self) -> float:
        """A = n mu / k."""
        return self.n * self.mu / self.k

    @property
    def excess(self) -> float:
        """Expected inertia over that without noise, less 1, for clusters that lie apart."""
        return (4.0 if self.d > 3 else 5.6) * reach(self.d) ** 2 * self.d / max(self.strength, 1e-9) ** 2

    @property
    def hopeless(self) -> bool:
        return self.strength < _REFUSE

    @property
    def warning(self) -> str | None:
        """What should be said before going on; None if nothing."""
        if self.hopeless or self.strength >= _CAREFUL:
            return None
        fewer = f", or ask for at most {max(1, int(self.n * self.mu / _CAREFUL))} clusters"
        return f"noise may hide or shift some clusters: {self}; {self.needed(_CAREFUL)}{fewer if self.strength < _FEW else ''}"

    def needed(self, strength: float = _REFUSE) -> str:
        """The epsilon, or the number of rows, at which A would be ``strength``."""
        mu = self.mu * strength / max(self.strength, 1e-9)
        loss = self.mu_lost
        rows = int(np.ceil(strength * self.k / self.mu))
        epsilon = epsilon_of(min(mu / loss, 30.0), self.delta)
        return f"epsilon = {epsilon:.2g} or {rows:,} rows would do"

    @property
    def mu_lost(self) -> float:
        """mu here over that of the whole budget: below 1 where sites' noises add up."""
        return self.mu / Gaussian(self.epsilon, self.delta).mu

    def refusal(self) -> str:
        return (
            f"{self.k} clusters of {self.n:,.0f} rows would drown in the noise of epsilon = {self.epsilon:g}: "
            f"n mu / k = {self.strength:.3g}, and less than {_REFUSE:g} finds nothing; {self.needed()} "
            "(force goes on regardless)"
        )

    def with_rows(self, n: float) -> "Forecast":
        return replace(self, n=max(float(n), 1.0))

    def __str__(self) -> str:
        percent = 100 * self.excess
        said = f"{percent:.2g} %" if percent < 100 else f"{1 + self.excess:.0f} times"
        return f"about {said} above the inertia without noise, where clusters lie apart (n mu / k = {self.strength:.3g})"


def forecast(dp: Gaussian, n: float, d: int, k: int, noises: float = 1.0) -> Forecast:
    """For n rows, d columns, k clusters; ``noises`` as variances: 1 under secure sums, else the number of sites."""
    return Forecast(max(float(n), 1.0), d, k, dp.epsilon, dp.delta, dp.mu / float(np.sqrt(noises)))
