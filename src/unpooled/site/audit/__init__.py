"""For those who must answer for a site: what left it, whether the record is whole, what it gives away."""

from unpooled.site.audit.attack import Attack, attack
from unpooled.site.audit.summary import LogSummary, read

__all__ = ["Attack", "LogSummary", "attack", "read"]
