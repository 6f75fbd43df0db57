"""A relay between machines: its rules, its session, its downstream run, and invalid trees."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import EXACT, ONE_ROW_PER_PERSON, bits
from machines.network import PATIENCE, until
from studies import study_of, terms_of
from unpooled.algorithms import Lloyd
from unpooled.app.cli import app
from unpooled.errors import PolicyError
from unpooled.federation.member_session import open_session
from unpooled.federation.member_tree import AskMembers, TreeError
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.enrolment import Enrolment, _write, invite
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.member_keys import known_members, member_claim, verified_claim
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.federation.relay import downstream as downstream_module
from unpooled.federation.relay import forwarder as forwarder_module
from unpooled.federation.relay.forwarder import Forwarder
from unpooled.federation.relay.relay_folder import RelaySettings
from unpooled.federation.relay.relay_policy import TEMPLATE, DownstreamRules, RelayPolicy, parse_relay_policy
from unpooled.federation.relay.relay_session import OpenRelay, forwarded_terms
from unpooled.federation.retrying_transport import NoAnswer, RetryingTransport
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site import Site
from unpooled.site.endpoint import PendingDecision
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.log import entries, verify
from unpooled.site.open_site import open_site
from unpooled.site.session import MembershipFile, SiteSession, SiteSettings
from unpooled.site.study_store import APPROVED, StudyFolder
from unpooled.storage.file_locks import locked

pytestmark = pytest.mark.usefixtures("shorter_keys")

ABOVE = Identity.new()
TWO = "format = 1\n[relay]\nexact = true\nmin_sites = 2\n"
ROWS = np.random.default_rng(3).normal(size=(4, 30, 2))


def unpooled(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def enrolled(key="", **more):
    """The record of a member that is admitted, with a known key."""
    return Enrolment("", "2100-01-01T00:00:00+00:00", member_key=key, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two federations of two hospitals each, whose keys are known."""
    home = tmp_path_factory.mktemp("federations")
    federations = {}
    for name, sites in (("north", ("a", "b")), ("south", ("c", "d"))):
        federations[name] = create(home / name, f"{name}-fed", "localhost", sites, engine_name="nvflare")
        for site in sites:
            _write(federations[name], site, enrolled(site * 40))
    return federations


class RelayHarness:
    """A relay whose downstream run is served in this process; ``does`` replaces the answers of hospitals."""

    def __init__(self, federation, name, folder, rules=TWO, members="abcd"):
        (folder / "rules.toml").write_text(rules)
        self.federation, self.study = federation, study_of("r", ABOVE)
        self.home = folder / name
        self.home.mkdir()
        self.settings = RelaySettings(
            name, str(federation.path), str(self.home), str(folder / "rules.toml"), ABOVE.public.hex()
        )
        self.work = federation.runs / "r"
        rows = dict(zip("abcd", ROWS, strict=True))
        self.sites = {site: Site(site, rows[site]) for site in federation.sites if site in members}
        self.does = {}  # what a hospital does instead of answering
        self.asked = []
        self.serving = None

    def approve(self):
        studies = StudyFolder(self.home)
        studies.receive(self.settings.site, self.study, "")
        studies.decide(self.study.digest, APPROVED, "the officer")
        return self

    def send(self, site, data, answered):
        self.asked.append(site)
        does = self.does.get(site)
        answered(self.sites[site].respond(data) if does is None else does(data))

    def serve(self):
        """Serve the downstream run, as the relay's server does."""
        self.work.mkdir(exist_ok=True)
        identity_in(self.home)
        (self.work / "relay").write_text(f"{fingerprint_in(self.home)}\n")
        self.ending = threading.Event()
        forwarder = Forwarder(self.work, self.ending.is_set)
        transport = RetryingTransport(
            self.federation.sites,
            self.send,
            deadline=PATIENCE,
            stopped=forwarder.stopped,
            approval_timeout=PATIENCE,
        )
        self.serving = threading.Thread(target=forwarder.serve, args=(transport,), daemon=True)
        self.serving.start()
        return self

    def begun(self):
        """Wait until the downstream run accepts requests."""
        until(lambda: ProgressFile(self.work).read()["state"] == "running", "the downstream run")
        return self

    def session(self, **changed):
        terms = replace(terms_of(self.study, ABOVE), **changed)
        return SiteSession(OpenRelay(self.settings, terms.study), terms)

    def stop(self):
        self.ending.set()
        self.serving.join(PATIENCE)


