"""Messages that are damaged and yet have a right checksum: any program that knows the protocol can send them.

The answers depend on the summary table alone, and sites with equal tables answer the same bytes alike.
"""

import numpy as np
from test_summary_table_law import AUTO, PAIRS, make_requests, tables

from unpooled.protocol import codec
from unpooled.protocol.codec import _checksum
from unpooled.protocol.exchange import Response
from unpooled.protocol.messages import Refusal
from unpooled.site.open_site import open_site


def damaged(data: bytes, rng) -> bytes:
    """Some bytes or a number of a message replaced, or its end cut off, under a checksum that fits."""
    bad = bytearray(data)
    if rng.random() < 0.5:
        at = 8 * rng.integers(len(bad) // 16, len(bad) // 8)
        bad[at : at + 8] = b"\xff" * 8  # of an array: not a number
        return _checksum(bytes(bad)) + bytes(bad)
    for _ in range(rng.integers(1, 4)):
        bad[rng.integers(len(bad))] = rng.integers(256)
    cut = bytes(bad[: rng.integers(len(bad))]) if rng.random() < 0.1 else bytes(bad)
    return _checksum(cut) + cut


def timed(request) -> bool:
    """True if a question has a limit in seconds: what is answered then depends on the clock as well."""
    return any(hasattr(part.question, "seconds") for part in request.parts)


def test_faults_behind_a_right_checksum_are_answered_alike():
    rng = np.random.default_rng(1)
    no_message = refused = answered = 0
    for named in (False, True):
        sites = [open_site("a", tables(X) if named else X, AUTO) for X in PAIRS[1]]
        requests = [
            codec.encode(request)
            for seed in range(3)
            for request in make_requests(seed, named)
            if not timed(request)
        ]
        for data in requests:
            for _ in range(6):
                bad = damaged(data, rng)
                one, two = (site.respond(bad) for site in sites)
                assert one == two, (codec.unwrap(one), codec.unwrap(two))
                (reply, *_) = codec.unwrap(one, expect=Response).replies
                reason = reply.reason if isinstance(reply, Refusal) else ""
                no_message += "not a message for this site" in reason
                refused += bool(reason) and "not a message for this site" not in reason
                answered += not reason
    # most damage is seen by the codec; of the rest some is refused by a rule, and some is another question
    assert no_message > 50
    assert refused > 5
    assert answered > 20
