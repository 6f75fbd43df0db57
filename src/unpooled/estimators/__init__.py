"""The scikit-learn interface: ``FederatedKMeans(...).fit(X, sites=...)`` and FederatedFuzzyCMeans."""

from unpooled.estimators.fuzzy_cmeans import FederatedFuzzyCMeans
from unpooled.estimators.kmeans import FederatedKMeans

__all__ = ["FederatedFuzzyCMeans", "FederatedKMeans"]
