"""Private k-means and fuzzy c-means: clustering from noisy totals alone."""

from unpooled.algorithms.private.method import Private
from unpooled.algorithms.private.state import PrivateState

__all__ = ["Private", "PrivateState"]
