"""Audit of a site's log: its content, its integrity, and the rows that reconstruction attacks recover."""

from unpooled.site.audit.attack import Attack, attack
from unpooled.site.audit.overview import LogReport, read

__all__ = ["Attack", "LogReport", "attack", "read"]
