"""Private k-means and fuzzy c-means: clustering from noisy totals alone."""

from unpooled.algorithms.private.private_kmeans import Private
from unpooled.algorithms.private.private_state import PrivateState

__all__ = ["Private", "PrivateState"]
