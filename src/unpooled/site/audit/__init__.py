"""Audit of a site's log: its content, its integrity, and the rows that attacks recover from it."""

from unpooled.site.audit.attack import Attack, attack
from unpooled.site.audit.overview import LogReport, read

__all__ = ["Attack", "LogReport", "attack", "read"]