@pytest.fixture
def north(made, tmp_path):
    relay = RelayHarness(made["north"], "north", tmp_path).approve().serve().begun()
    yield relay
    relay.stop()


def request(question=None, number=0, verb="total"):
    question = AskMoments() if question is None else question
    return codec.wrap(Request(RequestId("r", 0, number, 0), (Part(verb, question, None, 0),)))


def _bytes(answer):
    return answer if isinstance(answer, bytes) else None


def answer(session, data):
    """The bytes of an answer. It may take a while until the downstream run is reached."""
    return until(lambda: _bytes(session.respond(data)), "an answer")


def reply_of(data):
    assert isinstance(data, bytes), data
    (reply,) = codec.unwrap(data, expect=Response).replies
    return reply


# ---------------------------------------------------------------- its session, and the downstream run


def test_a_relays_session_answers_from_the_downstream_run_and_ends_it(north):
    session = north.session()
    reply = reply_of(answer(session, request()))
    assert (reply.sites, reply.reply().n) == (2, 60.0)
    session.close()
    north.serving.join(PATIENCE)
    assert not north.work.exists()
    assert verify(north.home / "log.jsonl") == []
    opening = next(entry for _, entry in entries(north.home / "log.jsonl") if entry["kind"] == "opening")
    assert (opening["study"], opening["protection"]) == (north.study.digest, "sums")
    assert session.respond(request(number=1)) == "the run is over"


def test_a_relay_without_exact_sums_asks_its_members_once_for_their_tables(made, tmp_path):
    relay = RelayHarness(made["north"], "north", tmp_path, "format = 1\n[relay]\nmin_sites = 2\n")
    relay.sites = {site: open_site(site, held.rows, ONE_ROW_PER_PERSON) for site, held in relay.sites.items()}
    relay.approve().serve().begun()
    session = relay.session()
    first = reply_of(answer(session, request()))
    assert (type(first).__name__, first.n) == ("Moments", 60.0)
    assert sorted(relay.asked) == ["a", "b"]
    session.close()
    relay.serving.join(PATIENCE)  # the run is over, and its folder is gone
    del relay.sites["b"]  # the table is kept: nobody is asked again
    relay.serve().begun()
    again = relay.session()
    assert bits(reply_of(answer(again, request(number=1)))) == bits(first)
    assert sorted(relay.asked) == ["a", "b"]
    again.close()
    relay.stop()


def test_a_relay_that_is_killed_gives_the_same_bytes_and_finds_its_run_again(north):
    first = north.session()
    answered = answer(first, request())
    first._site.close()  # what the kernel does for a process that is killed
    first._settings._opened[0]._connection.close()
    again, asked = north.session(), len(north.asked)
    assert again.respond(request()) == answered
    assert len(north.asked) == asked  # from its log
    assert reply_of(answer(again, request(number=1))).sites == 2
    again.close()


def test_answers_that_came_while_the_relay_was_gone_are_kept_for_it(north):
    released = threading.Event()
    north.does["b"] = lambda data: released.wait(PATIENCE) and north.sites["b"].respond(data)
    first = north.session()
    asking = threading.Thread(target=first.respond, args=(request(),), daemon=True)
    asking.start()
    until(lambda: "a" in north.asked, "the question to the members")
    first._settings._opened[0]._connection._connection.close()  # killed in the middle of a question
    asking.join(PATIENCE)
    first._site.close()
    released.set()
    second = north.session()
    assert reply_of(answer(second, request())).sites == 2
    second.close()


