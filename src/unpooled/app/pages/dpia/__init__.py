"""The dossier of a site for an impact assessment: one page to print and sign, generated from its folder."""

from unpooled.app.pages.dpia.dpia_page import page
from unpooled.app.pages.dpia.site_facts import SiteFacts, read

__all__ = ["SiteFacts", "page", "read"]
