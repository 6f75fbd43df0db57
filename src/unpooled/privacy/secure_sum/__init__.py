"""Secure sums: the coordinator reads only the sum over sites, never one site's reply to a ``total``.

``site.Member`` is a site's side, ``tally.tally`` the coordinator's, both without input or output; the
messages between them are in ``messages``. ``site_mask`` hooks the one into a site's door, ``coordinator``
the other into a runtime. The names exported here do not need ``cryptography``; the two sides and
``crypto.Identity`` do: ``pip install "unpooled[secure]"``. See docs/secure-sums.md.
"""

from unpooled.privacy.secure_sum.fixed_point import check_range
from unpooled.privacy.secure_sum.stage_messages import threshold_for
from unpooled.privacy.secure_sum.sum_settings import MIN_SITES, SecureSums, secure_sums

__all__ = ["MIN_SITES", "SecureSums", "check_range", "secure_sums", "threshold_for"]
