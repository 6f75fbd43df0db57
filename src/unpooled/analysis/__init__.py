"""From tables to an answer: preparation, every k in the same exchanges, the choice, what a report shows."""

from unpooled.analysis.choose_k import Choice, Scores
from unpooled.analysis.pipeline import Analysis, AnalysisState, Description

__all__ = ["Analysis", "AnalysisState", "Choice", "Description", "Scores"]
