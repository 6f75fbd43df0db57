"""From tables to an answer: preparation, every k in the same exchanges, the choice, what a report shows."""

from unpooled.analysis.choose_k import Choice
from unpooled.analysis.description import Description
from unpooled.analysis.pipeline import Analysis, AnalysisState
from unpooled.analysis.scores import Scores

__all__ = ["Analysis", "AnalysisState", "Choice", "Description", "Scores"]
