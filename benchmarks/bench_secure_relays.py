"""The work of a site in a tree of secure sums: ``python -m benchmarks.bench_secure_relays``.

At 10, 100 and 1,000 sites: relays of ten sites, relays of ten relays, up to a federation of at most ten
members. Counted, not timed: bytes to and from a site, and its own operations (key agreements, signatures
checked, streams of masks), over three sums of one run. The same without relays, where every site has a key
with every other one.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.privacy import SecureSums
from unpooled.privacy.secure_sum import crypto
from unpooled.privacy.secure_sum.site_mask import site_masks
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site

WIDTH, SUMS = 10, 3
COUNTED = ((crypto.KeyAgreement, "root"), (crypto, "is_signed"), (crypto, "mask"))


class CountedSite(Site):
    """A site that counts the bytes that it receives and sends, and its own operations."""

    spent: "Counter[str]"
    now: "Counter[str] | None" = None  # of the site that is at work

    def receive(self, data: bytes) -> bytes:
        CountedSite.now = self.spent
        try:
            answer = super().receive(data)
        finally:
            CountedSite.now = None
        self.spent.update({"bytes in": len(data), "bytes out": len(answer)})
        return answer


def sites(count: int) -> list[CountedSite]:
    names = [f"s{i:04d}" for i in range(count)]
    masks = site_masks(names, min_sites=3, required=True)
    rows = np.random.default_rng(0).normal(size=(count, 4, 2))
    found = [CountedSite(name, X, mask=masks[name]) for name, X in zip(names, rows, strict=True)]
    for site in found:
        site.spent = Counter()
    return found


def grown(members: list[Any]) -> Simulation:
    """A federation of at most WIDTH members, with as many levels of relays as that takes."""
    level = 0
    while len(members) > WIDTH:
        level += 1
        parts = [members[a : a + WIDTH] for a in range(0, len(members), WIDTH)]
        members = [
            Relay(f"r{level}-{i:03d}", part, RelayRules(exact=True), secure=SecureSums())
            for i, part in enumerate(parts)
        ]
    return LocalFederation(members, secure=SecureSums())


@contextmanager
def counted() -> Iterator[None]:
    """Count the operations of the site that is at work."""
    before = [getattr(where, name) for where, name in COUNTED]

    def counting(name: str, real: Any) -> Any:
        def act(*given: Any, **more: Any) -> Any:
            if CountedSite.now is not None:
                CountedSite.now[name] += 1
            return real(*given, **more)

        return act

    for (where, name), real in zip(COUNTED, before, strict=True):
        setattr(where, name, counting(name, real))
    try:
        yield
    finally:
        for (where, name), real in zip(COUNTED, before, strict=True):
            setattr(where, name, real)


def measured(count: int, flat: bool, sums: int = SUMS) -> tuple[dict[str, int], float]:
    """The largest numbers of any site, and the mass of the sum."""
    members = sites(count)
    federation = LocalFederation(members, secure=SecureSums()) if flat else grown(list(members))
    question = AskClusterSums(np.zeros((1, 20, 2)))
    with counted():
        for number in range(sums):
            request_id = RequestId("bench", 0, number, 0)
            (replies,) = federation.ask(request_id, (Ask("total", federation.sites, question),))
    names = sorted({name for site in members for name in site.spent})
    largest = {name: max(site.spent[name] for site in members) for name in names}
    return largest, float(replies.total().mass.sum())


def main() -> int:
    print(
        f"{'':18}"
        + "".join(f"{name:>12}" for name in ("bytes in", "bytes out", "keys", "signatures", "masks"))
    )
    first: dict[str, int] = {}
    bad = 0
    for count, flat in ((10, False), (100, False), (1000, False), (10, True), (30, True), (100, True)):
        found, mass = measured(count, flat)
        columns = [found[name] for name in ("bytes in", "bytes out", "root", "is_signed", "mask")]
        print(f"{count:5} sites, {'flat' if flat else 'tree'} " + "".join(f"{n:12,}" for n in columns))
        first = first or found
        bad += mass != 4 * count or (not flat and any(found[k] > 1.05 * first[k] for k in first))
    print("a site's cost in the tree is that of ten sites:", "no" if bad else "yes, within 5%")
    return bad


if __name__ == "__main__":
    sys.exit(main())
