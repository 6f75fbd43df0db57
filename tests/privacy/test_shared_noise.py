"""Sites of a secure sum share one noise: after dropouts and collusion a whole noise is left.

The coordinator and all sites that are not honest work together. They know their own parts of the noise, they
choose who drops out, and they sign every list of survivors.
"""

from copy import deepcopy
from itertools import product

import numpy as np
import pytest
from ring import Ring, Vector

from unpooled.errors import TooFewAnswersError
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.site_mask import noise_sharers
from unpooled.privacy.secure_sum.stage_messages import AskMasked
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol import codec
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import Request, run_protocol
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RULES = """
format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 8
honest_sites = {honest}
[domain]
rows = 100
[aggregation]
secure = "required"
"""
MASKED, AGREED = 1, 2
SMALL = [(n, t, h) for n in range(3, 8) for t in range(threshold_for(n), n + 1) for h in range(1, n + 1)]


def fewest_in_sight(n: int, t: int, h: int) -> int:
    """The fewest honest sites whose parts, added together, the coordinator can read in one sum.

    Sites are places of bits, the first h of them honest. A list of survivors is opened if t of its sites sign
    it; a hostile site signs every list, an honest one a single list that it is on. Where two lists are
    opened, a site that is on one of them only is read by itself.
    """
    honest = (1 << h) - 1
    lists = [s for s in range(1 << n) if s.bit_count() >= t and s & honest]
    seen = [(s & honest).bit_count() for s in lists]
    needed = {s: t - (s & ~honest).bit_count() for s in lists}  # honest signers
    for one, other in product(lists, lists):
        alone = (one & ~other & honest).bit_count()
        only = (alone, (other & ~one & honest).bit_count())
        lacking = [max(needed[s] - have, 0) for s, have in zip((one, other), only, strict=True)]
        if alone and sum(lacking) <= (one & other & honest).bit_count():
            seen.append(1)  # of a site on one list only, both shares are opened
    return min(seen)


@pytest.mark.parametrize("n", range(3, 8))
def test_a_whole_noise_is_left_for_every_number_of_sites_threshold_and_honest_sites(n):
    for sites, t, h in SMALL:
        if sites == n:
            left = fewest_in_sight(n, t, h) / noise_sharers(n, t, h)
            assert left >= 1, (n, t, h)
            if h == n:
                assert left == 1  # and no more than is needed where all sites are honest


def two_lists(n: int, h: int) -> float | None:
    """What a coordinator and n - h sites read of one honest site by two lists of one sum; None: nothing."""
    t, ring = threshold_for(n), Ring(n)
    ring.agree_on_keys(ring.request_id())
    inputs = {name: Vector(np.array([2.0**i])) for i, name in enumerate(ring.names)}
    honest, signers, victim = ring.names[:h], max(t - (n - h), 1), ring.names[0]
    kept = {name: deepcopy(ring.members[name]._store) for name in ring.names[h:]}
    first, second = honest[:signers], honest[signers:]

    def opened(sign, gone=()):
        out = ring.sum(
            inputs,
            ring.terms(ring.request_id()),
            silent=lambda stage, site: (
                (stage == MASKED and site in gone)
                or (stage == AGREED and site in honest and site not in sign)
            ),
        )
        return out.sums[0].values[0]

    try:
        everybody = opened(first)
        for name, store in kept.items():  # a hostile site forgets the list that it has signed
            ring.members[name]._store = store
            ring.restart(name)
        return everybody - opened(second, gone=(victim,))
    except TooFewAnswersError:
        return None


@pytest.mark.parametrize("n", range(3, 8))
def test_two_lists_of_one_sum_show_a_single_site_only_where_no_noise_is_shared(n):
    for h in range(2, n):
        seen = two_lists(n, h)
        assert seen in (None, 1.0)  # the part of the first site
        if seen is not None:
            assert noise_sharers(n, threshold_for(n), h) == 1, (n, h)


def test_two_lists_do_show_a_single_site_where_too_many_collude():
    """Otherwise the test above would say nothing: five of ten sites, four of them asked to sign."""
    assert two_lists(10, 5) == 1.0
    assert noise_sharers(10, threshold_for(10), 5) == 1


# ---------------------------------------------------------------- through real sites


class Losing:
    """A carrier that loses the masked answers of some sites."""

    def __init__(self, sites, lost) -> None:
        self._sites, self._lost = {site.name: site for site in sites}, lost
        self.sites = tuple(self._sites)

    def send_and_receive(self, requests):
        came = {name: self._sites[name].respond(data) for name, data in requests.items()}
        for name in set(requests) & set(self._lost):
            request = codec.unwrap(requests[name], expect=Request)
            if any(isinstance(part.question, AskMasked) for part in request.parts):
                del came[name]
        return came


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_a_sum_that_lost_honest_sites_has_a_whole_noise_that_nobody_knows(n):
    """Real sites, of which as many honest ones drop out as the threshold allows."""
    question, t = AskNoisyMoments(0.01, np.full(2, 9.0)), threshold_for(n)
    for h in range(1, n + 1):
        lost = [f"s{i}" for i in range(min(n - t, h - 1))]  # s0 to s(h - 1) are honest
        sites = []
        for i in range(n):
            member = Member(f"s{i}", Identity.new())
            rules = parse(RULES.format(honest=h))
            sites.append(open_site(f"s{i}", np.zeros((5, 2)), rules, member=member))
        federation = TransportFederation(Losing(sites, lost), secure=SecureSums())
        result = run_protocol(total(federation.sites, question), federation, run="r", quorum=0.5)
        for site in sites:
            site.close()
        each = result.noise[0] / (n - len(lost))
        assert (h - len(lost)) * each >= 1 - 1e-12, (n, h)
