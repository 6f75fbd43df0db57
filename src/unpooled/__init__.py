"""Federated clustering of data that cannot be pooled.

Sites keep their rows and send protected sums and counts. The result is the clustering of the pooled rows, or
as close to it as the protection that a site chose allows.

>>> from unpooled import FederatedKMeans
>>> model = FederatedKMeans(n_clusters=2, random_state=0)
>>> model = model.fit([[0.0], [0.2], [9.0], [9.2]], sites=["north", "south", "north", "south"])
>>> round(model.inertia_, 2)
0.04

Methods are in ``unpooled.algorithms``, simulated and real federations in ``unpooled.federation``, protections
in ``unpooled.privacy``, sites in ``unpooled.site``, and the loop that runs a method in ``unpooled.protocol``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled import (
        algorithms,
        data,
        errors,
        evaluation,
        federation,
        kernels,
        optimality,
        privacy,
        protocol,
        site,
    )
    from unpooled.app.cluster import cluster
    from unpooled.estimators import FederatedFuzzyCMeans, FederatedKMeans
    from unpooled.federation.recipient import read_summary
    from unpooled.optimality.certify import certify
    from unpooled.optimality.exact import exact_kmeans

__version__ = "0.1.0.dev0"

_HOME = {
    "FederatedFuzzyCMeans": "estimators",
    "FederatedKMeans": "estimators",
    "certify": "optimality.certify",
    "cluster": "app.cluster",
    "exact_kmeans": "optimality.exact",
    "read_summary": "federation.recipient",
}

__all__ = [
    "FederatedFuzzyCMeans",
    "FederatedKMeans",
    "__version__",
    "algorithms",
    "certify",
    "cluster",
    "data",
    "errors",
    "evaluation",
    "exact_kmeans",
    "federation",
    "kernels",
    "optimality",
    "privacy",
    "protocol",
    "read_summary",
    "site",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import unpooled`` is quick."""
    if name in _HOME:
        return getattr(import_module(f"unpooled.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"unpooled.{name}")
    raise AttributeError(f"module 'unpooled' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
