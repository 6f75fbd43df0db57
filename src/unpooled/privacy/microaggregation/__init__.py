"""Microaggregation: how a site's rows become its summary table, from which it then answers.

Every row of a summary table is the average of at least g people, i.e. k-anonymity with k = g.
"""

from unpooled.privacy.microaggregation.summarize import microaggregate
from unpooled.privacy.microaggregation.summary_settings import SummarySettings

__all__ = ["SummarySettings", "microaggregate"]
