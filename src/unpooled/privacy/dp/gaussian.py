"""The privacy settings of an estimator: ``Gaussian(epsilon=1, delta=1e-6, lower=-1, upper=1)``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.errors import InputError
from unpooled.privacy.dp.accounting import check_budget, gdp_mu
from unpooled.protocol.messages import Message
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Gaussian(Message):
    """(epsilon, delta)-differential privacy by Gaussian noise, for one added or removed row or person.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget. delta well below one over the number of rows.
    lower, upper : float or array (d,)
        The range of values, for all columns or by column; a value outside counts as the bound. State them
        from knowledge of the columns, never from the rows: bounds computed from the data would disclose its
        extreme rows.
    rows : int or None
        The number of rows in all, if that is public. With it the forecast is made before any budget is spent;
        without it the first release, a twentieth of the budget, estimates the number.
    accept_noise : bool
        Run even if, by the forecast, noise would obscure the clusters.
    sites_per_person : int
        The most sites at which one person has a row. The budget then protects a person with one row at each
        of them.

    Examples
    --------
    >>> Gaussian(epsilon=1, lower=[0, 10], upper=[110, 80]).half.tolist()
    [55.0, 35.0]
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    lower: float | FloatArray = -1.0  # or (d,)
    upper: float | FloatArray = 1.0
    rows: int | None = None
    accept_noise: bool = False
    sites_per_person: int = 1

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        for name in ("lower", "upper"):
            object.__setattr__(self, name, _bound(getattr(self, name), name))
        low, high = np.atleast_1d(self.lower), np.atleast_1d(self.upper)
        if len(low) > 1 and len(high) > 1 and len(low) != len(high):
            raise InputError(f"lower has {len(low)} columns, upper has {len(high)}")
        low, high = np.broadcast_arrays(low, high)
        bad = np.flatnonzero(~(low < high))
        if len(bad):
            j = int(bad[0])
            where = f" in column {j}" if len(low) > 1 else ""
            raise InputError(f"lower must be below upper, got {low[j]:g} and {high[j]:g}{where}")
        for name in ("rows", "sites_per_person"):
            number = getattr(self, name)
            whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
            if not (whole and number >= 1) and not (name == "rows" and number is None):
                raise InputError(f"{name} must be a whole number >= 1, got {number!r}")

    @property
    def mu(self) -> float:
        """The budget as mu-GDP."""
        return gdp_mu(self.epsilon, self.delta)

    @property
    def row_mu(self) -> float:
        """The mu of one row: rows of a person at s sites shift a sum s times as far."""
        return self.mu / self.sites_per_person

    @property
    def columns(self) -> int | None:
        """The number of columns of the bounds; None if one pair holds for all columns."""
        widths = [len(b) for b in (self.lower, self.upper) if isinstance(b, np.ndarray)]
        return widths[0] if widths else None

    @property
    def middle(self) -> FloatArray:
        """(d,) or (1,): midpoints of the bounds."""
        return np.atleast_1d((np.asarray(self.lower) + np.asarray(self.upper)) / 2)

    @property
    def half(self) -> FloatArray:
        """(d,) or (1,): half widths of the bounds."""
        return np.atleast_1d((np.asarray(self.upper) - np.asarray(self.lower)) / 2)


def privacy_unit(sites_per_person: int) -> str:
    """Return what a budget protects, in words.

    >>> privacy_unit(1), privacy_unit(3)
    ('each row', 'each person, with one row at each of up to 3 sites')
    """
    if sites_per_person == 1:
        return "each row"
    return f"each person, with one row at each of up to {sites_per_person} sites"


def _bound(value: Any, name: str) -> float | FloatArray:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number or one per column, got {value!r}") from None
    if array.ndim > 1 or array.size == 0:
        raise InputError(f"{name} must be a number or one per column, got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, got {array.tolist()}")
    return float(array) if array.ndim == 0 else array