def test_members_that_have_not_approved_make_the_relay_wait_and_no_longer(north):
    north.does["b"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    session = north.session()
    reason = "its members have not approved the study yet"

    def waits():
        given = session.respond(request())  # the relay may still be opening the run
        return given if given == reason else None

    assert isinstance(until(waits, "it to wait"), PendingDecision)
    until(lambda: "b" in ProgressFile(north.work).read().get("waiting", {}), "the record")
    assert isinstance(session.respond(request()), PendingDecision)
    del north.does["b"]
    assert reply_of(until(lambda: _bytes(session.respond(request())), "an answer", pause=0.2)).sites == 2
    session.close()


def test_a_member_that_declines_leaves_the_relay_below_its_minimum(north):
    north.does["b"] = lambda data: NoAnswer("declines", retry=False)
    session = north.session()
    assert reply_of(answer(session, request())).reason == (
        "1 of its sites answered, and north answers for 2 or more"
    )
    del north.does["b"]
    assert reply_of(answer(session, request())).sites == 2  # a repeated request is tried again
    session.close()
    kinds = [entry["kind"] for _, entry in entries(north.home / "log.jsonl")]
    assert kinds[-2:] == ["refusal", "release"]


def test_a_study_of_another_run_or_beyond_its_rounds_is_refused(north):
    session = north.session()
    later = reply_of(answer(session, request(number=north.study.rounds + 1)))
    assert "The approved study has at most" in later.reason
    other = codec.wrap(Request(RequestId("x", 0, 0, 0), (Part("total", AskMoments(), None, 0),)))
    assert "this is another run" in reply_of(answer(session, other)).reason
    assert north.asked == []
    session.close()


def test_a_coordinator_learns_no_member_by_a_study_that_was_withdrawn(north):
    """A study does not list the question for members' keys, but its withdrawal ends that question too."""
    session = north.session()
    members = Request(RequestId("r", 0, 0, 1), (Part("each", AskMembers(), None, 0),))
    assert reply_of(answer(session, codec.wrap(members))).keys
    StudyFolder(north.home).decide(north.study.digest, "withdrawn", "an officer", "no longer")
    again = session.respond(codec.wrap(replace(members, request_id=RequestId("r", 0, 1, 1))))
    assert again == "the site has withdrawn the study: no longer"
    session.close()


def test_a_relay_asks_its_members_once_if_a_question_fails(north, monkeypatch):
    asked = []

    def failing(self, exchange):
        asked.append(exchange.request)
        raise ZeroDivisionError

    monkeypatch.setattr("unpooled.federation.relay.relay_steps.MemberTotals._totals", failing)
    session = north.session()
    response = codec.unwrap(session.respond(request()), expect=Response)
    session.close()
    assert [reply.reason for reply in response.replies] == [
        "failed with ZeroDivisionError; the site's own log has the details"
    ]
    assert len(asked) == 1


def test_nobody_is_asked_before_the_relay_has_approved(made, tmp_path):
    relay = RelayHarness(made["north"], "north", tmp_path)
    assert isinstance(relay.session().respond(request()), PendingDecision)
    assert not relay.work.exists()


def test_another_version_above_or_in_the_middle_is_one_clear_reason(north, monkeypatch):
    reason = north.session(version="99.0").respond(request())
    assert reason.startswith("the coordinator has unpooled 99.0, this site")
    monkeypatch.setattr("unpooled.federation.relay.relay_steps.version", lambda name: "99.0")
    session = north.session()
    above = TransportFederation(Sessions(north=session), federations=["north"])
    with pytest.raises(
        TreeError, match=r"north has unpooled 99.0, the federation above it .*\. They may be one minor"
    ):
        run(Lloyd(k=2), above, name="r")
    session.close()


def test_a_downstream_run_that_no_relay_asks_any_more_ends_by_itself(made, tmp_path, monkeypatch):
    monkeypatch.setattr(forwarder_module, "LEASE", 0.5)
    relay = RelayHarness(made["north"], "north", tmp_path).approve().serve()
    relay.serving.join(PATIENCE)
    assert not relay.serving.is_alive()
    assert not relay.work.exists()


def test_a_relay_whose_server_is_not_up_reports_it_and_tries_again(made, tmp_path, monkeypatch):
    monkeypatch.setattr(downstream_module, "_RETRY_AFTER", 0.5)
    rules = f"{TWO}[downstream]\nwait = 0\n"
    relay = RelayHarness(made["south"], "south", tmp_path, rules).approve()
    session = relay.session()

    def refuses():
        given = session.respond(request())
        return None if isinstance(given, PendingDecision) else given

    assert until(refuses, "a reason") == "its members were not asked: its server is not up"
    relay.serve().begun()
    assert reply_of(until(lambda: _bytes(session.respond(request())), "an answer", pause=0.5)).sites == 2
    session.close()
    relay.stop()


# ---------------------------------------------------------------- trees, valid and invalid


class Sessions:
    """A transport to relays' sessions."""

    def __init__(self, **sessions):
        self._sessions, self.sites = sessions, tuple(sessions)

    def send_and_receive(self, requests):
        return {
            site: until(lambda s=site, d=data: self._answer(s, d), site) for site, data in requests.items()
        }

    def _answer(self, site, data):
        given = self._sessions[site].respond(data)
        return None if isinstance(given, PendingDecision) else given


@pytest.fixture
def country(made, tmp_path, north):
    """A federation of two relays."""
    (tmp_path / "s").mkdir()
    south = RelayHarness(made["south"], "south", tmp_path / "s").approve().serve().begun()
    sessions = {"north": north.session(), "south": south.session()}
    yield TransportFederation(Sessions(**sessions), federations=["north", "south"], exact_sums=True)
    for session in sessions.values():
        session.close()
    south.stop()


def test_two_relays_give_the_clustering_of_one_federation(country):
    from unpooled.federation import Simulation

    start = np.array([[0.0, -1.0], [0.0, 1.0]])
    done = run(Lloyd(k=2, init=start), country, name="r")
    rows = dict(zip("abcd", ROWS, strict=True))
    flat = run(Lloyd(k=2, init=start), Simulation.from_rows(rows, exact_sums=True), name="r")
    assert np.array_equal(done.state.centers, flat.state.centers)


def test_a_relay_of_relays_passes_up_their_sums_and_their_waiting(north, tmp_path):
    nation = create(tmp_path / "nation", "nation-fed", "localhost", ("c", "north"), engine_name="nvflare")
    for site in nation.sites:
        _write(nation, site, enrolled(federation=True) if site == "north" else enrolled("c" * 40))
    (tmp_path / "l").mkdir()
    outer = RelayHarness(nation, "nation", tmp_path / "l", members="c").approve().serve().begun()
    inner = north.session()

    def respond(data):
        given = inner.respond(data)
        return NoAnswer(str(given), waiting=True) if isinstance(given, PendingDecision) else given

    outer.does["north"] = respond
    top = outer.session()
    north.does["b"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    members = reply_of(answer(top, request(AskMembers(), verb="each")))
    assert members.keys == tuple(
        sorted(["a" * 40, "b" * 40, "c" * 40, fingerprint_in(north.home), fingerprint_in(outer.home)])
    )
    assert isinstance(top.respond(request()), PendingDecision)
    del north.does["b"]
    reply = reply_of(until(lambda: _bytes(top.respond(request())), "an answer", pause=0.2))
    assert (reply.sites, reply.reply().n) == (3, 90.0)
    top.close()
    inner.close()
    outer.stop()


def test_a_hospital_reached_by_two_paths_is_detected_by_its_key(country, made):
    _write(made["south"], "d", enrolled("a" * 40))
    try:
        with pytest.raises(
            TreeError, match=r"^one member is reached by two paths, north and south \(key aaaa"
        ):
            run(Lloyd(k=2), country, name="r")
    finally:
        _write(made["south"], "d", enrolled("d" * 40))


def test_a_federation_that_contains_itself_is_one_clear_error(made, tmp_path):
    relay = RelayHarness(made["south"], "south", tmp_path).approve()
    relay.work.mkdir()
    with locked(relay.work, what="the coordinator's process of a run"):
        session = relay.session()
        with pytest.raises(
            TreeError, match="south: the federation south-fed contains itself: its own run r asks"
        ):
            run(Lloyd(k=2), TransportFederation(Sessions(south=session), federations=["south"]), name="r")
        session.close()
    relay.work.joinpath("lock").unlink()
    relay.work.rmdir()


def test_two_relays_of_one_federation_are_one_clear_error(north, tmp_path):
    (tmp_path / "two").mkdir()
    other = RelayHarness(north.federation, "again", tmp_path / "two").approve()
    first, second = north.session(), other.session()
    both = TransportFederation(Sessions(north=first, again=second), federations=["north", "again"])
    with pytest.raises(
        TreeError, match="the federation north-fed is reached by two paths: two relays pass this"
    ):
        run(Lloyd(k=2), both, name="r")
    second.close()
    assert reply_of(answer(first, request())).sites == 2  # the run of the first one continues
    first.close()


def test_only_fingerprints_of_members_go_up(north):
    session = north.session()
    members = reply_of(answer(session, request(AskMembers(), verb="each")))
    assert members.keys == tuple(sorted(["a" * 40, "b" * 40, fingerprint_in(north.home)]))
    session.close()


# ---------------------------------------------------------------- studies, rules, keys, joining


def test_a_forwarded_study_names_the_one_above_and_is_the_same_when_forwarded_again(made):
    study = study_of("r", ABOVE, federation="national", title="x" * 490)
    one, two = (
        forwarded_terms(
            study,
            made["north"],
            "north",
            RelayPolicy(relay=EXACT, downstream=DownstreamRules(contact="Dr. North")),
        )
        for _ in range(2)
    )
    assert one.study.digest == two.study.digest
    assert one.study.fault() == ""
    assert f"north in national; its study {study.digest[:16]}" in one.study.title
    assert one.study.contact.endswith("at north-fed: Dr. North")
    assert (one.study.purpose, one.study.questions, one.study.run) == (study.purpose, study.questions, "r")
    assert one.study.authority == identity_in(made["north"].path).public.hex()
    assert not one.study.secure
    default = forwarded_terms(study, made["north"], "north", RelayPolicy()).study
    assert (default.questions, default.work, default.fault()) == ((("AskSummary", 0),), (), "")
    assert forwarded_terms(
        study, made["north"], "north", RelayPolicy(relay=EXACT, downstream=DownstreamRules(secure=True))
    ).study.secure


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[relay]", "an unknown or earlier format, and this release reads format 1"),
        ("version = 1\n[relay]", "an unknown or earlier format, and this release reads format 1"),
        ("format = 2", "format 2, and this release reads format 1. unpooled site init --relay writes"),
        ("format = 1\nversion = 1", "unknown section or key 'version'"),
        ("format = 1\n[relay]\nmin_sites = 0", r"\[relay\] min_sites must be 1 or more"),
        ("format = 1\n[relay]\nquorum = 'half'", r"\[relay\] quorum must be a number, got 'half'"),
        ("format = 1\n[relay]\nsites = 2", r"unknown key in \[relay\] 'sites'; known are min_sites"),
        (f"{TWO}forwarded = ['x']", r"\[relay\] forwarded: there is no question 'x'"),
        ("format = 1\n[downstream]\ndeadline = 0", r"\[downstream\] deadline must be between 0 and 86400"),
        ("format = 1\n[studies]\napprove = 'known'", "approve = \"known\" and purposes belong together"),
        ("format = 1\nrelay = 3", r"relay must be a section, \[relay\]"),
        ("format 1", "not TOML"),
    ],
)  # fmt: skip
def test_invalid_rules_are_refused_with_file_section_and_key(text, message):
    with pytest.raises(PolicyError, match=f"^rules.toml: .*{message}"):
        parse_relay_policy(text, "rules.toml")


