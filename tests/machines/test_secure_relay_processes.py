"""Secure sums of relays between machines: among their members, in the federation above, and under attack."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import bits
from machines.network import until
from machines.test_relay_processes import ABOVE, RelayHarness, _bytes, enrolled, reply_of
from studies import study_of
from unpooled.algorithms import Lloyd
from unpooled.errors import InputError, PolicyError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.provisioning.enrolment import _write
from unpooled.federation.provisioning.federation_folder import create
from unpooled.federation.relay.relay_policy import parse_relay_policy
from unpooled.federation.retrying_transport import NoAnswer
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.secure_sum import aggregate, crypto
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.fixed_point import add, decode, negated
from unpooled.privacy.secure_sum.site_mask import SiteMask
from unpooled.privacy.secure_sum.stage_messages import AskKeys, Masked
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import MaskedElsewhere
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import AskMoments, Moments
from unpooled.site import Site
from unpooled.site.endpoint import PendingDecision
from unpooled.site.identity import identity_in
from unpooled.site.log import entries, unpacked, verify

pytestmark = pytest.mark.usefixtures("shorter_keys")

NAMES = ("north", "south", "west")
HOSPITALS = tuple(f"{name}-{i}" for name in NAMES for i in range(3))
ROWS = dict(zip(HOSPITALS, np.random.default_rng(5).normal(size=(9, 20, 2)), strict=True))
SECURE = "format = 1\n[relay]\nexact = true\n[downstream]\nsecure = true\n"
REQUEST_ID = RequestId("r", 0, 0, 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three federations of three hospitals each, whose keys are known."""
    home, federations = tmp_path_factory.mktemp("federations"), {}
    for name in NAMES:
        sites = tuple(hospitals(name))
        federations[name] = create(home / name, f"{name}-fed", "localhost", sites, engine_name="nvflare")
        for site in sites:
            _write(federations[name], site, enrolled(site.encode().hex()))
    return federations


class SecureRelayHarness(RelayHarness):
    """A relay whose hospitals answer only in its secure sums."""

    def __init__(self, federation, name, folder, rules=SECURE):
        folder.mkdir()
        super().__init__(federation, name, folder, rules, members=())
        authority = identity_in(federation.path).public
        for site in federation.sites:
            member = Member(site, Identity.new(), authority=authority)
            self.sites[site] = Site(site, ROWS[site], mask=SiteMask(member, required=True))
        self.study = study_of("r", ABOVE, secure=True)
        self.received = []  # what the relay reads of its hospitals

    def send(self, site, data, answered):
        super().send(site, data, lambda answer: (self.received.append((site, answer)), answered(answer)))


class Sessions:
    """A transport to relays' sessions that keeps all that goes up."""

    def __init__(self, sessions):
        self.sessions, self.sites, self.seen, self.act = (
            sessions,
            tuple(sessions),
            [],
            lambda site, data: None,
        )

    def send_and_receive(self, requests):
        responses = {}
        for site, data in requests.items():
            self.act(site, data)
            session = self.sessions[site]
            responses[site] = until(lambda s=session, d=data: _bytes(s.respond(d)), site)
            self.seen.append((site, responses[site]))
        return responses


@pytest.fixture
def relays(made, tmp_path):
    harnesses = {
        name: SecureRelayHarness(made[name], name, tmp_path / name).approve().serve().begun()
        for name in NAMES
    }
    yield harnesses
    for relay in harnesses.values():
        relay.stop()


@pytest.fixture
def country(relays):
    """A federation of the relays, with its transport."""
    transport = Sessions({name: relay.session() for name, relay in relays.items()})
    yield transport, TransportFederation(transport, secure=SecureSums(), federations=NAMES, sign=ABOVE.sign)
    for session in transport.sessions.values():
        session.close()


def summed(federation, request_id=REQUEST_ID):
    (total,) = federation.ask(request_id, (Ask("total", federation.sites, AskMoments()),))
    return total


def flat_sum(names):
    """The flat secure sum over some hospitals."""
    return summed(LocalFederation.from_rows({name: ROWS[name] for name in names}, secure=True)).total()


def test_a_tree_of_relays_gives_the_bits_of_flat_secure_sums_and_of_exact_sums(country):
    _, above = country
    start = np.array([[0.0, -1.0], [0.0, 1.0]])
    done = run(Lloyd(k=2, init=start), above, name="r")
    for federation in (
        LocalFederation.from_rows(ROWS, secure=True),
        Simulation.from_rows(ROWS, exact_sums=True),
    ):
        flat = run(Lloyd(k=2, init=start), federation, name="r")
        assert np.array_equal(done.state.centers, flat.state.centers)
        assert done.state.inertia == flat.state.inertia


