"""Regions that sum securely between machines: their cells, their part above, what somebody above reads."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import bits
from machines.network import until
from machines.test_relay_processes import ABOVE, RelayHarness, _bytes, reply_of
from studies import study_of
from unpooled import Lloyd, SecureSums, Simulation, Site, run
from unpooled.errors import InputError, PolicyError
from unpooled.federation.provisioning.enrolment import Enrolment, _write
from unpooled.federation.provisioning.federation_folder import create
from unpooled.federation.relay.rules_file import parse_relay_policy
from unpooled.federation.remote import RemoteFederation
from unpooled.federation.retrying_transport import NoAnswer
from unpooled.privacy.secure_sum import aggregate, crypto
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.fixed_point import add, decode, negated
from unpooled.privacy.secure_sum.site_mask import SiteMask
from unpooled.privacy.secure_sum.stage_messages import AskKeys, Masked
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import MaskedElsewhere
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import AskMoments, Moments
from unpooled.site.identity import identity_in
from unpooled.site.log import entries, unpacked, verify
from unpooled.site.session import PendingDecision

pytestmark = pytest.mark.usefixtures("shorter_keys")

NAMES = ("north", "south", "west")
HOSPITALS = tuple(f"{region}-{i}" for region in NAMES for i in range(3))
ROWS = dict(zip(HOSPITALS, np.random.default_rng(5).normal(size=(9, 20, 2)), strict=True))
SECURE = "version = 1\n[downstream]\nsecure = true\n"
REQUEST_ID = RequestId("r", 0, 0, 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three regions of three hospitals each, whose keys are known."""
    home, regions = tmp_path_factory.mktemp("regions"), {}
    for name in NAMES:
        sites = tuple(hospitals(name))
        regions[name] = create(home / name, f"{name}-fed", "localhost", sites, engine_name="nvflare")
        for site in sites:
            _write(
                regions[name],
                site,
                Enrolment("", "2100-01-01T00:00:00+00:00", member_key=site.encode().hex()),
            )
    return regions


class SecureRelayHarness(RelayHarness):
    """A region whose hospitals answer in secure sums of the region only."""

    def __init__(self, federation, name, folder, rules=SECURE):
        folder.mkdir()
        super().__init__(federation, name, folder, rules, members=())
        authority = identity_in(federation.path).public
        for site in federation.sites:
            member = Member(site, Identity.new(), authority=authority)
            self.sites[site] = Site(site, ROWS[site], mask=SiteMask(member, required=True))
        self.study = study_of("r", ABOVE, secure=True)
        self.came = []  # what the region reads of its hospitals

    def post(self, site, data, answered):
        super().post(site, data, lambda answer: (self.came.append((site, answer)), answered(answer)))


class Sessions:
    """A carrier to relays' processes; what goes up is kept."""

    def __init__(self, sessions):
        self.sessions, self.sites, self.seen, self.act = (
            sessions,
            tuple(sessions),
            [],
            lambda site, data: None,
        )

    def send_and_receive(self, requests):
        came = {}
        for site, data in requests.items():
            self.act(site, data)
            came[site] = until(lambda site=site, data=data: _bytes(self.sessions[site].respond(data)), site)
            self.seen.append((site, came[site]))
        return came


@pytest.fixture
def cells(made, tmp_path):
    regions = {
        name: SecureRelayHarness(made[name], name, tmp_path / name).approve().serve().begun()
        for name in NAMES
    }
    yield regions
    for region in regions.values():
        region.over()


@pytest.fixture
def country(cells):
    transport = Sessions({name: region.end() for name, region in cells.items()})
    yield transport, RemoteFederation(transport, secure=SecureSums(), federations=NAMES, sign=ABOVE.sign)
    for end in transport.sessions.values():
        end.close()


def summed(federation, request_id=REQUEST_ID):
    (got,) = federation.ask(request_id, (Ask("total", federation.sites, AskMoments()),))
    return got


def of(names):
    """The flat secure sum over some hospitals."""
    return summed(Simulation.from_rows({name: ROWS[name] for name in names}, secure=True)).total()


def test_a_tree_of_cells_gives_the_bits_of_flat_secure_sums_and_of_exact_sums(country):
    _, above = country
    start = np.array([[0.0, -1.0], [0.0, 1.0]])
    done = run(Lloyd(k=2, init=start), above, name="r")
    for kind in ({"secure": True}, {"exact_sums": True}):
        want = run(Lloyd(k=2, init=start), Simulation.from_rows(ROWS, **kind), name="r")
        assert np.array_equal(done.state.centers, want.state.centers)
        assert done.state.inertia == want.state.inertia


