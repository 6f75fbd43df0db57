"""Secure aggregation: the coordinator reads only the sum over sites, never one site's reply to a ``total``.

``sum_member.Member`` is a site's side, ``aggregate.aggregate`` the coordinator's, both without input or
output; the messages between them are in ``stage_messages``. ``site_mask`` connects the one to a site,
``sum_coordinator`` the other to a federation. The names exported here do not need ``cryptography``; the two
sides and ``crypto.Identity`` do: ``pip install '.[secure]'``. See docs/secure-sums.md.
"""

from unpooled.privacy.secure_sum.fixed_point import check_range
from unpooled.privacy.secure_sum.stage_messages import threshold_for
from unpooled.privacy.secure_sum.sum_settings import MIN_SITES, SecureSums, secure_sums

__all__ = ["MIN_SITES", "SecureSums", "check_range", "secure_sums", "threshold_for"]
