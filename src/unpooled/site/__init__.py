"""The site's side of a federation: everything that leaves a site passes its chain (chain.py)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.site.chain import Guard
    from unpooled.site.site import Site

__all__ = ["Guard", "Site"]


def __getattr__(name: str) -> Any:
    """Import a name where it is first used: many processes need only the files of a site."""
    if name in __all__:
        from unpooled.site import chain, site

        return {"Guard": chain.Guard, "Site": site.Site}[name]
    raise AttributeError(f"module 'unpooled.site' has no attribute {name!r}")
