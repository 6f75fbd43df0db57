"""The site's side: the one door through which anything leaves."""

from unpooled.site.site import Guard, Site

__all__ = ["Guard", "Site"]
