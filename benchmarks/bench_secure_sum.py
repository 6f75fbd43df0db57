"""A secure sum of 1020 numbers at 3, 10 and 100 sites: processor time at both ends, and bytes up.

In the last of ten sums a quarter of the sites drops out after sharing, if the threshold allows it. Bytes are
those of encoded replies, with all stages and the run's keys (spread over ten sums), over those of the plain
reply.
"""

import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.aggregate import aggregate
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import (
    AskConsistency,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Participants,
    SumParameters,
)
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol.exchange import Part, RequestId, parts_digest, size
from unpooled.protocol.questions.cluster_sums import AskClusterSums, ClusterSums

NUMBERS, SUMS = 1020, 10
MAX_BYTES = {3: 2.2, 10: 2.2, 100: 4.0}  # times those of the plain reply


class Bench:
    """Members in this process, and the CPU time of each and of the coordinator."""

    def __init__(self, n: int) -> None:
        self.names = tuple(f"s{i:03d}" for i in range(n))
        identities = {name: Identity.new() for name in self.names}
        keys = tuple(identities[name].public.hex() for name in self.names)
        self.participants = Participants("bench", self.names, keys)
        self.members = {name: Member(name, identity) for name, identity in identities.items()}
        self.parts = (Part("total", AskClusterSums(np.zeros((1, 20, 50))), None, 0),)
        rng = np.random.default_rng(0)
        self.reply = ClusterSums(rng.random((1, 20, 49)), rng.random((1, 20)), rng.random((1, 20)))
        self.plain = size(self.reply)[1]
        self.site: dict[str, float] = dict.fromkeys(self.names, 0.0)
        self.server = self.up = 0.0

    def run(self) -> Iterator[tuple[float, float, float]]:
        """Per sum: milliseconds at the median site and at the coordinator, bytes up over plain ones."""
        begin = time.process_time()
        keys = {s: m.keys(RequestId("bench", 0, 0, 0), AskKeys("e")) for s, m in self.members.items()}
        per_site = (time.process_time() - begin) / len(keys)
        spread = size(keys[self.names[0]])[1] / SUMS
        for number in range(SUMS):
            self.site = dict.fromkeys(self.names, per_site if number == 0 else 0.0)
            self.server = 0.0
            sent = self._sum(RequestId("bench", 0, number, 0), keys)
            yield 1e3 * median(self.site.values()), 1e3 * self.server, (sent + spread) / self.plain

    def _sum(self, request_id: RequestId, keys: dict[str, Any]) -> float:
        n = len(self.names)
        some = self.names[:: max(1, n // max(1, n // 4))][: min(n // 4, n - threshold_for(n))]
        dropped = set(some if request_id.round == SUMS - 1 else ())
        terms = SumParameters(
            request_id, "e", self.participants.digest, self.names, threshold_for(n), parts_digest(self.parts)
        )
        stages, came = aggregate(terms, self.participants, keys, (0,)), None
        while True:
            begin = time.process_time()
            try:
                asks = stages.send(came)  # type: ignore[arg-type]
            except StopIteration as stop:
                self.server += time.process_time() - begin
                there = [site for site in self.names if site not in dropped]
                return float(median(stop.value.sent[site][1] for site in there))
            self.server += time.process_time() - begin
            came = {}
            for site, ask in asks.items():
                if isinstance(ask, AskMasked) and site in dropped:
                    continue
                begin = time.process_time()
                came[site] = self._reply(self.members[site], request_id, ask)
                self.site[site] += time.process_time() - begin

    def _reply(self, member: Member, request_id: RequestId, ask: Any) -> Any:
        match ask:
            case AskShares():
                return member.shares(request_id, ask)
            case AskMasked():
                return member.masked(request_id, ask, self.parts, [self.reply])
            case AskConsistency():
                return member.sign_consistency(request_id, ask)
            case AskUnmask():
                return member.unmask(request_id, ask)
        raise AssertionError(ask)


def rows() -> Iterator[tuple[str, float, float]]:
    """(what, target at most, measured)."""
    for n, limit in MAX_BYTES.items():
        sums = list(Bench(n).run())
        yield f"{n} sites: ms per site, first sum of a run (with key agreement)", 50.0, sums[0][0]
        yield f"{n} sites: ms per site, later sums", 50.0, median(s[0] for s in sums[1:])
        yield f"{n} sites: ms at the coordinator, all sites present", 100.0, median(s[1] for s in sums[:-1])
        yield f"{n} sites: ms at the coordinator, a quarter dropped out", 100.0, sums[-1][1]
        yield f"{n} sites: bytes up over plain", limit, median(s[2] for s in sums)


def main() -> int:
    print(str(__doc__).splitlines()[0])
    over = 0
    for what, limit, measured in rows():
        over += measured > limit
        print(f"  {what:62} target at most {limit:6.1f}   measured {measured:7.2f}", flush=True)
    return over


if __name__ == "__main__":
    sys.exit(main())
