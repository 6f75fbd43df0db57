"""Runtimes: they carry questions to sites and replies back."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.runtimes.in_process import InProcess

__all__ = ["InProcess"]


def __getattr__(name: str) -> Any:
    """Import the runtime in one process where it is first used: between machines nobody needs it."""
    if name == "InProcess":
        from unpooled.runtimes.in_process import InProcess

        return InProcess
    raise AttributeError(f"module 'unpooled.runtimes' has no attribute {name!r}")
