"""Federated clustering of data that cannot be pooled.

Sites keep their rows and send protected sums and counts. The result is the clustering of the pooled rows, or
as close to it as the protection that a site chose allows.

>>> from unpooled import FederatedKMeans
>>> model = FederatedKMeans(n_clusters=2, random_state=0)
>>> model = model.fit([[0.0], [0.2], [9.0], [9.2]], sites=["north", "south", "north", "south"])
>>> round(model.inertia_, 2)
0.04
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.algorithms import (
        DWF,
        EWF,
        FKM,
        Dual,
        Fuzzy,
        KFed,
        Lloyd,
        Method,
        MiniBatch,
        Private,
        Restarts,
        Robust,
    )
    from unpooled.algorithms.method import citation
    from unpooled.app.cluster import Result, cluster
    from unpooled.data.readers.database import Database
    from unpooled.estimators import FederatedFuzzyCMeans, FederatedKMeans
    from unpooled.federation import LocalFederation, Simulation
    from unpooled.optimality.certify import certify
    from unpooled.optimality.exact import exact_kmeans
    from unpooled.privacy import Gaussian
    from unpooled.privacy.microaggregation import SummarySettings
    from unpooled.privacy.secure_sum import SecureSums
    from unpooled.protocol.run_loop import Run, run
    from unpooled.site import Site
    from unpooled.site.open_site import open_site

__version__ = "0.1.0.dev0"

_HOME = {
    "DWF": "algorithms",
    "Database": "data.readers.database",
    "Dual": "algorithms",
    "EWF": "algorithms",
    "FKM": "algorithms",
    "FederatedFuzzyCMeans": "estimators",
    "FederatedKMeans": "estimators",
    "Fuzzy": "algorithms",
    "Gaussian": "privacy",
    "KFed": "algorithms",
    "Lloyd": "algorithms",
    "LocalFederation": "federation",
    "Method": "algorithms",
    "MiniBatch": "algorithms",
    "Private": "algorithms",
    "Restarts": "algorithms",
    "Result": "app.cluster",
    "Robust": "algorithms",
    "Run": "protocol.run_loop",
    "SecureSums": "privacy.secure_sum",
    "Simulation": "federation",
    "Site": "site",
    "SummarySettings": "privacy.microaggregation",
    "certify": "optimality.certify",
    "citation": "algorithms.method",
    "cluster": "app.cluster",
    "exact_kmeans": "optimality.exact",
    "open_site": "site.open_site",
    "run": "protocol.run_loop",
}

__all__ = [
    "DWF",
    "EWF",
    "FKM",
    "Database",
    "Dual",
    "FederatedFuzzyCMeans",
    "FederatedKMeans",
    "Fuzzy",
    "Gaussian",
    "KFed",
    "Lloyd",
    "LocalFederation",
    "Method",
    "MiniBatch",
    "Private",
    "Restarts",
    "Result",
    "Robust",
    "Run",
    "SecureSums",
    "Simulation",
    "Site",
    "SummarySettings",
    "__version__",
    "certify",
    "citation",
    "cluster",
    "exact_kmeans",
    "open_site",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import unpooled`` is quick."""
    if name in _HOME:
        return getattr(import_module(f"unpooled.{_HOME[name]}"), name)
    raise AttributeError(f"module 'unpooled' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
