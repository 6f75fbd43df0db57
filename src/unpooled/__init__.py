"""Cluster data that cannot be pooled.

Sites keep their rows; only protected cluster summaries travel; the result is what pooling would have given,
or as close to it as the protection that a site chose allows.

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
        BestOf,
        Dual,
        Dwf,
        Ewf,
        Fkm,
        Fuzzy,
        KFed,
        Lloyd,
        Method,
        MiniBatch,
        Private,
        Robust,
    )
    from unpooled.algorithms.base import citation
    from unpooled.app.cluster import Result, cluster
    from unpooled.core.run import Run, run
    from unpooled.data.readers.database import Database
    from unpooled.estimators import FederatedFuzzyCMeans, FederatedKMeans
    from unpooled.optimum.certify import certify
    from unpooled.optimum.exact import exact_kmeans
    from unpooled.privacy import Gaussian
    from unpooled.privacy.copy import CopySettings
    from unpooled.privacy.secure_sum import SecureSums
    from unpooled.runtimes import InProcess
    from unpooled.site import Site
    from unpooled.site.open_site import open_site

__version__ = "0.2.0.dev0"

_HOME = {
    "BestOf": "algorithms",
    "CopySettings": "privacy.copy",
    "Database": "data.readers.database",
    "Dual": "algorithms",
    "Dwf": "algorithms",
    "Ewf": "algorithms",
    "FederatedFuzzyCMeans": "estimators",
    "FederatedKMeans": "estimators",
    "Fkm": "algorithms",
    "Fuzzy": "algorithms",
    "Gaussian": "privacy",
    "InProcess": "runtimes",
    "KFed": "algorithms",
    "Lloyd": "algorithms",
    "Method": "algorithms",
    "MiniBatch": "algorithms",
    "Private": "algorithms",
    "Result": "app.cluster",
    "Robust": "algorithms",
    "Run": "core.run",
    "SecureSums": "privacy.secure_sum",
    "Site": "site",
    "certify": "optimum.certify",
    "citation": "algorithms.base",
    "cluster": "app.cluster",
    "exact_kmeans": "optimum.exact",
    "open_site": "site.open_site",
    "run": "core.run",
}

__all__ = [
    "BestOf",
    "CopySettings",
    "Database",
    "Dual",
    "Dwf",
    "Ewf",
    "FederatedFuzzyCMeans",
    "FederatedKMeans",
    "Fkm",
    "Fuzzy",
    "Gaussian",
    "InProcess",
    "KFed",
    "Lloyd",
    "Method",
    "MiniBatch",
    "Private",
    "Result",
    "Robust",
    "Run",
    "SecureSums",
    "Site",
    "__version__",
    "certify",
    "citation",
    "cluster",
    "exact_kmeans",
    "open_site",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used, so that ``import unpooled`` is quick."""
    if name in _HOME:
        return getattr(import_module(f"unpooled.{_HOME[name]}"), name)
    raise AttributeError(f"module 'unpooled' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
