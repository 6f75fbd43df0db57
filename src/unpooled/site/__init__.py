"""The site's side of a federation: everything that leaves a site passes ``Site``."""

from unpooled.privacy.secure_sum import messages as _stages  # noqa: F401 registers its messages
from unpooled.site.site import Guard, Site

__all__ = ["Guard", "Site"]
