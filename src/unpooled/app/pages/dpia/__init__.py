"""The DPIA report of a site: one page for an impact assessment, to print and sign, from its folder."""

from unpooled.app.pages.dpia.dpia_page import page
from unpooled.app.pages.dpia.site_facts import SiteFacts, read

__all__ = ["SiteFacts", "page", "read"]
