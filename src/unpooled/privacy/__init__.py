"""Protection of the replies of a site: noise with a budget (dp), and secure sums (secure_sum)."""

from unpooled.privacy.dp.forecast import Forecast, forecast
from unpooled.privacy.dp.gaussian import Gaussian
from unpooled.privacy.dp.spending import Spending, SpendingLimits

__all__ = ["Forecast", "Gaussian", "Spending", "SpendingLimits", "forecast"]
