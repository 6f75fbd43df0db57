"""Sums that show nobody's part in them: what ``total`` becomes where sites ask for it.

``member.Member`` is a site's side, ``tally.tally`` the coordinator's, both without input or output of their
own; the messages between them are in ``stages``. What is exported here does not need ``cryptography``; the
two sides and ``crypto.Identity`` do: ``pip install "unpooled[secure]"``. See docs/secure-sums.md.
"""

from unpooled.secure_sum.fixed import Fixed
from unpooled.secure_sum.stages import MIN_SITES, threshold_for
from unpooled.secure_sum.wishes import SecureSums, secure_sums

__all__ = ["MIN_SITES", "Fixed", "SecureSums", "secure_sums", "threshold_for"]
