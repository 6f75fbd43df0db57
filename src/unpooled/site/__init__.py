"""The site's side: the one door through which anything leaves."""

from unpooled.privacy.secure_sum import messages as _stages  # noqa: F401 what any site may be asked, and log
from unpooled.site.site import Guard, Site

__all__ = ["Guard", "Site"]