def test_the_template_holds_the_default_rules(tmp_path):
    assert parse_relay_policy(TEMPLATE) == RelayPolicy()
    file = tmp_path / "rules.toml"
    unpooled("site", "init", file, "--relay")
    assert "the rules of a federation" in unpooled("site", "policy", "--check", file)
    assert "exists" in unpooled("site", "init", file, "--relay", code=1)
    output = unpooled("site", "init", tmp_path / "x.toml", "--relay", "--person", "id", code=1)
    assert "the other options are for a site" in output


def test_a_member_proves_its_key_and_nobody_elses():
    one, other = Identity.new(), Identity.new()
    request = member_claim(one, "1234", federation=True)
    claim = verified_claim(request, "1234")
    assert claim.federation
    assert len(claim.key) == 40
    assert verified_claim(request, "9999").key == ""  # of another enrolment
    assert verified_claim({**request, "member_key": other.public.hex()}, "1234").key == ""
    assert verified_claim({}, "1234") == type(claim)()
    assert verified_claim({"member_key": "zz", "proof": ["x"]}, "1234").key == ""


def test_the_key_of_a_site_is_that_of_its_folder_in_every_federation(made, tmp_path):
    """A tree therefore recognises a site that is reached by two paths, whatever its names there."""
    site = SiteFolder(tmp_path / "one")
    claims = []
    for federation, name in (("north", "a"), ("south", "c")):
        membership = site.accept(invite(made[federation], name))
        claim = member_claim(identity_in(membership.site), membership.fingerprint(), False)
        claims.append(verified_claim(claim, membership.fingerprint()).key)
    assert claims[0] == claims[1] == fingerprint_in(site.path)
    for site_name in made["north"].sites:  # as the other tests have them
        _write(made["north"], site_name, enrolled(site_name * 40))
    assert known_members(made["north"]) == ({"a": "a" * 40, "b": "b" * 40}, ())


