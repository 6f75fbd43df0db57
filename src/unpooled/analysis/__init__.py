"""From tables to an answer: preparation, every k in the same exchanges, the choice, what a report shows."""

from unpooled.analysis.algorithm import Analysis, AnalysisState
from unpooled.analysis.choice import Choice
from unpooled.analysis.describing import Description
from unpooled.analysis.scores import Scores

__all__ = ["Analysis", "AnalysisState", "Choice", "Description", "Scores"]
