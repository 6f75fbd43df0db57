"""The scikit-learn face: ``FederatedKMeans(...).fit(X, sites=...)`` and its fuzzy sibling."""

from unpooled.estimators.fuzzy import FederatedFuzzyCMeans
from unpooled.estimators.kmeans import FederatedKMeans

__all__ = ["FederatedFuzzyCMeans", "FederatedKMeans"]
