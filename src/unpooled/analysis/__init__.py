"""A whole analysis: preparation, clusterings for every k in the same exchanges, choice of k, description."""

from unpooled.analysis.choose_k import Choice, Scores
from unpooled.analysis.pipeline import Analysis, AnalysisState, Description

__all__ = ["Analysis", "AnalysisState", "Choice", "Description", "Scores"]
