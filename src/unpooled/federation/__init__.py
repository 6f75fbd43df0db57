"""Federations: how questions reach the sites and replies come back, in one process or between machines.

``Federation`` is what an algorithm asks, ``Transport`` is what carries the bytes to the sites and back.
``Simulation`` answers for sites of this process with kernel calls. ``LocalFederation`` asks Site objects of
this process with bytes, as between machines.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.federation.local_federation import LocalFederation
    from unpooled.federation.simulation import Simulation
    from unpooled.protocol.exchange import Federation, Transport

__all__ = ["Federation", "LocalFederation", "Simulation", "Transport"]

_HOME = {
    "Federation": "unpooled.protocol.exchange",
    "LocalFederation": "unpooled.federation.local_federation",
    "Simulation": "unpooled.federation.simulation",
    "Transport": "unpooled.protocol.exchange",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a server's supervisor needs none of them, nor numpy."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'unpooled.federation' has no attribute {name!r}")
