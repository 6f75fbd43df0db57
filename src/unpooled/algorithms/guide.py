"""Which method should I use, and what to cite: from what every method says of itself.

>>> print(citation("k-fed"))
Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021.
>>> from unpooled.algorithms import BestOf, Ewf
>>> citation(BestOf(Ewf(k=3))) == citation("ewf")
True
"""

from typing import Any

from unpooled.algorithms import METHODS, Method
from unpooled.errors import BadInput


def guide() -> tuple[type[Method], ...]:
    """Every method that has a name, the default first."""
    return tuple(METHODS.values())


def citation(method: Any) -> str:
    """The paper to cite for a method, by its name or as the algorithm that was run (``model.algorithm_``)."""
    while hasattr(method, "inner"):
        method = method.inner
    found: Any = METHODS.get(method) if isinstance(method, str) else method
    if not getattr(found, "citation", ""):
        raise BadInput(f"no citation is known for {method!r}; methods are {', '.join(METHODS)}")
    return str(found.citation)
