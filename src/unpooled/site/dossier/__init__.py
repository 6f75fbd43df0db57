"""The dossier of a site for an impact assessment: one page to print and sign, generated from its folder."""

from unpooled.site.dossier.facts import SiteFacts, read
from unpooled.site.dossier.page import page

__all__ = ["SiteFacts", "page", "read"]
