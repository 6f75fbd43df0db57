"""Estimators with the interface of scikit-learn: FederatedKMeans and FederatedFuzzyCMeans."""

from unpooled.estimators.fuzzy_cmeans import FederatedFuzzyCMeans
from unpooled.estimators.kmeans import FederatedKMeans

__all__ = ["FederatedFuzzyCMeans", "FederatedKMeans"]
