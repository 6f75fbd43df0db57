"""A whole analysis: preparation, clusterings for every k in the same exchanges, choice of k, description."""

from unpooled.evaluation.analysis import Analysis, AnalysisState, Description
from unpooled.evaluation.choose_k import Choice, Scores

__all__ = ["Analysis", "AnalysisState", "Choice", "Description", "Scores"]
