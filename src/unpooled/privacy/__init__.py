"""Protection of a site's rows: microaggregation, differential privacy (dp) and secure sums (secure_sum)."""

from unpooled.privacy.dp.forecast import Forecast, forecast
from unpooled.privacy.dp.gaussian import Gaussian
from unpooled.privacy.dp.private_questions import PrivateQuestion, PrivateQuestionLimits

__all__ = ["Forecast", "Gaussian", "PrivateQuestion", "PrivateQuestionLimits", "forecast"]