def test_attack_with_every_message_that_went_up_no_relays_sum_can_be_read(country, relays, monkeypatch):
    """The attacker is the coordinator above: it has every message, and the masks that it may open."""
    opened = []

    def unmasked(terms, shares, masked, seeds):
        opened.append((terms, masked, seeds))
        return real_unmasked(terms, shares, masked, seeds)

    real_unmasked = aggregate._unmasked
    monkeypatch.setattr(aggregate, "_unmasked", unmasked)
    transport, above = country
    sum_of_all = summed(above)
    (terms, masked, seeds) = next(one for one in opened if set(one[1]) == set(NAMES))
    total = np.zeros_like(masked["north"].data).view(np.uint64)
    for name, relay in relays.items():
        words = np.array(masked[name].data).view(np.uint64)
        add(words, negated(crypto.mask(seeds[name], terms.context, words.shape)))  # its other masks remain
        add(total, words)
        own = numbers_of(flat_sum(hospitals(name)))
        assert not own & set(decode(words).tolist())
        logged = [
            reply
            for _, entry in entries(relay.home / "log.jsonl")
            if entry["kind"] == "release"
            for reply in codec.decode(unpacked(entry["payload"])).replies
        ]
        assert {type(reply) for reply in logged} >= {Masked, MaskedElsewhere}
        up = [reply for site, data in transport.seen if site == name for reply in codec.unwrap(data).replies]
        assert not any(isinstance(reply, PartialSum | Moments) for reply in (*logged, *up))
        from_members = [reply for _, data in relay.received for reply in codec.unwrap(data).replies]
        assert not any(isinstance(reply, Moments) for reply in from_members)  # nor can a relay of a hospital
    assert numbers_of(sum_of_all.total()) < set(decode(total).tolist())  # the search finds the sum of all
    assert bits(sum_of_all.total()) == bits(flat_sum(HOSPITALS))


def hospitals(name):
    return [hospital for hospital in HOSPITALS if hospital.startswith(name)]


def numbers_of(moments):
    return {*moments.sums.tolist(), *moments.squares.tolist()}


def test_a_relay_discloses_its_sum_in_no_run_whose_approved_study_is_secure(relays):
    """Its rules would allow it, but the study that its officer approved does not."""
    session = relays["north"].session()
    in_clear = codec.wrap(Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),)))
    assert reply_of(until(lambda: _bytes(session.respond(in_clear)), "a refusal")).reason.startswith(
        "only secure sums are allowed, and AskMoments would disclose a single site's answer"
    )
    assert relays["north"].asked == []
    session.close()


def test_a_secure_sum_of_members_goes_up_if_the_run_above_reads_its_relays(made, tmp_path):
    relay = SecureRelayHarness(made["north"], "north", tmp_path / "n")
    relay.study = study_of("r", ABOVE)
    relay.approve().serve().begun()
    session = relay.session()
    in_clear = codec.wrap(Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),)))
    reply = reply_of(until(lambda: _bytes(session.respond(in_clear)), "a sum"))
    assert (reply.sites, bits(reply.reply())) == (3, bits(flat_sum(hospitals("north"))))
    session.close()
    relay.stop()


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskUnmask"])
def test_a_relay_that_is_killed_between_stages_continues_with_the_same_sum(country, relays, stage):
    transport, above = country
    killed = []

    def kill(site, data):
        at = type(codec.unwrap(data).parts[-1].question).__name__
        if (at, site) == (stage, "south") and not killed:
            killed.append(transport.sessions["south"])
            killed[0]._site.close()  # what the kernel does for a process that is killed
            killed[0]._settings._opened[0]._connection.close()
            transport.sessions["south"] = relays["south"].session()

    transport.act = kill
    assert bits(summed(above).total()) == bits(flat_sum(HOSPITALS))
    assert killed
    assert bits(summed(above, replace(REQUEST_ID, round=1)).total()) == bits(flat_sum(HOSPITALS))
    for relay in relays.values():
        assert verify(relay.home / "log.jsonl") == []


def test_a_secure_sum_that_waits_for_an_approval_keeps_its_keys(made, tmp_path):
    relay = SecureRelayHarness(made["north"], "north", tmp_path / "n")
    relay.study = study_of("r", ABOVE)
    relay.approve().serve().begun()
    relay.does["north-1"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    questions, send = [], relay.send

    def recorded(site, data, answered):
        questions.append(codec.unwrap(data).parts[-1].question)
        send(site, data, answered)

    relay.send = recorded
    relay.stop()
    relay.serve().begun()
    session = relay.session()
    in_clear = codec.wrap(Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),)))
    for _ in range(2):
        assert isinstance(session.respond(in_clear), PendingDecision)
    del relay.does["north-1"]
    assert reply_of(until(lambda: _bytes(session.respond(in_clear)), "a sum")).sites == 3
    assert len({question.epoch for question in questions if isinstance(question, AskKeys)}) == 1
    session.close()
    relay.stop()


def test_members_that_cannot_sum_securely_are_refused_when_a_relay_joins():
    with pytest.raises(
        PolicyError, match=r"\[downstream\] secure = true needs \[relay\] min_contributors = 1"
    ):
        parse_relay_policy(SECURE.replace("exact = true", "exact = true\nmin_contributors = 2"))
    with pytest.raises(InputError, match=r"\[downstream\] secure = true needs 3 to 30 members, got 2"):
        parse_relay_policy(SECURE).check_members(2)
    parse_relay_policy(SECURE).check_members(30)
    with pytest.raises(InputError, match="members, got 31"):
        parse_relay_policy(SECURE).check_members(31)
