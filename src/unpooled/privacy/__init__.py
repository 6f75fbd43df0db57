"""Protection of a site's rows: microaggregation, differential privacy (dp) and secure sums (secure_sum)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unpooled.privacy.dp.forecast import Forecast, forecast
from unpooled.privacy.dp.gaussian import Gaussian
from unpooled.privacy.dp.private_questions import PrivateQuestion, PrivateQuestionLimits

if TYPE_CHECKING:
    from unpooled.privacy.microaggregation import SummarySettings
    from unpooled.privacy.secure_sum import SecureSums

__all__ = [
    "Forecast",
    "Gaussian",
    "PrivateQuestion",
    "PrivateQuestionLimits",
    "SecureSums",
    "SummarySettings",
    "forecast",
]

_HOME = {"SecureSums": "secure_sum", "SummarySettings": "microaggregation"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the packages of the protections import this one."""
    if name in _HOME:
        return getattr(import_module(f"unpooled.privacy.{_HOME[name]}"), name)
    raise AttributeError(f"module 'unpooled.privacy' has no attribute {name!r}")
