"""Analysis and quality indices: preparation, clusterings for every k, choice of k, description, metrics."""

from unpooled.evaluation.analysis import Analysis, AnalysisState, Description
from unpooled.evaluation.choose_k import Choice, Scores

__all__ = ["Analysis", "AnalysisState", "Choice", "Description", "Scores"]
