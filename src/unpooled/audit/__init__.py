"""For those who must answer for a site: what left it, whether the record is whole, what it gives away."""

from unpooled.audit.attack import Attack, attack
from unpooled.audit.record import Record, read

__all__ = ["Attack", "Record", "attack", "read"]
