"""Sums that show nobody's part in them: what ``total`` becomes where sites ask for it.

``Member`` is a site's side, ``tally`` the coordinator's, both without input or output of their own; the
messages between them are in ``stages``. See docs/secure-sums.md.
"""

from unpooled.secure_sum.crypto import Identity
from unpooled.secure_sum.fixed import Fixed
from unpooled.secure_sum.member import Member
from unpooled.secure_sum.stages import MIN_SITES, STAGES, Terms, asked, threshold_for
from unpooled.secure_sum.tally import Total, is_keys, tally

__all__ = [
    "MIN_SITES",
    "STAGES",
    "Fixed",
    "Identity",
    "Member",
    "Terms",
    "Total",
    "asked",
    "is_keys",
    "tally",
    "threshold_for",
]