def test_errors_of_a_relay_that_joins_come_before_anything_is_written(made, tmp_path):
    national = create(tmp_path / "national", "national", "localhost", ("north",), engine_name="nvflare")
    invitation = tmp_path / "north.json"
    invitation.write_bytes(invite(national, "north").read_bytes())
    bad = tmp_path / "bad.toml"
    bad.write_text("format = 1\n[relay]\nquorum = 3\n")
    downstream = made["north"].path
    for words, message in (
        (("--downstream", national.path), "is national itself: a federation cannot be its own member"),
        (("--downstream", tmp_path), "not the folder of a federation"),
        (
            ("--downstream", downstream, "--policy", bad),
            "bad.toml: [relay] quorum must be a share between 0 and 1",
        ),
        (
            ("--downstream", downstream, "--data", bad),
            "a federation takes part, which has no data of its own",
        ),
    ):
        output = unpooled("site", "join", tmp_path / "north", invitation, *words, code=1)
        assert message in output, output
        assert not (tmp_path / "north").exists()


def test_the_settings_of_a_member_determine_its_session(made, tmp_path):
    for folder in ("n", "a"):
        (tmp_path / folder).mkdir()
    file = tmp_path / "n" / "unpooled.json"
    settings = RelaySettings("north", str(made["north"].path), str(tmp_path / "n"))
    settings.write()
    membership = str(tmp_path / "n" / "federations" / "x")
    MembershipFile("north", "", str(tmp_path / "n"), membership).write(file)
    own = {"policy": str(tmp_path / "n" / "policy.toml"), "membership": membership}
    assert RelaySettings.read(file) == replace(settings, **own)
    assert isinstance(open_session(file, terms_of(study_of()))._settings, OpenRelay)
    SiteSettings("a", "x.csv", str(tmp_path / "a")).write()
    MembershipFile("a", "", str(tmp_path / "a"), str(tmp_path / "a")).write(file)
    assert type(open_session(file, terms_of(study_of()))) is SiteSession
    assert FederationFolder.read(made["north"].path).sites == ("a", "b")