def test_whoever_has_all_that_went_up_reads_no_regions_sum(country, cells, monkeypatch):
    """The attacker is the country: it has every message, and opened the masks that belong to one region."""
    held = []

    def unmasked(terms, shares, masked, seeds):
        held.append((terms, masked, seeds))
        return tally_unmasked(terms, shares, masked, seeds)

    tally_unmasked = aggregate._unmasked
    monkeypatch.setattr(aggregate, "_unmasked", unmasked)
    transport, above = country
    got = summed(above)
    (terms, masked, seeds) = next(one for one in held if set(one[1]) == set(NAMES))
    total = np.zeros_like(masked["north"].data).view(np.uint64)
    for name, region in cells.items():
        words = np.array(masked[name].data).view(np.uint64)
        add(words, negated(crypto.mask(seeds[name], terms.context, words.shape)))  # what is left of its masks
        add(total, words)
        own = numbers_of(of(hospitals(name)))
        assert not own & set(decode(words).tolist())
        logged = [
            reply
            for _, entry in entries(region.home / "log.jsonl")
            if entry["kind"] == "release"
            for reply in codec.decode(unpacked(entry["payload"])).replies
        ]
        assert {type(reply) for reply in logged} >= {Masked, MaskedElsewhere}
        up = [reply for site, data in transport.seen if site == name for reply in codec.unwrap(data).replies]
        assert not any(isinstance(reply, PartialSum | Moments) for reply in (*logged, *up))
        below = [reply for _, data in region.came for reply in codec.unwrap(data).replies]
        assert not any(isinstance(reply, Moments) for reply in below)  # nor does the region of a hospital
    assert numbers_of(got.total()) < set(decode(total).tolist())  # such a search finds the sum of all
    assert bits(got.total()) == bits(of(HOSPITALS))


def hospitals(region):
    return [hospital for hospital in HOSPITALS if hospital.startswith(region)]


def numbers_of(moments):
    return {*moments.sums.tolist(), *moments.squares.tolist()}


def test_a_region_shows_its_sum_in_no_run_whose_approved_study_is_secure(cells):
    """Its rules would let it: the study that its officer approved does not."""
    end = cells["north"].end()
    alone = codec.wrap(Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),)))
    assert reply_of(until(lambda: _bytes(end.respond(alone)), "a refusal")).reason.startswith(
        "only secure sums are allowed, and AskMoments would disclose a single site's answer"
    )
    assert cells["north"].asked == []
    end.close()


def test_a_cell_goes_up_as_a_sum_where_the_run_above_reads_its_regions(made, tmp_path):
    region = SecureRelayHarness(made["north"], "north", tmp_path / "n")
    region.study = study_of("r", ABOVE)
    region.approve().serve().begun()
    end = region.end()
    alone = codec.wrap(Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),)))
    reply = reply_of(until(lambda: _bytes(end.respond(alone)), "a sum"))
    assert (reply.sites, bits(reply.reply())) == (3, bits(of(hospitals("north"))))
    end.close()
    region.over()


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskUnmask"])
def test_a_relay_that_is_killed_between_stages_goes_on_with_the_same_sum(country, cells, stage):
    transport, above = country
    killed = []

    def kill(site, data):
        at = type(codec.unwrap(data).parts[-1].question).__name__
        if (at, site) == (stage, "south") and not killed:
            killed.append(transport.sessions["south"])
            killed[0]._site.close()  # what the kernel does for a process that is killed
            killed[0]._relay._opened[0]._line.close()
            transport.sessions["south"] = cells["south"].end()

    transport.act = kill
    assert bits(summed(above).total()) == bits(of(HOSPITALS))
    assert killed
    assert bits(summed(above, replace(REQUEST_ID, round=1)).total()) == bits(of(HOSPITALS))
    for region in cells.values():
        assert verify(region.home / "log.jsonl") == []


def test_a_cell_that_waits_for_an_approval_keeps_its_keys(made, tmp_path):
    region = SecureRelayHarness(made["north"], "north", tmp_path / "n")
    region.study = study_of("r", ABOVE)
    region.approve().serve().begun()
    region.does["north-1"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    seen, post = [], region.post

    def heard(site, data, answered):
        seen.append(codec.unwrap(data).parts[-1].question)
        post(site, data, answered)

    region.post = heard
    region.over()
    region.serve().begun()
    end = region.end()
    alone = codec.wrap(Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),)))
    for _ in range(2):
        assert isinstance(end.respond(alone), PendingDecision)
    del region.does["north-1"]
    assert reply_of(until(lambda: _bytes(end.respond(alone)), "a sum")).sites == 3
    assert len({question.epoch for question in seen if isinstance(question, AskKeys)}) == 1
    end.close()
    region.over()


def test_members_that_cannot_sum_securely_are_refused_when_a_region_joins(made, tmp_path):
    with pytest.raises(
        PolicyError, match=r"\[downstream\] secure and \[relay\] min_contributors exclude each other"
    ):
        parse_relay_policy(f"{SECURE}[relay]\ncell_sites = 2\n")
    with pytest.raises(InputError, match=r"2 members, and \[downstream\] secure = true is for 3 to 30"):
        parse_relay_policy(SECURE).check_members(2)
    parse_relay_policy(SECURE).check_members(30)
    with pytest.raises(InputError, match="31 members"):
        parse_relay_policy(SECURE).check_members(31)
