"""The copy: how a site's rows become one table of groups of persons, from which it then answers."""

from unpooled.privacy.microaggregation.summarize import microaggregate
from unpooled.privacy.microaggregation.summary_settings import SummarySettings

__all__ = ["SummarySettings", "microaggregate"]
