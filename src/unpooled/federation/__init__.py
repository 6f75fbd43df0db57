"""Runtimes: they carry questions to sites and replies back."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.federation.simulation import Simulation

__all__ = ["Simulation"]


def __getattr__(name: str) -> Any:
    """Import the runtime in one process where it is first used: between machines nobody needs it."""
    if name == "Simulation":
        from unpooled.federation.simulation import Simulation

        return Simulation
    raise AttributeError(f"module 'unpooled.federation' has no attribute {name!r}")
