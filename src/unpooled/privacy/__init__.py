"""Differential privacy: budgets, noise, the questions that spend, and what may be expected of them."""

from unpooled.privacy.forecast import Forecast, forecast
from unpooled.privacy.gaussian import Gaussian
from unpooled.privacy.spending import Limits, Spending

__all__ = ["Forecast", "Gaussian", "Limits", "Spending", "forecast"]
