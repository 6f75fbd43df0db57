"""Cluster data that cannot be pooled.

Sites keep their rows; only guarded cluster summaries travel; the result equals what pooling would have given.

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
        MiniBatch,
        Private,
        Robust,
    )
    from unpooled.core.run import Run, run
    from unpooled.estimators import FederatedFuzzyCMeans, FederatedKMeans
    from unpooled.optimum.certify import certify
    from unpooled.optimum.exact import exact_kmeans
    from unpooled.privacy import Gaussian
    from unpooled.privacy.secure_sum import SecureSums
    from unpooled.runtimes import InProcess
    from unpooled.site import Site

__version__ = "0.1.0"

_HOME = {
    "BestOf": "algorithms",
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
    "MiniBatch": "algorithms",
    "Private": "algorithms",
    "Robust": "algorithms",
    "Run": "running",
    "SecureSums": "secure_sum",
    "Site": "site",
    "certify": "certification",
    "exact_kmeans": "exact",
    "run": "running",
}

__all__ = [
    "BestOf",
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
    "MiniBatch",
    "Private",
    "Robust",
    "Run",
    "SecureSums",
    "Site",
    "__version__",
    "certify",
    "exact_kmeans",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used, so that ``import unpooled`` is quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'unpooled' has no attribute {name!r}")
    return getattr(import_module(f"unpooled.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
